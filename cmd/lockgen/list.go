package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/lockgen/lockgen/generator"
)

// list prints every lock.
func (c *command) list(ctx context.Context) int {
	locks, code := c.locks(ctx, c.args)
	if code == unusual {
		return code
	}
	switch {
	case c.json:
		out := []jsonLock{}
		for _, l := range locks {
			out = append(out, c.jsonLock(l, nil))
		}
		if err := printIndented(c.stdout, out); err != nil {
			return c.fail(err)
		}
	case c.markdown:
		c.printMarkdown(locks)
	default:
		w := tabwriter.NewWriter(c.stdout, 0, 8, 2, ' ', 0)
		fmt.Fprintln(w, "KEY\tMETHOD\tPOSITION\tTTL\tKIND\tBACKEND")
		for _, l := range locks {
			fmt.Fprintln(w, strings.Join(c.row(l), "\t"))
		}
		if err := w.Flush(); err != nil {
			return c.fail(err)
		}
	}
	return code
}

// locks reads the directives, and reports the mistakes in them.
func (c *command) locks(ctx context.Context, patterns []string) ([]generator.Lock, int) {
	locks, wrong, err := generator.List(ctx, c.options(patterns))
	c.printDiagnostics(wrong)
	if err != nil {
		return nil, c.fail(err)
	}
	if len(wrong) > 0 {
		return locks, stale
	}
	return locks, fine
}

// row returns the columns of a lock in the table.
func (c *command) row(l generator.Lock) []string {
	return []string{
		l.Key, l.Method, fmt.Sprintf("%s:%d:%d", c.relative(l.File), l.Line, l.Column),
		l.TTL.String(), l.Items(), cmp.Or(l.Backend, "-"),
	}
}

func (c *command) printMarkdown(locks []generator.Lock) {
	fmt.Fprintln(c.stdout, "| Key | Method | Position | TTL | Kind | Backend |")
	fmt.Fprintln(c.stdout, "|---|---|---|---|---|---|")
	for _, l := range locks {
		row := c.row(l)
		for i, cell := range row {
			cell = strings.ReplaceAll(cell, "|", `\|`)
			if i < 2 { // <id> would be HTML
				cell = "`" + cell + "`"
			}
			row[i] = cell
		}
		fmt.Fprintf(c.stdout, "| %s |\n", strings.Join(row, " | "))
	}
}

type jsonLock struct {
	Key       string            `json:"key"`
	Method    string            `json:"method"`
	Package   string            `json:"package"`
	File      string            `json:"file"`
	Line      int               `json:"line"`
	Column    int               `json:"column"`
	TTL       string            `json:"ttl"`
	Kind      string            `json:"kind"`
	Tick      string            `json:"tick,omitempty"`
	Permits   int               `json:"permits,omitempty"`
	Weight    int               `json:"weight,omitempty"`
	Queue     int               `json:"queue,omitempty"`
	Merge     int               `json:"merge,omitempty"`
	Wait      string            `json:"wait,omitempty"`
	Try       bool              `json:"try,omitempty"`
	Max       string            `json:"max,omitempty"`
	Renew     string            `json:"renew,omitempty"`
	Delay     string            `json:"delay,omitempty"`
	AtLeast   string            `json:"atleast,omitempty"`
	Sticky    string            `json:"sticky,omitempty"`
	Reentrant bool              `json:"reentrant"`
	Skip      bool              `json:"skip,omitempty"`
	Fallback  string            `json:"fallback,omitempty"`
	Backend   string            `json:"backend,omitempty"`
	Values    map[string]string `json:"values,omitempty"`
}

func (c *command) jsonLock(l generator.Lock, values []generator.Value) jsonLock {
	out := jsonLock{
		Key: l.Key, Method: l.Method, Package: l.Package, File: c.relative(l.File), Line: l.Line, Column: l.Column,
		TTL: l.TTL.String(), Kind: l.Kind, Tick: l.Tick, Permits: l.Permits, Weight: l.Weight, Queue: l.Queue, Merge: l.Merge,
		Try: l.Try, Reentrant: l.Reentrant, Skip: l.Skip, Fallback: l.Fallback, Backend: l.Backend,
	}
	for d, text := range map[*time.Duration]*string{&l.Wait: &out.Wait, &l.Max: &out.Max, &l.Delay: &out.Delay, &l.AtLeast: &out.AtLeast, &l.Sticky: &out.Sticky} {
		if *d > 0 {
			*text = d.String()
		}
	}
	if l.NoRenew {
		out.Renew = "off"
	}
	for _, v := range values {
		if out.Values == nil {
			out.Values = map[string]string{}
		}
		out.Values[v.Placeholder] = v.Text
	}
	return out
}

// explain prints the locks that can have the key.
func (c *command) explain(ctx context.Context) int {
	if len(c.args) == 0 {
		return c.fail(errors.New("explain takes a key, as in: lockgen explain seckill:voucher:42"))
	}
	patterns := c.args[1:]
	if len(patterns) == 0 {
		patterns = []string{"./..."} // the user rarely knows the package of a key
	}
	locks, code := c.locks(ctx, patterns)
	if code == unusual {
		return code
	}
	key, found := c.args[0], []jsonLock{}
	for _, l := range locks {
		values, ok := l.Match(key)
		if !ok {
			continue
		}
		found = append(found, c.jsonLock(l, values))
		if !c.json {
			fmt.Fprintf(c.stdout, "%s:%d:%d: %s locks %q (%s, ttl %s)\n", c.relative(l.File), l.Line, l.Column, l.Method, l.Key, l.Items(), l.TTL)
			for _, v := range values {
				fmt.Fprintf(c.stdout, "\t%s = %s\n", v.Placeholder, v.Text)
			}
		}
	}
	if c.json {
		if err := printIndented(c.stdout, found); err != nil {
			return c.fail(err)
		}
	}
	if len(found) == 0 {
		if !c.json {
			fmt.Fprintf(c.stderr, "lockgen: none of %s can have the key %s\n", plural(len(locks), "lock"), key)
		}
		return stale
	}
	return fine
}

func printIndented(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false) // keep <id> readable
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
