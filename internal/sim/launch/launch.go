// Package launch builds and runs programs that simulate. They are test binaries, because only
// a test may use testing/synctest, and use the changed runtime of package goruntime.
package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/lockgen/lockgen/internal/sim/goruntime"
)

// Env is the environment variable with the task of the program, as JSON. Without it the
// program is an ordinary test.
const Env = "LOCKGEN_SIM"

// Build builds the test binary of the package in dir as out. It keeps the changed files
// of the runtime next to out.
//
// If the changes do not fit the installed Go, Build uses the unchanged runtime: the binary
// works, but its episodes can't be repeated. Build reports this on log, and fails
// under CI=true.
func Build(dir, out string, log io.Writer) error {
	args := []string{"test", "-c", "-o", out}
	overlay, err := goruntime.Overlay(out + ".goruntime")
	switch {
	case err == nil:
		args = append(args, "-tags", goruntime.Tag, "-overlay", overlay)
	case os.Getenv("CI") == "true":
		return err
	default:
		fmt.Fprintf(log, "no episode can be repeated: %v\n", err)
	}
	build := exec.Command("go", append(args, ".")...)
	build.Dir = dir
	build.Env = append(os.Environ(), "GOWORK=off")
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go test -c: %w\n%s", err, text)
	}
	return nil
}

// Run runs the named test of binary with order, which is JSON, in its environment,
// and copies the output to [Output] to out. It reports whether the test passed. An
// error means that the program crashed; it has the program's output.
func Run(binary, test, order string, out io.Writer) (passed bool, err error) {
	read, write, err := os.Pipe()
	if err != nil {
		return false, err
	}
	cmd := exec.Command(binary, "-test.run", "^"+test+"$", "-test.timeout", "0")
	cmd.Env = append(os.Environ(), Env+"="+order)
	cmd.ExtraFiles = []*os.File{write}
	said, err := os.CreateTemp("", "lockgen-sim-")
	if err != nil {
		return false, err
	}
	defer os.Remove(said.Name())
	defer said.Close()
	cmd.Stdout, cmd.Stderr = said, said
	err = cmd.Start()
	_ = write.Close()
	if err != nil {
		return false, err
	}
	_, copyErr := io.Copy(out, read)
	err = cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return true, copyErr
	case errors.As(err, &exit) && exit.ExitCode() == 1:
		return false, copyErr
	}
	text, _ := os.ReadFile(said.Name())
	return false, fmt.Errorf("%s: %w\n%s", filepath.Base(binary), err, text)
}

// Output returns the file to which a program that [Run] has started writes its lines.
func Output() io.Writer { return os.NewFile(3, "output") }
