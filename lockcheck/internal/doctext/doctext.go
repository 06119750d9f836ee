// Package doctext reads the help of an analyzer from the comment of its package.
package doctext

import (
	"go/parser"
	"go/token"
	"strings"
)

// Of returns the section "# Analyzer name" of the package comment in content, a doc.go, without the
// "name: " at its beginning. It panics if there is none.
func Of(content, name string) string {
	file, err := parser.ParseFile(token.NewFileSet(), "", content, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		panic(err)
	}
	_, section, found := strings.Cut(file.Doc.Text(), "# Analyzer "+name+"\n")
	section, _, _ = strings.Cut(section, "\n# ")
	text, ok := strings.CutPrefix(strings.TrimSpace(section), name+": ")
	if !found || !ok {
		panic("no section on analyzer " + name)
	}
	return strings.TrimSpace(text)
}

// URL returns the address of an analyzer's documentation.
func URL(name string) string {
	return "https://pkg.go.dev/github.com/lockgen/lockgen/lockcheck/" + name
}
