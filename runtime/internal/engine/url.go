package engine

import (
	"errors"
	"net/url"
	"strings"
)

// errURL quotes nothing of the URL, which may hold a password.
var errURL = errors.New("it can't be read; write %2F, %3F, %23, %25 and %40 for /, ?, #, % and @ in a user, a password or a path")

// ParseURL is [url.Parse] with an error that has no part of a password. A password that is not
// encoded can end the host, so that an @ follows it: that is an error too.
func ParseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, errURL
	}
	option, _, _ := strings.Cut(u.RawQuery, "=")
	if u.Host != "" && strings.Contains(u.EscapedPath()+u.EscapedFragment()+option, "@") {
		return nil, errURL
	}
	return u, nil
}
