package redislock

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Constants of the scripts: see textOf.
const (
	// leftToRedisson is how long a free lock is left to Redisson's clients.
	leftToRedisson = 10 * time.Millisecond
	// lookAgain is how often the first in line asks meanwhile whether one of them has it.
	lookAgain = 2 * time.Millisecond
	// queueLimit is how long a queue outlives the last attempt that queued. A waiter
	// tries once a second.
	queueLimit = 10 * time.Second
	// tokenLimit is how long the last fencing token of a lock is remembered: after that
	// the server's clock is ahead of it, unless it was set back by as much. A leap second
	// sets it back by one. Tokens that are reserved ahead of the clock are remembered for
	// the length of the lease beside.
	tokenLimit = 1500 * time.Millisecond
)

type text struct{ source, hash string }

// script is one Lua script: sent by its hash, and by its source where the server does
// not know it (first use, SCRIPT FLUSH, restart, failover).
type script struct {
	text
	clustered text // for a Cluster
	letter    byte // that together.lua knows it by, or 0
}

var (
	//go:embed server.lua
	serverSource string
	//go:embed grant.lua
	grantSource string
	//go:embed acquire.lua
	acquireSource string
	//go:embed release.lua
	releaseSource string
	//go:embed renew.lua
	renewSource string

	acquireScript = newScript('a', grantSource, acquireSource)
	releaseScript = newScript('r', grantSource, releaseSource)
	renewScript   = newScript('n', renewSource)
)

func newScript(letter byte, sources ...string) *script {
	return &script{text: textOf(false, sources), clustered: textOf(true, sources), letter: letter}
}

// at returns the text of s for a node of a Cluster or for a server by itself.
func (s *script) at(cluster bool) text {
	if cluster {
		return s.clustered
	}
	return s.text
}

// ms returns d in milliseconds, as scripts take it.
func ms(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// textOf puts server.lua before sources, and the constants of this package into them: baked
// in, they cost nothing at the server, which makes a Lua string of every argument.
func textOf(cluster bool, sources []string) text {
	source := strings.NewReplacer(
		"TOKEN_LIMIT", ms(tokenLimit),
		"LOOK_AGAIN", ms(lookAgain),
		"LEFT_TO_REDISSON", ms(leftToRedisson),
		"QUEUE_LIMIT", ms(queueLimit),
		"CLUSTER", strconv.FormatBool(cluster),
	).Replace(serverSource + strings.Join(sources, ""))
	sum := sha1.Sum([]byte(source)) // what EVALSHA asks for
	return text{source, hex.EncodeToString(sum[:])}
}

// function returns a script's source as a Lua function of this name.
func function(name, source string) string {
	return "local function " + name + "(KEYS, ARGV)\n" + source + "end\n"
}

// command appends the beginning of a command that runs t on so many keys: by its hash,
// or with eval by its source. Its mark is m.
func (t text) command(all []any, m *sentMark, eval bool, nkeys int) []any {
	name := "evalsha"
	m.arg = t.hash
	if eval {
		name, m.arg = "eval", t.source
	}
	return append(all, name, m, nkeys)
}

// reply is what a server answered to a script: an int64, a string, or a list of these.
type reply struct{ value any }

// number returns the number, or 0 if it is none.
func (r reply) number() int64 {
	n, _ := r.value.(int64)
	return n
}

// list returns the numbers of a list, and the text in it.
func (r reply) list() (numbers []int64, text string) {
	all, _ := r.value.([]any)
	for _, one := range all {
		switch one := one.(type) {
		case int64:
			numbers = append(numbers, one)
		case string:
			text = one
		}
	}
	return numbers, text
}

// checkOwned returns ErrLost if the script says that the lock is not this owner's.
func (r reply) checkOwned() error {
	if _, ok := r.value.(int64); !ok {
		return r.malformed()
	}
	if r.number() == 0 {
		return driver.ErrLost
	}
	return nil
}

// malformed is the error of a reply that no script of ours gives.
func (r reply) malformed() error {
	return fmt.Errorf("the server's answer to a lock script makes no sense: %q", fmt.Sprint(r.value))
}

// read notes what the server answered to c.
func (c *call) read(value any, err error) {
	var answer redis.Error
	switch {
	case err == nil && c.mark.at.Load() == nil:
		c.err = fmt.Errorf("%w: a hook has answered in the server's place", errNotSent)
	case err == nil:
		c.reply, c.err = reply{value}, nil
	case errors.As(err, &answer):
		c.err = answer // without what a hook has written around it
	default:
		c.err = c.mark.failed(err)
	}
}
