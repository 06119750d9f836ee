package etcdlock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
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
		p.rest() // while one is under way
		if p.timer == nil || !p.end(third) {
			t.Error("none is ended after an idle time")
		}
		p.rest()
		if p.timer != nil {
			t.Error("the timer outlives its rest")
		}
	})
}

// An attempt that is ended for its time has no answer; one that was refused at that
// very moment has.
func TestRefusedAtTheLastMoment(t *testing.T) {
	t.Parallel()
	for answer, want := range map[error]outcome{
		rpctypes.ErrGRPCPermissionDenied:                refused,
		status.FromContextError(context.Canceled).Err(): unanswered,
	} {
		b := &Backend{options: Options{AttemptTimeout: 10 * time.Millisecond}}
		b.closed, b.shut = context.WithCancel(t.Context())
		var to peer.Peer
		err := b.attempt(t.Context(), func(ctx context.Context, _ ...grpc.CallOption) error {
			<-ctx.Done()
			return answer
		}, &to)
		if got := judge(err, true); got != want {
			t.Errorf("%v is judged %v, want %v", err, got, want)
		}
		b.shut()
		b.patience.rest()
	}
}
