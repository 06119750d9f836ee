package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/lockgen/lockgen/bench/peers"
)

// earlier builds this benchmark in folder with lockgen as it was at the git revision ref, and returns
// a copy of ours that runs this build. Both builds use the harness of this revision, not that of ref.
func earlier(ctx context.Context, ref, folder string, ours *peers.Peer) (*peers.Peer, error) {
	root, err := output(ctx, ".", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	commit, err := output(ctx, root, "git", "rev-parse", "--verify", "--short", ref+"^{commit}")
	if err != nil {
		return nil, err
	}
	tree := filepath.Join(folder, "tree")
	archive := filepath.Join(folder, "tree.tar")
	program := filepath.Join(folder, "bench-"+commit)
	if err := os.Mkdir(tree, 0o755); err != nil {
		return nil, err
	}
	for _, step := range []struct {
		in   string
		argv []string
	}{
		{root, []string{"git", "archive", "--output", archive, commit}},
		{tree, []string{"tar", "xf", archive}},
		{tree, []string{"rm", "-rf", "bench"}},
		{tree, []string{"cp", "-R", filepath.Join(root, "bench"), "bench"}},
		{filepath.Join(tree, "bench"), []string{"env", "GOWORK=off", "go", "build", "-mod=mod", "-o", program, "."}},
	} {
		if _, err := output(ctx, step.in, step.argv...); err != nil {
			return nil, fmt.Errorf("build lockgen at %s: %w", ref, err)
		}
	}
	p := *ours
	p.Name, p.Program = peers.Ours+"@"+commit, program
	p.About = "this project as it was at " + ref
	return &p, os.RemoveAll(tree)
}

// output runs a command and returns what it prints, without the last newline.
func output(ctx context.Context, in string, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = in
	text, err := cmd.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, failed.Stderr)
	}
	return strings.TrimSpace(string(text)), err
}
