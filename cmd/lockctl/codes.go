package main

import (
	"context"
	"errors"
	"net"
	"strings"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// Exit codes, for scripts. docs/lockctl.md has the same list.
const (
	codeFine        = 0
	codeNone        = 1 // nobody holds the lock, or it was not free in time
	codeUsage       = 2
	codeUnavailable = 3
	codeDenied      = 4
	codeConflict    = 5
	codeChanged     = 6
	codeLost        = 7
	codeDeclined    = 8

	// run exits with the code of the command that it runs, so runCode is added to its own
	// codes. Those below are the codes that a shell uses: 126, 127, and 128 plus a signal's
	// number.
	runCode     = 100
	codeNoStart = 126
	codeNoFile  = 127
	codeSignal  = 128
)

const exitCodes = `0	done
1	nobody holds the lock, or it was not free in time
2	the command line, the URL or a value in it is wrong
3	the engine can't be reached, or can't answer
4	the engine refuses: credentials or rights are missing
5	the key holds something that lockctl does not know as a lock, or a lock that it can't free
6	meanwhile another holds the lock, or nobody
7	the lock was lost while the command ran (run: 107)
8	the answer to the question of release was not yes; nothing was freed

Run exits with the code of its command. If a signal ended the command or the wait for the
lock, the code is 128 plus the signal's number. The codes of run itself are 100 more than
those above: 101 not free in time, 103 no engine, 107 lost. 126 and 127 say that the command
can't be run, or was not found.
`

// codeOf returns the exit code of err.
func codeOf(err error) int {
	var own *fail
	if errors.As(err, &own) {
		return own.code
	}
	for _, known := range []struct {
		err  error
		code int
	}{
		{driver.ErrConflict, codeConflict},
		{driver.ErrLost, codeChanged},
		{lock.ErrNotAcquired, codeNone},
		{driver.ErrInvalid, codeUsage},
	} {
		if errors.Is(err, known.err) {
			return known.code
		}
	}
	if isDenied(err) {
		return codeDenied
	}
	return codeUnavailable
}

// denials are the words of engines for missing credentials or rights.
var denials = []string{
	"NOAUTH", "NOPERM", "WRONGPASS", // Redis
	"permission denied", "authentication failed", "user name is empty", "invalid auth token", // etcd, PostgreSQL
	"Permission denied", "ACL not found", // Consul
	"not authenticated", "authentication failed", // ZooKeeper
	"the database refused the login", "Access denied", "command denied", // SQL
}

func isDenied(err error) bool {
	for _, words := range denials {
		if strings.Contains(err.Error(), words) {
			return true
		}
	}
	return false
}

// reached explains an error of the engine at the URL, and returns any other as it is.
func (c *command) reached(err error) error {
	var own *fail
	var status exitStatus
	switch {
	case err == nil || errors.As(err, &own) || errors.As(err, &status):
		return err
	case errors.Is(err, context.DeadlineExceeded) || isTimeout(err):
		return failed(codeUnavailable, "no answer from %s within %v (see -timeout): %v%s", redacted(c.url), c.timeout, err, overTLS(c.url))
	}
	if code := codeOf(err); code == codeUnavailable || code == codeDenied {
		return failed(code, "%s: %v", redacted(c.url), err)
	}
	return err
}

// overTLS returns a hint if the URL asks for TLS. A server without TLS does not understand
// the handshake, and may wait for more bytes.
func overTLS(url string) string {
	switch scheme, _, _ := strings.Cut(url, ":"); scheme {
	case "rediss", "etcds", "consuls":
		return "; " + scheme + " speaks TLS: if the port has no TLS, write " + strings.TrimSuffix(scheme, "s")
	}
	return ""
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}
