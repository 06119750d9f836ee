package consullock

import (
	"net/http"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// The lock has the layout of api.Lock: the key itself, its flags, a session. A release
// deletes the key and leaves nothing else.
func TestLayout(t *testing.T) {
	addr := testserver.Consul(t)
	b, a := newBackend(t, addr), attempt(newKey(t))
	l := take(t, b, a)
	p := pair(t, addr, a.Key)
	require.Equal(t, uint64(0x2ddccbc058a50c18), p.Flags)
	require.Equal(t, a.ID, string(p.Value))
	require.NotEmpty(t, p.Session)
	first, n := l.Tokens()
	require.Equal(t, p.ModifyIndex<<16, first)
	require.Equal(t, uint64(1), n)
	s, _, err := newClient(t, addr).Session().Info(p.Session, nil)
	require.NoError(t, err)
	require.Empty(t, s.NodeChecks, "a check could end the session early")
	require.Empty(t, s.ServiceChecks)
	release(t, l)
	require.Nil(t, pair(t, addr, a.Key))
}

// asks records the paths of the requests.
type asks struct {
	http.RoundTripper
	paths *[]string
}

func (a asks) RoundTrip(r *http.Request) (*http.Response, error) {
	*a.paths = append(*a.paths, r.URL.Path)
	return a.RoundTripper.RoundTrip(r)
}

// A list requests the keys that begin as the pattern does, as far as Consul accepts that beginning. It
// sends no request if no lock can have a matching key.
func TestListAsksForABeginning(t *testing.T) {
	var paths []string
	b := newBackend(t, testserver.Consul(t), func(c *api.Config) { c.HttpClient = &http.Client{Transport: asks{c.Transport, &paths}} })
	key := newKey(t)
	l := take(t, newBackend(t, testserver.Consul(t)), attempt(key+"/.a"))
	for pattern, want := range map[string]string{
		key + "/.a": key + "/.a", key + "/.*": key + "/", key + "/..*": key + "/", key + "/*": key + "/", key + "?*": key,
		key + "//*": "", "/" + key + "*": "", "../*": "",
	} {
		paths = nil
		found := 0
		for info, err := range b.Locks(t.Context(), pattern) {
			require.NoError(t, err)
			require.Equal(t, key+"/.a", info.Key)
			found++
		}
		if want == "" {
			require.Empty(t, paths, pattern)
			continue
		}
		require.Equal(t, "/v1/kv/"+want, paths[0], pattern)
		if pattern != key+"/..*" {
			require.Equal(t, 1, found, pattern)
		}
	}
	release(t, l)
}

// A lock with a key that we refuse does not keep the locks after it out of a list.
func TestListBesideAStrangeKey(t *testing.T) {
	addr := testserver.Consul(t)
	b, c, key := newBackend(t, addr), newClient(t, addr), newKey(t)
	s, _, err := c.Session().CreateNoChecks(&api.SessionEntry{}, nil)
	require.NoError(t, err)
	done, _, _, err := c.Txn().Txn(ops{kv(api.KVLock, api.KVTxnOp{Key: key + "//a", Session: s, Flags: lockFlag})}, nil)
	require.NoError(t, err)
	require.True(t, done)
	l := take(t, b, attempt(key+"/b"))
	var listed []string
	for info, err := range b.Locks(t.Context(), key+"*") {
		require.NoError(t, err)
		listed = append(listed, info.Key)
	}
	require.Equal(t, []string{key + "/b"}, listed)
	release(t, l)
}

// A key that existed before, unlocked, is not deleted by a release, so its LockIndex continues. Its
// value is the ID of the last holder.
func TestKeyOfAnotherClientStays(t *testing.T) {
	addr := testserver.Consul(t)
	b, key := newBackend(t, addr), newKey(t)
	theirs, err := newClient(t, addr).LockOpts(&api.LockOptions{Key: key, Value: []byte("theirs")})
	require.NoError(t, err)
	_, err = theirs.Lock(nil)
	require.NoError(t, err)
	require.NoError(t, theirs.Unlock())
	before := pair(t, addr, key)
	var last *driver.Acquisition
	for range 2 {
		last = attempt(key)
		l := take(t, b, last)
		mustHeld(t, b, attempt(key))
		release(t, l)
	}
	after := pair(t, addr, key)
	require.Equal(t, before.CreateIndex, after.CreateIndex)
	require.Equal(t, before.LockIndex+2, after.LockIndex)
	require.Equal(t, last.ID, string(after.Value))
	require.Empty(t, after.Session)
	require.NoError(t, theirs.Destroy())
}

// A key that a process created is deleted with its session when the process dies.
func TestOwnKeyGoesWithTheSession(t *testing.T) {
	addr := testserver.Consul(t)
	b, a := newBackend(t, addr), attempt(newKey(t))
	take(t, b, a)
	endSession(t, addr, pair(t, addr, a.Key).Session)
	require.Nil(t, pair(t, addr, a.Key))
}

// One session holds all locks of a Backend, so Consul itself would let one acquisition take
// the key that another holds. The Backend must not.
func TestAcquisitionsOfOneSessionExclude(t *testing.T) {
	addr := testserver.Consul(t)
	b, key := newBackend(t, addr), newKey(t)
	first := take(t, b, attempt(key))
	index := pair(t, addr, key).ModifyIndex
	mustHeld(t, b, attempt(key))
	require.Equal(t, index, pair(t, addr, key).ModifyIndex)
	other := attempt(key)
	require.NoError(t, b.Undo(t.Context(), other))
	require.NotNil(t, pair(t, addr, key), "the undo of another acquisition must free nothing")
	release(t, first)
	second := take(t, b, other)
	wantIs(t, first.Release(t.Context(), 0), lock.ErrLost)
	require.NotNil(t, pair(t, addr, key))
	release(t, second)
}

// api.Lock and ours exclude each other, in both directions, and a release wakes
// the other side.
func TestExcludesAPILock(t *testing.T) {
	addr := testserver.Consul(t)
	c, config := counting()
	l, b, key := newLocker(t, addr, config), newBackend(t, addr), newKey(t)
	theirs, err := newClient(t, addr).LockKey(key)
	require.NoError(t, err)

	_, err = theirs.Lock(nil)
	require.NoError(t, err)
	mustHeld(t, b, attempt(key))
	ours := start(l, ttl(long), key)
	queued(t, addr, key, 1)
	asked := 0
	eventually(t, soon, "the blocking query is under way", func() bool {
		asked += c.take()["GET kv"]
		return asked >= 1
	})
	begin := time.Now()
	require.NoError(t, theirs.Unlock())
	o := receive(t, ours)
	t.Logf("woken by api.Lock in %v", time.Since(begin))
	require.Less(t, time.Since(begin), 500*time.Millisecond+meter.Since(begin))

	locked := make(chan time.Time, 1)
	go func() {
		if _, err := theirs.Lock(nil); err == nil {
			locked <- time.Now()
		}
	}()
	select {
	case <-locked:
		t.Fatal("api.Lock took a key that is held")
	case <-time.After(200 * time.Millisecond):
	}
	begin = time.Now()
	mustRelease(t, o.held)
	at := receive(t, locked)
	t.Logf("api.Lock woken in %v", at.Sub(begin))
	mustHeld(t, b, attempt(key))
	require.NoError(t, theirs.Unlock())
	require.NoError(t, theirs.Destroy())
}

// S39: data at the key that is not a lock stays as it is.
func TestForeignValueIsAConflict(t *testing.T) {
	addr := testserver.Consul(t)
	b, kv := newBackend(t, addr), newClient(t, addr).KV()
	for name, p := range map[string]*api.KVPair{
		"a pair with flags 0x0":        {Value: []byte("theirs")},
		"a pair with flags 0x7":        {Value: []byte("theirs"), Flags: 7},
		"a contender of api.Semaphore": {Value: []byte("{}"), Flags: api.SemaphoreFlagValue},
	} {
		p.Key = newKey(t)
		_, err := kv.Put(p, nil)
		require.NoError(t, err)
		a := attempt(p.Key)
		_, err = b.Acquire(t.Context(), a)
		wantIs(t, err, lock.ErrConflict)
		require.ErrorContains(t, err, name)
		require.False(t, a.MayHaveRun)
		require.NoError(t, b.Undo(t.Context(), a))
		for _, kind := range []driver.Kind{driver.Read, driver.Write, driver.Fair, driver.Permits} {
			a = attempt(p.Key)
			if a.Mode.Kind = kind; kind == driver.Permits {
				a.Mode.Permits, a.Mode.Weight = 2, 1
			}
			_, err = b.Acquire(t.Context(), a)
			wantIs(t, err, lock.ErrConflict)
			require.ErrorContains(t, err, name)
		}
		require.Equal(t, string(p.Value), string(pair(t, addr, p.Key).Value), name)
		_, err = kv.Delete(p.Key, nil)
		require.NoError(t, err)
	}
}

// If an operator writes to a key that is held, the holder keeps the lock, and the release does not delete
// what was written.
func TestWriteToAHeldKey(t *testing.T) {
	addr := testserver.Consul(t)
	b, a := newBackend(t, addr), attempt(newKey(t))
	kv := newClient(t, addr).KV()
	l := take(t, b, a)
	_, err := kv.Put(&api.KVPair{Key: a.Key, Value: []byte("note"), Flags: lockFlag}, nil)
	require.NoError(t, err)
	require.NoError(t, l.Renew(t.Context(), long))
	mustHeld(t, b, attempt(a.Key))
	release(t, l)
	p := pair(t, addr, a.Key)
	require.Equal(t, "note", string(p.Value))
	require.Empty(t, p.Session)
	_, err = kv.Delete(a.Key, nil)
	require.NoError(t, err)
}

func endSession(t testing.TB, addr, id string) {
	t.Helper()
	_, err := newClient(t, addr).Session().Destroy(id, nil)
	require.NoError(t, err)
}

// A lock is listed even by a pattern whose beginning /v1/kv would refuse, because it decodes the path twice.
func TestListByAPatternThatIsRefused(t *testing.T) {
	b := newBackend(t, testserver.Consul(t))
	for _, part := range []string{"%20", "%2E%2E/", "x"} {
		key := newKey(t) + ":a" + part + "b"
		l := take(t, b, attempt(key))
		var listed []string
		for info, err := range b.Locks(t.Context(), key+"*") {
			require.NoError(t, err)
			listed = append(listed, info.Key)
		}
		require.Equal(t, []string{key}, listed)
		release(t, l)
	}
}
