package module

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
)

// lines matches the parts of a message that change when lines of a file move.
var lines = regexp.MustCompile(`(\.go):\d+(:\d+)?|(\bline )\d+`)

// identify gives each diagnostic its ID and Cause. They stay the same when lines move and files
// are renamed, because they are made from the check, the package, the function and the message.
func (r *Result) identify() {
	count := map[string]int{}
	for i := range r.Diagnostics {
		d := &r.Diagnostics[i]
		said := d.Check + "\n" + lines.ReplaceAllString(d.Message, "$1$3")
		d.Cause = digest(said)
		key := said + "\n" + d.within
		count[key]++
		d.ID = digest(fmt.Sprintf("%s\n%d", key, count[key]))
	}
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:6])
}

// within returns the name of the declaration around pos: "example.com/shop.(*Service).Pay".
func within(path string, files []*ast.File, pos token.Pos) string {
	for _, file := range files {
		if pos < file.FileStart || file.FileEnd <= pos {
			continue
		}
		for _, d := range file.Decls {
			decl, ok := d.(*ast.FuncDecl)
			start := d.Pos()
			if ok && decl.Doc != nil {
				start = decl.Doc.Pos()
			}
			if !ok || pos < start || d.End() <= pos {
				continue
			}
			if decl.Recv != nil && len(decl.Recv.List) == 1 {
				return fmt.Sprintf("%s.(%s).%s", path, types.ExprString(decl.Recv.List[0].Type), decl.Name.Name)
			}
			return path + "." + decl.Name.Name
		}
	}
	return path
}
