package redislock

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
)

// childAddr is the name of the variable that turns this test binary into a client process. Its value
// is the address of the Redis server.
const childAddr = "REDISLOCK_CHILD"

// peer is another process with a Locker of its own. It reads one order per line, runs the orders one
// after another, and answers each with one line.
type peer struct {
	t       testing.TB
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers chan string
}

func startPeer(t testing.TB, addr string) *peer {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t, cmd: exec.Command(exe), answers: make(chan string, 16)}
	p.cmd.Env = append(os.Environ(), childAddr+"="+addr, "GORACE=atexit_sleep_ms=10")
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			p.answers <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		_ = p.in.Close()
		<-read
		_ = p.cmd.Wait()
	})
	p.must("ready")
	return p
}

// tell sends an order and does not wait for the answer.
func (p *peer) tell(format string, args ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.in, format+"\n", args...); err != nil {
		p.t.Fatal(err)
	}
}

// answer returns the words of the next answer, which must begin with "ok".
func (p *peer) answer() []string {
	p.t.Helper()
	select {
	case line := <-p.answers:
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "ok" {
			p.t.Fatalf("the process answered %q", line)
		}
		return words[1:]
	case <-time.After(30 * time.Second):
		p.t.Fatal("the process does not answer")
		return nil
	}
}

func (p *peer) must(format string, args ...any) []string {
	p.t.Helper()
	p.tell(format, args...)
	return p.answer()
}

// kill ends the process as a crash would.
func (p *peer) kill() { _ = p.cmd.Process.Kill() }

// child runs a client process until its stdin ends. It returns the exit code.
func child() int {
	addr := os.Getenv(childAddr)
	l := lock.New(New(redis.NewClient(&redis.Options{Addr: addr})), nil)
	c := &childProcess{addr: addr, locker: l, held: map[string]*lock.Hold{}}
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		answer, err := c.obey(strings.Fields(orders.Text()))
		if err != nil {
			answer = "error " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(answer)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.Close(ctx)
	return 0
}

type childProcess struct {
	addr   string
	locker *lock.Locker
	held   map[string]*lock.Hold
	term   chan int64
}

func (c *childProcess) obey(order []string) (string, error) {
	switch order[0] {
	case "ready":
		return "ok", nil
	case "acquire": // key ttl
		ctx, held, err := c.locker.Acquire(context.Background(), ttl(duration(order[2])), order[1])
		if err != nil {
			return "", err
		}
		n, _ := lock.Token(ctx)
		c.held[order[1]] = held
		return fmt.Sprintf("ok %d", n), nil
	case "try": // key
		_, held, err := c.locker.Acquire(context.Background(), try(), order[1])
		if err != nil {
			return "", err
		}
		held.Release(nil)
		return "ok", nil
	case "lead": // key ttl
		return c.lead(order[1], duration(order[2]))
	case "led":
		return fmt.Sprintf("ok %d", <-c.term), nil
	case "inside": // outer inner
		return "ok", c.locker.Do(c.held[order[1]].Context(), ttl(20*time.Second), order[2], lock.Check)
	case "release": // key
		return "ok", finish(c.held[order[1]])
	case "count": // key goroutines times
		return "ok", c.count(order[1], number(order[2]), number(order[3]))
	case "sticky": // key time times
		p := &lock.Policy{Sticky: duration(order[2])}
		for range number(order[3]) {
			if err := c.locker.Do(context.Background(), p, order[1], lock.Check); err != nil {
				return "", err
			}
		}
		return "ok", nil
	case "share": // key goroutines duration section
		return c.share(order[1], number(order[2]), duration(order[3]), duration(order[4]))
	}
	return "", fmt.Errorf("unknown order %q", order[0])
}

// lead leads for one term, until the term is lost, and answers with the term's token. The order "led"
// then answers with the time of the last Check that said that the process leads.
func (c *childProcess) lead(key string, lease time.Duration) (string, error) {
	c.term = make(chan int64, 1)
	ctx, cancel := context.WithCancel(context.Background())
	begun, failed := make(chan uint64, 1), make(chan error, 1)
	go func() {
		defer cancel()
		failed <- c.locker.Lead(ctx, &lock.Policy{Leader: true, TTL: lease}, key, func(term context.Context) error {
			n, _ := lock.Token(term)
			begun <- n
			last := int64(0)
			for {
				asked := time.Now().UnixNano()
				if lock.Check(term) != nil {
					cancel()
					c.term <- last
					return nil
				}
				last = asked
				time.Sleep(time.Millisecond)
			}
		})
	}()
	select {
	case n := <-begun:
		return fmt.Sprintf("ok %d", n), nil
	case err := <-failed:
		return "", err
	}
}

// count increments a counter in Redis without an atomic command, protected only by the lock,
// and appends the fencing tokens to a list.
func (c *childProcess) count(key string, goroutines, times int) error {
	errs := make(chan error, goroutines)
	for range goroutines {
		go func() {
			var err error
			for range times {
				if err == nil {
					err = c.locker.Do(context.Background(), nil, key, func(ctx context.Context) error { return c.countOnce(ctx, key) })
				}
			}
			errs <- err
		}()
	}
	var first error
	for range goroutines {
		if err := <-errs; err != nil {
			first = err
		}
	}
	return first
}

func (c *childProcess) countOnce(ctx context.Context, key string) error {
	db, err := testserver.Dial(ctx, c.addr)
	if err != nil {
		return err
	}
	defer db.Close()
	n, err := db.Do(ctx, "GET", key+":count")
	if err != nil {
		return err
	}
	text, _ := n.(string)
	if _, err := db.Do(ctx, "SET", key+":count", strconv.Itoa(number(text)+1)); err != nil {
		return err
	}
	fencing, _ := lock.Token(ctx)
	_, err = db.Do(ctx, "RPUSH", key+":tokens", strconv.FormatUint(fencing, 10))
	return err
}

// share takes the lock repeatedly. It answers with the number of leases that the process
// had, and with how often each goroutine got the lock.
func (c *childProcess) share(key string, goroutines int, lasts, section time.Duration) (string, error) {
	end := time.Now().Add(lasts)
	counts := make([]string, goroutines)
	var leases, last uint64 // guarded by the lock; the tokens of one lease are consecutive
	var all sync.WaitGroup
	for i := range goroutines {
		all.Go(func() {
			n := 0
			for ; time.Now().Before(end); n++ {
				if err := c.locker.Do(context.Background(), ttl(5*time.Second), key, func(ctx context.Context) error {
					n, _ := lock.Token(ctx)
					if n != last+1 {
						leases++
					}
					last = n
					time.Sleep(section)
					return nil
				}); err != nil {
					counts[i] = err.Error()
					return
				}
			}
			counts[i] = strconv.Itoa(n)
		})
	}
	all.Wait()
	return fmt.Sprintf("ok %d %s", leases, strings.Join(counts, " ")), nil
}

func duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil && text != "" {
		panic(err)
	}
	return n
}
