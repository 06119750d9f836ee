package main

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"time"
)

const claims = `
## What is claimed, and what counts as a violation

[G1 to G15](guarantees.md) are claimed. The checkers look for these violations; the mark is what the tables below show.

| mark | violation | claim | simulation | soak | storms |
|---|---|---|---|---|---|
| I2, I3, K1 | two hold one key, more have a permit than there are, a writer is inside beside a reader | G1 | yes | yes | yes |
| I1, K2 | a token twice, or a lower one later | G3 | yes | yes | yes |
| I4 | a register that refuses older tokens takes a late write | G3 | yes | yes | |
| I5 | Check says yes after the lease's end, or the context lives on; or a lease ends although nothing is wrong | G2 | yes | yes | |
| I6 | at the engine is what was released, undone or never asked for; a call fails although nothing is wrong | G4, G5, G6, G7 | yes | yes | |
| I7, I9 | a lock has no expiry, a longer one than its ttl, or two owners | G14, G1 | yes | yes | |
| I8 | a lock, a waiter or a goroutine is left after all have gone, or a key can't be had then | G6, G12 | yes | yes | yes |
| N8 | a call outlives its context by more than 100 ms | G6, G7 | yes | yes | yes |
| L1, L2 | a lock is free while somebody waits, or one process keeps it for its own callers for too long | G9, G10 | yes | | |
| K3, K5 | a fair lock is given to who asked later; a reader waits for a second writer | G10 | yes | yes | |
| K4 | a tick is run again after it was completed | | yes | yes | |
| API | a call of the package answers what it must not | | yes | yes | yes |

None of them can see a fault that nobody draws, nor what a model or miniredis does otherwise than the engine. [A differential test](../internal/sim/differential/doc.go)
compares miniredis with Redis; the storms run on the engines themselves.
`

// page returns the page and the number of runs that failed or are missing.
func page(sections []section, commit string, of func(name string) *outcome) (text []byte, bad int) {
	var body bytes.Buffer
	var failed []string
	var first time.Time
	for _, s := range sections {
		fmt.Fprintf(&body, "\n## %s\n\n%s\n", s.title, s.what)
		table(&body, s.table(&s, of))
		fmt.Fprintln(&body)
		for _, r := range s.runs {
			verdict, ok := "**not done** on this commit", false
			if o := of(r.name); o != nil {
				verdict, ok = "passed", o.Failed == ""
				if !ok {
					verdict = "**failed**: " + o.Failed
				}
				verdict += fmt.Sprintf(", in %v", o.Took.Round(time.Second))
				if first.IsZero() || o.Began.Before(first) {
					first = o.Began
				}
			}
			if !ok {
				failed = append(failed, r.name)
			}
			fmt.Fprintf(&body, "- `%s`: %s\n", r.again(), verdict)
		}
	}
	var b bytes.Buffer
	b.WriteString("# Record\n\nWhat was claimed of the locks, what was done to them, and what came of it, counted. `make record` writes this page.\n\n")
	fmt.Fprintf(&b, "Made on %s, on commit %s (its `runtime` is tree %s), with %s on %d processors of %s/%s.\n\n",
		first.UTC().Format("2006-01-02"), commit, tree("runtime"), runtime.Version(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	if len(failed) > 0 {
		fmt.Fprintf(&b, "**Not as it should be:** %s.\n", strings.Join(failed, ", "))
	} else {
		b.WriteString("All runs passed.\n")
	}
	b.WriteString(claims)
	b.Write(body.Bytes())
	return b.Bytes(), len(failed)
}

// table writes rows as Markdown. If there are no rows below the head, it writes a sentence instead.
func table(b *bytes.Buffer, rows []row) {
	if len(rows) < 2 {
		b.WriteString("\nThere is nothing to show.\n")
		return
	}
	fmt.Fprintln(b)
	for i, cells := range rows {
		for j, cell := range cells {
			cells[j] = strings.NewReplacer("|", `\|`, "\n", " ").Replace(cell)
		}
		fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
		if i == 0 {
			fmt.Fprintln(b, "|"+strings.Repeat("---|", len(cells)))
		}
	}
}
