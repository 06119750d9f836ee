package goruntime

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOverlay checks that the changes fit the installed Go, and that each is made.
func TestOverlay(t *testing.T) {
	dir := t.TempDir()
	path, err := Overlay(dir)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), "zz_sim.go") {
		t.Errorf("%s, %v", text, err)
	}
	for _, c := range changes {
		text, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(c.file, "/", "_")))
		if err != nil || !strings.Contains(string(text), c.new) {
			t.Errorf("%s: %v, or it has no %q", c.file, err, c.new)
		}
	}
}

// TestOverlayOfAnotherGo checks that the error for a change that does not fit names the change and the version of Go.
func TestOverlayOfAnotherGo(t *testing.T) {
	saved := changes
	defer func() { changes = saved }()
	changes = []change{{"runtime/proc.go", "no such line", ""}}
	_, err := Overlay(t.TempDir())
	if err == nil || !strings.Contains(err.Error(), `runtime/proc.go of go1.`) || !strings.Contains(err.Error(), `"no such line"`) {
		t.Errorf("got %v", err)
	}
}
