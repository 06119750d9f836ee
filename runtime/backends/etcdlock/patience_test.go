package etcdlock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// An attempt is ended when its time is over, within an eighth of it; one that has
// ended before is left alone, and an idle backend has no timer.
func TestPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p patience
		begin := time.Now()
		slow, cancel := context.WithCancel(t.Context())
		defer cancel()
		first := p.begin(time.Second, cancel)
		time.Sleep(500 * time.Millisecond)
		quick, cancelQuick := context.WithCancel(t.Context())
		defer cancelQuick()
		second := p.begin(time.Second, cancelQuick)
		<-slow.Done()
		if took := time.Since(begin); took < time.Second || took > time.Second+time.Second/looks {
			t.Errorf("ended after %v", took)
		}
		if !p.end(first) || p.end(second) || quick.Err() != nil {
			t.Error("it was not the slow one that was ended")
		}
		time.Sleep(time.Second)
		p.mu.Lock()
		if p.timer != nil || len(p.attempts) != 0 {
			t.Error("the timer runs on for nothing")
		}
		p.mu.Unlock()
		again, cancelAgain := context.WithCancel(t.Context())
		defer cancelAgain()
		third := p.begin(time.Second, cancelAgain)
		<-again.Done()
		if !p.end(third) {
			t.Error("none is ended after an idle time")
		}
	})
}
