package main

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The modules are embedded with ".txt" after each name, because a folder with a
// go.mod belongs to another module and can't be embedded.
//
//go:embed all:modules
var modules embed.FS

// bench is a folder with the generators and the modules that they are measured on.
type bench struct {
	dir   string
	repo  string
	peers []string
}

// peerPackages lists the generators that can be measured. modules/peers says in which versions.
var peerPackages = map[string]string{
	"moq":        "github.com/matryer/moq",
	"mockery":    "github.com/vektra/mockery/v3",
	"loadsyntax": "./loadsyntax",
}

// newBench builds lockgen and the peers.
func newBench(ctx context.Context, dir string, peers []string) (*bench, error) {
	repo, err := goCommand(ctx, "", "list", "-m", "-f", "{{.Dir}}", "github.com/lockgen/lockgen")
	if err != nil {
		return nil, err
	}
	b := &bench{dir: dir, repo: repo, peers: peers}
	if err := b.unpack("peers", "peers"); err != nil {
		return nil, err
	}
	if _, err := goCommand(ctx, repo, "build", "-o", b.bin("lockgen"), "./cmd/lockgen"); err != nil {
		return nil, err
	}
	for _, name := range append([]string{"loadsyntax"}, peers...) {
		if peerPackages[name] == "" {
			return nil, fmt.Errorf("no peer is called %s", name)
		}
		if _, err := goCommand(ctx, filepath.Join(dir, "peers"), "build", "-o", b.bin(name), peerPackages[name]); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (b *bench) bin(name string) string { return filepath.Join(b.dir, "bin", name) }

// unpack writes an embedded module to the folder named to, in the bench's folder.
func (b *bench) unpack(module, to string) error {
	root := "modules/" + module
	return fs.WalkDir(modules, root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := modules.ReadFile(path)
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(strings.TrimPrefix(path, root), ".txt")
		return b.write(filepath.Join(to, name), strings.ReplaceAll(string(text), "$REPO", b.repo))
	})
}

func (b *bench) write(path, text string) error {
	path = filepath.Join(b.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// environment returns the environment of all commands, in which no go.work and no GOFLAGS apply to the modules.
func environment() []string { return append(os.Environ(), "GOWORK=off", "GOFLAGS=") }

func goCommand(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, environment()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}
