package locks

import (
	"encoding/binary"
	"runtime"
	"time"
)

// message builds a protocol buffer. profile.proto needs only varints and bytes.
// https://github.com/google/pprof/blob/main/proto/profile.proto has the numbers of the fields.
type message []byte

func (m *message) varint(field int, v int64) {
	*m = binary.AppendUvarint(*m, uint64(field)<<3)
	*m = binary.AppendUvarint(*m, uint64(v))
}

func (m *message) bytes(field int, b []byte) {
	*m = binary.AppendUvarint(*m, uint64(field)<<3|2)
	*m = binary.AppendUvarint(*m, uint64(len(b)))
	*m = append(*m, b...)
}

// packed is a repeated field of varints.
func (m *message) packed(field int, all ...int64) {
	var inner []byte
	for _, v := range all {
		inner = binary.AppendUvarint(inner, uint64(v))
	}
	m.bytes(field, inner)
}

// encoder writes a profile. Each frame is a location of its own, with one line.
type encoder struct {
	message
	strings   map[string]int64
	functions map[string]int64
	locations map[location]int64
}

type location struct {
	function, file string
	line           int
}

// encode returns the profile of samples. One of fraction events was sampled. The profile began at
// began and lasted d.
func encode(name string, samples map[sampleKey]sample, began time.Time, d time.Duration, fraction int64) []byte {
	e := &encoder{strings: map[string]int64{}, functions: map[string]int64{}, locations: map[location]int64{}}
	e.text("") // string number 0 must be empty
	e.bytes(1, e.valueType(name+"_count", "count"))
	e.bytes(1, e.valueType(name+"_delay", "nanoseconds"))
	for key, s := range samples {
		var one message
		var path []int64
		for _, f := range key.frames() {
			path = append(path, e.location(f))
		}
		one.packed(1, path...)
		one.packed(2, s.count, s.nanoseconds)
		for _, label := range [][2]string{{"method", key.label.method}, {"pattern", key.label.pattern}, {"backend", key.label.backend}} {
			if label[1] != "" {
				var l message
				l.varint(1, e.text(label[0]))
				l.varint(2, e.text(label[1]))
				one.bytes(3, l)
			}
		}
		e.bytes(2, one)
	}
	e.varint(9, began.UnixNano())
	e.varint(10, int64(d))
	e.bytes(11, e.valueType(name, "count"))
	e.varint(12, fraction)
	e.varint(14, e.text(name+"_delay"))
	return e.message
}

// text returns the number of s in the string table.
func (e *encoder) text(s string) int64 {
	n, known := e.strings[s]
	if !known {
		n = int64(len(e.strings))
		e.strings[s] = n
		e.bytes(6, []byte(s))
	}
	return n
}

func (e *encoder) valueType(kind, unit string) []byte {
	var m message
	m.varint(1, e.text(kind))
	m.varint(2, e.text(unit))
	return m
}

func (e *encoder) location(f runtime.Frame) int64 {
	at := location{f.Function, f.File, f.Line}
	if id := e.locations[at]; id != 0 {
		return id
	}
	id := int64(len(e.locations) + 1)
	e.locations[at] = id
	var line, m message
	line.varint(1, e.function(f))
	line.varint(2, int64(f.Line))
	m.varint(1, id)
	m.bytes(4, line)
	e.bytes(4, m)
	return id
}

func (e *encoder) function(f runtime.Frame) int64 {
	if id := e.functions[f.Function]; id != 0 {
		return id
	}
	id := int64(len(e.functions) + 1)
	e.functions[f.Function] = id
	var m message
	m.varint(1, id)
	m.varint(2, e.text(f.Function))
	m.varint(3, e.text(f.Function))
	m.varint(4, e.text(f.File))
	e.bytes(5, m)
	return id
}
