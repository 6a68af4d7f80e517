package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// mcaOptions are the options that set parameters of Open MPI. They become
// variables of the ranks, which their libraries read; parameters of its launcher
// become gorun's options where there is one for it.
func mcaOptions() []option {
	return []option{
		{names: []string{"mca", "gmca"}, more: []string{"omca", "gomca"}, arity: 2, family: "Open MPI", value: "NAME VALUE",
			help: "set a parameter of Open MPI: OMPI_MCA_NAME for the ranks; parameters of the launcher set gorun's options", set: setMCA("OMPI_MCA_")},
		{names: []string{"pmixmca"}, arity: 2, family: "Open MPI", value: "NAME VALUE",
			help: "set a parameter of PMIx: PMIX_MCA_NAME for the ranks", set: setMCA("PMIX_MCA_")},
		{names: []string{"prtemca"}, arity: 2, family: "Open MPI", value: "NAME VALUE",
			help: "set a parameter of Open MPI 5's launcher", set: setMCA("PRTE_MCA_")},
		{names: []string{"am"}, more: []string{"amca"}, arity: 1, under: own | openMPI, family: "Open MPI", value: "FILE,...",
			help: "read parameters of Open MPI from files, one NAME = VALUE per line", set: setTune},
		{names: []string{"tune"}, arity: 1, under: own | openMPI, family: "Open MPI", value: "FILE,...",
			help: "the same; lines may also hold --mca NAME VALUE and -x NAME[=VALUE]", set: setTune},
		{names: []string{"allow-run-as-root"}, family: "Open MPI",
			help: "no effect: root may always run gorun", set: setSwitch(func(*settings, bool) {})},
		{names: []string{"with-ft"}, arity: 1, family: "Open MPI", value: "no|ulfm|mpi", words: []string{"no", "ulfm", "mpi"},
			help: "ulfm or mpi: --continuous; no: a rank that fails ends the job", set: setFaultTolerance},
		{names: []string{"display-comm"}, family: "Open MPI",
			help: "MPI_Init prints which transports messages take", set: setDisplayComm("mpi_init")},
		{names: []string{"display-comm-finalize"}, family: "Open MPI",
			help: "MPI_Finalize prints which transports messages took", set: setDisplayComm("mpi_finalize")},
		{names: []string{"stream-buffering"}, arity: 1, family: "Open MPI", value: "0|1|2", words: []string{"0", "1", "2"},
			help: "how a rank's library buffers its output: 0 not at all, as --output :raw, 1 by line, 2 by block", set: setStreamBuffering},
	}
}

// setMCAVariable sets a parameter that stands for an option.
func setMCAVariable(name string) func(*settings, string) error {
	return func(s *settings, value string) error {
		s.jobEnv = append(s.jobEnv, edit{name: "OMPI_MCA_" + name, value: value})
		return nil
	}
}

func setMCA(prefix string) func(*settings, string) error {
	return func(s *settings, value string) error {
		name, text, _ := strings.Cut(value, "=")
		return s.setParameter(prefix, name, text)
	}
}

func (s *settings) setParameter(prefix, name, value string) error {
	name = strings.TrimPrefix(name, prefix)
	if name == "" || strings.ContainsAny(name, " \t=") {
		return unfit(name, "the name of a parameter and its value; try --mca btl self,vader")
	}
	if name == "mca_base_env_list" {
		for item := range strings.SplitSeq(value, ";") {
			if err := s.export(item, &s.jobEnv); err != nil {
				return err
			}
		}
		return nil
	}
	if prefix != "PMIX_MCA_" {
		stands := standsFor(name) != nil
		if part := launchersPart(name); stands || part {
			s.parameters = append(s.parameters, parameter{name, value, s.spelling + " " + name})
			if part {
				return nil
			}
		}
	}
	s.jobEnv = append(s.jobEnv, edit{name: prefix + name, value: value})
	return nil
}

// setTune reads files of parameters: NAME = VALUE, --mca NAME VALUE and
// -x NAME[=VALUE], several in a line if there need be.
func setTune(s *settings, value string) error {
	for name := range strings.SplitSeq(value, ",") {
		text, err := s.read(name)
		if err != nil {
			return err
		}
		number := 0
		for line := range strings.Lines(text) {
			number++
			words, err := split(line)
			if err == nil {
				err = s.tune(words)
			}
			if err != nil {
				return fmt.Errorf("%s:%d: %w", name, number, err)
			}
		}
	}
	return nil
}

// tune follows a line of such a file.
func (s *settings) tune(words []string) error {
	for len(words) > 0 {
		word := words[0]
		n := 1
		name, value, ok := strings.Cut(word, "=")
		var err error
		switch {
		case word == "-x" || word == "--x":
			if len(words) < 2 {
				return unfit(word, "-x NAME or -x NAME=VALUE")
			}
			setting := words[1]
			if n = 2; len(words) > 3 && words[2] == "=" {
				setting, n = setting+"="+words[3], 4
			}
			err = s.export(setting, &s.jobEnv)
		case slices.Contains([]string{"-mca", "--mca", "-gmca", "--gmca", "--omca", "--gomca"}, word):
			if len(words) < 3 {
				return unfit(word, "--mca NAME VALUE")
			}
			err, n = s.setParameter("OMPI_MCA_", words[1], words[2]), 3
		case len(words) > 2 && words[1] == "=":
			// A value with blanks, as in Open MPI's own files, is all that follows.
			err, n = s.setParameter("OMPI_MCA_", word, strings.Join(words[2:], " ")), len(words)
		case ok && value == "" && len(words) > 1:
			err, n = s.setParameter("OMPI_MCA_", name, words[1]), 2
		case ok:
			err = s.setParameter("OMPI_MCA_", name, value)
		default:
			err = unfit(word, "NAME = VALUE, --mca NAME VALUE or -x NAME[=VALUE]")
		}
		if err != nil {
			return err
		}
		words = words[n:]
	}
	return nil
}

func setDisplayComm(when string) func(*settings, string) error {
	return setSwitch(func(s *settings, on bool) {
		const name = "OMPI_MCA_ompi_display_comm"
		if !on {
			return
		}
		for i := range s.jobEnv {
			if s.jobEnv[i].name == name {
				s.jobEnv[i].value = cmp.Or(s.jobEnv[i].value, when) + "," + when
				return
			}
		}
		s.jobEnv = append(s.jobEnv, edit{name: name, value: when})
	})
}

func setStreamBuffering(s *settings, value string) error {
	if value != "0" && value != "1" && value != "2" {
		return unfit(value, "0, 1 or 2")
	}
	s.job.Output.Raw = value == "0"
	return setMCAVariable("ompi_stream_buffering")(s, value)
}

func setFaultTolerance(s *settings, value string) error {
	switch strings.ToLower(value) {
	case "no", "false", "0":
	case "ulfm", "mpi", "yes", "true", "1":
		s.job.Continuous = true
	default:
		return unfit(value, "no, ulfm or mpi: whether ranks go on without one that fails")
	}
	return nil
}
