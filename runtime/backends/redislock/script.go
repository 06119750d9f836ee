package redislock

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"strconv"
	"strings"
)

// script is one Lua script: sent by its hash, and whole where the server does
// not know it (first use, SCRIPT FLUSH, restart, failover).
type script struct {
	source, hash string
	clustered    *script // the same for a Cluster, or nil
	takes        bool    // a lock
}

var (
	//go:embed acquire.lua
	acquireSource string
	//go:embed release.lua
	releaseSource string
	//go:embed renew.lua
	renewSource string

	acquireScript = taking(publishing(acquireSource))
	releaseScript = publishing(releaseSource)
	renewScript   = newScript(renewSource)
)

// newScript puts the constants of this package into source: baked in, they
// cost nothing at the server, which makes a Lua string of every argument.
func newScript(source string) *script { return newScriptOf(source, "true") }

// function returns the Lua function of this name that does what a script does.
func function(name, source string) string {
	return "local function " + name + "(KEYS, ARGV)\n" + source + "end\n"
}

func newScriptOf(source, grants string) *script {
	source = strings.NewReplacer(
		"GRAVES", strconv.FormatInt(1<<52, 10),
		"LONE", "'"+strconv.FormatInt(loneRemembered.Milliseconds(), 10)+"'",
		"TURN", strconv.FormatInt(turnLimit.Milliseconds(), 10),
		"FRESH", strconv.FormatInt(freshOffer.Microseconds(), 10),
		"GRANTS", grants,
		"QUEUE", strconv.FormatInt(queueLimit.Milliseconds(), 10),
	).Replace(source)
	sum := sha1.Sum([]byte(source)) // what EVALSHA asks for
	return &script{source: source, hash: hex.EncodeToString(sum[:])}
}

// command appends the beginning of a command that runs s on so many keys: by its hash,
// or whole.
func (s *script) command(all []any, whole bool, nkeys int) []any {
	if whole {
		return append(all, "eval", s.source, nkeys)
	}
	return append(all, "evalsha", s.hash, nkeys)
}

// publishing returns the script of a source that publishes. In a Cluster from
// 7.0 on Redisson listens on the sharded channel of the name, and would sleep
// for the whole lease without a notice; its older versions listen on the plain one,
// all that 6.2 has, and we on both. Each message goes to both, numbers as well: a '0'
// without its number is for everybody. A server without SPUBLISH, or that denies it,
// refuses it to no harm.
func publishing(source string) *script {
	const publish = "redis.pcall('PUBLISH', "
	s := newScript(source)
	s.clustered = newScriptOf(`local function publish(channel, message)
  redis.pcall('PUBLISH', channel, message)
  redis.pcall('SPUBLISH', channel, message)
end
`+strings.ReplaceAll(source, publish, "publish("), "false")
	return s
}

func taking(s *script) *script {
	s.takes, s.clustered.takes = true, true
	return s
}

// in returns s for a Cluster or for a server by itself.
func (s *script) in(cluster bool) *script {
	if cluster && s.clustered != nil {
		return s.clustered
	}
	return s
}
