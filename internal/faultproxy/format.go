package faultproxy

import (
	"bufio"
	"encoding/binary"
	"io"
	"strings"
)

// format is the part of a protocol that the proxy needs.
type format struct {
	read      func(r *bufio.Reader) ([]byte, error) // one request or reply
	arguments func(request []byte) []string         // the first is the request's name
	silent    func(name string) bool                // whether a request has no reply of its own
	push      func(reply []byte) bool               // whether the server sent it without a request
}

var resp = format{
	read:      readFrame,
	arguments: arguments,
	silent:    func(name string) bool { return strings.HasSuffix(strings.ToUpper(name), "SUBSCRIBE") },
	push:      func(reply []byte) bool { return reply[0] == '>' },
}

// zookeeper is the format of ZooKeeper. Each frame begins with its length. Then a request has its
// number and its kind, and a reply has the request's number. Pings and events have special
// numbers and are ignored.
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

// operation returns the kind of a request to ZooKeeper, and its path if the request begins
// with one. The handshake, which is the first request, has no number.
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
