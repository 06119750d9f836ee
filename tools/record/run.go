package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// run is one run of make. FILE in its arguments stands for the file of its report.
type run struct {
	name  string // "storm/etcd"
	limit time.Duration
	args  []string
}

// outcome is the result of a run.
type outcome struct {
	Commit string
	Began  time.Time
	Took   time.Duration
	Failed string // the reason, or ""
	Report json.RawMessage
	Output string
}

// do runs make. It ends all processes of the run after the limit.
func (r *run) do(folder, commit string) *outcome {
	file := filepath.Join(folder, strings.ReplaceAll(r.name, "/", "-")+".report")
	_ = os.Remove(file)
	args := []string{"--no-print-directory"}
	for _, arg := range r.args {
		args = append(args, strings.ReplaceAll(arg, "FILE", file))
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "make", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that the processes that make started are ended too
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	var output bytes.Buffer
	cmd.Stdout = io.MultiWriter(os.Stdout, &output)
	cmd.Stderr = cmd.Stdout
	o := &outcome{Commit: commit, Began: time.Now()}
	err := cmd.Run()
	o.Took, o.Output = time.Since(o.Began), output.String()
	switch {
	case ctx.Err() != nil:
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		o.Failed = fmt.Sprintf("ended after %v", r.limit)
	case err != nil:
		o.Failed = err.Error()
	}
	if text, err := os.ReadFile(file); err == nil && json.Valid(text) {
		o.Report = text
	}
	return o
}

// again returns the command that repeats the run.
func (r *run) again() string {
	words := []string{"make"}
	for _, arg := range r.args {
		arg = strings.ReplaceAll(strings.ReplaceAll(arg, " -json FILE", ""), "-json FILE", "")
		if strings.Contains(arg, " ") {
			arg = "'" + arg + "'"
		}
		words = append(words, arg)
	}
	return strings.Join(words, " ")
}

func (o *outcome) save(folder, name string) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return os.WriteFile(kept(folder, name), text, 0o644)
}

// load returns the outcome of a run on that commit, or nil.
func load(folder, name, commit string) *outcome {
	o := &outcome{}
	text, err := os.ReadFile(kept(folder, name))
	if err != nil || json.Unmarshal(text, o) != nil || o.Commit != commit {
		return nil
	}
	return o
}

func kept(folder, name string) string {
	return filepath.Join(folder, strings.ReplaceAll(name, "/", "-")+".json")
}

// report decodes the report into v.
func (o *outcome) report(v any) error {
	if o == nil || o.Report == nil {
		return errors.New("there is no report")
	}
	return json.Unmarshal(o.Report, v)
}

// commit returns the name of the commit, and adds "with changes" if files other than the page were changed since.
func commit(page string) string {
	head, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	name := strings.TrimSpace(string(head))
	changed, err := exec.Command("git", "status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)"+page).Output()
	if err != nil || len(changed) > 0 {
		name += " with changes"
	}
	return name
}

// tree returns the hash of a folder's content, which identifies it even if the commit no longer exists.
func tree(folder string) string {
	name, err := exec.Command("git", "rev-parse", "--short=12", "HEAD:"+folder).Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(name))
}
