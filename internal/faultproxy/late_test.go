package faultproxy

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/testserver"
)

// TestLateDeliveryAfterTheClientGaveUp is the scenario of a late acquire: the client gives up, undoes
// on another connection, and only then the acquire reaches the server.
func TestLateDeliveryAfterTheClientGaveUp(t *testing.T) {
	server, p := setUp(t)
	held := p.Late(Command("SET", "lock"))
	c := dial(t, p.Addr())
	unanswered(t, c, func() { receive(t, held.Arrived()) }, "SET", "lock", "me")
	c.Close()
	if v, err := dial(t, p.Addr()).Do(t.Context(), "DEL", "lock"); err != nil || v != int64(0) {
		t.Errorf("the undo: %v, %v", v, err)
	}
	if got := get(t, server, "lock"); got != nil {
		t.Errorf("before the delivery: lock = %v", got)
	}
	if err := held.Deliver(within(t, 5*time.Second)); err != nil {
		t.Error(err)
	}
	if got := get(t, server, "lock"); got != "me" {
		t.Errorf("after the delivery: lock = %v", got)
	}
}

func TestLateToAClientThatWaits(t *testing.T) {
	_, p := setUp(t)
	c := dial(t, p.Addr())
	held := p.Late(Command("INCR"))
	ended := make(chan error)
	go func() {
		v, err := c.Do(t.Context(), "INCR", "n")
		if v != int64(1) {
			t.Errorf("reply %v", v)
		}
		ended <- err
	}()
	receive(t, held.Arrived())
	if err := held.Deliver(within(t, 5*time.Second)); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if v, err := c.Do(t.Context(), "INCR", "n"); err != nil || v != int64(2) {
		t.Errorf("the second request must not be held: %v, %v", v, err)
	}
}

func TestLateIsLostWithTheConnection(t *testing.T) {
	r := testserver.StartRedis(t)
	p := New(t, r.Addr())
	for name, lose := range map[string]func(){"reset": p.Reset, "server restarted": r.Restart} {
		held := p.Late(Command("INCR"))
		unanswered(t, dial(t, p.Addr()), func() { receive(t, held.Arrived()) }, "INCR", "n")
		lose()
		if err := held.Deliver(within(t, 5*time.Second)); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: err = %v, want the error of the lost connection", name, err)
		}
		if got := get(t, r.Addr(), "n"); got != nil {
			t.Errorf("%s: n = %v", name, got)
		}
	}
}
