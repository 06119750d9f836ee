package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestExported(t *testing.T) {
	dir := t.TempDir()
	text := "package p\n\ntype T struct {\n\tA int\n\tb int\n}\n\nfunc (t *T) M() {}\nfunc f() {}\n\nconst C = 1\n"
	if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := exported(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"const C = 1", "func (t *T) M()", "type T struct field A int", "type T struct { }"}
	slices.Sort(want)
	for _, line := range differences("p", want, got) {
		t.Error(line)
	}
	if d := differences("p", []string{"a"}, []string{"b"}); len(d) != 2 {
		t.Error(d)
	}
}
