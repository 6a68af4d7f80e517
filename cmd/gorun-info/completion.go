package main

import (
	"fmt"
	"strings"
)

// completion is what makes a shell complete the command line: commands, options,
// the values of options, and hosts for doctor.
func completion(shell string) string {
	var names, options []string
	for _, c := range commands() {
		if c.name != "" {
			names = append(names, c.name)
		}
	}
	for _, o := range flags() {
		options = append(options, "--"+o.long)
	}
	words, all := strings.Join(names, " "), strings.Join(options, " ")
	switch shell {
	case "zsh":
		var b strings.Builder
		b.WriteString("#compdef gorun-info\n# Completion of gorun-info for zsh: source <(gorun-info --completion zsh)\n_gorun_info() {\n\t_arguments -S \\\n")
		for _, o := range flags() {
			value := ""
			if o.value != "" {
				value = ":" + o.value + ":"
				if o.words != nil {
					value += "(" + strings.Join(o.words, " ") + ")"
				}
			}
			fmt.Fprintf(&b, "\t\t%s \\\n", zshWord("--"+o.long+"["+strings.NewReplacer("[", `\[`, "]", `\]`, ":", `\:`).Replace(o.help)+"]"+value))
		}
		fmt.Fprintf(&b, "\t\t'1:command:(%s)' '*:host:_hosts'\n}\n# From a directory of fpath, this file is the function itself.\nif [ \"${funcstack[1]}\" = _gorun-info ]; then _gorun_info \"$@\"; else compdef _gorun_info gorun-info; fi\n", words)
		return b.String()
	case "fish":
		var b strings.Builder
		b.WriteString("# Completion of gorun-info for fish: gorun-info --completion fish | source\ncomplete -c gorun-info -f\n")
		for _, c := range commands() {
			if c.name != "" {
				fmt.Fprintf(&b, "complete -c gorun-info -n __fish_use_subcommand -a %s -d %s\n", c.name, fishWord(c.help))
			}
		}
		b.WriteString("complete -c gorun-info -n '__fish_seen_subcommand_from doctor' -a '(__fish_print_hostnames)'\n")
		for _, o := range flags() {
			fmt.Fprintf(&b, "complete -c gorun-info -l %s", o.long)
			if o.short != "" {
				fmt.Fprintf(&b, " -s %s", o.short)
			}
			if o.value != "" {
				fmt.Fprintf(&b, " -x -a %s", fishWord(strings.Join(o.words, " ")))
			}
			fmt.Fprintf(&b, " -d %s\n", fishWord(o.help))
		}
		return b.String()
	}
	return fmt.Sprintf(`# Completion of gorun-info for bash: source <(gorun-info --completion bash)
_gorun_info() {
	local cur=${COMP_WORDS[COMP_CWORD]} word command=
	case ${COMP_WORDS[COMP_CWORD-1]} in
	--completion|-completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); return ;;
	--np|-np|-n|--emulate|-emulate|--tcp-ports|-tcp-ports) return ;;
	esac
	for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
		case $word in
		-*) ;;
		*) command=${command:-$word} ;;
		esac
	done
	case $cur in
	-*) COMPREPLY=($(compgen -W '%s' -- "$cur")); return ;;
	esac
	case $command in
	'') COMPREPLY=($(compgen -W '%s' -- "$cur")) ;;
	doctor) COMPREPLY=($(compgen -A hostname -- "$cur")) ;;
	esac
}
complete -F _gorun_info gorun-info
`, all, words)
}

func zshWord(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

func fishWord(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'"
}
