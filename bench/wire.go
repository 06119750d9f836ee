package main

import (
	"encoding/json"
	"time"

	"github.com/lockgen/lockgen/bench/peers"
)

// The harness and its worker processes exchange JSON, one object per line. The worker
// reads a job and then orders from stdin, and writes notes to stdout.

// job is the first thing that a worker reads.
type job struct {
	Workload string
	Peer     string
	Engine   string        // of the peer
	Addr     string        // of the server
	Board    string        // the file of the shared sections
	Prefix   string        // of every key; no other measurement has the same one
	TTL      time.Duration // of every lease
	Length   time.Duration // of the measurement
	Process  int           // 0, 1, …

	Goroutines int
	Keys       int
	Section    time.Duration // how long a holder is inside
	Redisson   int           // number of the processes, the last ones, that run Redisson
	Sticky     time.Duration // how long a released lock stays with its process
	NewKeys    bool          // every acquisition has a key of its own
	Kind       peers.Kind    // of the lock, if it is not a mutex
	Profile    string        // a file for a CPU profile, if any

	Program string `json:"-"` // the program that does the job; empty: this one
}

// order is a message from the harness to a worker.
type order struct {
	Op string // one of the ops below
	At int64  // opGo: when to begin, in ns of the system's clock
}

const (
	opGo      = "go"
	opLock    = "lock"
	opRelease = "release"
)

// note is a message from a worker to the harness.
type note struct {
	Op     string          // one of the notes below
	At     int64           `json:",omitempty"` // time of the event, in ns of the system's clock
	Waited int64           `json:",omitempty"` // how long the worker waited for it, in ns
	Error  string          `json:",omitempty"`
	Result json.RawMessage `json:",omitempty"`
}

const (
	noteReady    = "ready"    // connected, warmed up
	noteHolding  = "holding"  // has locked its keys
	noteAcquired = "acquired" // has got the lock at At, after a wait
	noteReleased = "released" // called the release at At
	noteResult   = "result"   // the last note
	noteFailed   = "failed"   // instead of a result
)
