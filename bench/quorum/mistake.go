package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// broken is the error text of a double grant of ours.
const broken = "EXCLUSION WAS BROKEN"

// The mutant votes-at-once of internal/sim/mutants.
const (
	votes       = "../runtime/backends/quorum/member.go"
	waits       = "missing > 0 {"
	votesAtOnce = "missing > 0 && false {"
)

// catch runs this command again, with a quorum whose members vote as soon as they have restarted.
// It fails unless that run reports the broken exclusion.
func catch() error {
	folder, err := os.MkdirTemp("", "lockgen-quorum-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	overlay, err := wrong(folder)
	if err != nil {
		return err
	}
	var says bytes.Buffer
	cmd := exec.Command("go", "run", "-overlay", overlay, "./quorum", "-restarts", "-tries", strconv.Itoa(*tries))
	cmd.Stdout, cmd.Stderr = os.Stdout, io.MultiWriter(os.Stderr, &says)
	err = cmd.Run()
	var failed *exec.ExitError
	switch {
	case err != nil && !errors.As(err, &failed):
		return err
	case err == nil || !strings.Contains(says.String(), broken):
		return errors.New("members that vote as soon as they have restarted were not caught")
	}
	fmt.Println("caught: a quorum whose members vote as soon as they have restarted")
	return nil
}

// wrong writes the mutant into folder, and an overlay with which the go command builds it.
func wrong(folder string) (overlay string, err error) {
	path, err := filepath.Abs(votes)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if !strings.Contains(string(text), waits) {
		return "", fmt.Errorf("%s has no %q any more", votes, waits)
	}
	mutant := filepath.Join(folder, "member.go")
	if err := os.WriteFile(mutant, []byte(strings.Replace(string(text), waits, votesAtOnce, 1)), 0o644); err != nil {
		return "", err
	}
	replaced, err := json.Marshal(map[string]map[string]string{"Replace": {path: mutant}})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(folder, "overlay.json")
	return overlay, os.WriteFile(overlay, replaced, 0o644)
}
