package redislock

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// script is one Lua script: sent by its hash, and whole where the server does
// not know it (first use, SCRIPT FLUSH, restart, failover).
type script struct {
	text
	clustered text // for a Cluster
	takes     bool // a lock
	letter    byte // that together.lua knows it by, or 0
}

type text struct{ source, hash string }

var (
	//go:embed single.lua
	singleSource string
	//go:embed cluster.lua
	clusterSource string
	//go:embed grant.lua
	grantSource string
	//go:embed acquire.lua
	acquireSource string
	//go:embed release.lua
	releaseSource string
	//go:embed renew.lua
	renewSource string

	acquireScript = taking('a', grantSource, acquireSource)
	releaseScript = newScript('r', grantSource, releaseSource)
	renewScript   = newScript('n', renewSource)
)

// newScript returns the script of sources, before which it puts what both kinds of server
// have by their own ways.
func newScript(letter byte, sources ...string) *script {
	return &script{
		text:      textOf(append([]string{singleSource}, sources...)),
		clustered: textOf(append([]string{clusterSource}, sources...)),
		letter:    letter,
	}
}

// taking is newScript for one that takes a lock.
func taking(letter byte, sources ...string) *script {
	s := newScript(letter, sources...)
	s.takes = true
	return s
}

// textOf puts the constants of this package into sources: baked in, they
// cost nothing at the server, which makes a Lua string of every argument.
func textOf(sources []string) text {
	source := strings.NewReplacer(
		"FORGET", ms(tokenLimit),
		"LOOK", ms(lookAgain),
		"AWAY", ms(leftToRedisson),
		"QUEUE", ms(queueLimit),
	).Replace(strings.Join(sources, ""))
	sum := sha1.Sum([]byte(source)) // what EVALSHA asks for
	return text{source, hex.EncodeToString(sum[:])}
}

// function returns the Lua function of this name that does what a script does.
func function(name, source string) string {
	return "local function " + name + "(KEYS, ARGV)\n" + source + "end\n"
}

// command appends the beginning of a command that runs t on so many keys: by its hash,
// or whole.
func (t text) command(all []any, whole bool, nkeys int) []any {
	if whole {
		return append(all, "eval", t.source, nkeys)
	}
	return append(all, "evalsha", t.hash, nkeys)
}

// at returns the text of s for a node of a Cluster or for a server by itself.
func (s *script) at(cluster bool) text {
	if cluster {
		return s.clustered
	}
	return s.text
}

// on returns a request that runs s on keys.
func (s *script) on(keys ...string) request {
	r := request{script: s}
	r.nkeys = copy(r.keys[:], keys)
	return r
}

// with returns r with these arguments, but for empty ones behind the last that is not.
func (r request) with(args ...string) request {
	copy(r.args[:], args)
	for r.nargs = len(args); r.nargs > 1 && args[r.nargs-1] == ""; r.nargs-- {
	}
	return r
}

// ms returns d as scripts are told it.
func ms(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
