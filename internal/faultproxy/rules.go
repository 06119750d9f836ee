package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Match chooses requests by their bytes. [Command] makes one for RESP, [Op] one for ZooKeeper. The proxy calls it with its
// mutex locked, so it must not call the proxy.
type Match func(request []byte) bool

// Command matches the command with this name, in upper or lower case, whose other words
// contain each of parts: Command("evalsha", sha), Command("set", "order:1").
func Command(name string, parts ...string) Match {
	return matching(arguments, name, parts)
}

func matching(arguments func([]byte) []string, name string, parts []string) Match {
	return func(request []byte) bool {
		args := arguments(request)
		if len(args) == 0 || !strings.EqualFold(args[0], name) {
			return false
		}
		for _, part := range parts {
			holds := func(word string) bool { return strings.Contains(word, part) }
			if !slices.ContainsFunc(args[1:], holds) {
				return false
			}
		}
		return true
	}
}

// swallow is a rule to lose the replies to the next requests that match.
type swallow struct {
	match Match
	left  int // requests still to come
	lost  int // replies still to be lost
	done  chan struct{}
}

// Held is a request that Late holds back.
type Held struct {
	match    Match
	arrived  chan struct{}
	deliver  chan struct{}
	answered chan struct{}
	failed   chan struct{}
}

// Arrived is closed when the request has come and is held.
func (h *Held) Arrived() <-chan struct{} { return h.arrived }

// Deliver sends the request to the server, and returns when the server has answered, so the
// request has run. It may be called once.
func (h *Held) Deliver(ctx context.Context) error {
	close(h.deliver)
	select {
	case <-h.answered:
		return nil
	case <-h.failed:
		return errors.New("faultproxy: the held request's connection to the server is gone")
	case <-ctx.Done():
		return fmt.Errorf("faultproxy: the held request was not answered: %w", ctx.Err())
	}
}

// wait blocks until Deliver is called or the server has ended. It returns true if Deliver was
// called.
func (h *Held) wait(serverGone context.Context) bool {
	select {
	case <-h.deliver:
		return true
	case <-serverGone.Done():
		close(h.failed)
		return false
	}
}

// admit counts a request and returns its frame, with the rules that apply to it.
func (p *Proxy) admit(request []byte) *frame {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := &frame{bytes: request, args: p.format.arguments(request), due: time.Now().Add(p.delays[Requests])}
	if len(f.args) > 0 {
		p.counts[strings.ToUpper(f.args[0])]++
	}
	if i := slices.IndexFunc(p.swallows, func(s *swallow) bool { return s.match(request) }); i >= 0 {
		f.swallow = p.swallows[i]
		if f.swallow.left--; f.swallow.left == 0 {
			p.swallows = slices.Delete(p.swallows, i, i+1)
		}
	}
	if i := slices.IndexFunc(p.helds, func(h *Held) bool { return h.match(request) }); i >= 0 {
		f.held = p.helds[i]
		p.helds = slices.Delete(p.helds, i, i+1)
		close(f.held.arrived)
	}
	return f
}

// lost records that a reply was swallowed.
func (p *Proxy) lost(s *swallow) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.lost--; s.lost == 0 {
		close(s.done)
	}
}

// due returns when data that arrives now is to be sent on.
func (p *Proxy) due(dir Direction) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Add(p.delays[dir])
}

// dropped reports whether data in the direction dir is lost now.
func (p *Proxy) dropped(dir Direction) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hole&dir != 0
}
