package main

import (
	"encoding/json"
	"time"

	"github.com/lockgen/lockgen/bench/peers"
)

// The harness and its worker processes talk in JSON, one object per line: first
// a job, then orders on the worker's stdin; notes on its stdout.

// job is what a worker is told before anything else.
type job struct {
	Workload string
	Peer     string
	Engine   string        // of the peer
	Addr     string        // of the server
	Board    string        // the file of the shared sections
	Prefix   string        // of every key; no other measurement uses it
	TTL      time.Duration // of every lease
	Length   time.Duration // of the measurement
	Process  int           // 0, 1, …

	Goroutines int
	Keys       int
	Section    time.Duration // how long a holder is inside
	Redisson   int           // how many of the processes are Redisson's, the last ones
	NewKeys    bool          // every acquisition has a key of its own
	Kind       peers.Kind    // of the lock, if it is no mutex
	Profile    string        // a file for a CPU profile, if any

	Program string `json:"-"` // that does the job; empty: this one
}

// order is what the harness tells a worker.
type order struct {
	Op string // one of the ops below
	At int64  // opGo: when to begin, in ns of the system's clock
}

const (
	opGo      = "go"
	opLock    = "lock"
	opRelease = "release"
)

// note is what a worker tells the harness.
type note struct {
	Op     string          // one of the notes below
	At     int64           `json:",omitempty"` // when, in ns of the system's clock
	Error  string          `json:",omitempty"`
	Result json.RawMessage `json:",omitempty"`
}

const (
	noteReady    = "ready"    // connected, warmed up
	noteHolding  = "holding"  // has what it was to lock
	noteAcquired = "acquired" // at At, after a wait
	noteReleased = "released" // called for at At
	noteResult   = "result"   // the last one
	noteFailed   = "failed"   // instead of a result
)
