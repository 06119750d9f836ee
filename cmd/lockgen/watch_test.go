package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A file that is saved while lockgen still reports its first run counts as changed.
func TestSaveDuringFirstRun(t *testing.T) {
	t.Setenv("GOWORK", "off")
	t.Setenv("GOPROXY", "off")
	dir := t.TempDir()
	repo, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	save := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Error(err)
		}
	}
	source := func(key string) string {
		return "package shop\n\nimport \"context\"\n\n//lock:key=\"" + key + "\"\nfunc F(ctx context.Context) error { return nil }\n"
	}
	save("go.mod", "module example.com/shop\n\ngo 1.26.0\n\n"+
		"require github.com/lockgen/lockgen v0.0.0\n\nreplace github.com/lockgen/lockgen => "+repo+"\n")
	save("svc.go", source("first"))
	again := make(chan bool, 1)
	c := &command{stderr: io.Discard, stdout: writerFunc(func(line string) {
		switch {
		case strings.HasPrefix(line, "created"):
			save("svc.go", source("second"))
		case strings.HasPrefix(line, "updated"):
			again <- true
		}
	})}
	if code, done := c.parse([]string{"-watch"}); done {
		t.Fatal(code)
	}
	c.dir = dir
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan bool)
	go func() { c.watchFiles(ctx); close(stopped) }()
	select {
	case <-again:
	case <-time.After(2 * time.Minute): // the go command runs twice
		t.Error("the second save was not seen")
	}
	cancel()
	<-stopped
}

type writerFunc func(text string)

func (f writerFunc) Write(p []byte) (int, error) {
	f(string(p))
	return len(p), nil
}
