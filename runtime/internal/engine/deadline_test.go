package engine

import (
	"sync"
	"testing"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

func TestDeadline(t *testing.T) {
	var d Deadline
	if d.Get().Left() > 0 {
		t.Error("the zero Deadline has not passed")
	}
	now := driver.Now()
	at := func(seconds int) driver.Instant { return now.Add(time.Duration(seconds) * time.Second) }
	for _, step := range []struct {
		do    string
		until int // the argument, in s from now
		moved bool
		then  int
	}{
		{"extend", 10, true, 10},
		{"extend", 5, false, 10},
		{"extend", 10, false, 10},
		{"shorten", 20, false, 10},
		{"shorten", 3, false, 3},
		{"extend", 4, true, 4},
	} {
		moved := false
		if step.do == "extend" {
			moved = d.Extend(at(step.until))
		} else {
			d.Shorten(at(step.until))
		}
		if moved != step.moved || d.Get() != at(step.then) {
			t.Errorf("%s to %d s: moved = %v, %v from now", step.do, step.until, moved, d.Get().Sub(now))
		}
	}
	d.End()
	if d.Get() != (driver.Instant{}) || d.Extend(at(9)) || d.Get() != (driver.Instant{}) {
		t.Errorf("the deadline has ended, and is %v from now", d.Get().Sub(now))
	}
}

// Answers come from many goroutines, in any order.
func TestDeadlineIsTheLastOfAll(t *testing.T) {
	var d Deadline
	now := driver.Now()
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 1000 {
				d.Extend(now.Add(time.Duration(i*8+g) * time.Millisecond))
			}
		})
	}
	all.Wait()
	if got, want := d.Get().Sub(now), 7999*time.Millisecond; got != want {
		t.Errorf("%v, want %v", got, want)
	}
}
