package main

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

const graphAbout = `Graph draws the locks of the packages: a box for each key with the methods that lock
it, and an arrow from the key to each lock that is taken while it is held. Orders that
contradict each other are red. A dotted line joins the locks that one method takes
together. Each box links to its directive. Graph needs code that compiles.

	lockgen graph -format svg ./... >locks.svg
`

func graphFormats() []string { return []string{"dot", "mermaid", "svg"} }

// graph prints the lock graph.
func (c *command) graph(ctx context.Context) int {
	if c.format != "" && !slices.Contains(graphFormats(), c.format) {
		return c.fail(fmt.Errorf("-format %s: have %s", c.format, strings.Join(graphFormats(), ", ")))
	}
	res, code := c.checked(ctx)
	if code == unusual {
		return code
	}
	g := res.Graph(c.graphLink)
	switch cmp.Or(c.format, "dot") {
	case "mermaid":
		fmt.Fprint(c.stdout, g.Mermaid())
	case "svg":
		fmt.Fprint(c.stdout, g.SVG())
	default:
		fmt.Fprint(c.stdout, g.DOT())
	}
	for _, why := range res.Broken {
		fmt.Fprintf(c.stderr, "lockgen: left out: %s\n", why)
		code = unusual
	}
	return code
}

// graphLink returns path as it is written in a link.
func (c *command) graphLink(path string) string { return filepath.ToSlash(c.relative(path)) }
