package fence

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// public returns the folders of the packages whose API must stay compatible. Each has a file in api.
func public(t *testing.T) (dirs []string) {
	files, err := filepath.Glob("../../api/*.txt")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files in api: %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		dirs = append(dirs, filepath.Join("../..", filepath.FromSlash(strings.ReplaceAll(name, "_", "/"))))
	}
	return dirs
}

// TestExportedNamesAreDocumented finds exported names without a comment, and packages without
// a comment or without an Example.
func TestExportedNamesAreDocumented(t *testing.T) {
	for _, dir := range public(t) {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has no Go files: %v", dir, err)
		}
		separate, err := filepath.Glob(filepath.Join(dir, "enginetest", "*_test.go")) // a module with the clients that its tests need
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, separate...)
		documented, example := false, false
		set := token.NewFileSet()
		for _, file := range files {
			parsed, err := parser.ParseFile(set, file, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(file, "_test.go") {
				example = example || hasExample(parsed)
				continue
			}
			documented = documented || parsed.Doc != nil
			for _, name := range undocumented(parsed) {
				t.Errorf("%s: %s has no comment", set.Position(name.Pos()), name.Name)
			}
		}
		if !documented {
			t.Errorf("%s: the package has no comment", dir)
		}
		if !example {
			t.Errorf("%s: the package has no Example", dir)
		}
	}
}

// entryPoints lists the functions of package lock that acquire a lock, without and with generated code.
var entryPoints = []string{
	"Locker_Acquire", "Locker_AcquireAll", "Locker_AcquireOnce", "Locker_Do", "Locker_Lead", "NewCond", "NewMerger", "Inject", "NewLogObserver", "Token",
}

// TestEntryPointsHaveExamples finds entry points without an Example that is run.
func TestEntryPointsHaveExamples(t *testing.T) {
	files, err := filepath.Glob("../../runtime/example*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("package lock has no examples: %v", err)
	}
	var text strings.Builder
	for _, file := range files {
		one, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(one)
	}
	for _, name := range entryPoints {
		_, body, ok := strings.Cut(text.String(), "\nfunc Example"+name+"() {\n")
		body, _, _ = strings.Cut(body, "\n}\n")
		if !ok || !strings.Contains(body, "utput:\n") {
			t.Errorf("package lock has no Example%s with output", name)
		}
	}
}

func hasExample(file *ast.File) bool {
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "Example") {
			return true
		}
	}
	return false
}

// undocumented returns the exported names of a file that have no comment.
func undocumented(file *ast.File) (names []*ast.Ident) {
	need := func(name *ast.Ident, docs ...*ast.CommentGroup) {
		for _, doc := range docs {
			if doc != nil {
				return
			}
		}
		if name.IsExported() {
			names = append(names, name)
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || ast.IsExported(receiver(d.Recv.List[0].Type)) {
				need(d.Name, d.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					need(spec.Name, spec.Doc, d.Doc)
					if spec.Name.IsExported() {
						members(spec.Type, need)
					}
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						need(name, spec.Doc, spec.Comment, d.Doc)
					}
				}
			}
		}
	}
	return names
}

// members calls need for the fields of a struct and the methods of an interface. A comment
// also documents the lines that follow without an empty line.
func members(of ast.Expr, need func(*ast.Ident, ...*ast.CommentGroup)) {
	var list *ast.FieldList
	switch of := of.(type) {
	case *ast.StructType:
		list = of.Fields
	case *ast.InterfaceType:
		list = of.Methods
	default:
		return
	}
	var above *ast.CommentGroup
	for _, field := range list.List {
		if field.Doc != nil || field.Comment != nil {
			above = field.Doc
		}
		for _, name := range field.Names {
			need(name, field.Doc, field.Comment, above)
		}
	}
}

// receiver returns the name of a method's type.
func receiver(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return receiver(of.X)
	case *ast.IndexExpr:
		return receiver(of.X)
	case *ast.IndexListExpr:
		return receiver(of.X)
	case *ast.Ident:
		return of.Name
	}
	return ""
}
