package generator

import (
	"go/ast"
	"go/token"
	"regexp"
	"strings"
)

// A directive with a space, a capital or a blank line too many is a comment to
// Go, gofmt makes it prose for good, and the method would run unlocked. So what
// looks like one is an error. Prose is not: a near miss names an item first and
// gives it a value.

var (
	// nearShape parts a comment line into what stands before the items, and these:
	// 1 space, 2 @, 3 the word, 4 what parts it from 5 the items.
	nearShape = regexp.MustCompile(`^([ \t]*)(@?)((?i)lock(?:s|ed|gen)?)([ \t]*[:-][ \t]*|[ \t]+)(.*?)[ \t\r]*$`)

	valuedItem = regexp.MustCompile(`^(?i:` + itemPattern + `)(?:=\S|[ \t]*=?[ \t]*["` + "`" + `])`)
	quotedKey  = regexp.MustCompile(`^(?i:key)[ \t]*[=:]?[ \t]*["` + "`" + `]`)
	laterKey   = regexp.MustCompile(`^(?i:` + itemPattern + `)\b.*[ \t](?i:key)[ \t]*=?[ \t]*["` + "`" + `]`)
	bareItems  = regexp.MustCompile(`^(?:(?i:` + itemPattern + `)(?:[ \t]+|$))*$`)
)

// isNearMiss reports whether one line of a comment, without its "//", was meant
// as a directive.
func isNearMiss(line string) bool {
	m := nearShape.FindStringSubmatch(line)
	if m == nil {
		return false
	}
	space, word, parting, items := m[1], strings.ToLower(m[3]), m[4], m[5]
	switch {
	case quotedKey.MatchString(items):
		return true
	case word != "lock":
		return false
	case laterKey.MatchString(items):
		return true
	case !strings.Contains(parting, ":"):
		return false
	case valuedItem.MatchString(items):
		return true
	}
	// "//lock:", "//lock: try", `//lock:"…"`: the shape of a directive and nothing else.
	return space == "" && (bareItems.MatchString(items) || isQuote(items[0]))
}

// scanNearMiss reports the lines of a comment that were meant as directives.
func (p *pkg) scanNearMiss(c *ast.Comment) {
	body, isLine := strings.CutPrefix(c.Text, "//")
	if isLine {
		if isNearMiss(body) {
			p.report(c.Slash, "write "+corrected(body), "this comment is no directive, so the method would not be locked")
		}
		return
	}
	offset := 0
	for line := range strings.Lines(c.Text) {
		text := strings.TrimSuffix(strings.TrimRight(line, "\r\n"), "*/")
		text = strings.TrimLeft(text, " \t*/")
		if isNearMiss(text) {
			at := offset + strings.Index(line, text)
			p.report(c.Slash+token.Pos(at), "write "+corrected(text), "a block comment is no directive, so the method would not be locked")
		}
		offset += len(line)
	}
}

// corrected is the directive that was meant.
func corrected(line string) string {
	m := nearShape.FindStringSubmatch(line)
	items := m[5]
	switch {
	case items == "":
		items = `key="…"`
	case isQuote(items[0]):
		items = "key=" + items
	}
	if i := strings.IndexAny(items, "= \t\"`"); i > 0 {
		items = strings.ToLower(items[:i]) + items[i:]
	}
	return "//lock:" + items
}
