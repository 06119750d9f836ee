package consullock

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// refuses requires that an acquire fails at once, with an error that wraps kind and contains all of says.
func refuses(t *testing.T, b *Backend, a *driver.Acquisition, kind error, says ...string) {
	t.Helper()
	begin := time.Now()
	_, err := b.Acquire(within(t, soon), a)
	require.Error(t, err)
	require.Less(t, time.Since(begin), 3*time.Second+meter.Since(begin), "the refusal must come at once")
	if kind != nil {
		require.ErrorIs(t, err, kind)
	} else {
		for _, wrong := range []error{lock.ErrInvalid, lock.ErrConflict, lock.ErrIndeterminate} {
			require.NotErrorIs(t, err, wrong)
		}
	}
	for _, part := range says {
		require.ErrorContains(t, err, part)
	}
	require.False(t, a.MayHaveRun)
}

func TestAbsentServer(t *testing.T) {
	gone := testserver.StartConsul(t)
	gone.Kill()
	b := newBackend(t, gone.Addr())
	refuses(t, b, attempt(newKey(t)), nil, "connection refused", "CONSUL_HTTP_ADDR")
	_, _, err := newLocker(t, gone.Addr()).Acquire(t.Context(), nil, newKey(t))
	wantIs(t, err, lock.ErrUnavailable)
}

// With a nil client, each call returns an error that says so.
func TestNilClient(t *testing.T) {
	b := New(nil)
	mutex, fair := attempt(newKey(t)), attempt(newKey(t))
	fair.Mode.Kind = driver.Fair
	for _, a := range []*driver.Acquisition{mutex, fair} {
		refuses(t, b, a, lock.ErrInvalid, "api.NewClient", "nil")
		_, err := b.Subscribe(t.Context(), a)
		require.ErrorIs(t, err, lock.ErrInvalid)
		require.NoError(t, b.Undo(t.Context(), a))
	}
	require.ErrorIs(t, b.Ping(t.Context()), lock.ErrInvalid)
	require.ErrorIs(t, b.PutNote(t.Context(), "process/x", "text", time.Minute), lock.ErrInvalid)
	require.NoError(t, b.Close())
}

// A ttl outside the server's range is refused with an error that names the range,
// even if the session, which is longer, would be within the range.
func TestRangeOfTTLs(t *testing.T) {
	strict := testserver.StartConsul(t, "-hcl", `session_ttl_min="10s"`).Addr()
	b := newBackend(t, strict)
	for _, d := range []time.Duration{time.Millisecond, 5 * time.Second, 9 * time.Second, 13 * time.Hour} {
		a := attempt(newKey(t))
		a.TTL = d
		refuses(t, b, a, lock.ErrInvalid, d.String(), "10s", "12h0m0s", "session_ttl_min")
	}
	a := attempt(newKey(t))
	a.TTL = 13 * time.Hour // the new Backend has not asked its server for the range yet
	refuses(t, newBackend(t, testserver.Consul(t)), a, lock.ErrInvalid, "from session_ttl_min (10s unless set) to 12h0m0s")
	a.TTL = 10 * time.Second
	release(t, take(t, b, a))
	a.TTL = 12 * time.Hour
	l := take(t, b, a)
	require.NoError(t, l.Renew(t.Context(), a.TTL))
	release(t, l)
}

// A key that /v1/kv would change or refuse is refused by the Backend, and nothing is sent.
func TestRefusedKeys(t *testing.T) {
	c, config := counting()
	b := newBackend(t, testserver.Consul(t), config)
	for _, key := range []string{
		"", "/a", "a//b", "a/../b", "../a", "..", ".", "a/.", "a/..", " a", "a ", "a\xff", strings.Repeat("k", maxKey+1), "lockgen/queue/a",
	} {
		refuses(t, b, attempt(key), lock.ErrInvalid, "Consul can't have the key")
		require.NoError(t, b.Undo(t.Context(), attempt(key)))
	}
	require.Empty(t, c.take())
}

const withACL = `acl{enabled=true default_policy="deny" tokens{initial_management="00000000-0000-0000-0000-000000000001"}}`

func token(id string) func(*api.Config) { return func(c *api.Config) { c.Token = id } }

