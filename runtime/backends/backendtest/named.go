package backendtest

import (
	"errors"
	"slices"
	"strings"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
)

// located are Faults that know where the engine is, as a [Network] does.
type located interface {
	Faults
	// Servers returns the addresses by which the client may know the engine's servers.
	Servers() []string
	// Refuse cuts all connections and refuses new ones, until Heal.
	Refuse()
}

// namesServer makes the engine unavailable in each way that a client can notice. An error that says
// that the engine is unavailable must name a server.
func namesServer(c *trial) {
	for what, away := range map[string]func(located){
		"that refuses connections": located.Refuse,
		"that hangs":               func(at located) { at.Silence() },
	} {
		for _, waits := range []bool{false, true} {
			l, faults := c.lockerFaulty()
			at, ok := faults.(located)
			if !ok {
				c.Log("the Faults do not say where the engine is")
				return
			}
			key, other := c.newKey(), c.open()
			lease := other.take(key)
			ctx, cancel := brief(700 * time.Millisecond)
			acquire := func() <-chan entered { return entering(ctx, l, c.policy(), key) }
			var failed <-chan entered
			if waits {
				failed = acquire()
				time.Sleep(200 * time.Millisecond)
			}
			if away(at); !waits {
				failed = acquire()
			}
			e := receive(c, "an acquire from an engine "+what, failed)
			c.namesOne("an acquire from an engine "+what, e.err, at)
			cancel()
			ctx, cancel = brief(300 * time.Millisecond)
			c.namesOne("a ping of an engine "+what, l.Ping(ctx), at)
			cancel()
			faults.Heal()
			c.free(lease)
		}
	}
}

// namesOne requires that err names one of the servers. It need not if it says that the key is held:
// then an engine has answered.
func (c *trial) namesOne(what string, err error, at located) {
	c.Helper()
	names := func(server string) bool { return strings.Contains(err.Error(), server) }
	switch {
	case err == nil:
		c.Errorf("%s succeeded", what)
	case errors.Is(err, lock.ErrNotAcquired):
	case !isUnanswered(err):
		c.Errorf("%s: %v; it must wrap ErrUnavailable or ErrIndeterminate", what, err)
	case !slices.ContainsFunc(at.Servers(), names):
		c.Errorf("%s: %v; it must name one of %q", what, err, at.Servers())
	}
	c.Logf("%s: %v", what, err)
}
