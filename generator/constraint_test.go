package generator

import (
	"go/build"
	"go/build/constraint"
	"io"
	"strings"
	"testing"
)

// FuzzConstraint: a file is in the builds in which go/build has it. A build that is found for the
// file contains it. The name of the generated file implies no other constraint.
func FuzzConstraint(f *testing.F) {
	for _, seed := range [][2]string{
		{"x.go", "//go:build linux && !cgo\n\n"}, {"x_windows_arm64.go", "\ufeff// x\n//go:build a || (b && !c)\n"},
		{"x_test.go", "/* //go:build no */ //go:build unix\n"}, {"a_linux_test.go", "/*\n*/\r\n//go:build !(js && wasm)\r\n\r\n"},
		{"a.b_plan9.go", "//go:build a\n//go:build b\n"}, {"_x.go", "//go:build"}, {"linux.go", "package p\n//go:build x\n"},
		{"x_android.go", "//go:build linux\n"}, {"x.go", "//go:build test\n"}, {"x.go", "//go:build external_test\n"}, {"x.go", "/*"},
		{"0_linux.go", "/**///go:build x"}, {"x.go", "\ufeff//go:build windows\n\n"}, {"x.go", "/*\n//go:build windows\n*/\n"},
	} {
		f.Add(seed[0], seed[1])
	}
	host := &config{goos: "linux", goarch: "amd64", cgo: true, tags: []string{"a"}}
	f.Fuzz(func(t *testing.T, name, text string) {
		if strings.ContainsAny(name, "/\\\x00") || !strings.HasSuffix(name, ".go") || name[0] == '_' || name[0] == '.' || strings.Contains(text, "+build") {
			return // the go command lists no such file, or does not read such lines any more
		}
		s := &source{path: name}
		when := constraintOf(s, []byte(text))
		later := false // the generator assumes that all releases are set
		visitTags(when, func(tag string) { later = later || strings.HasPrefix(tag, "go1.") })
		if in, err := inBuild(host, name, text); err == nil && !later && in != host.satisfies(when) {
			t.Fatalf("%q, %q: %v for lockgen (%s), %v for go/build", name, text, host.satisfies(when), constraintText(when), in)
		}
		if when == nil {
			return
		}
		c := configFor(when, host)
		if c != nil && !c.satisfies(when) {
			t.Fatalf("%s is not in the build %+v", constraintText(when), c)
		}
		output := outputStem + "_" + slug(when) + ".go"
		if implied := nameConstraint(output); implied != nil && !sameBuilds(implied, when) || strings.HasSuffix(output, "_test.go") {
			t.Fatalf("the output for %s has the name %s", constraintText(when), output)
		}
	})
}

func sameBuilds(a, b constraint.Expr) bool { return a.String() == b.String() }

// inBuild returns the answer of go/build.
func inBuild(c *config, name, text string) (bool, error) {
	ctxt := build.Default
	ctxt.GOOS, ctxt.GOARCH, ctxt.CgoEnabled, ctxt.BuildTags, ctxt.ToolTags = c.goos, c.goarch, c.cgo, c.tags, nil
	ctxt.OpenFile = func(string) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(text + "\npackage p\n")), nil
	}
	return ctxt.MatchFile("", name)
}
