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

// bench is one run of the program: a server, a folder, and the options of the measurements.
type bench struct {
	options
	server *redis.Client // direct, for statistics only; nil if the engine is not Redis
	pid    int           // of the server; 0 if it is not known
	via    string        // the address that workers dial
	folder string        // temporary
	serial int           // number of the measurement, so that no two measurements share a key
}

// violation is the error that reports broken exclusion.
type violation struct{ error }

// scene is one running measurement: a peer, its workers and their sections.
type scene struct {
	*bench
	peer     *peers.Peer
	workload string
	board    *section.Board
	prefix   string
	crew     *crew
	begun    spending // what the server had spent at the last count
}

// stage prepares a measurement with the given numbers of worker processes and of
// section slots. shape is the job of each worker; stage fills in the other fields.
// The caller must call leave with the address of its error.
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
	s.prefix = fmt.Sprintf("bench.%d.%d.%s", os.Getpid(), b.serial, workload)
	if shape.Redisson > 0 {
		s.prefix = peers.RedissonPrefix + s.prefix
	}
	jobs := make([]job, processes)
	for i := range jobs {
		j := shape
		j.Workload, j.Peer, j.Program, j.Process = workload, p.Name, p.Program, i
		if p.Ours() {
			j.Peer = peers.Ours // an earlier build does not know the name of its peer
		}
		if i >= processes-shape.Redisson {
			j.Peer, j.Program = peers.Redisson.Name, ""
		}
		j.Engine, j.Addr, j.Board, j.Prefix = b.engine.Name, b.via, path, s.prefix
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

// count returns what clients have cost the server since the last count.
func (s *scene) count(ctx context.Context) (spending, error) {
	now, err := s.spent(ctx, s.peer)
	since := now.less(s.begun)
	s.begun = now
	return since, err
}

// verify returns a violation unless the sections counted this number of visits, one at a time.
func (s *scene) verify(visits uint64) error {
	if err := s.board.Totals().Verify(visits); err != nil {
		return violation{err}
	}
	return nil
}

// leave ends the workers and removes the sections.
func (s *scene) leave(errp *error) {
	err := s.crew.dismiss()
	if *errp == nil && err != nil {
		*errp = fmt.Errorf("a worker failed: %w", err)
	}
	if s.board != nil {
		*errp = errors.Join(*errp, s.board.Close())
	}
	_ = os.Remove(filepath.Join(s.folder, fmt.Sprintf("board-%d", s.serial)))
}

// soon returns a time by which all workers have received the order.
func soon() time.Time { return time.Now().Add(50 * time.Millisecond) }
