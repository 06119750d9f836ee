// Command cmd runs the soak: client processes that lock three keys on a real
// Redis, faults drawn from a seed, and a check of the histories. See package soak.
//
//	GOWORK=off go run -C internal/soak ./cmd -duration 10m -seed 7 -json soak.json
//	GOWORK=off go run -C internal/soak ./cmd -seed 7 -episodes 12 -duration 2m
//
// It exits with 1 if a guarantee was broken, and with 2 if the soak itself failed.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lockgen/lockgen/internal/soak"
	"github.com/lockgen/lockgen/internal/soak/client"
)

func main() {
	client.MainIfClient()
	os.Exit(run())
}

func run() int {
	o := soak.Options{Log: os.Stdout}
	flag.DurationVar(&o.Duration, "duration", 10*time.Minute, "how long to start new episodes")
	flag.Uint64Var(&o.Seed, "seed", 0, "seed of the plans (default: a different one each time)")
	flag.IntVar(&o.Parallel, "parallel", 2, "episodes at a time")
	flag.BoolVar(&o.FailFast, "failfast", false, "stop at the first violation")
	flag.StringVar(&o.Out, "out", os.TempDir(), "`folder` for the histories of episodes with violations")
	flag.BoolVar(&o.Keep, "keep", false, "keep the histories of all episodes there")
	episodes := flag.String("episodes", "", "repeat only episodes with these `numbers`, separated by commas")
	faults := flag.String("faults", "", "only these `kinds` of faults, separated by commas")
	flag.StringVar(&o.Locks, "locks", "", "add to each episode this `kind` of lock, or calls with this option: "+strings.Join(client.Names(), ", "))
	report := flag.String("json", "", "also write the summary to this `file`")
	flag.Parse()
	if o.Seed == 0 {
		o.Seed = rand.Uint64N(1 << 32)
	}
	if *faults != "" {
		o.Faults = strings.Split(*faults, ",")
	}
	for word := range strings.FieldsFuncSeq(*episodes, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(word)
		if err != nil {
			return failed(err)
		}
		o.Episodes = append(o.Episodes, n)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Printf("soak: seed %d, %v\n", o.Seed, o.Duration)
	summary, err := soak.Run(ctx, o)
	if err != nil {
		return failed(err)
	}
	summary.Print(os.Stdout)
	if *report != "" {
		text, err := json.MarshalIndent(summary, "", "  ")
		if err == nil {
			err = os.WriteFile(*report, append(text, '\n'), 0o644)
		}
		if err != nil {
			return failed(err)
		}
	}
	if len(summary.Violations) > 0 {
		return 1
	}
	return 0
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, "soak:", err)
	return 2
}
