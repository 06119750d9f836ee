package engine

import (
	"slices"
	"strings"
	"testing"
)

// No error shows a part of a password, and a password that is not encoded is an error.
func TestParseURLQuotesNoPassword(t *testing.T) {
	for _, text := range []string{
		"redis://bob:SECRET/x@h:1", "redis://bob:SECRET#x@h:1", "redis://bob:SECRET?x@h:1", "redis://bob:SE%zzCRET@h:1",
		"redis://bob:12/SECRET@h:1", "redis://bob:12#SECRET@h:1", "redis://bob:12?SECRET@h:1", "redis://bob:a@b/SECRET@h:1",
		"consul://:SECRET/x@h:1", "redis://SECRET:x:y", "redis://h:SECRET",
	} {
		if _, err := ParseURL(text); err == nil || strings.Contains(err.Error(), "SECRET") || !strings.Contains(err.Error(), "%2F") {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{"redis:bob:SECRET@h:1", "redis:/bob:SECRET@h:1", "h:1", "h"} {
		if _, err := ParseURL(text); err == nil || err.Error() != "it does not begin with a scheme and ://" {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{
		"redis://bob:p%2Fa%40s@h:1/0?addr=a@b&x=y", "redis://h:1?user=me@there", "unix:///tmp/a@b.sock?db=1", "unix:/tmp/a", "unix://bob:pw@/tmp/a.sock", "consul://:a=b@h",
		"redis://h/%40",
	} {
		if _, err := ParseURL(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestParseServers(t *testing.T) {
	for text, want := range map[string][]string{
		"etcd://one,two:99,[::1],[::2]:99":      {"one:2379", "two:99", "[::1]:2379", "[::2]:99"},
		"zk://bob:p%2Fa%40s%25@one,two:9/a/b/":  {"one:2379", "two:9"},
		"zk://bob:p/a@s%25@one:1,two:9/a/b":     {"one:1", "two:9"},
		"zk://b%6Fb:p%2Fa@s%25@[::1]:7,x:8/a/b": {"[::1]:7", "x:8"},
	} {
		u, servers, err := ParseServers(text, "2379")
		if err != nil || !slices.Equal(servers, want) {
			t.Fatalf("%s: %v, %v", text, servers, err)
		}
		if password, _ := u.User.Password(); u.Scheme == "zk" && (u.User.Username() != "bob" || password != "p/a@s%" || u.Path != "a/b") {
			t.Errorf("%s: %v", text, u)
		}
	}
	if u, _, err := ParseServers("zk://bob@h", "1"); err != nil || u.User.String() != "bob" {
		t.Errorf("a user without a password: %v, %v", u, err)
	}
	for _, text := range []string{
		"bob:SECRET@h", "bob:SECRET@zk://h", "zk://bob:SE%zzCRET@h", "zk://bob:SECRET@", "zk://bob:SECRET@a,,b", "zk://bob:SECRET@h?x=y", "zk://bob:SECRET@h/a#b",
	} {
		if _, _, err := ParseServers(text, "1"); err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
