package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"time"
)

// wakeups returns the times from before a release in another process until p, which
// is the peer with this number, had the lock in this process.
func wakeups(number int, p *peer, source string) (waits []float64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	other, err := startHolder(ctx, number, source)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, other.stop()) }()
	c, err := p.open(source)
	if err != nil {
		return nil, err
	}
	defer c.close()
	for i := range 12 {
		// So that each phase of a poll is equally likely.
		settle := time.Duration(20+7*i)*time.Millisecond + rand.N(2*time.Millisecond)
		took, err := wakeup(ctx, c, other, settle)
		if err != nil {
			return nil, err
		}
		if i > 1 { // the first rounds open connections
			waits = append(waits, float64(took))
		}
	}
	return waits, nil
}

// wakeup has other hold a lock until c has waited for it for settle. It returns the time from before the release to c's lock.
func wakeup(ctx context.Context, c client, other *holder, settle time.Duration) (time.Duration, error) {
	key := newKey()
	if _, err := other.ask(key, settle); err != nil {
		return 0, err
	}
	freed := make(chan int64, 1)
	errs := make(chan error, 1)
	go func() {
		at, err := other.ask(key, settle)
		freed <- at
		errs <- err
	}()
	unlock, err := c.lock(ctx, key)
	at := time.Now().UnixNano()
	if err == nil {
		err = unlock()
	}
	return time.Duration(at - <-freed), errors.Join(err, <-errs)
}

// holder is a process that holds locks that this process waits for.
type holder struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     io.ReadCloser
}

func startHolder(ctx context.Context, number int, source string) (*holder, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	h := &holder{command: exec.CommandContext(ctx, program, "-engine", *engine, "-holding", fmt.Sprintf("%d %s", number, source))}
	h.command.Stderr = os.Stderr
	if h.in, err = h.command.StdinPipe(); err != nil {
		return nil, err
	}
	if h.out, err = h.command.StdoutPipe(); err != nil {
		return nil, err
	}
	return h, h.command.Start()
}

// ask has h lock key or, at the second call, release it after settle. It returns when h has
// done so. at is when h began, in nanoseconds since 1970.
func (h *holder) ask(key string, settle time.Duration) (at int64, err error) {
	if _, err := fmt.Fprintln(h.in, key, settle.Nanoseconds()); err != nil {
		return 0, err
	}
	_, err = fmt.Fscanln(h.out, &at)
	return at, err
}

func (h *holder) stop() error {
	return errors.Join(h.in.Close(), h.command.Wait())
}

// hold serves the requests of holder.ask until its input ends.
func hold(e *sqlEngine, holding string) error {
	first, source, _ := strings.Cut(holding, " ")
	var number int
	if _, err := fmt.Sscan(first, &number); err != nil || number >= len(e.peers) {
		return fmt.Errorf("%q is not the number of a peer", first)
	}
	c, err := e.peers[number].open(source)
	if err != nil {
		return err
	}
	defer c.close()
	for {
		var key string
		var settle time.Duration
		if _, err := fmt.Fscanln(os.Stdin, &key, (*int64)(&settle)); err != nil {
			return nil //nolint:nilerr // the parent asks nothing more
		}
		unlock, err := c.lock(context.Background(), key)
		if err != nil {
			return err
		}
		fmt.Println(time.Now().UnixNano())
		if _, err := fmt.Fscanln(os.Stdin, &key, (*int64)(&settle)); err != nil {
			return err
		}
		time.Sleep(settle)
		at := time.Now().UnixNano()
		if err := unlock(); err != nil {
			return err
		}
		fmt.Println(at)
	}
}
