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
	//go:embed tombstone.lua
	tombstoneSource string

	releaseOneScript = newLockScript(releaseOneSource)
	tombstoneScript  = newScript(tombstoneSource)
)

// isApart reports whether err says that some keys of a call are elsewhere.
func isApart(err error) bool { return err != nil && strings.Contains(err.Error(), "TRYAGAIN ") }

// free runs r, which freeing.request made and began may have begun, and by the lock's own key if it must: then
// unused tokens are not given back and nobody in the queue is told. Both are over within a second by themselves.
func (b *Backend) free(ctx context.Context, name string, r request, tombstone time.Duration, began *attempt) (c *call, unanswered bool, err error) {
	r.splits = true
	c, unanswered, err = b.goOn(ctx, name, r, began)
	if !isApart(err) {
		return c, unanswered, err
	}
	id, channel, lock := r.args[0], r.args[1], r.keys[0]
	if tombstone > 0 { // first, so that no late acquire comes between
		leave := request{script: tombstoneScript, keys: [4]string{r.keys[3]}, nkeys: 1,
			args: [5]string{strconv.FormatInt(tombstone.Milliseconds(), 10)}, nargs: 1}
		if _, _, err := b.run(ctx, name, leave); err != nil {
			return nil, unanswered, err
		}
	}
	one := request{script: releaseOneScript, keys: [4]string{lock}, nkeys: 1, args: [5]string{id, channel}, nargs: 2}
	c, again, err := b.run(ctx, name, one)
	return c, unanswered || again, err
}
