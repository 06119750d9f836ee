package faultproxy

import (
	"bufio"
	"encoding/binary"
	"io"
	"strings"
)

// format is what the proxy has to know of a protocol.
type format struct {
	read      func(r *bufio.Reader) ([]byte, error) // one request or reply
	arguments func(request []byte) []string         // its name first
	silent    func(name string) bool                // a request that has no reply of its own
	push      func(reply []byte) bool               // what the server says unasked
}

var resp = format{
	read:      readFrame,
	arguments: arguments,
	silent:    func(name string) bool { return strings.HasSuffix(strings.ToUpper(name), "SUBSCRIBE") },
	push:      func(reply []byte) bool { return reply[0] == '>' },
}

// zookeeper's frames have their length before them; then, in a request, its
// number and its kind, and in a reply the request's number. Pings have a number
// of their own, and are left out, and so have events.
var zookeeper = format{
	read:      readLengthFirst,
	arguments: operation,
	silent:    func(name string) bool { return name == "ping" },
	push:      func(reply []byte) bool { n := number(reply); return n == pingNumber || n == eventNumber },
}

const (
	eventNumber = -1
	pingNumber  = -2
)

// Op matches ZooKeeper's requests of this kind (connect, create, delete, exists,
// getData, setData, sync, getChildren, multi, auth, setWatches, close, ping)
// whose path holds each of parts.
func Op(name string, parts ...string) Match { return matching(operation, name, parts) }

var operations = map[int32]string{
	1: "create", 2: "delete", 3: "exists", 4: "getData", 5: "setData", 8: "getChildren", 9: "sync", 11: "ping",
	12: "getChildren", 14: "multi", 15: "create", 19: "create", 21: "create", 100: "auth", 101: "setWatches", -11: "close",
}

// operation returns the kind of a request to ZooKeeper, and its path if it begins
// with one. The handshake, which is the first, has no number.
func operation(request []byte) []string {
	if number(request) == 0 {
		return []string{"connect"}
	}
	name := operations[int32At(request, 8)]
	switch n := int(int32At(request, 12)); {
	case name == "":
		return []string{"unknown"}
	case name != "auth" && name != "multi" && name != "setWatches" && n > 0 && 16+n <= len(request):
		return []string{name, string(request[16 : 16+n])}
	}
	return []string{name}
}

func number(frame []byte) int32 { return int32At(frame, 4) }

func int32At(frame []byte, at int) int32 {
	if len(frame) < at+4 {
		return 0
	}
	return int32(binary.BigEndian.Uint32(frame[at:]))
}

func readLengthFirst(r *bufio.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, 4+binary.BigEndian.Uint32(head[:]))
	copy(frame, head[:])
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}
