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
)

// exitTimeout is how long a worker may take to end by itself.
const exitTimeout = 5 * time.Second

// crew holds the worker processes of one measurement.
type crew struct{ workers []*worker }

// worker is the harness's side of one worker process.
type worker struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	say   *json.Encoder
	notes chan note // closed when the process has ended
	ended error     // how the process ended; set before notes is closed
}

// hire starts one worker for each job and returns when all are ready. The
// caller must call dismiss, even after an error.
func hire(ctx context.Context, jobs []job) (*crew, error) {
	c := &crew{}
	for _, j := range jobs {
		w, err := startWorker(j)
		if err != nil {
			return c, err
		}
		c.workers = append(c.workers, w)
	}
	_, err := c.hearAll(ctx, noteReady)
	return c, err
}

func startWorker(j job) (*worker, error) {
	program := j.Program
	if program == "" {
		var err error
		if program, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(program, workerArg)
	cmd.Stderr = os.Stderr // for the trace of a panic; everything else arrives as a note
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	w := &worker{cmd: cmd, in: in, say: json.NewEncoder(in), notes: make(chan note, 16)}
	go w.listen(out)
	_ = w.say.Encode(j) // a failure shows in the notes
	return w, nil
}

func (w *worker) listen(out io.Reader) {
	decoder := json.NewDecoder(out)
	for {
		var n note
		if decoder.Decode(&n) != nil {
			break
		}
		w.notes <- n
	}
	w.ended = w.cmd.Wait()
	close(w.notes)
}

// hear returns the worker's next note. It fails unless the note is op.
func (w *worker) hear(ctx context.Context, op string) (note, error) {
	select {
	case n, ok := <-w.notes:
		switch {
		case !ok:
			return n, fmt.Errorf("a worker ended early: %v", w.ended)
		case n.Op == noteFailed:
			return n, errors.New(n.Error)
		case n.Op != op:
			return n, fmt.Errorf("a worker said %q, not %q", n.Op, op)
		}
		return n, nil
	case <-ctx.Done():
		return note{}, ctx.Err()
	}
}

// tell sends the worker an order. If that fails, hear returns the reason.
func (w *worker) tell(op string, at time.Time) {
	_ = w.say.Encode(order{Op: op, At: at.UnixNano()})
}

func (c *crew) tellAll(op string, at time.Time) {
	for _, w := range c.workers {
		w.tell(op, at)
	}
}

// hearAll returns one note from each worker.
func (c *crew) hearAll(ctx context.Context, op string) ([]note, error) {
	var notes []note
	for _, w := range c.workers {
		n, err := w.hear(ctx, op)
		if err != nil {
			return nil, err
		}
		notes = append(notes, n)
	}
	return notes, nil
}

// results waits for the result of each worker.
func results[T any](ctx context.Context, c *crew) ([]T, error) {
	notes, err := c.hearAll(ctx, noteResult)
	if err != nil {
		return nil, err
	}
	all := make([]T, len(notes))
	for i, n := range notes {
		if err := json.Unmarshal(n.Result, &all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// dismiss ends all workers and waits until their processes have ended. It returns
// the errors of the workers that failed.
func (c *crew) dismiss() error {
	errs := make([]error, len(c.workers))
	var all sync.WaitGroup
	for i, w := range c.workers {
		all.Go(func() { errs[i] = w.end() })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (w *worker) end() error {
	_ = w.in.Close()
	// A worker ends itself after exitTimeout; this kills one that is stuck.
	kill := time.AfterFunc(exitTimeout+time.Second, func() { _ = w.cmd.Process.Kill() })
	defer kill.Stop()
	for range w.notes { // discard the remaining notes
	}
	return w.ended
}
