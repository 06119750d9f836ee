package engine

import (
	"strings"
	"testing"
)

// No error has a part of a password, and a password that is not encoded is an error.
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
	for _, text := range []string{
		"redis://bob:p%2Fa%40s@h:1/0?addr=a@b&x=y", "redis://h:1?user=me@there", "unix:///tmp/a@b.sock?db=1", "unix://bob:pw@/tmp/a.sock", "consul://:a=b@h",
		"redis://h/%40",
	} {
		if _, err := ParseURL(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}
