// Package draw shows the lock graph of a module: keys, the methods that lock them,
// and which lock is taken while which is held. It writes DOT, Mermaid and SVG, the
// same bytes for the same graph.
package draw

import (
	"fmt"
	"strings"
)

// Graph is what is drawn.
type Graph struct {
	Nodes []Node
	Edges []Edge
}

// Node is a lock: all templates whose keys have the same literals.
type Node struct {
	Key     string   // "order:<id>"
	Kind    string   // "exclusive", "read", …
	Methods []string // that lock it: "order.Service.Place"
	Bad     bool     // it is part of a cycle
}

// Edge says that Nodes[To] is taken while Nodes[From] is held.
type Edge struct {
	From, To int
	Label    string // where: "order.Service.Place"
	Bad      bool   // it is part of a cycle
	Try      bool   // it does not wait
}

// DOT is the graph in the language of Graphviz.
func (g *Graph) DOT() string {
	var b strings.Builder
	b.WriteString("digraph locks {\n\trankdir=TB;\n\tnode [shape=box, style=\"rounded,filled\", fillcolor=\"#eef3fb\", fontname=\"sans-serif\"];\n\tedge [fontname=\"sans-serif\", fontsize=10];\n")
	for i, n := range g.Nodes {
		fmt.Fprintf(&b, "\tn%d [label=%s%s];\n", i, dotQuote(strings.Join(n.lines(), "\n")), pick(n.Bad, ", color=red, fillcolor=\"#fdecec\"", ""))
	}
	for _, e := range g.Edges {
		fmt.Fprintf(&b, "\tn%d -> n%d [label=%s%s%s];\n", e.From, e.To, dotQuote(e.Label), pick(e.Bad, ", color=red, fontcolor=red, penwidth=2", ""), pick(e.Try, ", style=dashed", ""))
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

// Mermaid is the graph as Markdown hosts draw it.
func (g *Graph) Mermaid() string {
	var b strings.Builder
	b.WriteString("flowchart TB\n")
	for i, n := range g.Nodes {
		var lines []string
		for _, line := range n.lines() {
			lines = append(lines, mermaidText(line))
		}
		fmt.Fprintf(&b, "    n%d[\"%s\"]\n", i, strings.Join(lines, "<br/>"))
	}
	for i, e := range g.Edges {
		fmt.Fprintf(&b, "    n%d %s|\"%s\"| n%d\n", e.From, pick(e.Try, "-.->", "-->"), mermaidText(e.Label), e.To)
		if e.Bad {
			fmt.Fprintf(&b, "    linkStyle %d stroke:red,stroke-width:3px,color:red\n", i)
		}
	}
	for i, n := range g.Nodes {
		if n.Bad {
			fmt.Fprintf(&b, "    style n%d stroke:red,fill:#fdecec\n", i)
		}
	}
	return b.String()
}

var mermaidEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "#", "&#35;")

func mermaidText(s string) string { return mermaidEscapes.Replace(s) }

// lines are the text of a node: the key, and the methods that lock it.
func (n *Node) lines() []string {
	key := n.Key
	if n.Kind != "" && n.Kind != "exclusive" {
		key += " (" + n.Kind + ")"
	}
	return append([]string{key}, n.Methods...)
}
