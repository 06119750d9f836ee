package redislock

import (
	"context"
	_ "embed"
	"strconv"
	"strings"
	"time"
)

// While a slot of a Cluster is on its way, the keys of a lock are in two places,
// or count as such as long as one of them does not exist: servers refuse scripts
// of several keys then (TRYAGAIN), here and there. A script of one key they send
// to where that key is. So a lock is freed and renewed by its own key; it can't be
// taken until all of it has arrived.

var (
	//go:embed releaseone.lua
	releaseOneSource string
	//go:embed buryone.lua
	buryOneSource string
	//go:embed renewone.lua
	renewOneSource string

	releaseOneScript = publishing(releaseOneSource)
	renewOneScript   = newScript(renewOneSource)
	buryOneScript    = newScript(buryOneSource)
)

// isApart reports whether err says that some keys of a call are elsewhere.
func isApart(err error) bool { return err != nil && strings.Contains(err.Error(), "TRYAGAIN ") }

// free runs r, which freeing.request made, and by the lock's own key if it must: then
// unused tokens are not given back and nobody is called from the queue. Both
// are over within a second by themselves.
func (b *Backend) free(ctx context.Context, name string, r request, tombstone time.Duration) (c *call, unanswered bool, err error) {
	r.splits = true
	c, unanswered, err = b.run(ctx, name, r)
	if !isApart(err) {
		return c, unanswered, err
	}
	id, channel, lock, queue := r.args[0], r.args[1], r.keys[0], r.keys[1]
	if tombstone > 0 { // first, so that no late acquire comes between
		bury := request{script: buryOneScript, keys: [3]string{queue}, nkeys: 1, nargs: 2,
			args: [7]string{id, strconv.FormatInt(tombstone.Milliseconds(), 10)}}
		if _, _, err := b.run(ctx, name, bury); err != nil {
			return nil, unanswered, err
		}
	}
	one := request{script: releaseOneScript, keys: [3]string{lock}, nkeys: 1, args: [7]string{id, channel}, nargs: 2}
	c, again, err := b.run(ctx, name, one)
	return c, unanswered || again, err
}
