package faultproxy

import (
	"bufio"
	"reflect"
	"strings"
	"testing"
)

func TestReadFrame(t *testing.T) {
	for _, frame := range []string{
		"+OK\r\n",
		"-ERR no\r\n",
		":12\r\n",
		"$-1\r\n",
		"$0\r\n\r\n",
		"$5\r\na\r\nb\n\r\n",
		"*-1\r\n",
		"*0\r\n",
		"*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
		"_\r\n",
		"#t\r\n",
		",1.5\r\n",
		"(123456789012345678901234567890\r\n",
		"!3\r\nERR\r\n",
		"=5\r\ntxt:x\r\n",
		"~1\r\n+a\r\n",
		"%1\r\n+k\r\n*1\r\n+v\r\n",
		">2\r\n+message\r\n+x\r\n",
		"|1\r\n+ttl\r\n:1\r\n+value\r\n",
		"PING\r\n",
		"\r\n",
	} {
		const next = "+next\r\n"
		r := bufio.NewReader(strings.NewReader(frame + next))
		if got, err := readFrame(r); string(got) != frame || err != nil {
			t.Errorf("readFrame(%q) = %q, %v", frame+next, got, err)
		}
		for cut := range len(frame) {
			if _, err := readFrame(bufio.NewReader(strings.NewReader(frame[:cut]))); err == nil {
				t.Errorf("readFrame(%q): no error for half a frame", frame[:cut])
			}
		}
	}
	for _, wrong := range []string{"*x\r\n", "$\r\n", "*2\r\n:1\r\n$z\r\n"} {
		if _, err := readFrame(bufio.NewReader(strings.NewReader(wrong))); err == nil {
			t.Errorf("readFrame(%q): no error", wrong)
		}
	}
}

func TestCommandMatches(t *testing.T) {
	request := []byte("*3\r\n$3\r\nSET\r\n$9\r\norder:GET\r\n$1\r\nv\r\n")
	for _, c := range []struct {
		match Match
		want  bool
	}{
		{Command("set"), true},
		{Command("SET", "order"), true},
		{Command("SET", "order", "v"), true},
		{Command("GET"), false},
		{Command("SET", "SET"), false}, // the name itself is not one of the parts
		{Command("SET", "order", "x"), false},
	} {
		if got := c.match(request); got != c.want {
			t.Errorf("match = %v, want %v", got, c.want)
		}
	}
	if got, want := arguments([]byte("PING  x\r\n")), []string{"PING", "x"}; !reflect.DeepEqual(got, want) {
		t.Errorf("inline: %q", got)
	}
	if Command("x")([]byte("\r\n")) {
		t.Error("an empty line matches")
	}
}
