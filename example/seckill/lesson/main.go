//go:build unix

// Command lesson sells the same voucher with several locks under the same faults, and prints a row
// for each lock. The locks are those that articles on the subject build step by step, and that of
// lockgen. Workers are processes. A fault kills one of them, or stops it like a long pause.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"text/tabwriter"
	"time"
)

// ttl is the length of all leases. It is short, so that the lesson is short.
const ttl = 400 * time.Millisecond

func main() {
	if len(os.Args) == 5 && os.Args[1] == workerArg {
		number, err := strconv.Atoi(os.Args[4])
		if err == nil {
			err = work(os.Args[2], os.Args[3], number)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "lesson: worker:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := teach(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "lesson:", err)
		os.Exit(1)
	}
}

// teach runs a sale for each lock, all at the same time, and prints the results.
func teach(ctx context.Context, out io.Writer) error {
	fmt.Fprintf(out, "The same sale of %d pieces with each lock, by %d processes. ttl: %v.\n"+
		"In each, one process is killed in the middle of a sale, one between two commands of its lock if it has two,\n"+
		"one is stopped for %v in a sale, one in its release, and one sale takes %v.\n\n",
		stock, workers, ttl, pause, pause)
	results := make([]*result, len(locks))
	failed := make(chan error, len(locks))
	for i := range locks {
		go func() {
			var err error
			results[i], err = sell(ctx, locks[i].name, locks[i].has)
			failed <- err
		}()
	}
	var errs []error
	for range locks {
		errs = append(errs, <-failed)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "lock\tsold\toversold\tduplicates\tno sale for\twhat struck")
	for i, r := range results {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%s\t", locks[i].title, r.sold, r.oversold, r.duplicates, r.stuckFor())
		for j, words := range r.words() {
			if j > 0 {
				fmt.Fprint(table, "\t\t\t\t\t")
			}
			fmt.Fprintln(table, words)
		}
	}
	return table.Flush()
}
