package doctor

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"

	"github.com/gorun-mpi/gorun/internal/mpilib"
)

// An MPI is a library of one, and what gorun makes of it.
type MPI struct {
	MPI      string `json:"mpi"`
	Version  string `json:"version"`
	ABI      string `json:"abi"` // the library's name in programs
	Library  string `json:"library"`
	Protocol string `json:"protocol"` // by which its programs meet gorun
	Tried    bool   `json:"tried"`
	Problem  string `json:"problem"` // why two ranks of it did not start; "" if they did, or were not tried
}

// TryMPIs has gorun start two ranks of each MPI's library.
func (v *View) TryMPIs(ctx context.Context) (list []MPI) {
	gorun, helper := path.Join(v.Beside, "gorun"), path.Join(v.Beside, "gorun-pmix")
	try := v.executable(gorun) && v.PMIx(ctx).Cgo
	for _, l := range v.Libraries() {
		m := MPI{MPI: l.MPI, Version: l.Version(), ABI: l.Soname, Library: l.Path, Protocol: map[string]string{mpilib.MPICH: "PMI-1", mpilib.Own: "PMI-1", mpilib.OpenMPI: "PMIx"}[l.MPI]}
		if try && l.MPI != mpilib.Own && ctx.Err() == nil { // the helper is of Go: its own library would be a second runtime in it
			_, stderr, err := v.Run(ctx, gorun, "--strict-pmi", "-np", "2", helper, "--try-mpi", l.Path)
			if m.Tried = ctx.Err() == nil; m.Tried && err != nil {
				m.Problem = own(stderr)
			}
		}
		list = append(list, m)
	}
	return list
}

// own is the last line of a job's standard error that is not gorun's, which says what
// went wrong in the words of the one that it did for.
func own(stderr string) string {
	last := ""
	for line := range strings.Lines(stderr) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "gorun: ") {
			last = line
		}
	}
	return cmp.Or(last, lastLine(stderr))
}

// starts tells whether programs of the MPIs start.
func starts(ctx context.Context, v *View) Finding {
	// What cannot be tried in time is no finding.
	ctx, cancel := context.WithTimeout(ctx, Limit*9/10)
	defer cancel()
	var fine, wrong []string
	for _, m := range v.TryMPIs(ctx) {
		name := strings.TrimSpace(m.MPI+" "+m.Version) + " (" + m.ABI + ")"
		switch {
		case m.Problem != "":
			wrong = append(wrong, name+": "+m.Problem)
		case m.Tried:
			fine = append(fine, name)
		}
	}
	switch {
	case wrong != nil:
		fix := "gorun-info mpi; it says which do"
		if v.variable("MPIR_CVAR_PMI_VERSION")+v.variable("MPICH_PMI_VERSION")+v.variable("MPIR_PARAM_PMI_VERSION") != "" {
			fix = "unset MPIR_CVAR_PMI_VERSION MPIR_PARAM_PMI_VERSION MPICH_PMI_VERSION: gorun sets what MPICH needs"
		}
		return problem(fix, "two ranks do not start of %s", strings.Join(wrong, "; of "))
	case fine == nil:
		return ok("none was tried")
	}
	return ok("two ranks have run of %s", strings.Join(fine, ", "))
}

// loopbackOnly tells of an Open MPI that is configured so that its hosts cannot reach each
// other, as Debian's 6.0.0rc2 is.
func loopbackOnly(_ context.Context, v *View) Finding {
	const name, file = "btl_tcp_if_include", mpilib.DebianParameters
	value := mpilib.Parameter(v.text(file), name)
	set := v.variable("OMPI_MCA_" + name)
	if value != "lo" || set != "" && set != "lo" {
		return ok("no setting of Open MPI keeps its hosts apart")
	}
	network := "eth0"
	if list, err := v.Interfaces(); err == nil {
		for _, i := range list {
			if i.Name != "lo" && bridge(i.Name) == "" {
				network = i.Name
				break
			}
		}
	}
	return note("export OMPI_MCA_"+name+"="+network, "%s has %s = lo: ranks of Open MPI reach no other host, under any launcher", file, name)
}

