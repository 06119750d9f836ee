package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/lockgen/lockgen/example/seckill/order"
)

// process is a worker as the front desk sees it.
type process struct {
	number int
	cmd    *exec.Cmd
	ready  chan struct{} // closed when it is ready for clicks
	gone   chan struct{} // closed when it has ended and was waited for

	mu    sync.Mutex // guards what follows
	in    io.WriteCloser
	say   *json.Encoder
	calls map[int64]*call
	last  int64
	page  string // the address of the page of its locks, or empty
	fatal string // the error that it reported before it ended
	ended error  // how it ended; set before gone is closed
}

// call is a click that a worker has not answered yet.
type call struct {
	id      int64
	holding chan struct{} // closed when the worker says so
	answer  chan reply    // receives one reply; "abandoned" if the worker dies
}

// startProcess starts this program once more, as a worker. It must be called from the main
// goroutine; see ownGroup.
func startProcess(number int, a assignment) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start worker %d: find this program's own file: %w", number, err)
	}
	cmd := exec.Command(program, workerArg)
	cmd.Stderr = os.Stderr // for the trace of a panic; everything else comes as a reply
	cmd.SysProcAttr = ownGroup()
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut); err != nil {
		return nil, fmt.Errorf("start worker %d: %w", number, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start worker %d: %w", number, err)
	}
	p := &process{
		number: number,
		cmd:    cmd,
		in:     in,
		say:    json.NewEncoder(in),
		calls:  map[int64]*call{},
		ready:  make(chan struct{}),
		gone:   make(chan struct{}),
	}
	go p.listen(out)
	// ready or gone shows whether the worker has read this.
	_ = p.say.Encode(a)
	return p, nil
}

// String names the process in reports and errors.
func (p *process) String() string {
	return fmt.Sprintf("worker %d (pid %d)", p.number, p.cmd.Process.Pid)
}

// listen reads the worker's replies until the worker has ended.
func (p *process) listen(out io.Reader) {
	in := json.NewDecoder(out)
	for {
		var r reply
		if err := in.Decode(&r); err != nil {
			break
		}
		p.hear(r)
	}
	ended := p.cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = ended
	for id, c := range p.calls {
		c.answer <- reply{Op: opAnswer, ID: id, Outcome: abandoned}
	}
	clear(p.calls)
	close(p.gone)
}

func (p *process) hear(r reply) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch r.Op {
	case opReady:
		p.page = r.Page
		close(p.ready)
	case opFatal:
		p.fatal = r.Error
	case opHolding:
		close(p.calls[r.ID].holding)
	case opAnswer:
		p.calls[r.ID].answer <- r
		delete(p.calls, r.ID)
	}
}

// awaitReady returns when the worker accepts clicks, or when it can't.
func (p *process) awaitReady(ctx context.Context) error {
	select {
	case <-p.ready:
		return nil
	case <-p.gone:
		return p.failure()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// failure says why the worker has ended.
func (p *process) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.fatal != "":
		return fmt.Errorf("%v: %s", p, p.fatal)
	case p.ended != nil:
		return fmt.Errorf("%v ended in the middle of the sale: %w", p, p.ended)
	default:
		return fmt.Errorf("%v ended in the middle of the sale", p)
	}
}

// click makes the user click at this worker.
func (p *process) click(userID int64, by order.Payment) *call {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	c := &call{id: p.last, holding: make(chan struct{}), answer: make(chan reply, 1)}
	select {
	case <-p.gone:
		c.answer <- reply{Op: opAnswer, ID: c.id, Outcome: abandoned}
		return c
	default:
	}
	p.calls[c.id] = c
	// If the worker has died, listen answers in its place.
	_ = p.say.Encode(request{Op: opClick, ID: c.id, User: userID, By: by})
	return c
}

// transferArrived tells the worker that the user's money has arrived.
func (p *process) transferArrived(userID int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.say.Encode(request{Op: opPaid, User: userID})
}

// exitTimeout is how long a worker may take to end by itself.
const exitTimeout = 3 * time.Second

// end asks the worker to end, and kills it if it does not.
func (p *process) end() {
	p.mu.Lock()
	_ = p.say.Encode(request{Op: opBye})
	_ = p.in.Close()
	p.mu.Unlock()
	_ = p.resume() // in case it is stopped: it can't end otherwise
	timer := time.NewTimer(exitTimeout)
	defer timer.Stop()
	select {
	case <-p.gone:
	case <-timer.C:
		_ = p.cmd.Process.Kill() // this also ends a worker that is stopped
		<-p.gone
	}
}
