package main

import (
	"context"
	"fmt"
	"strings"
)

var shells = []string{"bash", "zsh", "fish"}

// completion prints a script that makes a shell complete commands and flags.
func (c *command) completion(context.Context) int {
	if len(c.args) != 1 {
		return c.fail(fmt.Errorf("completion takes one of %s", strings.Join(shells, ", ")))
	}
	switch c.args[0] {
	case "bash":
		fmt.Fprint(c.stdout, bashCompletion())
	case "zsh":
		fmt.Fprint(c.stdout, "autoload -U +X bashcompinit && bashcompinit\n"+bashCompletion())
	case "fish":
		fmt.Fprint(c.stdout, fishCompletion())
	default:
		return c.fail(fmt.Errorf("no completion for %s; have %s", c.args[0], strings.Join(shells, ", ")))
	}
	return fine
}

// completions returns the words that can follow a command.
func (s *spec) completions() []string {
	var words []string
	for _, f := range s.flags {
		words = append(words, "-"+f.name)
	}
	if s.name == "" {
		for _, other := range specs[1:] {
			words = append(words, other.name)
		}
	}
	return append(words, s.words...)
}

func bashCompletion() string {
	var b strings.Builder
	b.WriteString("_lockgen() {\n\tlocal words cur=\"${COMP_WORDS[COMP_CWORD]}\"\n")
	b.WriteString("\tcase \"${COMP_WORDS[1]} ${COMP_WORDS[COMP_CWORD-1]}\" in\n")
	fmt.Fprintf(&b, "\t*\\ -%s) COMPREPLY=($(compgen -d -- \"$cur\")); return ;;\n", dirFlag.name)
	for _, s := range specs {
		for _, f := range s.flags {
			if f.values != nil {
				fmt.Fprintf(&b, "\t%q) COMPREPLY=($(compgen -W %q -- \"$cur\")); return ;;\n", s.name+" -"+f.name, strings.Join(f.values(), " "))
			}
		}
	}
	b.WriteString("\tesac\n\tcase \"${COMP_WORDS[1]}\" in\n")
	for _, s := range specs[1:] {
		fmt.Fprintf(&b, "\t%s) words=%q ;;\n", s.name, strings.Join(s.completions(), " "))
	}
	fmt.Fprintf(&b, "\t*) words=%q ;;\n\tesac\n", strings.Join(specs[0].completions(), " "))
	fmt.Fprintf(&b, "\t[ \"$COMP_CWORD\" -gt 1 ] || words=%q\n", strings.Join(specs[0].completions(), " "))
	b.WriteString("\tCOMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\n")
	b.WriteString("complete -o default -F _lockgen lockgen\n")
	return b.String()
}

func fishCompletion() string {
	var b strings.Builder
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `\'`) + "'" }
	for _, s := range specs {
		when := "__fish_use_subcommand"
		if s.name != "" {
			fmt.Fprintf(&b, "complete -c lockgen -n __fish_use_subcommand -a %s -d %s\n", s.name, quote(s.summary))
			when = "'__fish_seen_subcommand_from " + s.name + "'"
		}
		for _, f := range s.flags {
			fmt.Fprintf(&b, "complete -c lockgen -n %s -o %s -d %s", when, f.name, quote(f.usage))
			switch {
			case f.values != nil:
				b.WriteString(" -x -a " + quote(strings.Join(f.values(), " ")))
			case f.value == "dir":
				b.WriteString(" -x -a '(__fish_complete_directories)'")
			case f.value != "":
				b.WriteString(" -x")
			}
			b.WriteString("\n")
		}
		if len(s.words) > 0 {
			fmt.Fprintf(&b, "complete -c lockgen -n %s -a %s\n", when, quote(strings.Join(s.words, " ")))
		}
	}
	return b.String()
}
