package quorum

import "sync"

// background counts the goroutines of a [Backend]. It is no sync.WaitGroup, which must not be
// added to while it is waited for: holders may release their locks while Close waits. Its zero
// value is ready.
type background struct {
	mu      sync.Mutex
	running int
	ended   chan struct{} // closed when running is 0; nil if nobody waits
}

// begin runs f in a goroutine that wait waits for.
func (w *background) begin(f func()) {
	w.mu.Lock()
	w.running++
	w.mu.Unlock()
	go func() {
		defer w.end()
		f()
	}()
}

func (w *background) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running--; w.running == 0 && w.ended != nil {
		close(w.ended)
		w.ended = nil
	}
}

// wait returns at an instant at which no goroutine runs. One goroutine may call it at a time.
func (w *background) wait() {
	var ended chan struct{}
	w.mu.Lock()
	if w.running > 0 {
		ended = make(chan struct{})
		w.ended = ended
	}
	w.mu.Unlock()
	if ended != nil {
		<-ended
	}
}
