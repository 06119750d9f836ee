package main

import (
	"context"
	"fmt"
	"strings"
)

// completion prints a script that makes bash complete commands, flags and the schemes of URLs.
func (c *command) completion(context.Context) error {
	var names, urls []string
	for _, s := range specs {
		names = append(names, s.name)
	}
	for _, e := range engines {
		for _, scheme := range e.schemes {
			urls = append(urls, scheme+":")
		}
	}
	var b strings.Builder
	b.WriteString("_lockctl() {\n\tlocal word i words cur=\"${COMP_WORDS[COMP_CWORD]}\"\n")
	fmt.Fprintf(&b, "\tif [ \"${COMP_WORDS[COMP_CWORD-1]}\" = -url ]; then COMPREPLY=($(compgen -W %q -- \"$cur\")); return; fi\n", strings.Join(urls, " "))
	fmt.Fprintf(&b, "\twords=%q\n", strings.Join(append(names, flagNames(common)...), " "))
	b.WriteString("\tfor ((i = 1; i < COMP_CWORD; i++)); do\n\t\tcase \"${COMP_WORDS[i]}\" in\n\t\t--) return ;;\n")
	for _, s := range specs {
		words := append(flagNames(s.flags), flagNames(common)...)
		if s.name == "help" {
			words = names
		}
		fmt.Fprintf(&b, "\t\t%s) words=%q; break ;;\n", s.name, strings.Join(words, " "))
	}
	b.WriteString("\t\tesac\n\tdone\n\tCOMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\n")
	b.WriteString("complete -o default -F _lockctl lockctl\n")
	_, err := fmt.Fprint(c.stdout, b.String())
	return err
}

func flagNames(flags []flagSpec) (names []string) {
	for _, f := range flags {
		names = append(names, "-"+f.name)
	}
	return names
}

// man prints the help as a manual page.
func (c *command) man(context.Context) error {
	var b strings.Builder
	b.WriteString(".TH LOCKCTL 1 \"\" lockgen \"User Commands\"\n.SH NAME\nlockctl \\- show and free the locks of an engine\n.SH DESCRIPTION\n.nf\n")
	b.WriteString(roff(overview()))
	for _, s := range specs {
		fmt.Fprintf(&b, ".fi\n.SH %s\n.nf\n%s", strings.ToUpper(s.name), roff(s.help()))
	}
	b.WriteString(".fi\n")
	_, err := fmt.Fprint(c.stdout, b.String())
	return err
}

// roff escapes text for a manual page.
func roff(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\t", "    ").Replace(line)
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			b.WriteString(`\&`)
		}
		b.WriteString(line)
	}
	return b.String()
}
