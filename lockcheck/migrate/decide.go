package migrate

import (
	"fmt"
	"go/ast"
	"go/token"
	"path/filepath"
	"strings"
)

// decide chooses the nodes that become a *TWithLock, and wraps the values that go to them. If no
// Locker is in scope for a wrap, the origin of the value becomes a *TWithLock instead, for example
// a parameter whose callers have a Locker. A node for which something is missing is given up. After
// either step everything is decided again.
func (m *migration) decide() {
	m.why, m.pushed = map[*node]string{}, map[*node]bool{}
	for _, n := range m.nodes {
		m.start(n)
	}
	for {
		m.spread()
		m.choose()
		if !m.giveUp() {
			break
		}
	}
	for _, n := range m.nodes {
		if n.chosen && n.text != nil && (len(n.siblings) == 0 || n.siblings[0] == n) { // names that share a type share its text
			m.insert(n.group.root(), n.text.End(), "WithLock")
		}
	}
	for _, use := range m.uses {
		m.rewrite(use)
	}
	for _, mk := range m.makers {
		if mk.to.chosen && (mk.from == nil || !mk.from.chosen) {
			m.wrapAfter(mk)
		}
	}
}

// start sets why a node is left as it is, for reasons of its own.
func (m *migration) start(n *node) {
	switch {
	case n.fixed != "":
		m.why[n] = n.fixed
	case n.owner.IsValid() && m.valued[n.owner]:
		m.why[n] = "belongs to a function that is used as a value"
	case m.dynamic[n.method]:
		m.why[n] = "belongs to a method of an interface that a value is tested for"
	}
}

// spread leaves values as they are if they go to something that stays as it is.
func (m *migration) spread() {
	set := func(n *node, why string) bool {
		if n == nil || m.why[n] != "" {
			return false
		}
		m.why[n] = why
		return true
	}
	for _, mk := range m.makers {
		if mk.check == nil {
			set(mk.to, "is one of several results, and no check of the others follows")
		}
	}
	for again := true; again; {
		again = false
		for _, use := range m.uses {
			if why := m.hinders(use); why != "" {
				again = set(use.from, why) || again
			}
			if use.to.goal == variable && use.value && !isLiteral(use.expr) {
				again = set(use.to.to, "is a copy") || again
			}
			if from, to := use.from, use.to.to; from != nil && to != nil && to.isNil && !from.isNil {
				from.isNil, again = true, true // nil is passed on
			}
			if use.to.goal == variable && !m.Asked[m.path(use.file)] {
				again = set(use.to.to, "is given a value outside of the packages that are migrated") || again
			}
		}
		for n := range m.why {
			for _, s := range n.siblings {
				again = set(s, "is declared together with "+n.name) || again
			}
		}
	}
}

// hinders says why the origin of a use's value can't be a wrapper, or returns "".
func (m *migration) hinders(use *use) string {
	where := fmt.Sprintf(" (%s)", m.at(use.expr.Pos()))
	to := use.to
	switch {
	case to.goal == elsewhere:
		return to.why + where
	case to.in != nil:
		return fmt.Sprintf("is used in %s, which holds the lock%s", to.in.Name, where)
	case use.value && to.goal != nothing && to.goal != guarded:
		return "is copied" + where
	case (to.goal == converted || to.goal == iface) && use.t.asserted != nil:
		return fmt.Sprintf("becomes an interface%s, and %s takes one for a *%s", where, m.at(use.t.asserted.Pos()), use.t.name.Name())
	case to.goal == variable && m.why[to.to] != "":
		return fmt.Sprintf("goes to %s%s, which %s", to.to.name, where, m.why[to.to])
	}
	return ""
}

// choose finds the nodes through which annotated methods are called, and all nodes to which their
// values go.
func (m *migration) choose() {
	for _, n := range m.nodes {
		n.chosen, n.group = m.pushed[n] && m.why[n] == "", n
	}
	for _, use := range m.uses {
		if use.to.goal == guarded && use.from != nil && use.from.id.result < 0 && m.why[use.from] == "" && m.mine(use) {
			use.from.chosen = true
		}
	}
	for again := true; again; {
		again = false
		mark := func(n *node, because *node) {
			again = again || !n.chosen
			n.chosen = true
			n.root().group = because.root()
		}
		for _, use := range m.uses {
			if use.to.goal == variable && use.from != nil && use.from.chosen {
				mark(use.to.to, use.from)
			}
		}
		for _, n := range m.nodes {
			for _, s := range n.siblings {
				if n.chosen {
					mark(s, n)
				}
			}
		}
	}
}

// root returns the node that stands for all nodes that are rewritten together or not at all.
func (n *node) root() *node {
	for n.group != n && n.group != nil {
		n = n.group
	}
	return n
}

