package locks_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/debug/locks"
	"github.com/lockgen/lockgen/runtime/locktest"
)

// raw returns what go tool pprof reads of a profile.
func raw(t *testing.T, profile []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "profile.pb.gz")
	require.NoError(t, os.WriteFile(file, profile, 0o666))
	out, err := exec.Command("go", "tool", "pprof", "-raw", file).CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

func holdsLock(l *lock.Locker, d time.Duration) error {
	_, held, err := l.Acquire(context.Background(), buy, "shop:1")
	if err != nil {
		return err
	}
	time.Sleep(d)
	held.Release(&err)
	return err
}

func refusedLock(l *lock.Locker) error {
	p := *buy
	p.Wait = 2 * time.Second
	_, _, err := l.Acquire(context.Background(), &p, "shop:1")
	return err
}

func TestProfiles(t *testing.T) {
	var wait, hold, later []byte
	synctest.Test(t, func(t *testing.T) {
		m := locks.New(&locks.Options{ProfileFraction: 1})
		l := locktest.New(t).Locker(&lock.Options{Observer: m})
		go holdsLock(l, 3*time.Second)
		synctest.Wait()
		if err := refusedLock(l); !errors.Is(err, lock.ErrNotAcquired) {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		require.NoError(t, holdsLock(l, time.Second))
		wait, hold = []byte(body(t, m, "?profile=wait")), []byte(body(t, m, "?profile=hold"))
		go func() {
			time.Sleep(time.Second)
			holdsLock(l, 5*time.Second)
		}()
		later = []byte(body(t, m, "?profile=hold&seconds=10"))
	})
	text := raw(t, wait)
	require.Contains(t, text, "PeriodType: lockgen_wait count\nPeriod: 1\n")
	require.Contains(t, text, "lockgen_wait_count/count lockgen_wait_delay/nanoseconds[dflt]")
	require.Regexp(t, ` 1 2000000000: \d+ \d+ .*\n +method:\[Shop.Buy\]\n? +pattern:\[shop:<id>\]`, text)
	require.Regexp(t, `: 0x0 M=1 github.com/lockgen/lockgen/runtime.\(\*Locker\).Acquire \S+locker.go:\d+`, text)
	require.Regexp(t, `locks_test.refusedLock \S+profile_test.go:\d+`, text)
	require.NotRegexp(t, `observe|\bMonitor\b`, text, "our own frames")

	text = raw(t, hold)
	require.Regexp(t, ` 1 3000000000: `, text)
	require.Regexp(t, ` 1 1000000000: `, text)
	require.Regexp(t, `runtime.\(\*Hold\).Release`, text)
	text = raw(t, later)
	require.Regexp(t, ` 1 5000000000: `, text)
	require.NotRegexp(t, `\b[13]000000000: `, text, "what came before the seconds that were asked for")
}

func TestProfilesAreOff(t *testing.T) {
	ask := func(m *locks.Monitor, query string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		m.ServeHTTP(w, httptest.NewRequest("GET", "/"+query, nil))
		return w
	}
	w := ask(locks.New(nil), "?profile=wait")
	require.Equal(t, http.StatusNotFound, w.Code)
	require.Contains(t, w.Body.String(), "ProfileFraction")
	on := locks.New(&locks.Options{ProfileFraction: 1})
	require.Contains(t, ask(on, "?profile=cpu").Body.String(), "profile=hold")
	require.Equal(t, http.StatusBadRequest, ask(on, "?profile=hold&seconds=0").Code)
	require.Regexp(t, regexp.MustCompile("seconds is 1 to 300"), ask(on, "?profile=hold&seconds=0").Body.String())
}
