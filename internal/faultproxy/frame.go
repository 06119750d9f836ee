package faultproxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// readFrame reads one RESP value, of version 2 or 3, and returns its bytes
// unchanged. A request is such a value too; one that starts with a letter is an inline
// command, which is one line.
func readFrame(r *bufio.Reader) ([]byte, error) {
	return appendFrame(nil, r)
}

func appendFrame(frame []byte, r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	frame = append(frame, line...)
	var values int
	switch line[0] {
	case '$', '!', '=': // a length, then that many bytes
		n, err := length(line)
		if err != nil || n < 0 {
			return frame, err
		}
		body := len(frame)
		frame = append(frame, make([]byte, n+2)...)
		_, err = io.ReadFull(r, frame[body:])
		return frame, err
	case '*', '~', '>':
		values, err = length(line)
	case '%':
		values, err = length(line)
		values *= 2
	case '|': // attributes, then the value that they belong to
		values, err = length(line)
		values = 2*values + 1
	}
	for range values {
		if err != nil {
			break
		}
		frame, err = appendFrame(frame, r)
	}
	return frame, err
}

func length(line []byte) (int, error) {
	n, err := strconv.Atoi(string(bytes.TrimSpace(line[1:])))
	if err != nil {
		return 0, fmt.Errorf("RESP line %q: %w", line, err)
	}
	return n, nil
}

// arguments returns the words of a request's command.
func arguments(request []byte) []string {
	if len(request) == 0 || request[0] != '*' {
		return strings.Fields(string(request))
	}
	r := bufio.NewReader(bytes.NewReader(request))
	if _, err := r.ReadBytes('\n'); err != nil {
		return nil
	}
	var args []string
	for {
		arg, err := readFrame(r)
		if err != nil {
			return args
		}
		_, arg, _ = bytes.Cut(arg, []byte("\r\n"))
		args = append(args, string(bytes.TrimSuffix(arg, []byte("\r\n"))))
	}
}
