package redislock

import "context"

// pingKey is the name of no lock: that has no empty pair of braces.
const pingKey = "lockgen:ping:{}"

// pingScript writes as a lock does, to a key that does not exist: so it changes nothing, and nobody
// has to store or copy it.
var pingScript = newScript(0, "call('SET', KEYS[1], '', 'XX', 'PX', 1)\nreturn 1\n")

// Ping implements [driver.Pinger]: it asks the server by which locks would be taken,
// in a Cluster the one of some slot, whether it is fit for them and would take a write.
func (b *Backend) Ping(ctx context.Context) error {
	if b.unusable != nil {
		return b.unusable
	}
	c := pingScript.on(pingKey)
	c.takes, c.asks = true, true
	_, _, err := b.run(ctx, c)
	return err
}
