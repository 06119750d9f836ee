package etcdlock

import (
	"context"
	"path"
	"reflect"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// faults disturbs single requests between a client and its connection to the real
// server.
type faults struct {
	mu     sync.Mutex
	counts map[string]int
	losses []*loss
	held   []*heldBack
}

type match func(req any) bool

// loss says to lose the replies to the next requests that match.
type loss struct {
	match match
	left  int
	first sync.Once
	lost  chan struct{} // closed when the first reply was lost
}

// heldBack is a request that arrives when the test says so.
type heldBack struct {
	match     match
	copy      bool // its caller gets an error at once, and sends the request again
	arrived   chan struct{}
	deliver   chan struct{}
	delivered chan error
}

func withFaults(f *faults) func(*clientv3.Config) {
	f.counts = map[string]int{}
	return func(c *clientv3.Config) {
		c.DialOptions = append(c.DialOptions,
			grpc.WithChainUnaryInterceptor(f.unary), grpc.WithChainStreamInterceptor(f.stream))
	}
}

// lose loses the replies to the next n requests that match. The requests run. The channel is
// closed when the first reply was lost.
func (f *faults) lose(n int, m match) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &loss{match: m, left: n, lost: make(chan struct{})}
	f.losses = append(f.losses, l)
	return l.lost
}

// heal ends all losses.
func (f *faults) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.losses = nil
}

// late holds back the next request that matches until the test delivers it. Its caller gets no answer.
func (f *faults) late(m match) *heldBack { return f.hold(m, false) }

// lateCopy holds back the next request that matches. Its caller sends it again at once.
func (f *faults) lateCopy(m match) *heldBack { return f.hold(m, true) }

func (f *faults) hold(m match, sentAgain bool) *heldBack {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := &heldBack{m, sentAgain, make(chan struct{}), make(chan struct{}), make(chan error, 1)}
	f.held = append(f.held, h)
	return h
}

func (f *faults) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	lost, late := f.admit(method, req)
	switch {
	case late != nil:
		close(late.arrived)
		own := reflect.New(reflect.TypeOf(reply).Elem()).Interface()
		go func() {
			<-late.deliver
			late.delivered <- invoke(context.WithoutCancel(ctx), method, req, own, cc)
		}()
		if late.copy {
			return status.Error(codes.Internal, "stream terminated by RST_STREAM")
		}
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	case lost != nil:
		if err := invoke(ctx, method, req, reply, cc, options...); err != nil {
			return err
		}
		lost.first.Do(func() { close(lost.lost) })
		return status.Error(codes.Unavailable, "error reading from server: EOF")
	}
	return invoke(ctx, method, req, reply, cc, options...)
}

func (f *faults) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	f.admit(method, nil)
	s, err := streamer(ctx, desc, cc, method, options...)
	return counted{s, f}, err
}

// counted counts what a stream sends.
type counted struct {
	grpc.ClientStream
	faults *faults
}

func (c counted) SendMsg(m any) error {
	switch m := m.(type) {
	case *pb.WatchRequest:
		if m.GetCreateRequest() != nil {
			c.faults.admit("watched", nil)
		}
	default:
		c.faults.admit("sent", nil)
	}
	return c.ClientStream.SendMsg(m)
}

func (f *faults) admit(method string, req any) (lost *loss, late *heldBack) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[path.Base(method)]++
	for i, h := range f.held {
		if h.match(req) {
			f.held = append(f.held[:i], f.held[i+1:]...)
			return nil, h
		}
	}
	for _, l := range f.losses {
		if l.left > 0 && l.match(req) {
			l.left--
			return l, nil
		}
	}
	return nil, nil
}

func (f *faults) count(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[name]
}

func (f *faults) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.counts)
}

// writes matches a transaction whose success puts our key below key.
func writes(key string) match {
	return func(req any) bool {
		t, ok := req.(*pb.TxnRequest)
		if !ok || len(t.Success) == 0 {
			return false
		}
		p := t.Success[0].GetRequestPut()
		return p != nil && len(p.Key) > len(key) && string(p.Key[:len(key)+1]) == key+"/"
	}
}

// deletes matches a transaction whose success deletes our key below key.
func deletes(key string) match {
	return func(req any) bool {
		t, ok := req.(*pb.TxnRequest)
		if !ok || len(t.Success) == 0 {
			return false
		}
		d := t.Success[0].GetRequestDeleteRange()
		return d != nil && len(d.Key) > len(key) && string(d.Key[:len(key)+1]) == key+"/"
	}
}

// arrives delivers a request that was held back.
func (h *heldBack) arrives(t testing.TB) error {
	t.Helper()
	close(h.deliver)
	return receive(t, "the late request's answer", h.delivered)
}
