// Command treelint checks rules of the project that neither vet nor staticcheck checks:
//
//   - Go code is formatted;
//   - no file that is written by hand is over 400 lines, because it would do more than one
//     thing;
//   - nothing is named util, common, helper or misc, because such a name does not say what
//     belongs there;
//   - there is no go.work, because go doc and go list -m rewrite a workspace's go.work.sum;
//   - no file is over 1 MiB: it is most likely a program that go build has left.
//
// Usage: treelint [folder]. It ignores testdata and generated files.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

const (
	maxLines = 400
	maxSize  = 1 << 20 // bytes
)

var (
	leftOut   = []string{".git", ".cache", "bin", "testdata"}
	emptyName = []string{"util", "utils", "common", "helper", "helpers", "misc"}
	counted   = []string{".go", ".lua", ".sh", ".java"}
)

func main() {
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	findings, err := check(os.DirFS(root))
	if err != nil {
		fmt.Fprintln(os.Stderr, "treelint:", err)
		os.Exit(2)
	}
	for _, finding := range findings {
		fmt.Println(finding)
	}
	if len(findings) > 0 {
		os.Exit(1)
	}
}

// check returns the findings in tree, in the order of its files.
func check(tree fs.FS) (findings []string, err error) {
	err = fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && slices.Contains(leftOut, entry.Name()) {
			return fs.SkipDir
		}
		if word := emptyWord(entry.Name()); word != "" {
			findings = append(findings, fmt.Sprintf("%s: the name %q says nothing of what it holds", name, word))
		}
		if entry.IsDir() {
			return nil
		}
		if strings.HasPrefix(entry.Name(), "go.work") {
			findings = append(findings, name+": go commands rewrite go.work.sum; use a replace directive in the module's go.mod")
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if info.Size() > maxSize {
			findings = append(findings, fmt.Sprintf("%s: %d bytes, more than %d", name, info.Size(), maxSize))
			return nil
		}
		text, err := content(tree, name)
		if err != nil {
			return err
		}
		findings = append(findings, checkFile(name, text)...)
		return nil
	})
	return findings, err
}

// content returns the text of the files that checkFile checks. They include scripts without an
// extension.
func content(tree fs.FS, name string) ([]byte, error) {
	if !slices.Contains(counted, path.Ext(name)) && !strings.HasPrefix(name, "scripts/") {
		return nil, nil
	}
	return fs.ReadFile(tree, name)
}

func checkFile(name string, text []byte) (findings []string) {
	generated := false
	if path.Ext(name) == ".go" {
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return []string{err.Error()}
		}
		generated = ast.IsGenerated(file)
		if word := emptyWord(file.Name.Name); word != "" {
			findings = append(findings, fmt.Sprintf("%s: the package name %q says nothing of what it holds", name, word))
		}
		if formatted, err := format.Source(text); err != nil || !bytes.Equal(formatted, text) {
			findings = append(findings, name+": not formatted; run gofmt -w "+name)
		}
	}
	if lines := bytes.Count(text, []byte("\n")); lines > maxLines && !generated {
		findings = append(findings, fmt.Sprintf("%s: %d lines, more than %d", name, lines, maxLines))
	}
	return findings
}

// emptyWord returns the first word of name that is in emptyName, or "".
func emptyWord(name string) string {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool {
		return r == '_' || r == '-' || r == '.'
	})
	for _, word := range words {
		if slices.Contains(emptyName, word) {
			return word
		}
	}
	return ""
}
