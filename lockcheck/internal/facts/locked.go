package facts

import (
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// Locked is code of this package that runs under locks: the body of an annotated function, or a
// function literal that is passed to Locker.Do or Locker.Lead.
type Locked struct {
	Decl  *ast.FuncDecl
	Body  *ast.BlockStmt
	Locks []Lock
	Scope *Scope
}

// Locked lists the bodies that run under locks.
func (ix *Index) Locked(info *types.Info) []Locked {
	var out []Locked
	for _, file := range ix.Files {
		for _, d := range file.Decls {
			decl, ok := d.(*ast.FuncDecl)
			if !ok || decl.Body == nil {
				continue
			}
			fn, _ := info.Defs[decl.Name].(*types.Func)
			if f := ix.Guarded(fn); f != nil {
				out = append(out, Locked{decl, decl.Body, f.Guard, ix.ScopeOf(info, decl)})
				continue
			}
			for _, body := range handBodies(info, decl) {
				out = append(out, Locked{decl, body, []Lock{{Key: "by hand", Hand: true}}, ix.ScopeOf(info, decl)})
			}
		}
	}
	return out
}

// handBodies lists the function literals that decl passes to Locker.Do and Locker.Lead.
func handBodies(info *types.Info, decl *ast.FuncDecl) (out []*ast.BlockStmt) {
	ast.Inspect(decl.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 4 || !IsLocker(Callee(info, call), "Do", "Lead") {
			return true
		}
		if lit, ok := ast.Unparen(call.Args[3]).(*ast.FuncLit); ok {
			out = append(out, lit.Body)
		}
		return true
	})
	return out
}

// Decls returns the functions of this package that have a body and are written by hand.
func (ix *Index) Decls(info *types.Info) map[*types.Func]*ast.FuncDecl {
	out := map[*types.Func]*ast.FuncDecl{}
	for _, file := range ix.Files {
		for _, d := range file.Decls {
			if decl, ok := d.(*ast.FuncDecl); ok && decl.Body != nil {
				if fn, ok := info.Defs[decl.Name].(*types.Func); ok {
					out[fn] = decl
				}
			}
		}
	}
	return out
}

// TakenBy returns the locks that a call of fn takes. If fn is a method of an interface, they are
// those of the wrappers that implement it.
func (ix *Index) TakenBy(fn *types.Func) []Lock {
	f := ix.Func(fn)
	switch {
	case f != nil && len(f.Takes) > 0:
		return f.Takes
	case fn == nil || fn.Signature().Recv() == nil || !types.IsInterface(fn.Signature().Recv().Type()):
		return nil
	case f != nil && len(f.Guard) > 0:
		return f.Guard
	}
	id := ID(fn, ix.fset)
	for _, s := range ix.Summaries {
		for _, b := range s.Binds {
			if impl := ix.ByID(b.Impl); b.Method == id && impl != nil && len(impl.Takes) > 0 {
				return impl.Takes
			}
		}
	}
	return nil
}

// In reports whether a place is in a file of the package that pass is at.
func In(pass *analysis.Pass, at Position) bool {
	for _, f := range pass.Files {
		if pass.Fset.Position(f.FileStart).Filename == at.File {
			return true
		}
	}
	return false
}

// Pos is the reverse of At. For a file of another package it reads the file. It returns NoPos if
// it can't.
func (ix *Index) Pos(at Position) token.Pos {
	if ix.files == nil {
		ix.files = map[string]*token.File{}
		for _, f := range ix.all {
			if tf := ix.fset.File(f.FileStart); tf != nil {
				ix.files[tf.Name()] = tf
			}
		}
	}
	tf := ix.files[at.File]
	if tf == nil {
		text, err := os.ReadFile(at.File)
		if err != nil {
			return token.NoPos
		}
		tf = ix.fset.AddFile(at.File, -1, len(text))
		tf.SetLinesForContent(text)
		ix.files[at.File] = tf
	}
	if at.Line < 1 || at.Line > tf.LineCount() {
		return token.NoPos
	}
	return min(tf.LineStart(at.Line)+token.Pos(max(at.Column, 1)-1), token.Pos(tf.Base()+tf.Size()))
}

// Related returns a note about another place.
func (ix *Index) Related(at Position, message string) []analysis.RelatedInformation {
	pos := ix.Pos(at)
	if !pos.IsValid() {
		return nil
	}
	return []analysis.RelatedInformation{{Pos: pos, Message: message}}
}

// Quote lists keys for a message.
func Quote(locks []Lock) string {
	var out []string
	for _, l := range locks {
		out = append(out, `"`+l.Key+`"`)
	}
	return strings.Join(out, " and ")
}
