// Package readme tests that the README and the pages in docs are correct.
package readme

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// shopModule makes a module of the README's example and runs lockgen in it. It returns the folder
// and the path of lockgen.
func shopModule(t *testing.T) (dir, lockgen string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile("(?s)```go\n(.*?)```").FindSubmatch(text)
	if example == nil {
		t.Fatal("the README has no example")
	}
	dir = t.TempDir()
	write(t, dir, "main.go", string(example[1]))
	write(t, dir, "go.mod", `module example.com/shop

go 1.26.0

require github.com/lockgen/lockgen v0.0.0

replace github.com/lockgen/lockgen => `+root+"\n")

	lockgen = filepath.Join(t.TempDir(), "lockgen")
	run(t, root, "go", "build", "-o", lockgen, "./cmd/lockgen")
	run(t, dir, lockgen)
	return dir, lockgen
}

// TestExample checks the README's example with go vet and runs it.
func TestExample(t *testing.T) {
	dir, _ := shopModule(t)
	run(t, dir, "go", "vet", "./...")
	if got, want := run(t, dir, "go", "run", "."), "2 <nil>\n"; got != want {
		t.Errorf("it prints %q, want %q", got, want)
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// run runs a command without the workspace and without the network, and
// returns its standard output.
func run(t *testing.T, dir string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "GOPROXY=off")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}
