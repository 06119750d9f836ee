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
type script struct{ source, hash string }

var (
	//go:embed acquire.lua
	acquireSource string
	//go:embed release.lua
	releaseSource string
	//go:embed renew.lua
	renewSource string

	acquireScript = newScript(acquireSource)
	releaseScript = newScript(releaseSource)
	renewScript   = newScript(renewSource)
)

// newScript puts the constants of this package into source: baked in, they
// cost nothing at the server, which makes a Lua string of every argument.
func newScript(source string) *script {
	source = strings.NewReplacer(
		"TURN", strconv.FormatInt(turnLimit.Milliseconds(), 10),
		"QUEUE", strconv.FormatInt(queueLimit.Milliseconds(), 10),
	).Replace(source)
	sum := sha1.Sum([]byte(source)) // what EVALSHA asks for
	return &script{source: source, hash: hex.EncodeToString(sum[:])}
}
