package client

import (
	"fmt"

	"github.com/go-zookeeper/zk"
)

// The operations, as org.apache.zookeeper.ZooDefs.OpCode numbers them.
const (
	opCreate          int32 = 1
	opDelete          int32 = 2
	opExists          int32 = 3
	opGetData         int32 = 4
	opGetChildren2    int32 = 12
	opCreate2         int32 = 15
	opCreateContainer int32 = 19
	opAuth            int32 = 100
	opSetWatches      int32 = 101
	opClose           int32 = -11
)

// Request is one request to the ensemble. It may be sent any number of times.
type Request struct {
	op    int32
	body  []byte
	watch string // the node that the server is asked to watch
}

// Answer is what a server answered.
type Answer struct {
	// Err is nil, an error of package zk that the server answered, or wraps
	// ErrNoAnswer.
	Err error
	// Link is the number of the connection that brought the answer.
	Link     uint64
	Path     string   // of a node that was created, with its sequence number
	Stat     zk.Stat  // of the node that was created or asked for; of the directory
	Children []string // names
}

// Create makes a node of the mode zk.FlagEphemeralSequential, zk.FlagPersistent or
// zk.FlagContainer. The answer has the node's Stat, except for zk.FlagPersistent.
func Create(path string, data []byte, acl []zk.ACL, mode int32) Request {
	var e encoder
	e.string(path)
	e.bytes(data)
	e.int32(int32(len(acl)))
	for _, one := range acl {
		e.int32(one.Perms)
		e.string(one.Scheme)
		e.string(one.ID)
	}
	e.int32(mode)
	switch mode {
	case zk.FlagContainer:
		return Request{op: opCreateContainer, body: e}
	case zk.FlagPersistent: // in the words of servers before 3.5
		return Request{op: opCreate, body: e}
	}
	return Request{op: opCreate2, body: e}
}

// Delete deletes a node, of whatever version.
func Delete(path string) Request {
	var e encoder
	e.string(path)
	e.int32(-1)
	return Request{op: opDelete, body: e}
}

// Exists asks for a node's Stat.
func Exists(path string) Request { return Request{op: opExists, body: asked(path, false)} }

// Children asks for the names of a node's children, and for its own Stat.
func Children(path string) Request { return Request{op: opGetChildren2, body: asked(path, false)} }

// Watch asks for a node's Stat, and to be told once when the node changes or goes:
// see Config.Event. It fails with zk.ErrNoNode, and watches nothing, if the node is
// not there.
func Watch(path string) Request {
	return Request{op: opGetData, body: asked(path, true), watch: path}
}

func asked(path string, watch bool) []byte {
	var e encoder
	e.string(path)
	e.bool(watch)
	return e
}

// IsWrite reports whether a majority of the servers has to agree on the answer.
func (r Request) IsWrite() bool {
	switch r.op {
	case opCreate, opCreate2, opCreateContainer, opDelete:
		return true
	}
	return false
}

// decode reads the answer to r behind its header.
func (r Request) decode(d *decoder) (a Answer) {
	switch r.op {
	case opCreate:
		a.Path = d.string()
	case opCreate2, opCreateContainer:
		a.Path, a.Stat = d.string(), d.stat()
	case opExists:
		a.Stat = d.stat()
	case opGetData:
		d.bytes()
		a.Stat = d.stat()
	case opGetChildren2:
		a.Children, a.Stat = d.strings(), d.stat()
	}
	return a
}

// errorOf returns the error that a server means by code, nil for 0.
func errorOf(code int32) error {
	switch code {
	case 0:
		return nil
	case -101:
		return zk.ErrNoNode
	case -102:
		return zk.ErrNoAuth
	case -108:
		return zk.ErrNoChildrenForEphemerals
	case -110:
		return zk.ErrNodeExists
	case -111:
		return zk.ErrNotEmpty
	case -114:
		return zk.ErrInvalidACL
	case -115:
		return zk.ErrAuthFailed
	case -112: // of a session that ends, or has gone elsewhere: nothing of this one was done, or is known
		return fmt.Errorf("%w: %w", ErrNoAnswer, zk.ErrSessionExpired)
	case -118:
		return fmt.Errorf("%w: %w", ErrNoAnswer, zk.ErrSessionMoved)
	}
	return fmt.Errorf("zookeeper: error %d", code)
}
