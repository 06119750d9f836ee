package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/bench/peers"
	"github.com/lockgen/lockgen/bench/section"
)

// bench is one run of the program: a server, a folder, and what is measured.
type bench struct {
	options
	server *redis.Client // for statistics alone; nil if the engine is another
	folder string        // temporary
	serial int           // of the measurement, so that no two share a key
}

// violation is an error that says that exclusion was broken.
type violation struct{ error }

// scene is one measurement under way: a peer, its workers and their sections.
type scene struct {
	*bench
	peer     *peers.Peer
	workload string
	board    *section.Board
	prefix   string
	crew     *crew
	counted  int64 // the server's commands at the last count
}

// stage prepares a measurement with processes workers and slots sections, each
// worker with the job that shape leaves. The caller must call leave, with the
// address of its error.
func (b *bench) stage(ctx context.Context, p *peers.Peer, workload string, processes, slots int, shape job) (*scene, error) {
	b.serial++
	s := &scene{bench: b, peer: p, workload: workload, crew: &crew{}}
	path := filepath.Join(b.folder, fmt.Sprintf("board-%d", b.serial))
	if err := section.Create(path, slots); err != nil {
		return s, err
	}
	var err error
	if s.board, err = section.Open(path); err != nil {
		return s, err
	}
	s.prefix = fmt.Sprintf("bench:%d:%d:%s", os.Getpid(), b.serial, workload)
	jobs := make([]job, processes)
	for i := range jobs {
		j := shape
		j.Workload, j.Peer, j.Process = workload, p.Name, i
		j.Engine, j.Addr, j.Board, j.Prefix = b.engine.Name, b.addr, path, s.prefix
		if b.profiles != "" {
			j.Profile = filepath.Join(b.profiles, fmt.Sprintf("%s-%s-%d.pprof", workload, p.Name, i))
		}
		jobs[i] = j
	}
	s.crew, err = hire(ctx, jobs)
	if err != nil {
		return s, err
	}
	_, err = s.count(ctx)
	return s, err
}

// count returns how many commands clients have sent since the last count.
func (s *scene) count(ctx context.Context) (float64, error) {
	before := s.counted
	if s.server == nil {
		return 0, nil
	}
	var err error
	s.counted, err = commands(ctx, s.server, s.peer)
	return float64(s.counted - before), err
}

// verify returns a violation unless the sections saw visits, one at a time.
func (s *scene) verify(visits uint64) error {
	if err := s.board.Totals().Verify(visits); err != nil {
		return violation{err}
	}
	return nil
}

// leave ends the workers and takes the sections away.
func (s *scene) leave(errp *error) {
	err := s.crew.dismiss()
	if *errp == nil && err != nil {
		*errp = fmt.Errorf("a worker did not end well: %w", err)
	}
	if s.board != nil {
		*errp = errors.Join(*errp, s.board.Close())
	}
	_ = os.Remove(filepath.Join(s.folder, fmt.Sprintf("board-%d", s.serial)))
}

// soon is far enough from now that all workers have the order by then.
func soon() time.Time { return time.Now().Add(50 * time.Millisecond) }
