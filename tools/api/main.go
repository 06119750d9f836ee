// Command api compares the exported API of the public packages with golden files.
//
// Usage: api [-write] folder... in the root of the project. It compares the exported
// declarations of each package with api/<folder>.txt. With -write it writes them there.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	write := flag.Bool("write", false, "write the golden files")
	flag.Parse()
	failed := false
	for _, dir := range flag.Args() {
		golden := filepath.Join("api", strings.ReplaceAll(dir, "/", "_")+".txt")
		lines, err := exported(dir)
		if err == nil && *write {
			err = os.WriteFile(golden, []byte(strings.Join(lines, "\n")+"\n"), 0o644)
		} else if err == nil {
			var old []byte
			if old, err = os.ReadFile(golden); err == nil {
				for _, line := range differences(dir, strings.Split(strings.TrimSpace(string(old)), "\n"), lines) {
					fmt.Println(line)
					failed = true
				}
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "api:", err)
			os.Exit(2)
		}
	}
	if failed {
		fmt.Println("if the change is intended, run make api and describe it in CHANGELOG.md")
		os.Exit(1)
	}
}

// differences describes the lines that only old or only now has.
func differences(dir string, old, now []string) (out []string) {
	for _, line := range old {
		if !slices.Contains(now, line) {
			out = append(out, dir+": removed or changed: "+line)
		}
	}
	for _, line := range now {
		if !slices.Contains(old, line) {
			out = append(out, dir+": added or changed: "+line)
		}
	}
	return out
}

// exported returns a package's exported declarations, one per line, sorted.
func exported(dir string) ([]string, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	pkg, err := doc.NewFromFiles(set, files, dir)
	if err != nil {
		return nil, err
	}
	var lines []string
	add := func(owner string, node ast.Node) {
		var text bytes.Buffer
		if err = printer.Fprint(&text, set, node); err == nil {
			lines = append(lines, owner+strings.Join(strings.Fields(text.String()), " "))
		}
	}
	addFuncs := func(funcs []*doc.Func) {
		for _, f := range funcs {
			f.Decl.Body = nil
			add("", f.Decl)
		}
	}
	addValues := func(values []*doc.Value) {
		for _, v := range values {
			for _, spec := range v.Decl.Specs {
				add(v.Decl.Tok.String()+" ", spec)
			}
		}
	}
	addFuncs(pkg.Funcs)
	addValues(pkg.Consts)
	addValues(pkg.Vars)
	for _, t := range pkg.Types {
		addFuncs(t.Funcs)
		addFuncs(t.Methods)
		addValues(t.Consts)
		addValues(t.Vars)
		addType(t.Decl, add)
	}
	slices.Sort(lines)
	return slices.Compact(lines), err
}

// addType adds a type, and each field of a struct on a separate line.
func addType(decl *ast.GenDecl, add func(string, ast.Node)) {
	for _, spec := range decl.Specs {
		t := spec.(*ast.TypeSpec)
		s, ok := t.Type.(*ast.StructType)
		if !ok {
			add("type ", t)
			continue
		}
		for _, f := range s.Fields.List {
			if len(f.Names) == 0 {
				add("type "+t.Name.Name+" struct embeds ", f.Type)
			}
			for _, name := range f.Names {
				add("type "+t.Name.Name+" struct field "+name.Name+" ", f.Type)
			}
		}
		s.Fields.List, s.Incomplete = nil, false
		add("type ", t)
	}
}
