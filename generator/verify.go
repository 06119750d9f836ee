package generator

import (
	"go/parser"
	"go/types"
)

// render turns the model into the file's bytes.
func (p *pkg) render() {
	if p.model == nil || len(p.diagnostics) > 0 {
		return
	}
	content, err := p.model.Render()
	if err != nil {
		p.failed(err.Error())
		return
	}
	p.content = content
}

// verify type-checks the output together with the package it is for. Whatever
// it finds is a bug of ours, and better said than written.
func (p *pkg) verify(im *importer) {
	if p.content == nil {
		return
	}
	file, err := parser.ParseFile(p.run.fset, p.output, p.content, parser.SkipObjectResolution)
	if err != nil {
		p.failed(err.Error())
		return
	}
	first := ""
	p.typeCheck(im, append(p.syntax(), file), nil, func(e types.Error) {
		if first == "" && !e.Soft && p.run.fset.File(e.Pos) == p.run.fset.File(file.Package) {
			first = p.run.fset.Position(e.Pos).String() + ": " + e.Msg
		}
	})
	if first != "" {
		p.failed(first)
	}
}

func (p *pkg) failed(why string) {
	p.content = nil
	p.report(p.methods[0].decl.Name.Pos(), "this is a bug of lockgen: please report it with this method's signature",
		"the generated code would not compile: %s", why)
}
