package redislock

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// stub starts a server that answers as a test tells it to, for states that a real server can't be
// brought to. It returns the address. It calls answer for each command, from several
// goroutines. answer returns a reply in RESP, or "" to close the connection.
func stub(t *testing.T, answer func(args []string) string) string {
	t.Helper()
	return stubOn(t, listen(t), answer)
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

func stubOn(t *testing.T, listener net.Listener, answer func(args []string) string) string {
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer conn.Close()
				r := bufio.NewReader(conn)
				for {
					args, err := readCommand(r)
					if err != nil {
						return
					}
					var reply string
					switch args[0] { // the handshake
					case "hello":
						reply = "-ERR unknown command 'HELLO'\r\n"
					case "client":
						reply = "+OK\r\n"
					case "ping":
						reply = "+PONG\r\n"
					default:
						reply = answer(args)
					}
					if reply == "" {
						return
					}
					if _, err := io.WriteString(conn, reply); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		conns.Wait() // the clients have closed, because their clean-up ran before
	})
	return listener.Addr().String()
}

func readCommand(r *bufio.Reader) (args []string, err error) {
	n, err := readCount(r, '*')
	for range n {
		size, err := readCount(r, '$')
		if err != nil {
			return nil, err
		}
		arg := make([]byte, size+2)
		if _, err := io.ReadFull(r, arg); err != nil {
			return nil, err
		}
		args = append(args, string(arg[:size]))
	}
	return args, err
}

func readCount(r *bufio.Reader, kind byte) (int, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, fmt.Errorf("%q", line)
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

const (
	unknownCommand = "-ERR unknown command\r\n"
	granting       = ":1000\r\n"
	renewed        = ":1\r\n"
	freed          = ":1\r\n"
)

// scripted answers the scripts that acquire, renew and release, and no other command.
func scripted(acquire, renew, release func() string) func([]string) string {
	return func(args []string) string {
		if args[0] != "evalsha" && args[0] != "eval" {
			return unknownCommand
		}
		switch args[1] {
		case acquireScript.hash, acquireScript.source:
			return acquire()
		case renewScript.hash, renewScript.source:
			return renew()
		}
		return release()
	}
}

func always(reply string) func() string { return func() string { return reply } }

// S22: if the server refuses a call, the error is ErrUnavailable, and does not say that another holds
// the lock.
func TestErrorsOfTheServer(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
		"LOADING Redis is loading the dataset in memory",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
		"OOM command not allowed when used memory > 'maxmemory'.",
		"READONLY You can't write against a read only replica.",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"CLUSTERDOWN The cluster is down",
		"TRYAGAIN Multiple keys request during rehashing of slot",
		"NOREPLICAS Not enough good replicas to write.",
		"NOAUTH Authentication required.",
		"NOPERM this user has no permissions to run the 'evalsha' command",
		"ERR max number of clients reached",
		"ERR something that nobody has heard of",
	} {
		word, _, _ := strings.Cut(text, " ")
		t.Run(word, func(t *testing.T) {
			t.Parallel()
			refuse := always("-" + text + "\r\n")
			l := newLocker(t, stub(t, scripted(refuse, refuse, refuse)))
			for _, policy := range []*lock.Policy{nil, try()} {
				begin := time.Now()
				err := refused(t, l, policy, "key")
				wantIs(t, err, lock.ErrUnavailable)
				wantIsNot(t, err, lock.ErrNotAcquired, lock.ErrIndeterminate, lock.ErrConflict, lock.ErrLost)
				if err != nil && !strings.Contains(err.Error(), text) {
					t.Errorf("err = %v does not say what the server said", err)
				}
				if took := time.Since(begin); took > time.Second+meter.Since(begin) {
					t.Errorf("answered after %v", took)
				}
			}
		})
	}
}

// The error of a script may have words before the error code (Redis before 7).
func TestConflictIsSeenInTheErrorOfAScript(t *testing.T) {
	t.Parallel()
	refuse := always("-ERR Error running script (call to f_0): @user_script:1: " +
		"WRONGTYPE Operation against a key holding the wrong kind of value\r\n")
	l := newLocker(t, stub(t, scripted(refuse, refuse, refuse)))
	err := refused(t, l, nil, "key")
	wantIs(t, err, lock.ErrConflict)
}

// A call is sent again if the server's state passes within half a second.
func TestPassingStatesAreRetried(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN"} {
		t.Run(word, func(t *testing.T) {
			t.Parallel()
			answers := make(chan string, 8)
			for range 3 {
				answers <- "-" + word + " for the moment\r\n"
			}
			answers <- granting
			l := newLocker(t, stub(t, scripted(func() string { return <-answers }, always(renewed), always(freed))))
			begin := time.Now()
			_, held, err := l.Acquire(t.Context(), nil, "key")
			if err != nil && time.Since(begin) < resendLimit { // it is not sent again after that
				t.Error(err)
			}
			held.Release(nil)
		})
	}
}

// S22, S53: a server that refuses a renewal has not said that the lock is lost.
func TestRenewalRefusedForTheMoment(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"BUSY", "LOADING", "OOM", "READONLY", "MISCONF", "MOVED 1 127.0.0.1:1", "NOSCRIPT"} {
		t.Run(word, func(t *testing.T) {
			t.Parallel()
			renewals := make(chan string, 100)
			for range 2 { // the lease leaves time for more attempts on a busy machine
				renewals <- "-" + word + " for the moment\r\n"
			}
			for range cap(renewals) - len(renewals) {
				renewals <- renewed
			}
			l := newLocker(t, stub(t, scripted(always(granting), func() string { return <-renewals }, always(freed))))
			_, held := acquire(t, l, ttl(3*time.Second), "key")
			awaitRenewal(t, held)
			mustRelease(t, held)
		})
	}
}

// A reply that is no answer to the script grants nothing.
func TestNonsenseFromTheServer(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{
		"+OK\r\n", "+\r\n", "$-1\r\n", "$1\r\n1\r\n", "*0\r\n", "*1\r\n:1\r\n", "*2\r\n:1\r\n$1\r\nx\r\n",
		"*3\r\n:1\r\n:1\r\n$1\r\n1\r\n", "*4\r\n:1\r\n:1\r\n:1\r\n:1\r\n",
	} {
		l := newLocker(t, stub(t, scripted(always(reply), always(reply), always(":0\r\n"))))
		err := refused(t, l, nil, "key")
		wantIs(t, err, lock.ErrUnavailable)
	}
}

// heldFor is the reply of acquire.lua while another of our processes has the lock.
func heldFor(ms int) string {
	return fmt.Sprintf("*3\r\n:%d\r\n:%d\r\n:0\r\n", ms, time.Now().UnixMicro())
}

// A release by the lock's own key alone is sent again as often as any other.
func TestReleaseByItsOwnKeyIsSentAgain(t *testing.T) {
	t.Parallel()
	answers := make(chan string, 8)
	answers <- "-TRYAGAIN Multiple keys request during rehashing of slot\r\n"
	for range len(resendAfter) {
		answers <- "-LOADING for the moment\r\n"
	}
	answers <- freed
	b := newTestBackend(t, stub(t, scripted(always(granting), always(renewed), func() string { return <-answers })))
	l, _ := grantOf(t, b, &driver.Acquisition{Key: "key", ID: newID(), TTL: long, Tokens: 1})
	begin := time.Now()
	if err := l.Release(t.Context(), 1); err != nil && time.Since(begin) < resendLimit { // it is not sent again after that
		t.Error(err)
	}
}
