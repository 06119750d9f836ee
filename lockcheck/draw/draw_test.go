package draw

import (
	"encoding/xml"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func oppositeOrders() *Graph {
	return &Graph{
		Nodes: []Node{
			{Key: `a:<id>`, Kind: "exclusive", Methods: []string{"a.S.Do"}, Bad: true},
			{Key: `b:"x"`, Kind: "read-write", Methods: []string{"b.S.Do", "b.S.Undo"}, Bad: true},
			{Key: "c", Kind: "exclusive"},
			{Key: "alone"},
		},
		Edges: []Edge{
			{From: 0, To: 1, Label: "a.S.Do", Bad: true}, {From: 1, To: 0, Label: "b.S.Do", Bad: true},
			{From: 0, To: 2, Label: "a.S.Do", Try: true}, {From: 1, To: 2, Label: "b.S.Undo"},
		},
	}
}

func TestDOT(t *testing.T) {
	dot := oppositeOrders().DOT()
	require.Contains(t, dot, `n1 [label="b:\"x\" (read-write)\nb.S.Do\nb.S.Undo", color=red, fillcolor="#fdecec"];`)
	require.Contains(t, dot, `n0 -> n1 [label="a.S.Do", color=red, fontcolor=red, penwidth=2];`)
	require.Contains(t, dot, `n0 -> n2 [label="a.S.Do", style=dashed];`)
}

func TestMermaid(t *testing.T) {
	text := oppositeOrders().Mermaid()
	require.Contains(t, text, `n0["a:&lt;id&gt;<br/>a.S.Do"]`)
	require.Contains(t, text, `n0 -.->|"a.S.Do"| n2`)
	require.Contains(t, text, "linkStyle 1 stroke:red")
	require.NotContains(t, text, "linkStyle 3")
}

// Every node has a place and a text, no two nodes overlap, and everything in a cycle is red.
func TestSVG(t *testing.T) {
	svg := oppositeOrders().SVG()
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else {
			require.NoError(t, err)
		}
	}
	for _, text := range []string{"a:&lt;id&gt;", "b:&#34;x&#34; (read-write)", "alone", "b.S.Undo"} {
		require.Contains(t, svg, text)
	}
	require.Equal(t, 3, strings.Count(svg, `class="line bad"`), "two edges and their sample in the legend")
	require.Equal(t, svg, oppositeOrders().SVG())
}

// A picture for a page has no colours of its own, and describes itself in words.
func TestInline(t *testing.T) {
	svg := oppositeOrders().Inline(`orders of "a"`)
	require.Contains(t, svg, ` role="img" aria-label="orders of &#34;a&#34;">`)
	require.NotRegexp(t, `(fill|stroke)="(#|white|black)`, svg)
	require.NotContains(t, svg, "style") // the policy of a page may refuse a style element
	require.Equal(t, 3, strings.Count(svg, `class="line bad"`))
}

func TestLayoutPartsNodes(t *testing.T) {
	g := &Graph{}
	for i := range 12 {
		g.Nodes = append(g.Nodes, Node{Key: strings.Repeat("k", i+3)})
		for _, from := range []int{i / 2, i / 3, 11 - i} {
			if from != i {
				g.Edges = append(g.Edges, Edge{From: from, To: i})
			}
		}
	}
	l := newLayout(g)
	for i, a := range l.nodes {
		require.GreaterOrEqual(t, a.x-a.w/2, 0.0)
		require.LessOrEqual(t, a.x+a.w/2, l.w)
		for _, b := range l.nodes[i+1:] {
			apart := a.x+a.w/2 < b.x-b.w/2 || b.x+b.w/2 < a.x-a.w/2 || a.y+a.h < b.y || b.y+b.h < a.y
			require.True(t, apart, "%s and %s overlap", g.Nodes[a.node].Key, g.Nodes[b.node].Key)
		}
	}
}

// No two edges meet at one point of a node, and all edges end at a node.
func TestPortsAreSeparate(t *testing.T) {
	g := oppositeOrders()
	g.Edges = append(g.Edges, g.Edges...) // each edge a second time
	l := newLayout(g)
	seen := map[side][]float64{}
	for i, x := range l.ports() {
		r := l.routes[i]
		from, to := r.stops[0], r.stops[len(r.stops)-1]
		down := to.layer > from.layer
		for s, x := range map[side]float64{{from, down}: x[0], {to, !down}: x[1]} {
			require.InDelta(t, s.of.x, x, s.of.w/2)
			for _, other := range seen[s] {
				require.Greater(t, math.Abs(other-x), 4.0)
			}
			seen[s] = append(seen[s], x)
		}
	}
	require.NotEmpty(t, seen)
}

// Each line fits into its box, whatever the text, and no box is wider than a broken line.
func TestLongKeysStayInTheirBoxes(t *testing.T) {
	for _, key := range []string{strings.Repeat("W", 300), strings.Repeat("order:", 60), strings.Repeat("锁", 120), "short"} {
		g := &Graph{Nodes: []Node{{Key: key, Methods: []string{"a.S.Do: ttl=30s"}}}}
		l := newLayout(g)
		for _, line := range g.Nodes[0].lines() {
			require.LessOrEqual(t, textWidth(line), l.nodes[0].w-2*padding+0.1)
			require.LessOrEqual(t, len([]rune(line)), widestLine)
		}
		require.Equal(t, key, strings.ReplaceAll(strings.Join(wrap(key), ""), "  ", ""))
	}
}

// The legend explains only what is drawn. A box links to its directive. The dark mode has its own
// colours.
func TestLegendAndLinks(t *testing.T) {
	g := oppositeOrders()
	g.Title, g.Nodes[0].Link = "Locks of <a>", "a/a.go#L3"
	g.Edges = append(g.Edges, Edge{From: 2, To: 3, Label: "c.S." + strings.Repeat("Do", 40), Together: true})
	svg := g.SVG()
	for _, want := range []string{"<title>Locks of &lt;a&gt;</title>", `<a href="a/a.go#L3">`, "prefers-color-scheme:dark", "B is taken while A is held",
		"without waiting", "one method has both locks", "contradict each other", "…<title>c.S.Do"} {
		require.Contains(t, svg, want)
	}
	require.Contains(t, g.DOT(), `URL="a/a.go#L3"`)
	require.Contains(t, g.DOT(), "style=dotted, dir=none")
	require.Contains(t, g.Mermaid(), `click n0 href "a/a.go#L3"`)
	plain := (&Graph{Nodes: g.Nodes, Edges: []Edge{{From: 0, To: 1}}}).SVG()
	require.NotContains(t, plain, "without waiting")
	require.NotContains(t, plain, "one method has both locks")
	require.NotContains(t, plain, "contradict")
}
