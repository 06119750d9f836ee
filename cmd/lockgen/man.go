package main

import (
	"context"
	"fmt"
	"strings"
)

// man prints the help of all commands as a manual page.
func (c *command) man(context.Context) int {
	fmt.Fprint(c.stdout, manPage())
	return fine
}

func manPage() string {
	var b strings.Builder
	b.WriteString(".TH LOCKGEN 1 \"\" lockgen \"User Commands\"\n")
	fmt.Fprintf(&b, ".SH NAME\nlockgen \\- %s\n.SH SYNOPSIS\n", roff("write code that runs methods under a distributed lock"))
	for i, s := range specs {
		if i > 0 {
			b.WriteString(".br\n")
		}
		b.WriteString(".B " + roff(s.usage()) + "\n")
	}
	b.WriteString(".SH DESCRIPTION\n")
	for _, s := range specs {
		if s.name != "" {
			fmt.Fprintf(&b, ".SS \"%s\"\n", roff(s.usage()))
			if s.about == "" {
				b.WriteString(roff(strings.ToUpper(s.summary[:1])+s.summary[1:]) + ".\n")
			}
		}
		b.WriteString(manText(s.about))
		for _, f := range s.flags {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(f.shown()), roff(f.usage))
		}
	}
	b.WriteString(".SH \"EXIT STATUS\"\n" + manText(exitCodes))
	return b.String()
}

// manText turns paragraphs of the help into roff. Indented lines stay as they are.
func manText(text string) string {
	var b strings.Builder
	verbatim := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		code, indented := strings.CutPrefix(line, "\t")
		if verbatim && !indented {
			b.WriteString(".fi\n.RE\n")
		}
		switch {
		case indented && !verbatim:
			b.WriteString(".RS 4\n.nf\n" + roff(code) + "\n")
		case indented:
			b.WriteString(roff(code) + "\n")
		case line == "":
			b.WriteString(".PP\n")
		default:
			b.WriteString(roff(line) + "\n")
		}
		verbatim = indented
	}
	if verbatim {
		b.WriteString(".fi\n.RE\n")
	}
	return b.String()
}

// roff escapes a line of text.
func roff(line string) string {
	line = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", `\[u2026]`, `"`, `\(dq`, "\t", "    ").Replace(line)
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		line = `\&` + line
	}
	return line
}
