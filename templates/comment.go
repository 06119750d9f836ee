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
func comment(paragraphs ...string) jen.Code {
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
	return jen.Comment(b.String())
}
