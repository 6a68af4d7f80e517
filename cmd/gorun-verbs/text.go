package main

import (
	"fmt"
	"strings"

	"github.com/gorun-mpi/gorun/cmd/internal/roff"
	"github.com/gorun-mpi/gorun/internal/version"
)

const purpose = "run a program that uses libibverbs on software RDMA devices"

// examples are in the help and in the manual.
var examples = []string{"gorun-verbs ibv_devinfo -v", "gorun-verbs ib_write_bw & gorun-verbs ib_write_bw localhost", "gorun-verbs --device mlx5_0,mlx5_1 ./program", "gorun-verbs --key key rping -s & ssh host2 gorun-verbs --key key rping -c -a host1"}

func left(o *option) string { return roff.Option(o.long, o.short, o.value) }

func help() string {
	var b strings.Builder
	b.WriteString("Usage: gorun-verbs [options] PROGRAM [arguments]\n\nRuns a program that uses libibverbs on software RDMA devices, without hardware,\nkernel module or root. Programs of one user on one machine reach each other,\nthose on several hosts with --key.\n\nOptions:\n")
	for _, o := range options() {
		fmt.Fprintf(&b, "  %s\n        %s\n", left(&o), o.help)
	}
	b.WriteString("\nExit status: the program's; 2 for a wrong command line, 126 for a program that\ncannot use the device, 127 where there is no such program.\n\nExamples:\n")
	for _, e := range examples {
		b.WriteString("  " + e + "\n")
	}
	return b.String()
}

func manual() string {
	var m roff.Page
	m.Title("gorun-verbs", version.Line("gorun-verbs"))
	m.Section("NAME")
	m.Text("gorun-verbs - " + purpose)
	m.Section("SYNOPSIS")
	m.Text("gorun-verbs [options] PROGRAM [arguments]")
	m.Section("DESCRIPTION")
	m.Text("gorun-verbs becomes PROGRAM with a libibverbs.so.1 whose devices are software. They need no hardware, kernel module or root. Programs of one user on one machine reach each other, by LID or by GID; with --key programs on several hosts do, by GID. Nothing stays in a file system, however programs end. docs/verbs.md names the limits and the programs that were run.")
	m.Section("OPTIONS")
	for _, o := range options() {
		m.Entry(left(&o), roff.Sentence(o.help))
	}
	m.Section("EXIT STATUS")
	m.Text("That of PROGRAM. 2: wrong command line, or the library is missing. 126: PROGRAM is static, for musl or for another rdma-core, or cannot be run. 127: there is no such program.")
	m.Section("EXAMPLES")
	m.Example(examples...)
	m.Section("SEE ALSO")
	m.Text("gorun(1), gorun-info(1)")
	return m.String()
}

// completion completes options, and then commands and files.
func completion(shell string) string {
	var words []string
	for _, o := range options() {
		words = append(words, "--"+o.long)
	}
	switch shell {
	case "zsh":
		var b strings.Builder
		b.WriteString("#compdef gorun-verbs\n# Completion of gorun-verbs for zsh: source <(gorun-verbs --completion zsh)\n_gorun_verbs() {\n\t_arguments -S \\\n")
		for _, o := range options() {
			value := ""
			if o.value != "" {
				value = ":" + o.value + ":"
			}
			fmt.Fprintf(&b, "\t\t'--%s[%s]%s' \\\n", o.long, strings.NewReplacer("[", `\[`, "]", `\]`, ":", `\:`).Replace(o.help), value)
		}
		b.WriteString("\t\t'1:program:_command_names -e' '*::arguments:_normal'\n}\ncompdef _gorun_verbs gorun-verbs\n")
		return b.String()
	case "fish":
		var b strings.Builder
		b.WriteString("# Completion of gorun-verbs for fish: gorun-verbs --completion fish | source\ncomplete -c gorun-verbs -a '(__fish_complete_subcommand)'\n")
		for _, o := range options() {
			fmt.Fprintf(&b, "complete -c gorun-verbs -n '__fish_is_first_token' -l %s -d '%s'\n", o.long, o.help)
		}
		return b.String()
	}
	return fmt.Sprintf(`# Completion of gorun-verbs for bash: source <(gorun-verbs --completion bash)
_gorun_verbs() {
	local cur=${COMP_WORDS[COMP_CWORD]} i
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		-d|--device|-f|--fabric|-k|--key|-i|--interface|--tcp-ports|-a|--adverse|--completion) ((i++)) ;;
		-*) ;;
		*) COMPREPLY=($(compgen -f -- "$cur")); return ;;
		esac
	done
	case $cur in
	-*) COMPREPLY=($(compgen -W '%s' -- "$cur")) ;;
	*) COMPREPLY=($(compgen -c -- "$cur")) ;;
	esac
}
complete -F _gorun_verbs gorun-verbs
`, strings.Join(words, " "))
}
