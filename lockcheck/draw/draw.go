// Package draw draws the lock graph of a module: keys, the methods that lock them, and
// which locks are taken while others are held. It writes DOT, Mermaid and SVG. The same
// graph makes the same bytes.
package draw

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Graph is a lock graph.
type Graph struct {
	Title string
	Nodes []Node
	Edges []Edge
}

// Node is a lock: all templates with the same literals. If a method has two of them, the second is another Node.
type Node struct {
	Key     string   // "order:<id>"
	Kind    string   // "exclusive", "read", …
	Methods []string // the methods that lock it, and how: "order.Service.Place: ttl=30s"
	Link    string   // a link to the directive: "order/order.go#L12"
	Bad     bool     // it is part of a cycle
}

// Edge says that Nodes[To] is taken while Nodes[From] is held, or that one method has both locks.
type Edge struct {
	From, To int
	Label    string // the functions: "order.Service.Place"
	Bad      bool   // it is part of a cycle
	Try      bool   // it does not wait
	Together bool   // one method has both locks
}

// DOT returns the graph in the language of Graphviz.
func (g *Graph) DOT() string {
	var b strings.Builder
	fmt.Fprintf(&b, "digraph locks {\n\tlabel=%s; labelloc=t; fontname=\"sans-serif\";\n", dotQuote(g.Title+"\n"+g.legendText()))
	b.WriteString("\trankdir=TB;\n\tnode [shape=box, style=\"rounded,filled\", fillcolor=\"#eef3fb\", fontname=\"sans-serif\"];\n\tedge [fontname=\"sans-serif\", fontsize=10];\n")
	for i, n := range g.Nodes {
		fmt.Fprintf(&b, "\tn%d [label=%s%s%s];\n", i, dotQuote(strings.Join(n.lines(), "\n")), pick(n.Link != "", ", URL="+dotQuote(n.Link), ""), pick(n.Bad, ", color=red, fillcolor=\"#fdecec\"", ""))
	}
	for _, e := range g.Edges {
		fmt.Fprintf(&b, "\tn%d -> n%d [label=%s%s%s%s];\n", e.From, e.To, dotQuote(e.Label), pick(e.Bad, ", color=red, fontcolor=red, penwidth=2", ""), pick(e.Try, ", style=dashed", ""), pick(e.Together, ", style=dotted, dir=none", ""))
	}
	b.WriteString("}\n")
	return b.String()
}

func dotQuote(s string) string {
	s = strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), `"`, `\"`)
	return `"` + strings.ReplaceAll(s, "\n", `\n`) + `"`
}

func pick(yes bool, a, b string) string {
	if yes {
		return a
	}
	return b
}

// Mermaid returns the graph in the language of Mermaid, which Markdown hosts draw.
func (g *Graph) Mermaid() string {
	var b strings.Builder
	fmt.Fprintf(&b, "---\ntitle: %s\n---\nflowchart TB\n", strconv.Quote(g.Title))
	for _, line := range strings.Split(g.legendText(), "\n") {
		fmt.Fprintf(&b, "    %%%% %s\n", line)
	}
	for i, n := range g.Nodes {
		var lines []string
		for _, line := range n.lines() {
			lines = append(lines, mermaidText(line))
		}
		fmt.Fprintf(&b, "    n%d[\"%s\"]\n", i, strings.Join(lines, "<br/>"))
	}
	for i, e := range g.Edges {
		fmt.Fprintf(&b, "    n%d %s|\"%s\"| n%d\n", e.From, pick(e.Together, "-.-", pick(e.Try, "-.->", "-->")), mermaidText(e.Label), e.To)
		if e.Bad {
			fmt.Fprintf(&b, "    linkStyle %d stroke:red,stroke-width:3px,color:red\n", i)
		}
	}
	for i, n := range g.Nodes {
		if n.Bad {
			fmt.Fprintf(&b, "    style n%d stroke:red,fill:#fdecec\n", i)
		}
	}
	for i, n := range g.Nodes {
		if n.Link != "" {
			fmt.Fprintf(&b, "    click n%d href %s\n", i, strconv.Quote(n.Link))
		}
	}
	return b.String()
}

var mermaidEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "#", "&#35;")

func mermaidText(s string) string { return mermaidEscapes.Replace(s) }

// legend explains the lines in the graph.
func (g *Graph) legend() []sample {
	all := []sample{
		{Edge{}, "A → B: B is taken while A is held"},
		{Edge{Try: true}, "A → B: B is tried while A is held, without waiting"},
		{Edge{Together: true}, "one method has both locks"},
		{Edge{Bad: true}, "orders that contradict each other"},
	}
	has := func(of Edge) bool {
		return slices.ContainsFunc(g.Edges, func(e Edge) bool { return e.Try == of.Try && e.Together == of.Together && e.Bad == of.Bad })
	}
	return slices.DeleteFunc(all, func(s sample) bool { return !has(s.edge) })
}

// sample is an edge of the legend.
type sample struct {
	edge Edge
	text string
}

// legendText returns the legend as text, for formats in which it can't have lines.
func (g *Graph) legendText() string {
	var all []string
	for _, s := range g.legend() {
		all = append(all, pick(s.edge.Bad, "red", pick(s.edge.Together, "dotted", pick(s.edge.Try, "dashed", "solid")))+": "+s.text)
	}
	return strings.Join(all, "\n")
}

// lines returns the text of a node: the key, and the methods that lock it. Long lines are wrapped.
func (n *Node) lines() []string {
	var all []string
	for _, line := range n.texts() {
		all = append(all, wrap(line)...)
	}
	return all
}

// widestLine is how many letters a line has at most.
const widestLine = 56

// wrap breaks a line after the last punctuation that fits, or anywhere if there is none.
func wrap(line string) (parts []string) {
	rest := []rune(line)
	for len(rest) > widestLine {
		at := widestLine
		for i := widestLine; i > widestLine/2; i-- {
			if strings.ContainsRune(":/.,-_ ", rest[i-1]) {
				at = i
				break
			}
		}
		parts, rest = append(parts, string(rest[:at])), append([]rune("  "), rest[at:]...)
	}
	return append(parts, string(rest))
}

// texts returns the lines before they are wrapped.
func (n *Node) texts() []string {
	key := n.Key
	if n.Kind != "" && n.Kind != "exclusive" {
		key += " (" + n.Kind + ")"
	}
	return append([]string{key}, n.Methods...)
}
