package failover_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/failover"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// plain does not implement driver.Agreement.
type plain struct{ driver.Backend }

func TestRefused(t *testing.T) {
	m := memlock.New()
	for advice, b := range map[string]*failover.Backend{
		"got no standby":              failover.New(m, nil, failover.Options{Record: memlock.New()}),
		"is nil":                      failover.New(m, []driver.Backend{nil}, failover.Options{Record: memlock.New()}),
		"are one Backend":             failover.New(m, []driver.Backend{m}, failover.Options{Record: memlock.New()}),
		"no place for the record":     failover.New(m, []driver.Backend{plain{memlock.New()}}),
		"is the primary":              failover.New(m, []driver.Backend{memlock.New()}, failover.Options{Record: m}),
		"3 names for 2 engines":       failover.New(m, []driver.Backend{memlock.New()}, failover.Options{Names: []string{"a", "b", "c"}}),
		`two engines are named "a"`:   failover.New(m, []driver.Backend{memlock.New()}, failover.Options{Names: []string{"a", "a"}}),
		"LongestTTL":                  nil,
		"driver.Agreement; set Optio": failover.New(m, []driver.Backend{memlock.New()}, failover.Options{Record: plain{memlock.New()}}),
	} {
		a := &driver.Acquisition{Key: "key", ID: "00000000-0000-8000-8000-000000000001:1", TTL: time.Second, Tokens: 1}
		if b == nil {
			b = failover.New(m, []driver.Backend{memlock.New()})
			a.TTL = time.Hour
		}
		_, err := b.Acquire(t.Context(), a)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(fmt.Sprint(err), advice) {
			t.Errorf("want ErrInvalid with %q, got %v", advice, err)
		}
		if ping := b.Ping(t.Context()); a.TTL != time.Hour && !errors.Is(ping, driver.ErrInvalid) {
			t.Errorf("Ping: want ErrInvalid with %q, got %v", advice, ping)
		}
		_ = b.Close()
	}
}

// Options below zero mean the defaults, as in the other packages. So an engine does not count as away without any probe.
func TestOptionsBelowZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := failover.Options{Record: memlock.New(), LongestTTL: -1, Silence: -1, Probe: -1, Timeout: -1, Failures: -1}
		b := failover.New(memlock.New(), []driver.Backend{memlock.New()}, o)
		if err := b.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := b.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Minute)
		if s, err := b.Status(t.Context()); err != nil || s.Epoch != 1 {
			t.Errorf("the record is %+v, %v; want the first epoch", s, err)
		}
		_ = b.Close()
	})
}

// known is a server with an ID of its own.
type known struct{ *link }

func (k known) Incarnation(context.Context) (driver.Incarnation, error) {
	return driver.Incarnation{ID: fmt.Sprintf("%p", k.server)}, nil
}

func TestOneServerTwice(t *testing.T) {
	for tells, open := range map[string]func(*server) driver.Backend{
		"has an ID":    func(s *server) driver.Backend { return known{&link{server: s}} },
		"stores an ID": func(s *server) driver.Backend { return &link{server: s} },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			b := failover.New(open(s), []driver.Backend{open(s)}, failover.Options{Record: memlock.New()})
			_ = b.Begin(t.Context())
			_ = b.Ping(t.Context())
			time.Sleep(2 * time.Second)
			if err := b.Ping(t.Context()); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "one server") {
				t.Errorf("two engines on one server that %s: %v", tells, err)
			}
			_ = b.Close()
		})
	}
}

// The first call of a process may be a request for a note. It reads the record for that.
func TestFirstCallIsANote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWorld(t, 2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := w.processes[1].backend.Note(ctx, "process/1"); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("want ErrUnsupported, because the engine stores no notes; got %v", err)
		}
		w.end()
	})
}

// A lock is held at the key of the record. The acquire fails with ErrConflict at once, because waiting would not help.
func TestLockInPlaceOfTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		record := memlock.New()
		b := failover.New(memlock.New(), []driver.Backend{memlock.New()}, failover.Options{Record: record})
		a := acquisition(1)
		a.Key = "lockgen.failover"
		if _, err := record.Acquire(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Acquire(t.Context(), acquisition(2)); !errors.Is(err, driver.ErrConflict) {
			t.Errorf("want ErrConflict, got %v", err)
		}
		_ = b.Close()
	})
}