// The rights that doc.go names are enough, and each of them is needed.
func TestLeastRights(t *testing.T) {
	addr := testserver.StartConsul(t, "-hcl", withACL).Addr()
	root := newClient(t, addr, token("00000000-0000-0000-0000-000000000001"))
	eventually(t, soon, "the server knows its token and its node", func() bool {
		id, _, err := root.Session().CreateNoChecks(&api.SessionEntry{TTL: "10s"}, nil)
		if err == nil {
			_, err = root.Session().Destroy(id, nil)
		}
		return err == nil
	})
	rules := []string{
		`session_prefix "" { policy = "write" }`,
		`key_prefix "seckill:" { policy = "write" }`,
		`key_prefix "lockgen/" { policy = "write" }`,
	}
	grant := func(name string, rules ...string) *Backend {
		p, _, err := root.ACL().PolicyCreate(&api.ACLPolicy{Name: name, Rules: strings.Join(rules, "\n")}, nil)
		require.NoError(t, err)
		made, _, err := root.ACL().TokenCreate(&api.ACLToken{Policies: []*api.ACLLink{{ID: p.ID}}}, nil)
		require.NoError(t, err)
		return newBackend(t, addr, token(made.SecretID))
	}
	b := grant("enough", rules...)
	l := lockerOn(t, b)
	p := ttl(3 * short)
	ctx, held := acquire(t, l, p, "seckill:1")
	other := lockerOn(t, grant("enough-too", rules...))
	entered := make(chan error, 2)
	for _, l := range []*lock.Locker{l, other} {
		go func() {
			entered <- l.Do(context.Background(), p, "seckill:1", func(context.Context) error { return nil })
		}()
	}
	time.Sleep(2 * short) // the lease is renewed
	require.NoError(t, lock.Check(ctx))
	mustRelease(t, held)
	for range 2 {
		require.NoError(t, receive(t, entered))
	}
	refuses(t, b, attempt("elsewhere:1"), nil, "Permission denied", "key:write")

	for i, missing := range []string{"session:write", "key:write", "lockgen/"} {
		some := append(append([]string{}, rules[:i]...), rules[i+1:]...)
		refuses(t, grant("without-"+string(rune('0'+i)), some...), attempt("seckill:2"), nil, "Permission denied", missing)
	}
	unknown := newBackend(t, addr, token("11111111-1111-1111-1111-111111111111"))
	refuses(t, unknown, attempt("seckill:3"), nil, "ACL not found", "CONSUL_HTTP_TOKEN")

	require.NoError(t, b.Ping(t.Context()))
	require.ErrorContains(t, unknown.Ping(t.Context()), "CONSUL_HTTP_TOKEN")
	require.ErrorContains(t, grant("sessionless", rules[1:]...).Ping(t.Context()), "session:write")
}

func TestPing(t *testing.T) {
	server := testserver.StartConsul(t)
	b := newBackend(t, server.Addr())
	for range 2 { // each Ping sends a request
		require.NoError(t, b.Ping(t.Context()))
	}
	sessions, _, err := newClient(t, server.Addr()).Session().List(nil)
	require.NoError(t, err)
	require.Empty(t, sessions)
	server.Kill()
	// The open connection of b may report how it ended. A new connection is refused.
	require.ErrorContains(t, newBackend(t, server.Addr()).Ping(t.Context()), "CONSUL_HTTP_ADDR")

	l := lock.New(New(nil), nil)
	require.ErrorIs(t, l.Ping(t.Context()), lock.ErrInvalid)
	require.NoError(t, l.Close(t.Context()))
	wantIs(t, l.Ping(t.Context()), lock.ErrClosed)
}

// A Ping returns soon after its context ended, whatever the server does.
func TestPingUnanswered(t *testing.T) {
	p := faultproxy.NewStream(t, testserver.Consul(t))
	p.Hole(faultproxy.Replies)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begin := time.Now()
	require.ErrorIs(t, newBackend(t, p.Addr()).Ping(ctx), context.DeadlineExceeded)
	require.Less(t, time.Since(begin), 3*time.Second+meter.Since(begin))
}

// broken gives every request the same answer.
type broken struct {
	status int
	body   string
}

func (b broken) RoundTrip(r *http.Request) (*http.Response, error) {
	w := &http.Response{StatusCode: b.status, Header: http.Header{}, Request: r}
	w.Body = struct {
		*strings.Reader
		nopCloser
	}{strings.NewReader(b.body), nopCloser{}}
	return w, nil
}

type nopCloser struct{}

func (nopCloser) Close() error { return nil }

// A URL without a host means the agent that the environment names.
func TestURLWithoutAHost(t *testing.T) {
	t.Setenv("CONSUL_HTTP_ADDR", "agent:99")
	for url, address := range map[string]string{"consul://?dc=paris": "agent:99", "consul://host": "host:8500", "consul://[::1]:98": "[::1]:98"} {
		c, err := configOf(url)
		require.NoError(t, err)
		require.Equal(t, address, c.Address, url)
	}
}

// If the server's error means that it has done nothing, the outcome is known. If the server may have
// lost its leader half-way, the outcome is open.
func TestAnswersThatLeaveTheOutcomeOpen(t *testing.T) {
	for body, open := range map[string]bool{
		"No cluster leader": false,
		"rate limit exceeded, try again later or against a different server": false,
		"Your IP is issuing too many concurrent connections":                 false,
		"rpc error making call: EOF":                                         true,
		"leadership lost while committing log":                               true,
		"":                                                                   true,
	} {
		client := newClient(t, "127.0.0.1:1", func(c *api.Config) {
			c.HttpClient = &http.Client{Transport: broken{http.StatusInternalServerError, body}}
		})
		b := New(client)
		_, err := b.write(t.Context(), ops{unchanged("k", 0)})
		require.Equal(t, open, strings.Contains(err.Error(), errNoAnswer.Error()), body)
		require.NoError(t, b.Close())
	}
}
