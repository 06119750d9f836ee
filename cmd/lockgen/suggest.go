package main

import (
	"context"
	"fmt"

	"github.com/lockgen/lockgen/lockcheck/suggest"
)

const suggestAbout = `Suggest looks for state that most callers write under one lock, and some without it. It
looks at each function or method that writes. If at least two of its callers, and at least
two thirds of them, run under the same key, it prints the others. A caller runs under a key
if it is annotated with it, or is called only by code that runs under it:

	admin.go:21:9: shop.Store.Save is reached under "shop:item:<id>" in 3 of 4 paths;
	here, in shop.Admin.Reset, it is not

If suggest can't decide, it prints nothing: for example about a caller that takes a lock by
hand, runs in a go statement or holds another lock. It does not look at tests. It needs code
that compiles. The exit status is 0 whether there are suggestions or not.
`

type jsonSuggestion struct {
	File     string     `json:"file"`
	Line     int        `json:"line"`
	Column   int        `json:"column"`
	Function string     `json:"function"`
	Caller   string     `json:"caller"`
	Key      string     `json:"key"`
	Under    int        `json:"under"`
	Paths    int        `json:"paths"`
	Message  string     `json:"message"`
	Others   []jsonNote `json:"others"`
}

// suggest prints the calls that lack a lock that most other calls have.
func (c *command) suggest(ctx context.Context) int {
	opts := suggest.Options{Dir: c.dir, Patterns: c.args, BuildFlags: c.buildFlags()}
	progress := newProgress(c.stderr)
	defer progress.stop()
	progress.stage("loading the module")
	found, err := suggest.Run(ctx, opts)
	progress.stop()
	if err != nil {
		return c.fail(err)
	}
	out := []jsonSuggestion{}
	for _, s := range found {
		j := jsonSuggestion{
			File: c.relative(s.File), Line: s.Line, Column: s.Column, Function: s.Function, Caller: s.Caller,
			Key: s.Key, Under: s.Under, Paths: s.Paths, Message: s.Message(),
		}
		if !c.json {
			fmt.Fprintf(c.stdout, "%s:%d:%d: %s\n", j.File, j.Line, j.Column, j.Message)
		}
		for _, o := range s.Others {
			note := jsonNote{c.relative(o.File), o.Line, o.Column, "here the lock is held"}
			if !c.json {
				fmt.Fprintf(c.stdout, "\t%s:%d:%d: %s\n", note.File, note.Line, note.Column, note.Message)
			}
			j.Others = append(j.Others, note)
		}
		out = append(out, j)
	}
	if c.json {
		if err := printIndented(c.stdout, out); err != nil {
			return c.fail(err)
		}
	}
	return fine
}
