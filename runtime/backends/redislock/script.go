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
	source, hash string
	clustered    *script // the same for a Cluster, or nil
	takes        bool    // a lock
	letter       byte    // that together.lua knows it by, or 0
}

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

	acquireScript = taking(newLockScript(grantSource + acquireSource)).named('a')
	releaseScript = newLockScript(grantSource + releaseSource).named('r')
	renewScript   = newScript(renewSource).named('n')
)

// newScript puts the constants of this package into source: baked in, they
// cost nothing at the server, which makes a Lua string of every argument.
func newScript(source string) *script {
	source = strings.NewReplacer(
		"FORGET", ms(tokenLimit),
		"LOOK", ms(lookAgain),
		"AWAY", ms(leftToRedisson),
		"QUEUE", ms(queueLimit),
	).Replace(source)
	sum := sha1.Sum([]byte(source)) // what EVALSHA asks for
	return &script{source: source, hash: hex.EncodeToString(sum[:])}
}

// newLockScript is newScript for a source that tells others about a lock.
func newLockScript(source string) *script {
	s := newScript(singleSource + source)
	s.clustered = newScript(clusterSource + source)
	return s
}

// function returns the Lua function of this name that does what a script does.
func function(name, source string) string {
	return "local function " + name + "(KEYS, ARGV)\n" + source + "end\n"
}

// command appends the beginning of a command that runs s on so many keys: by its hash,
// or whole.
func (s *script) command(all []any, whole bool, nkeys int) []any {
	if whole {
		return append(all, "eval", s.source, nkeys)
	}
	return append(all, "evalsha", s.hash, nkeys)
}

func taking(s *script) *script {
	s.takes, s.clustered.takes = true, true
	return s
}

func (s *script) named(letter byte) *script {
	s.letter = letter
	if s.clustered != nil {
		s.clustered.letter = letter
	}
	return s
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

// in returns s for a Cluster or for a server by itself.
func (s *script) in(cluster bool) *script {
	if cluster && s.clustered != nil {
		return s.clustered
	}
	return s
}