// mine reports whether a raw call or conversion must be guarded. Those in tests need not be,
// because tests may call anything.
func (m *migration) mine(use *use) bool {
	return m.Asked[m.path(use.file)] && !m.isTest(use.file) && !m.ignored(use.file, use.expr.Pos())
}

// giveUp finds wraps that are not possible. It reports whether something else can be tried for any
// of them.
func (m *migration) giveUp() bool {
	before := len(m.why) + len(m.pushed)
	for _, use := range m.uses {
		if use.from != nil && use.from.chosen {
			continue
		}
		switch use.to.goal {
		case variable:
			if !use.to.to.chosen {
				continue
			}
			if use.to.to.isNil && !use.fresh {
				m.give(use.to.to, "is compared with nil, and a wrapper of nil is not nil")
			} else if l := m.locker(use.unit, use.file, use.expr.Pos()); l.why != "" && !m.push(use) {
				m.give(use.to.to, "is given a value at "+m.at(use.expr.Pos())+", where "+l.why)
			}
		case guarded, converted:
			if m.mine(use) && m.locker(use.unit, use.file, use.expr.Pos()).why != "" {
				m.push(use)
			}
		}
	}
	for _, mk := range m.makers {
		if !mk.to.chosen || mk.from != nil && mk.from.chosen {
			continue
		}
		if mk.to.isNil {
			m.give(mk.to, "is compared with nil, and a wrapper of nil is not nil")
		} else if l := m.locker(mk.unit, mk.file, mk.check.End()); l.why != "" {
			m.give(mk.to, "is given a value at "+m.at(mk.name.Pos())+", where "+l.why)
		}
	}
	return len(m.why)+len(m.pushed) > before
}

func (m *migration) give(n *node, why string) {
	if m.why[n] == "" {
		m.why[n] = why
	}
}

// push makes the origin of a value a wrapper. It reports whether that is possible.
func (m *migration) push(use *use) bool {
	if use.from == nil || m.why[use.from] != "" {
		return false
	}
	m.pushed[use.from] = true
	return true
}

// at names a place as a report does, relative to the folder where the run began.
func (m *migration) at(pos token.Pos) string {
	p := m.Fset.Position(pos)
	if dir, err := filepath.Abs(m.opts.Dir); err == nil {
		if name, err := filepath.Rel(dir, p.Filename); err == nil {
			p.Filename = name
		}
	}
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

// rewrite wraps the value of a use if it needs to be wrapped.
func (m *migration) rewrite(use *use) {
	from := use.from != nil && use.from.chosen
	switch use.to.goal {
	case variable:
		if use.to.to.chosen && !from {
			m.wrap(use, use.to.to.root())
		}
	case guarded, converted:
		if !m.mine(use) {
			return
		}
		m.raw[m.place(use.pos())] = true
		switch {
		case use.to.in != nil:
			m.leave(use.to.at.Pos(), fmt.Sprintf("%s.%s is called without its lock%s", use.t.name.Name(), use.to.at.Name, held(use.to.in)))
		case !from:
			m.wrapHere(use)
		}
	}
}

// wrapHere wraps a value for one call or one conversion, or says why it is left.
func (m *migration) wrapHere(use *use) {
	name, pos := use.t.name.Name(), use.pos()
	what := name + " becomes an interface without its lock"
	if use.to.goal == guarded {
		what = fmt.Sprintf("%s.%s is called without its lock", name, use.to.at.Name)
	}
	l := m.locker(use.unit, use.file, use.expr.Pos())
	switch {
	case use.from != nil && use.from.receiver:
		m.leave(pos, fmt.Sprintf("%s, on the receiver: give %s a field that holds its %s, and lockgen vet -fix goes through it", what, name, use.t.wrapper()))
	case use.value && !isLiteral(use.expr):
		m.leave(pos, fmt.Sprintf("%s, on a value that is no pointer: make it a *%s", what, name))
	case use.to.goal == converted && use.t.asserted != nil:
		m.leave(pos, fmt.Sprintf("%s, and an interface is taken for a *%s at %s: assert an interface there", what, name, m.at(use.t.asserted.Pos())))
	case l.why != "":
		m.leave(pos, what+m.because(use, l.why))
	default:
		m.wrap(use, &node{id: nodeID{pos: pos}, name: name})
	}
}

// because says why the variable of a use does not become a wrapper itself, and why the use is not
// wrapped.
func (m *migration) because(use *use, why string) string {
	if use.from == nil || m.why[use.from] == "" {
		return ", and " + why
	}
	because := ": " + use.from.name + " " + m.why[use.from]
	if strings.HasSuffix(because, why) {
		return because
	}
	return because + "; " + why
}

func isLiteral(e ast.Expr) bool {
	_, ok := ast.Unparen(e).(*ast.CompositeLit)
	return ok
}
