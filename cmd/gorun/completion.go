package main

import (
	"fmt"
	"slices"
	"strings"
)

// completion is what makes a shell complete gorun's command line: options up to
// the program, the values that an option takes, and from the program on what the
// shell itself would complete.
func completion(shell string) string {
	switch shell {
	case "zsh":
		return zshCompletion()
	case "fish":
		return fishCompletion()
	}
	return bashCompletion()
}

// completed are the options that are offered: those that do something.
func completed() []option {
	return slices.DeleteFunc(options(), func(o option) bool { return o.fate != done || o.family == "" })
}

// forms are all ways in which an option can be written, one dash and two.
func forms(o *option) []string {
	var list []string
	for _, name := range o.allNames() {
		list = append(list, "-"+name)
		if len(name) > 1 {
			list = append(list, "--"+name)
		}
	}
	return list
}

// valueKind is what completes an option's value.
type valueKind int

const (
	anything valueKind = iota
	aFile
	aDirectory
	aWord
	aHost
)

func kindOf(o *option) valueKind {
	switch {
	case len(o.words) > 0:
		return aWord
	case strings.Contains(o.value, "FILE"):
		return aFile
	case strings.Contains(o.value, "DIR"):
		return aDirectory
	case slices.Contains(o.names, "host"):
		return aHost
	}
	return anything
}

func bashCompletion() string {
	var b strings.Builder
	var offered []string
	arity := [3][]string{}
	words := ""
	kinds := map[valueKind][]string{}
	for _, o := range optionsUnder(own) {
		arity[o.arity] = append(arity[o.arity], forms(&o)...)
	}
	for _, o := range completed() {
		for _, name := range o.names {
			offered = append(offered, shown(&o, name))
		}
		kind := kindOf(&o)
		if kind == aWord {
			words += fmt.Sprintf("\t\t%s) COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return ;;\n", strings.Join(forms(&o), "|"), strings.Join(o.words, " "))
		} else if o.arity > 0 {
			kinds[kind] = append(kinds[kind], forms(&o)...)
		}
	}
	fmt.Fprintf(&b, `# Completion of gorun for bash: source <(gorun --completion bash)
_gorun() {
	local cur=${COMP_WORDS[COMP_CWORD]} i=1 word option= left=0
	# Where in the command line are we? From the program on it is none of ours.
	while ((i < COMP_CWORD)); do
		word=${COMP_WORDS[i]}
		if ((left > 0)); then
			# bash makes words of their own of = and :
			[[ $word != '=' ]] && ((left--))
		else
			case $word in
			%s) left=1 option=$word ;;
			%s) left=2 option=$word ;;
			--) _gorun_program $((i + 1)); return ;;
			-*|=|:) ;;
			*)
				[[ ${COMP_WORDS[i-1]} == '=' ]] || { _gorun_program "$i"; return; }
				;;
			esac
		fi
		((i++))
	done
	if ((left > 0)); then
		[[ $cur == '=' ]] && cur=
		case $option in
%s		%s) compopt -o filenames; COMPREPLY=($(compgen -f -- "$cur")); return ;;
		%s) compopt -o filenames; COMPREPLY=($(compgen -d -- "$cur")); return ;;
		%s) COMPREPLY=($(compgen -A hostname -- "$cur")); return ;;
		esac
		return
	fi
	case $cur in
	-*) COMPREPLY=($(compgen -W '%s' -- "$cur")) ;;
	*) compopt -o filenames; COMPREPLY=($(compgen -c -- "$cur") $(compgen -d -- "$cur")) ;;
	esac
}
_gorun_program() {
	# After a ':' another program's options begin.
	local i
	for ((i = COMP_CWORD - 1; i > $1; i--)); do
		if [[ ${COMP_WORDS[i]} == ':' ]]; then
			COMP_WORDS=("${COMP_WORDS[0]}" "${COMP_WORDS[@]:i+1}")
			COMP_CWORD=$((COMP_CWORD - i))
			_gorun
			return
		fi
	done
	if [[ $1 -eq COMP_CWORD ]]; then
		compopt -o filenames
		COMPREPLY=($(compgen -c -- "${COMP_WORDS[COMP_CWORD]}"))
	elif declare -F _command_offset >/dev/null; then
		_command_offset "$1"
	else
		compopt -o filenames
		COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
	fi
}
complete -F _gorun gorun
`, alternatives(arity[1]), alternatives(arity[2]), words, alternatives(kinds[aFile]), alternatives(kinds[aDirectory]), alternatives(kinds[aHost]),
		strings.Join(offered, " "))
	return b.String()
}

func alternatives(list []string) string { return strings.Join(list, "|") }

func zshCompletion() string {
	var b strings.Builder
	b.WriteString("#compdef gorun\n# Completion of gorun for zsh: gorun --completion zsh > a directory of fpath/_gorun\n_arguments -S \\\n")
	for _, o := range completed() {
		help := strings.NewReplacer("'", "’", "[", "(", "]", ")", ":", " ").Replace(o.help)
		for _, form := range forms(&o) {
			fmt.Fprintf(&b, "\t'*%s[%s]%s' \\\n", form, help, zshValue(&o))
		}
	}
	b.WriteString("\t'1:program:_command_names -e' \\\n\t'*::arguments:_normal'\n")
	return b.String()
}

// zshValue is what completes the values of an option: ":what:how" each.
func zshValue(o *option) string {
	if o.arity == 0 {
		return ""
	}
	value := strings.NewReplacer("'", "", ":", " ", "[", "(", "]", ")").Replace(strings.ToLower(o.value))
	how := " "
	switch kindOf(o) {
	case aWord:
		how = "(" + strings.Join(o.words, " ") + ")"
	case aFile:
		how = "_files"
	case aDirectory:
		how = "_files -/"
	case aHost:
		how = "_hosts"
	}
	text := ":" + value + ":" + how
	if o.arity == 2 {
		return ":name: :value: "
	}
	return text
}

func fishCompletion() string {
	var b strings.Builder
	b.WriteString("# Completion of gorun for fish: gorun --completion fish > ~/.config/fish/completions/gorun.fish\n")
	b.WriteString("complete -c gorun -f -n '__fish_is_first_token' -a '(__fish_complete_command)'\n")
	for _, o := range completed() {
		fmt.Fprintf(&b, "complete -c gorun -d '%s'", strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(o.help))
		for _, name := range o.allNames() {
			if len(name) == 1 {
				fmt.Fprintf(&b, " -s %s", name)
			} else {
				fmt.Fprintf(&b, " -l %s -o %s", name, name)
			}
		}
		if o.arity > 0 {
			switch kindOf(&o) {
			case aWord:
				fmt.Fprintf(&b, " -x -a '%s'", strings.Join(o.words, " "))
			case aFile:
				b.WriteString(" -r -F")
			case aDirectory:
				b.WriteString(" -x -a '(__fish_complete_directories)'")
			case aHost:
				b.WriteString(" -x -a '(__fish_print_hostnames)'")
			default:
				b.WriteString(" -x")
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}
