package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// workload is a set of commands that take turns in one module.
type workload struct {
	name, about string
	dir         string
	commands    []command
	edit        func(turn int) error // called before each command; nil if nothing changes
	targets     []target
	memory      map[string]int64 // the most bytes that a command may use
}

// command is one way to do the workload.
type command struct {
	name string
	args []string
}

// target is the largest allowed ratio of the time of ours to the time of theirs.
type target struct {
	ours, theirs string
	most         float64
}

// sample is the time and memory that one command took, including its child processes.
type sample struct {
	wall, cpu time.Duration
	memory    int64 // bytes at the peak of its largest process
}

func (s sample) wallTime() time.Duration { return s.wall }
func (s sample) cpuTime() time.Duration  { return s.cpu }

// result holds the samples of a workload, by command and round.
type result struct {
	workload *workload
	samples  [][]sample
	first    []sample // of each command, before anything of the module is cached
}

// measure runs all commands once to warm the caches, and then in rounds. Every
// second round is in reverse order, so that no command always follows the same other command.
func (w *workload) measure(ctx context.Context, runs int) (result, error) {
	r := result{w, make([][]sample, len(w.commands)), make([]sample, len(w.commands))}
	turn := 0
	for round := range runs + 1 {
		order := make([]int, len(w.commands))
		for i := range order {
			order[i] = i
		}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, i := range order {
			if turn++; w.edit != nil {
				if err := w.edit(turn); err != nil {
					return r, err
				}
			}
			s, err := w.commands[i].run(ctx, w.dir)
			if err != nil {
				return r, err
			}
			if round == 0 {
				r.first[i] = s
				continue
			}
			r.samples[i] = append(r.samples[i], s)
		}
	}
	return r, nil
}

func (c command) run(ctx context.Context, dir string) (sample, error) {
	cmd := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
	cmd.Dir, cmd.Env = dir, environment()
	var output bytes.Buffer
	cmd.Stderr = &output
	begin := time.Now()
	err := cmd.Run()
	wall := time.Since(begin)
	if err != nil {
		return sample{}, fmt.Errorf("%s: %w\n%s", strings.Join(c.args, " "), err, output.Bytes())
	}
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return sample{
		wall:   wall,
		cpu:    cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(),
		memory: int64(usage.Maxrss) * maxrssUnit,
	}, nil
}

func median(samples []sample, of func(sample) time.Duration) time.Duration {
	var list []time.Duration
	for _, s := range samples {
		list = append(list, of(s))
	}
	slices.Sort(list)
	return list[len(list)/2]
}

func peak(samples []sample) int64 {
	var most int64
	for _, s := range samples {
		most = max(most, s.memory)
	}
	return most
}

// ratio returns the median of the rounds' ratios of ours to theirs.
func (r result) ratio(t target) float64 {
	find := func(name string) []sample {
		return r.samples[slices.IndexFunc(r.workload.commands, func(c command) bool { return c.name == name })]
	}
	ours, theirs := find(t.ours), find(t.theirs)
	var list []float64
	for i := range ours {
		list = append(list, float64(ours[i].wall)/float64(theirs[i].wall))
	}
	slices.Sort(list)
	return list[len(list)/2]
}
