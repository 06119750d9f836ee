package backendtest_test

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/backendtest"
)

// A storm finds nothing wrong with an engine that is right.
func TestStormOnARightBackend(t *testing.T) {
	t.Parallel()
	backendtest.Storm(t, newEngine("").harness(), time.Second, 1)
}

// stormSees maps mutants to a part of the message with which a storm fails on them.
var stormSees = map[mutant]string{
	racesWithItself: "two held",
	expiresEarly:    "two held",
	undoesOthers:    "two held",
	repeatsTokens:   "had token",
}

func TestStormCatchesMutants(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for m, words := range stormSees {
		all.Go(func() {
			cmd := exec.Command(self, "-test.run", "^TestMutant$", "-test.timeout", "1m")
			cmd.Env = append(os.Environ(), asMutant+"="+string(m), backendtest.StormEnv+"=4s,1", "GORACE=atexit_sleep_ms=0")
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), words) {
				t.Errorf("the mutant %q: %v; want %q in:\n%s", m, err, words, out)
			}
		})
	}
	all.Wait()
}

// A wrong value of StormEnv is an error. The suite does not run instead.
func TestStormAskedForInVain(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, asked := range []string{"soon", "1s,x", "60"} {
		cmd := exec.Command(self, "-test.run", "^TestMutant$")
		cmd.Env = append(os.Environ(), asMutant+"="+string(racesWithItself), backendtest.StormEnv+"="+asked)
		out, err := cmd.CombinedOutput()
		if want := `LOCKGEN_STORM="` + asked + `"`; err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%v; want %q in:\n%s", err, want, out)
		}
	}
}
