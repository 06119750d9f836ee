package peers

import (
	"bytes"
	"strconv"
	"strings"
)

// split splits the first complete request, an array of bulk strings, off data. It returns
// nil words if there is none yet.
func split(data []byte) (words []string, request, rest []byte) {
	count, at, ok := number(data, 0, '*')
	if !ok {
		return nil, nil, data
	}
	for range count {
		size, begin, ok := number(data, at, '$')
		if !ok || begin+size+2 > len(data) {
			return nil, nil, data
		}
		words = append(words, string(data[begin:begin+size]))
		at = begin + size + 2
	}
	return words, data[:at], data[at:]
}

// number parses a line that begins with mark and a number. next is where the next
// line begins.
func number(data []byte, at int, mark byte) (n, next int, ok bool) {
	end := bytes.IndexByte(data[at:], '\n')
	if end < 2 {
		return 0, at, false
	}
	if data[at] != mark {
		panic("peers: a request begins with " + strconv.Quote(string(data[at:at+end])))
	}
	n, err := strconv.Atoi(string(data[at+1 : at+end-1]))
	if err != nil {
		panic("peers: a request has a size of " + strconv.Quote(string(data[at:at+end])))
	}
	return n, at + end + 1, true
}

// isCommand reports whether the request is the command name.
func isCommand(words []string, name string) bool { return strings.EqualFold(words[0], name) }
