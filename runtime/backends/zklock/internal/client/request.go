package client

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/go-zookeeper/zk"
)

// The operations, as org.apache.zookeeper.ZooDefs.OpCode numbers them.
const (
	opDelete          = 2
	opExists          = 3
	opGetData         = 4
	opSetData         = 5
	opSync            = 9
	opGetChildren2    = 12
	opCreate2         = 15
	opCreateContainer = 19
	opAuth            = 100
	opClose           = -11
)

// Request is one request to the ensemble. It may be sent any number of times.
type Request struct {
	op    int32
	body  encoder
	watch *Watch // of the node that the server is asked to watch
}

// Answer is what a server answered.
type Answer struct {
	// Err is nil, or an error of package zk that the server answered, or wraps
	// ErrNoAnswer.
	Err      error
	Path     string   // of a node that was created, with its sequence number
	zk.Stat           // of the node
	Value    []byte   // the data of a node, if that was asked for
	Children []string // names
}

// AnyVersion matches every version of a node.
const AnyVersion = -1

// Create makes a node of this mode, as zk.FlagEphemeralSequential or zk.FlagContainer.
func Create(path string, data []byte, acl []zk.ACL, mode int32) Request {
	r := on(opCreate2, path)
	if mode == zk.FlagContainer {
		r.op = opCreateContainer
	}
	r.body.bytes(data)
	r.body.int32(int32(len(acl)))
	for _, one := range acl {
		r.body.int32(one.Perms)
		r.body.string(one.Scheme)
		r.body.string(one.ID)
	}
	r.body.int32(mode)
	return r
}

// Delete deletes a node of this version. It fails with zk.ErrBadVersion.
func Delete(path string, version int32) Request {
	r := on(opDelete, path)
	r.body.int32(version)
	return r
}

// Set replaces the data of a node of this version. It fails with zk.ErrBadVersion.
func Set(path string, data []byte, version int32) Request {
	r := on(opSetData, path)
	r.body.bytes(data)
	r.body.int32(version)
	return r
}

// Sync has the server catch up with what the leader has taken until then.
func Sync(path string) Request { return on(opSync, path) }

// Get asks for a node's data.
func Get(path string) Request { return read(opGetData, path, 0) }

// Exists asks whether a node is there.
func Exists(path string) Request { return read(opExists, path, 0) }

// Children asks for the names of a node's children.
func Children(path string) Request { return read(opGetChildren2, path, 0) }

// Observe is Get of w's node, and sets w. If it fails w does not fire, and is Deleted if the node
// does not exist.
func Observe(w *Watch) Request {
	r := read(opGetData, w.Path, 1)
	r.watch = w
	return r
}

func on(op int32, path string) (r Request) {
	r.op = op
	r.body.string(path)
	return r
}

func read(op int32, path string, watch byte) Request {
	r := on(op, path)
	r.body = append(r.body, watch)
	return r
}

// decode reads the answer to r that follows the header.
func (r Request) decode(d *decoder) (a Answer) {
	switch r.op {
	case opDelete, opSync:
		return a
	case opCreate2, opCreateContainer:
		a.Path = string(d.bytes())
	case opGetData:
		a.Value = bytes.Clone(d.bytes())
	case opGetChildren2:
		for n := d.int32(); n > 0 && !d.short; n-- {
			a.Children = append(a.Children, string(d.bytes()))
		}
	}
	_, _ = binary.Decode(d.take(binary.Size(a.Stat)), binary.BigEndian, &a.Stat) // its fields are in their order
	return a
}

var errorsByCode = map[int32]error{
	0:    nil,
	-101: zk.ErrNoNode,
	-102: zk.ErrNoAuth,
	-103: zk.ErrBadVersion,
	-108: zk.ErrNoChildrenForEphemerals,
	-110: zk.ErrNodeExists,
	-111: zk.ErrNotEmpty,
	-114: zk.ErrInvalidACL,
	-115: zk.ErrAuthFailed,
	// The session ends, or another server has it: whether the request ran is not known.
	-112: fmt.Errorf("%w: %w", ErrNoAnswer, zk.ErrSessionExpired),
	-118: fmt.Errorf("%w: %w", ErrNoAnswer, zk.ErrSessionMoved),
}

// errorOf returns the error that a server means by code.
func errorOf(code int32) error {
	if err, known := errorsByCode[code]; known {
		return err
	}
	return fmt.Errorf("zookeeper: error %d", code)
}
