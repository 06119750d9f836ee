package client

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// encoder appends what a request holds, as ZooKeeper's jute writes it.
type encoder []byte

func (e *encoder) int32(v int32)   { *e = binary.BigEndian.AppendUint32(*e, uint32(v)) }
func (e *encoder) int64(v int64)   { *e = binary.BigEndian.AppendUint64(*e, uint64(v)) }
func (e *encoder) string(v string) { e.bytes([]byte(v)) }

func (e *encoder) bytes(v []byte) {
	e.int32(int32(len(v)))
	*e = append(*e, v...)
}

// frame returns body with its length before it.
func frame(body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body))), body...)
}

// requestFrame returns a request as it is sent.
func requestFrame(xid, op int32, body []byte) []byte {
	var e encoder
	e.int32(xid)
	e.int32(op)
	return frame(append(e, body...))
}

// decoder reads what an answer holds. Behind the end of the answer it reads zeros,
// and notes that in short.
type decoder struct {
	rest  []byte
	short bool
}

var errShort = errors.New("an answer ends early")

func (d *decoder) take(n int) []byte {
	if n < 0 || n > len(d.rest) {
		d.short, d.rest = true, nil
		return make([]byte, 8)
	}
	v := d.rest[:n]
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) int32() int32 { return int32(binary.BigEndian.Uint32(d.take(4))) }
func (d *decoder) int64() int64 { return int64(binary.BigEndian.Uint64(d.take(8))) }

func (d *decoder) bytes() []byte { return d.take(max(0, int(d.int32()))) } // -1 is null

const (
	maxHandshake = 1 << 10
	// maxAnswer bounds an answer, which may hold the names of a directory's children.
	maxAnswer = 64 << 20
)

// readFrame returns the next frame, of most bytes at most, without its length.
func readFrame(r *bufio.Reader, most uint32) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > most {
		return nil, fmt.Errorf("a frame of %d bytes, where %d are allowed", n, most)
	}
	body := make([]byte, n)
	_, err := io.ReadFull(r, body)
	return body, err
}
