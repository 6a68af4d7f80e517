package main

import (
	"slices"
	"strings"
	"testing"
)

func TestEnvironment(t *testing.T) {
	environ := []string{"A=1", "B=2", "AB=3", "PATH=/bin", "A=4"}
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"all", []string{"-envall"}, environ},
		{"none", []string{"-envnone"}, nil},
		{"none of the job", []string{"-genvnone"}, nil},
		{"the program's wins over the job's", []string{"-genvnone", "-envall"}, environ},
		{"a list", []string{"-envlist", "A,NOSUCH,PATH"}, []string{"A=4", "PATH=/bin"}},
		{"a list of the job, and a setting", []string{"-genvlist", "B", "-x", "C=5"}, []string{"B=2", "C=5"}},
		{"a prefix", []string{"-envnone", "-x", "A*"}, []string{"A=1", "AB=3", "A=4"}},
		{"none but a name", []string{"-envnone", "-x", "A"}, []string{"A=4"}},
		{"a pair in one argument", []string{"-envnone", "-env", "X=y", "-genv", "Z=", "-genv", "U", "v w"}, []string{"Z=", "U=v w", "X=y"}},
		{"unset", []string{"--unset-env", "A"}, []string{"B=2", "AB=3", "PATH=/bin"}},
		{"prepend and append", []string{"-envlist", "PATH", "--prepend-env", "PATH", "/opt", "--append-env", "PATH[;]", "/x", "--append-env", "L[ ]", "y"},
			[]string{"PATH=/bin", "PATH=/opt:/bin", "PATH=/opt:/bin;/x", "L=y"}},
		{"parameters", []string{"-envnone", "--mca", "btl", "^vader", "-gmca", "OMPI_MCA_pml", "ob1", "--pmixmca", "gds", "hash"},
			[]string{"OMPI_MCA_btl=^vader", "OMPI_MCA_pml=ob1", "PMIX_MCA_gds=hash"}},
		{"a list among the parameters", []string{"-envnone", "--mca", "mca_base_env_list", "A;X=1"}, []string{"A=4", "X=1"}},
		{"what MPI reads", []string{"-envnone", "-initial-errhandler", "MPI_ERRORS_RETURN", "--display-comm", "--display-comm-finalize", "--stream-buffering", "1", "--memory-alloc-kinds", "system,mpi"},
			[]string{"OMPI_MCA_mpi_initial_errhandler=mpi_errors_return", "OMPI_MCA_ompi_display_comm=mpi_init,mpi_finalize", "OMPI_MCA_ompi_stream_buffering=1", "OMPI_MCA_mpi_memory_alloc_kinds=system,mpi"}},
	} {
		got, err := parse(line(environ, append(c.args, "prog")...))
		if err != nil || !slices.Equal(got.job.Env, c.want) || got.job.Env == nil {
			t.Errorf("%s: %q:\n got %q, %v\nwant %q", c.name, c.args, got.job.Env, err, c.want)
		}
	}
	for args, want := range map[string]string{
		"-x *":                   `-x: found "*", expected NAME`,
		"-x A*=1":                `-x: found "A*=1", expected NAME`,
		"-env =x y":              `-env: found "=x", expected NAME VALUE`,
		"-envlist A,,B":          `-envlist: found "A,,B", expected names`,
		"-envlist A=1":           `-envlist: found "A=1", expected names`,
		"--unset-env A=1":        `--unset-env: found "A=1", expected the name`,
		"--prepend-env PATH[] x": `--prepend-env: found "PATH[]=x", expected NAME VALUE`,
		"-envnone=1":             `-envnone: found "1", expected no value`,
		"--with-ft up":           `--with-ft: found "up", expected no, ulfm or mpi`,
		"--stream-buffering 3":   `--stream-buffering: found "3", expected 0, 1 or 2`,
		"--mca -x":               "--mca: found 1 of its two values",
		"--mca =x y":             `--mca: found "", expected the name of a parameter`,
	} {
		if args != "--mca -x" {
			args += " prog"
		}
		got, err := parse(line(environ, strings.Fields(args)...))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %q, %v; want error %s", args, got.job.Env, err, want)
		}
	}
}

// Two programs must not write into one array.
func TestEnvironmentsAreApart(t *testing.T) {
	environ := make([]string, 1, 8)
	environ[0] = "A=1"
	got, err := parse(line(environ, "-x", "B=1", "a", ":", "-x", "B=2", "b"))
	if err != nil || !slices.Equal(got.job.Apps[0].Env, []string{"A=1", "B=1"}) || !slices.Equal(got.job.Apps[1].Env, []string{"A=1", "B=2"}) {
		t.Errorf("got %+v, %v", got.job.Apps, err)
	}
}

func TestPrefixWithoutMatchIsAWarning(t *testing.T) {
	got, err := parse(line([]string{"B=1"}, "-x", "A*", "prog"))
	if err != nil || len(got.warnings) != 1 || !strings.HasPrefix(got.warnings[0], "-x A*: no variable of gorun's environment begins with A") {
		t.Errorf("got %q, %v", got.warnings, err)
	}
}

// Names of devices in the environment are for other launchers' ranks.
func TestEmulateInTheEnvironmentIsNoted(t *testing.T) {
	for _, c := range []struct {
		name    string
		environ []string
		args    string
		note    string // "" for none
	}{
		{"set", []string{"GORUN_EMULATE=mlx5_0"}, "prog", "GORUN_EMULATE=mlx5_0"},
		{"empty", []string{"GORUN_EMULATE="}, "prog", ""},
		{"the same by the option", []string{"GORUN_EMULATE=a,b"}, "--emulate a,b prog", ""},
		{"another by the option", []string{"GORUN_EMULATE=a"}, "--emulate b prog", "GORUN_EMULATE=a"},
		{"set for the ranks", nil, "-x GORUN_EMULATE=c prog", "GORUN_EMULATE=c"},
		{"not passed on", []string{"GORUN_EMULATE=a"}, "-genvnone prog", ""},
		{"for two programs", []string{"GORUN_EMULATE=a"}, "prog : prog", "GORUN_EMULATE=a"},
		{"an outer gorun's", []string{"GORUN_EMULATE=a", "GORUN_JOB=7"}, "prog", ""},
		{"set in a rank of an outer gorun", []string{"GORUN_EMULATE=a", "GORUN_JOB=7"}, "-x GORUN_EMULATE=b prog", "GORUN_EMULATE=b"},
	} {
		got, err := parse(line(c.environ, strings.Fields(c.args)...))
		note := ""
		for _, n := range got.notes {
			note += strings.Join(n.options, " ")
		}
		if err != nil || note != c.note {
			t.Errorf("%s: notes about %q, %v; want %q", c.name, note, err, c.note)
		}
	}
}
