package engine

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// errURL does not quote the URL, which may hold a password.
var errURL = errors.New("it can't be read; write %2F, %3F, %23, %25 and %40 for /, ?, #, % and @ in a user, a password or a path")

// ParseURL is [url.Parse] with an error that shows no part of a password. If a password that is not
// encoded ends the host, an @ follows the host: that is an error too. So is a URL without //: its
// host would count as a path, and locks would be taken at the default server.
func ParseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, errURL
	}
	if !strings.Contains(text, "://") && u.Scheme != "unix" {
		return nil, errors.New("it does not begin with a scheme and ://")
	}
	option, _, _ := strings.Cut(u.RawQuery, "=")
	if u.Host != "" && strings.Contains(u.EscapedPath()+u.EscapedFragment()+option, "@") {
		return nil, errURL
	}
	return u, nil
}

// ParseServers is ParseURL for scheme://user:password@host:port,host/path. [url.Parse] accepts only
// one host. ParseServers returns the servers, with this port if they have none, and the rest of the
// URL.
func ParseServers(text, port string) (rest *url.URL, servers []string, err error) {
	scheme, behind, ok := strings.Cut(text, "://")
	if !ok || strings.ContainsAny(scheme, ":@/") {
		return nil, nil, errors.New("it begins with no scheme")
	}
	rest = &url.URL{Scheme: scheme}
	if at := strings.LastIndexByte(behind, '@'); at >= 0 {
		user, password, withPassword := strings.Cut(behind[:at], ":")
		user, failed := url.PathUnescape(user)
		password, err := url.PathUnescape(password)
		if failed != nil || err != nil {
			return nil, nil, errors.New("its user or password is not well encoded")
		}
		rest.User, behind = url.User(user), behind[at+1:]
		if withPassword {
			rest.User = url.UserPassword(user, password)
		}
	}
	if strings.ContainsAny(behind, "?#") {
		return nil, nil, fmt.Errorf("only host:port, separated by commas, and a path may follow, not %q", behind)
	}
	hosts, path, _ := strings.Cut(behind, "/")
	rest.Path = strings.TrimSuffix(path, "/")
	for host := range strings.SplitSeq(hosts, ",") {
		if host == "" {
			return nil, nil, errors.New("a host is missing")
		}
		servers = append(servers, WithPort(host, port))
	}
	return rest, servers, nil
}

// WithPort returns the address of a server, with this port if it has none.
func WithPort(address, port string) string {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return net.JoinHostPort(strings.Trim(address, "[]"), port)
	}
	return address
}
