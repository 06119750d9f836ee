package redislock

import (
	_ "embed"
	"strconv"
	"time"
)

// script is one Lua script: sent by its hash, and whole where the server does
// not know it (first use, SCRIPT FLUSH, restart, failover).
type script struct {
	text
	clustered text // for a Cluster
	takes     bool // a lock
	renews    bool // a lease, by the standby
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

	acquireScript = taking('a', grantSource, acquireSource)
	releaseScript = newScript('r', grantSource, releaseSource)
	renewScript   = renewing('n', renewSource)
)

func newScript(letter byte, sources ...string) *script {
	return &script{text: textOf(false, sources), clustered: textOf(true, sources), letter: letter}
}

// taking is newScript for one that takes a lock.
func taking(letter byte, sources ...string) *script {
	s := newScript(letter, sources...)
	s.takes = true
	return s
}

// renewing is newScript for one that renews a lease.
func renewing(letter byte, sources ...string) *script {
	s := newScript(letter, sources...)
	s.renews = true
	return s
}

// at returns the text of s for a node of a Cluster or for a server by itself.
func (s *script) at(cluster bool) text {
	if cluster {
		return s.clustered
	}
	return s.text
}

// ms returns d as scripts are told it.
func ms(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
