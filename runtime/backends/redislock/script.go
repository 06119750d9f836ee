package redislock

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
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

func newScript(source string) *script {
	sum := sha1.Sum([]byte(source)) // what EVALSHA asks for
	return &script{source: source, hash: hex.EncodeToString(sum[:])}
}
