// Command testsum runs a command that prints `go test -json`. It shows a short form of the
// output, and ends with a line that a machine can read:
//
//	testsum [-v] [-summary file] -- go test -json ./...
//
//	412 passed, 0 failed
//
// If the conformance suite of lock backends has run, a table of its results comes before
// that line.
//
// Only tests that fail or are skipped are shown in full. If nothing may be skipped (CI=true,
// or LOCKGEN_TEST_REQUIRE=all), a skipped test fails the run. `go test` itself would report
// success.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

func main() {
	verbose := flag.Bool("v", false, "show the output of all tests")
	summary := flag.String("summary", "", "also write the closing lines to this `file`")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: testsum [-v] [-summary file] -- command [argument...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	code, err := run(flag.Args(), *verbose, *summary)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(argv []string, verbose bool, summary string) (int, error) {
	results := newResults(os.Stdout, verbose)
	code, err := feed(argv, results)
	if err != nil {
		return code, err
	}
	closing := results.closing()
	fmt.Print("\n", closing)
	if summary != "" {
		if err := os.WriteFile(summary, []byte(results.packageLines()+closing), 0o644); err != nil {
			return code, err
		}
	}
	switch {
	case code == 0 && results.failed > 0:
		code = 1
	case code == 0 && results.skipped > 0 && mayNotSkip():
		return 1, errors.New("this run may not skip tests")
	}
	return code, nil
}

// feed runs argv to its end, so that even an interrupted run has closing lines. argv and
// the processes that it starts are a process group, to which feed passes on signals: if only
// a shell got them, it would end and its go test would continue.
func feed(argv []string, results *results) (code int, err error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 1, err
	}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	signals := make(chan os.Signal, 8)
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(sig) { // nohup makes the process ignore SIGHUP
			signal.Notify(signals, sig)
		}
	}
	go func() {
		for sig := range signals {
			_ = syscall.Kill(-cmd.Process.Pid, sig.(syscall.Signal))
		}
	}()
	if err := results.read(out); err != nil {
		_, _ = io.Copy(io.Discard, out) // otherwise argv would block on a full pipe
		_ = cmd.Wait()
		return 1, err
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil // -1 after a signal
	}
	return 0, err
}

func mayNotSkip() bool {
	return os.Getenv("CI") == "true" || os.Getenv("LOCKGEN_TEST_REQUIRE") == "all"
}
