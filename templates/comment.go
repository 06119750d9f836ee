package templates

import (
	"strings"
	"unicode/utf8"

	"github.com/dave/jennifer/jen"
)

// width is where comments wrap.
const width = 80

// unbroken keeps the spaces of s from becoming line ends.
func unbroken(s string) string { return strings.ReplaceAll(s, " ", "\x00") }

// comment renders paragraphs as one line comment each line of which fits width.
// It starts with "//" itself, since jennifer would turn several lines into a
// block comment.
func comment(paragraphs ...string) jen.Code { return jen.Comment(wrapped(paragraphs...)) }

// commentBefore renders paragraphs before a doc comment of the user's. The lines of that
// stay: they may be a list or code.
func commentBefore(doc string, paragraphs ...string) jen.Code {
	var b strings.Builder
	b.WriteString(wrapped(paragraphs...))
	if doc = strings.Trim(doc, "\n"); doc != "" {
		b.WriteString("\n//")
		for line := range strings.SplitSeq(doc, "\n") {
			b.WriteString("\n//")
			if line != "" && line[0] != '\t' {
				b.WriteString(" ")
			}
			b.WriteString(strings.TrimRight(line, " \t\r"))
		}
	}
	return jen.Comment(b.String())
}

func wrapped(paragraphs ...string) string {
	var b strings.Builder
	for i, p := range paragraphs {
		if i > 0 {
			b.WriteString("\n//\n")
		}
		column := 0
		for _, word := range strings.Fields(p) {
			n := utf8.RuneCountInString(word)
			switch {
			case column == 0:
				b.WriteString("//")
				column = 2
			case column+1+n > width:
				b.WriteString("\n//")
				column = 2
			}
			b.WriteString(" " + strings.ReplaceAll(word, "\x00", " "))
			column += 1 + n
		}
	}
	return b.String()
}