// slurm tells of an srun that serves fewer MPIs than gorun does in its allocations, as Debian's of 26.05 without a pmix plugin.
func slurm(ctx context.Context, v *View) Finding {
	srun := v.program("srun")
	if srun == "" {
		return ok("no Slurm is here")
	}
	text, err := v.ask(ctx, srun, "--mpi=list")
	if err != nil {
		return ok("srun does not list its plugins: %s", lastLine(text))
	}
	_, list, _ := strings.Cut(text, "are...")
	list, _, _ = strings.Cut(list, "specific") // versions of pmix
	plugins := strings.Fields(list)
	if slices.Contains(plugins, "pmix") || len(plugins) == 0 {
		return ok("srun has the plugins %s", strings.Join(plugins, ", "))
	}
	return note("salloc -N 2 gorun ./program; in an allocation gorun starts the ranks, and serves PMI-1, PMI-2 and PMIx",
		"srun has no pmix plugin (it has %s): programs of Open MPI run under it as worlds of one rank, and MPICH's with MPIR_CVAR_PMI_VERSION=2 fail under pmi2", strings.Join(plugins, ", "))
}

// Loads tells which MPI a program will load, and from where.
func Loads(ctx context.Context, v *View, file string) Finding {
	f := loads(ctx, v, file)
	f.Name, f.Why = "program", "a program needs a launcher that serves the MPI which it loads"
	return f
}

func loads(ctx context.Context, v *View, file string) Finding {
	e, err := v.ReadELF(file)
	switch {
	case err != nil:
		return problem("ls -l "+shellWord(file), "%s: %v", file, err)
	case !e.OK:
		return ok("%s is no ELF program, as a script: what it loads shows when it runs (gorun -v)", file)
	case e.Go:
		return ok("%s is a program of Go, which loads no MPI", file)
	case len(e.Needed) == 0:
		return ok("%s is static, and loads no MPI", file)
	}
	text, err := v.ask(ctx, "env", "LD_TRACE_LOADED_OBJECTS=1", file) // the loader says what it would load, and runs nothing
	if err != nil {
		return problem("ldd "+shellWord(file), "%s cannot be loaded: %s", file, lastLine(text))
	}
	var found, lacks []string
	for line := range strings.Lines(text) {
		name, at, arrow := strings.Cut(strings.TrimSpace(line), " => ")
		if !arrow || !strings.HasPrefix(name, "libmpi_abi.so.") && !strings.HasPrefix(name, "libmpich.so.") && !strings.HasPrefix(name, "libmpi.so.") {
			continue
		}
		if at == "not found" {
			lacks = append(lacks, name)
			continue
		}
		at, _, _ = strings.Cut(at, " (")
		l, err := mpilib.Open(at)
		if err != nil {
			return problem("ldd "+shellWord(file), "%s: %s: %v", file, name, err)
		}
		found = append(found, l.String()+" (as "+name+")")
	}
	switch {
	case lacks != nil:
		fix := "install the MPI that it was built with; gorun-info mpi lists those that are here"
		if lacks[0] == mpilib.Standard {
			fix = "gorun --mpi mpich " + shellWord(file) + ", or openmpi"
		}
		return problem(fix, "%s: %s is not found", file, strings.Join(lacks, ", "))
	case len(found) > 1:
		return problem("ldd "+shellWord(file)+", and link it and its libraries anew with one MPI", "%s loads two MPIs: %s", file, strings.Join(found, ", "))
	case found == nil:
		return ok("%s is linked with no MPI; it may still load one itself", file)
	}
	if strings.HasSuffix(found[0], "(as "+mpilib.Standard+")") && e.Rpath == "" {
		found[0] += "; gorun --mpi chooses another"
	}
	return ok("%s loads %s", file, found[0])
}
