package faultproxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockgen/lockgen/internal/lagmeter"
	"github.com/lockgen/lockgen/internal/testserver"
)

var meter = lagmeter.Start()

func TestMain(m *testing.M) { goleak.VerifyTestMain(lagmeter.M{M: m, Meter: meter}) }

// setUp returns a server and a proxy in front of it.
func setUp(t *testing.T) (server string, p *Proxy) {
	server = testserver.StartRedis(t).Addr()
	return server, New(t, server)
}

func dial(t *testing.T, addr string) *testserver.Conn {
	t.Helper()
	c, err := testserver.Dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// within returns a ctx for an event that must happen within d, or must not happen.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// unanswered sends a command and gives up when until has returned. The test fails if there is an answer.
func unanswered(t *testing.T, c *testserver.Conn, until func(), args ...string) {
	t.Helper()
	ctx, giveUp := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := c.Do(ctx, args...)
		ended <- err
	}()
	until()
	giveUp()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want no answer until the caller gives up", err)
	}
}

func get(t *testing.T, addr, key string) any {
	t.Helper()
	v, err := testserver.Command(t.Context(), addr, "GET", key)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// receive waits until what is closed or has a value. It fails the test after a minute.
func receive(t *testing.T, what <-chan struct{}) {
	t.Helper()
	select {
	case <-what:
	case <-time.After(time.Minute):
		t.Fatal("nothing came within a minute")
	}
}

// noRetries returns a go-redis client with one connection and no retries, so that every fault shows.
func noRetries(t *testing.T, p *Proxy, resp int) *redis.Client {
	client := redis.NewClient(&redis.Options{
		Addr: p.Addr(), MaxRetries: -1, PoolSize: 1, Protocol: resp,
		DisableIdentity: true,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestSwallowRunsTheCommandAndLosesItsReply(t *testing.T) {
	server, p := setUp(t)
	lost := p.Swallow(2, Command("incr", "order"))
	for range 2 {
		c := dial(t, p.Addr())
		if _, err := c.Do(t.Context(), "INCR", "other"); err != nil {
			t.Errorf("a command that does not match: %v", err)
		}
		if _, err := c.Do(t.Context(), "INCR", "order"); !errors.Is(err, io.EOF) {
			t.Errorf("reply lost: err = %v, want EOF", err)
		}
	}
	receive(t, lost)
	if got := get(t, server, "order"); got != "2" {
		t.Errorf("ran %v times, want 2", got)
	}
	if v, err := dial(t, p.Addr()).Do(t.Context(), "INCR", "order"); err != nil || v != int64(3) {
		t.Errorf("after the faults: %v, %v", v, err)
	}
}

// pipeline sends commands in one write. It returns one reply for each command, or the replies
// that came before the connection ended.
func pipeline(t *testing.T, addr string, commands ...string) (replies []string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, strings.Join(commands, "")); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	for range commands {
		reply, err := readFrame(r)
		if err != nil {
			return replies
		}
		replies = append(replies, string(reply))
	}
	return replies
}

func TestSwallowInsideAPipeline(t *testing.T) {
	server, p := setUp(t)
	for _, c := range []struct{ hello, hash string }{
		{"PING\r\n", "*2\r\n$1\r\nf\r\n$1\r\nv\r\n"},
		{"HELLO 3\r\n", "%1\r\n$1\r\nf\r\n$1\r\nv\r\n"},
	} {
		if _, err := testserver.Command(t.Context(), server, "HSET", "h", "f", "v"); err != nil {
			t.Fatal(err)
		}
		lost := p.Swallow(1, Command("DEL"))
		replies := pipeline(t, p.Addr(), c.hello, "HGETALL h\r\n", "DEL h\r\n", "INCR n\r\n")
		receive(t, lost)
		if len(replies) != 2 || replies[1] != c.hash {
			t.Errorf("%q: replies %q, want two, then the end", c.hello, replies)
		}
		if got, err := testserver.Command(t.Context(), server, "EXISTS", "h"); got != int64(0) {
			t.Errorf("%q: the command whose reply was lost did not run: %v, %v", c.hello, got, err)
		}
	}
}

func TestCountsCommandsAlsoInPipelines(t *testing.T) {
	_, p := setUp(t)
	value := "a\r\n*1\r\n$4\r\nPING\r\n" // looks like a command
	set := fmt.Sprintf("*3\r\n$3\r\nset\r\n$1\r\nk\r\n$%d\r\n%s\r\n", len(value), value)
	pipeline(t, p.Addr(), "PING\r\n")
	p.ResetCounts()
	if replies := pipeline(t, p.Addr(), set, set, "EVAL return{1,{2}} 0\r\n", set); len(replies) != 4 {
		t.Errorf("replies %q", replies)
	}
	if got, want := p.Counts(), map[string]int{"SET": 3, "EVAL": 1}; !reflect.DeepEqual(got, want) {
		t.Errorf("Counts() = %v, want %v", got, want)
	}
	if p.Count("set") != 3 || p.Count("get") != 0 {
		t.Errorf("Count: set %d, get %d", p.Count("set"), p.Count("get"))
	}
}

func TestDelayAddsToTheLatencyOfEachDirection(t *testing.T) {
	server, p := setUp(t)
	const d = 200 * time.Millisecond
	meter := lagmeter.Start()
	defer meter.Stop()
	for _, c := range []struct {
		dir       Direction
		ran, want time.Duration // when the server has run the command, and when the client has its answer
	}{
		{Requests, d, d},
		{Replies, 0, d},
		{Requests | Replies, d, 2 * d},
	} {
		conn := dial(t, p.Addr())
		p.Delay(c.dir, d)
		begin := time.Now()
		ended := make(chan error, 1) // the command's result
		go func() {
			_, err := conn.Do(t.Context(), "SET", "k", "v")
			ended <- err
		}()
		for get(t, server, "k") == nil && len(ended) == 0 {
			time.Sleep(time.Millisecond)
		}
		if ran := time.Since(begin); ran < c.ran || ran > c.ran+d*9/10+meter.Since(begin) {
			t.Errorf("direction %b: it ran after %v, want %v", c.dir, ran, c.ran)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took < c.want || took > c.want+d*9/10+meter.Since(begin) {
			t.Errorf("direction %b: took %v, want %v", c.dir, took, c.want)
		}
		p.Heal()
		if _, err := testserver.Command(t.Context(), server, "DEL", "k"); err != nil {
			t.Error(err)
		}
	}
}

func TestDelayLeavesTheThroughputAlone(t *testing.T) {
	_, p := setUp(t)
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const n, d = 50, 50 * time.Millisecond
	p.Delay(Replies, d)
	begin := time.Now()
	if _, err := io.WriteString(conn, strings.Repeat("PING\r\n", n)); err != nil { // inline commands
		t.Fatal(err)
	}
	replies := bufio.NewReader(conn)
	for range n {
		if line, err := replies.ReadString('\n'); line != "+PONG\r\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}
	if took := time.Since(begin); took < d || took > n*d/4+meter.Since(begin) {
		t.Errorf("%d pipelined commands took %v, want about one delay of %v", n, took, d)
	}
}

func TestHoleDropsAndHeals(t *testing.T) {
	server, p := setUp(t)
	old := dial(t, p.Addr())
	stays := func() {
		time.Sleep(30 * time.Millisecond)
		if got := get(t, server, "k"); got != nil {
			t.Errorf("a request arrived: k = %v", got)
		}
	}
	arrives := func() {
		for limit := within(t, 5*time.Second); get(t, server, "k") != "v" && limit.Err() == nil; {
			time.Sleep(time.Millisecond)
		}
		if v, err := testserver.Command(t.Context(), server, "DEL", "k"); err != nil || v != int64(1) {
			t.Errorf("a request did not arrive: %v, %v", v, err)
		}
	}
	for _, c := range []struct {
		dir   Direction
		until func()
	}{{Requests, stays}, {Replies, arrives}} {
		p.Hole(c.dir)
		for _, conn := range []*testserver.Conn{old, dial(t, p.Addr())} {
			unanswered(t, conn, c.until, "SET", "k", "v")
		}
		p.Heal()
		old = dial(t, p.Addr())
		if _, err := old.Do(t.Context(), "PING"); err != nil {
			t.Errorf("healed: %v", err)
		}
	}
}

func TestResetCutsWhatIsConnected(t *testing.T) {
	_, p := setUp(t)
	c := dial(t, p.Addr())
	if _, err := c.Do(t.Context(), "PING"); err != nil {
		t.Fatal(err)
	}
	if p.Links() != 1 {
		t.Errorf("%d links, want 1", p.Links())
	}
	p.Reset()
	if _, err := c.Do(t.Context(), "PING"); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("err = %v, want a TCP reset", err)
	}
	if _, err := dial(t, p.Addr()).Do(t.Context(), "PING"); err != nil {
		t.Errorf("a new connection: %v", err)
	}
}

func TestRefuseLooksLikeNoServer(t *testing.T) {
	_, p := setUp(t)
	old := dial(t, p.Addr())
	if _, err := old.Do(t.Context(), "PING"); err != nil { // the proxy has accepted the connection
		t.Fatal(err)
	}
	p.Refuse()
	p.Refuse()
	if _, err := testserver.Dial(t.Context(), p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("err = %v, want connection refused", err)
	}
	if _, err := old.Do(t.Context(), "PING"); err != nil {
		t.Errorf("a connection that existed: %v", err)
	}
	p.Accept()
	p.Accept()
	if _, err := dial(t, p.Addr()).Do(t.Context(), "PING"); err != nil {
		t.Errorf("accepting again: %v", err)
	}
}

func TestPubSubPassesThrough(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		_, p := setUp(t)
		client := noRetries(t, p, protocol)
		sub := client.Subscribe(t.Context(), "c")
		if _, err := sub.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		lost := p.Swallow(1, Command("PUBLISH", "second"))
		if n, err := client.Publish(t.Context(), "c", "first").Result(); n != 1 || err != nil {
			t.Errorf("RESP%d: publish: %d, %v", protocol, n, err)
		}
		if err := client.Publish(t.Context(), "c", "second").Err(); !errors.Is(err, io.EOF) {
			t.Errorf("RESP%d: publish with its reply lost: %v", protocol, err)
		}
		receive(t, lost)
		for _, want := range []string{"first", "second"} {
			if m, err := sub.ReceiveMessage(within(t, 5*time.Second)); err != nil || m.Payload != want {
				t.Errorf("RESP%d: %v, %v, want %s", protocol, m, err, want)
			}
		}
		p.Reset() // the client must not wait for an answer to its unsubscribe
		_ = sub.Close()
	}
}

func TestPushIsNoReply(t *testing.T) {
	_, p := setUp(t)
	lost := p.Swallow(1, Command("GET"))
	replies := pipeline(t, p.Addr(), "HELLO 3\r\n", "SUBSCRIBE c\r\n", "PUBLISH c x\r\n", "GET k\r\n", "PING\r\n")
	receive(t, lost)
	if len(replies) != 4 || !slices.Contains(replies[2:], ":1\r\n") { // one of the replies is the message
		t.Errorf("replies %q, want all but those to GET and PING", replies)
	}
}

func TestClosedConnectionEndsAtTheServer(t *testing.T) {
	server, p := setUp(t)
	c := dial(t, p.Addr())
	if _, err := c.Do(t.Context(), "CLIENT", "SETNAME", "guest"); err != nil {
		t.Fatal(err)
	}
	c.Close()
	ctx := within(t, 5*time.Second)
	for {
		clients, err := testserver.Command(ctx, server, "CLIENT", "LIST")
		if err != nil {
			t.Fatalf("%v; still there: %v, links %d", err, clients, p.Links())
		}
		if !strings.Contains(clients.(string), "guest") && p.Links() == 0 {
			return
		}
	}
}

func TestServerGoneEndsTheClientsConnection(t *testing.T) {
	r := testserver.StartRedis(t)
	p := New(t, r.Addr())
	c := dial(t, p.Addr())
	if _, err := c.Do(t.Context(), "PING"); err != nil {
		t.Fatal(err)
	}
	r.Kill()
	if _, err := c.Do(within(t, 5*time.Second), "PING"); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v, want the connection's end", err)
	}
	r.Restart()
	if _, err := dial(t, p.Addr()).Do(t.Context(), "PING"); err != nil {
		t.Errorf("after the restart: %v", err)
	}
}
