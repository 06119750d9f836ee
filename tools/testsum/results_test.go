package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The test binary runs itself as the command.
const beCommand = "TESTSUM_BE_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(beCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

// module writes a module with one package for each source and returns its folder.
func module(t *testing.T, sources map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module m\n\ngo 1.26.0\n")
	for name, source := range sources {
		write(name+"/x_test.go", "package x\n\nimport \"testing\"\n\n"+source)
	}
	return dir
}

// sum runs the command with the real `go test -json` of a module.
func sum(t *testing.T, sources map[string]string, env ...string) (out, summary string, code int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "summary")
	cmd := exec.Command(self, "-summary", file, "--", "go", "test", "-json", "-vet=off", "./...")
	cmd.Dir = module(t, sources)
	cmd.Env = append(os.Environ(), append([]string{
		beCommand + "=1", "GOWORK=off", "CI=", "LOCKGEN_TEST_REQUIRE=", "GORACE=atexit_sleep_ms=0",
	}, env...)...)
	var both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &both, &both
	_ = cmd.Run()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v\n%s", err, &both)
	}
	return both.String(), string(text), cmd.ProcessState.ExitCode()
}

const (
	green = `func TestA(t *testing.T) { t.Log("quiet"); t.Run("sub", func(*testing.T) {}) }`
	skips = `func TestS(t *testing.T) { t.Skip("no server") }`
)

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	return lines[len(lines)-1]
}

func TestTotalsAndExitCode(t *testing.T) {
	for _, c := range []struct {
		name    string
		sources map[string]string
		env     []string
		total   string
		code    int
		says    string
	}{
		{"green", map[string]string{"a": green, "b": green}, nil, "4 passed, 0 failed", 0, "ok  \tm/b\t"},
		{"a failure is shown", map[string]string{"a": green, "b": `func TestB(t *testing.T) { t.Error("broken") }`},
			nil, "2 passed, 1 failed", 1, "broken"},
		{"a skip is counted", map[string]string{"a": green, "b": skips}, nil, "2 passed, 0 failed, 1 skipped", 0, "no server"},
		{"and fails under CI", map[string]string{"a": green, "b": skips}, []string{"CI=true"},
			"2 passed, 0 failed, 1 skipped", 1, "may not skip"},
		{"and where all is required", map[string]string{"b": skips}, []string{"LOCKGEN_TEST_REQUIRE=all"},
			"0 passed, 0 failed, 1 skipped", 1, "may not skip"},
		{"does not compile", map[string]string{"a": green, "b": `func TestB(t *testing.T) { undefined() }`},
			nil, "2 passed, 1 failed", 1, "undefined: undefined"},
		{"fails outside of its tests", map[string]string{"a": "func TestMain(m *testing.M) { m.Run(); panic(\"leak\") }\n" + green},
			nil, "2 passed, 1 failed", 1, "leak"},
		{"a panic takes others down", map[string]string{"a": `
			func TestA(t *testing.T) { t.Parallel(); select {} }
			func TestB(t *testing.T) { t.Parallel(); panic("bang") }`},
			[]string{"GOMAXPROCS=2"}, "0 passed, 2 failed", 1, "bang"},
		{"an exit", map[string]string{"a": "import \"os\"\n\nfunc TestA(t *testing.T) { os.Exit(3) }"},
			nil, "0 passed, 1 failed", 1, "FAILED: m/a TestA"},
		{"nothing at all", map[string]string{"a": ""}, nil, "0 passed, 1 failed", 1, "imported and not used"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, summary, code := sum(t, c.sources, c.env...)
			if lastLine(summary) != c.total || code != c.code {
				t.Errorf("%q, exit code %d, want %q, %d; output:\n%s", lastLine(summary), code, c.total, c.code, out)
			}
			if !strings.Contains(out, c.says) || !strings.Contains(out, c.total+"\n") {
				t.Errorf("output lacks %q or the totals:\n%s", c.says, out)
			}
			if strings.Contains(out, "quiet") {
				t.Errorf("a passed test is shown:\n%s", out)
			}
		})
	}
}

func TestSummaryHoldsPackagesAndFailures(t *testing.T) {
	_, summary, _ := sum(t, map[string]string{"a": green, "b": `func TestB(t *testing.T) { t.Fail() }`})
	for _, want := range []string{"ok  \tm/a\t", "FAIL\tm/b\t", "FAILED: m/b TestB\n"} {
		if !strings.Contains(summary, want) {
			t.Errorf("summary lacks %q:\n%s", want, summary)
		}
	}
}

func TestBrokenStream(t *testing.T) {
	var out bytes.Buffer
	r := newResults(&out, false)
	err := r.read(strings.NewReader(`plain text
{"Action":"run","Package":"p","Test":"T"}
{"Action":"output","Package":"p","Test":"T","Output":"half a word"}
{not json`))
	if err != nil || r.failed != 1 {
		t.Errorf("err %v, failed %d: a test that never ended must count", err, r.failed)
	}
	for _, want := range []string{"plain text\n", "{not json", "half a word"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lost %q in\n%s", want, &out)
		}
	}
}
