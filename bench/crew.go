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

// patience is how long a worker may take to end by itself.
const patience = 5 * time.Second

// crew is the worker processes of one measurement.
type crew struct{ workers []*worker }

// worker is one process as the harness sees it.
type worker struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	say   *json.Encoder
	notes chan note // closed when the process has ended
	ended error     // how; set before notes is closed
}

// hire starts one worker for each job and returns when all are ready. The
// caller must dismiss the crew, also after an error.
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
	cmd.Stderr = os.Stderr // a panic's trace; all else comes as a note
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
	_ = w.say.Encode(j) // whether it could be read shows in the notes
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

// hear returns the worker's next note, which must be op.
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

// tell gives the worker an order. If it can't hear it, hear says why.
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

// dismiss ends all workers and waits until they are gone. It returns how those
// ended that did not end well.
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
	// It ends itself when its patience is over; this is for one that is stuck.
	kill := time.AfterFunc(patience+time.Second, func() { _ = w.cmd.Process.Kill() })
	defer kill.Stop()
	for range w.notes { // whatever it still had to say
	}
	return w.ended
}
