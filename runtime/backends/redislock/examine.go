package redislock

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
)

// examine asks the server about itself, before the first lock is taken on a
// connection: the next one may lead elsewhere. It returns why locks are not to be
// taken here. Two commands, because servers before 7.0 answer for one section each.
//
// Some proxies hang up on a command that they do not know. Where the answer decides
// on nothing but speed, the connection after that is not asked.
func (s *link) examine() error {
	if s.mute {
		s.mute, s.examined = false, true
		s.isSingle(false)
		return nil
	}
	s.out = appendCommand(appendCommand(s.out[:0], "info", "memory"), "info", "server")
	err := s.flush()
	var memory, server reply
	if err == nil {
		memory, err = s.reply()
	}
	if err == nil {
		server, err = s.reply()
	}
	s.out = s.out[:0]
	if err != nil {
		s.mute = !s.wary && s.ctx.Err() == nil && isHangUp(err)
		return fmt.Errorf("%w: %w: %v", errNotSent, errNoGreeting, err) //nolint:errorlint // it is not the call that has no answer
	}
	facts := factsOf(memory)
	s.examined = true
	s.isSingle(hasAllKeys(facts, factsOf(server)))
	if s.wary {
		s.unfit = mayEvict(facts)
	}
	return s.unfit
}

// isHangUp reports whether err says that the other side has closed the connection.
func isHangUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
}

// isSingle notes whether one command may be about locks that have nothing in common.
func (s *link) isSingle(single bool) {
	s.single = single
	s.lane.Store(single)
}

// factsOf reads what INFO answered: nothing if the server does not say, because we
// have no right to ask, or it knows no such command.
func factsOf(info reply) map[string]string {
	facts := map[string]string{}
	if info.err() != nil {
		return facts
	}
	for line := range strings.Lines(info.text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			facts[name] = value
		}
	}
	return facts
}

// hasAllKeys reports whether the server says what one that has all keys says. A
// proxy may send a command to where the first of its keys is, and then there would
// be locks where nobody looks for them. Those that answer INFO say that they are a
// cluster (Envoy), or nothing of memory (Camellia); the others, and the nodes of a
// Cluster, refuse keys that are not in the same slot.
func hasAllKeys(memory, server map[string]string) bool {
	return memory["maxmemory_policy"] != "" && server["redis_mode"] == "standalone" && server["run_id"] != ""
}

// isCrossSlot reports whether err refuses a command because its keys may be in
// several places: in the words of Redis, or of a proxy to several.
func isCrossSlot(err error) bool { return err != nil && strings.Contains(err.Error(), "same slot") }

// mayEvict says why a server is not to be trusted with locks: its configuration
// lets it evict them.
func mayEvict(memory map[string]string) (unfit error) {
	limited := memory["maxmemory"] != "" && memory["maxmemory"] != "0"
	if policy := memory["maxmemory_policy"]; limited && policy != "" && policy != "noeviction" {
		return fmt.Errorf("the server may evict locks: its maxmemory-policy is %s; set noeviction, "+
			"or accept it by redislock.Options.AllowEviction", policy)
	}
	return nil
}
