package main

import (
	"bytes"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// The behaviour of the command is described by testdata/script/*.txtar. The test binary is the
// command.

var updateScripts = flag.Bool("update", false, "write what the command prints to testdata/script")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"lockgen": scripted})
}

// scripted is the command. On Windows it prints the names of Go files with slashes, as the scripts
// have them.
func scripted() {
	if runtime.GOOS != "windows" {
		main()
	}
	serveVet(os.Args[1:])
	os.Exit(run(os.Args[1:], slashes{os.Stdout}, slashes{os.Stderr}))
}

type slashes struct{ io.Writer }

var windowsPath = regexp.MustCompile(`([\w.-]+\\{1,2})+[\w.-]+\.go`) // JSON doubles the backslashes

func (s slashes) Write(p []byte) (int, error) {
	_, err := s.Writer.Write(windowsPath.ReplaceAllFunc(p, func(path []byte) []byte {
		return bytes.ReplaceAll(bytes.ReplaceAll(path, []byte(`\\`), []byte("/")), []byte(`\`), []byte("/"))
	}))
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

func TestScripts(t *testing.T) {
	repo, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	cache, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	dirs := strings.Fields(string(cache))
	testscript.Run(t, testscript.Params{
		UpdateScripts:       *updateScripts,
		Dir:                 "../../testdata/script",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("REPO", repo)
			tool, err := exec.LookPath("lockgen")
			if err != nil {
				return err
			}
			env.Setenv("LOCKGEN", tool)
			env.Setenv("GOCACHE", dirs[0])
			env.Setenv("GOMODCACHE", dirs[1])
			env.Setenv("LOCKGENCACHE", filepath.Join(env.WorkDir, ".lockgen"))
			env.Setenv("GOPROXY", "off")
			env.Setenv("GOWORK", "off")
			env.Setenv("GOFLAGS", "")
			env.Setenv("GORACE", "atexit_sleep_ms=10") // otherwise each of a hundred processes sleeps for a second
			return expand(env, filepath.Join(env.WorkDir, "go.mod"), filepath.Join(env.WorkDir, "go.mod"))
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exit-status": exitStatus,
			"mode":        mode,
			"touch-old":   touchOld,
			"is-old":      isOld,
			"env-file":    envFile,
			"wait-for":    waitFor,
		},
	})
}

// expand copies from to to, with $REPO replaced. A script need not contain $REPO.
func expand(env *testscript.Env, from, to string) error {
	text, err := os.ReadFile(from)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(to, []byte(strings.ReplaceAll(string(text), "$REPO", env.Getenv("REPO"))), 0o644)
}

// envFile copies a file, with $REPO replaced: env-file from to.
func envFile(ts *testscript.TestScript, _ bool, args []string) {
	text := strings.ReplaceAll(ts.ReadFile(args[0]), "$REPO", ts.Getenv("REPO"))
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o644))
}

// exitStatus runs a program and checks its exit status: exit-status 2 prog args.
func exitStatus(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := err.(*exec.ExitError)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// mode checks a file's permissions: mode 644 file.
func mode(ts *testscript.TestScript, _ bool, args []string) {
	info, err := os.Stat(ts.MkAbs(args[1]))
	ts.Check(err)
	if got := strconv.FormatUint(uint64(info.Mode().Perm()), 8); got != args[0] {
		ts.Fatalf("mode %s, want %s", got, args[0])
	}
}

var old = time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)

// touchOld gives a file a time that isOld recognizes.
func touchOld(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(os.Chtimes(ts.MkAbs(args[0]), old, old))
}

func isOld(ts *testscript.TestScript, _ bool, args []string) {
	info, err := os.Stat(ts.MkAbs(args[0]))
	ts.Check(err)
	if !info.ModTime().Equal(old) {
		ts.Fatalf("%s was written at %v", args[0], info.ModTime())
	}
}

// waitFor waits until a file exists and contains a text: wait-for file text.
func waitFor(ts *testscript.TestScript, _ bool, args []string) {
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		if err == nil && strings.Contains(string(text), args[1]) {
			return
		}
	}
	ts.Fatalf("%s never contained %q", args[0], args[1])
}
