package generator

import (
	"go/ast"
	"go/token"
	"regexp"
	"strings"
)

// A directive with an extra space, capital or blank line is only a comment for Go, gofmt would
// treat it as prose from then on, and the method would run without its lock. So a comment that
// looks like a directive is an error. Prose is not: a near miss names an item first and gives it a
// value.

const (
	// quotePattern matches the beginning of a value that is quoted in some way.
	quotePattern = "[\"`'“”„‘’«＂]"

	// misspelt has the likely misspellings of lock. The names of other directives, such as clock or
	// block, are not among them.
	misspelt = `lcok|lokc|olck|loc|lok|lck|llock|lockk|kock|locl`

	wordPattern = `(?i:lock)(?i:s|ed|gen)?|` + misspelt
)

var (
	// nearShape divides a comment line into 1 space, 2 the mark of a directive in other tools, 3
	// the word, 4 what separates it from the items, and 5 the items.
	nearShape = regexp.MustCompile(`^(/?[ \t]*)(@|\+|go:|)(` + wordPattern + `)([ \t]*(?:::|[:：;；=/-])[ \t]*|[ \t]*\([ \t]*|\.|[ \t]+|$)(.*?)[ \t\r]*$`)

	valuedItem = regexp.MustCompile(`^(?i:` + itemPattern + `)(?:=\S|[ \t]*=?[ \t]*` + quotePattern + `)`)
	quotedKey  = regexp.MustCompile(`^(?i:key)[ \t]*[=:＝：]?[ \t]*` + quotePattern)
	tightKey   = regexp.MustCompile(`^(?i:key)=` + quotePattern)
	laterKey   = regexp.MustCompile(`^(?i:` + itemPattern + `)\b.*[ \t,](?i:key)[ \t]*[=＝]?[ \t]*` + quotePattern)
	quotedItem = regexp.MustCompile(`^"[^"]*"(?:$|[ \t]+(?i:` + itemPattern + `)(?:$|[= \t]))`)
	// quotedPlaceholder matches text that code never has in parentheses.
	quotedPlaceholder = regexp.MustCompile(`^"[^"]*<[\pL_][^"<> ]*>[^"]*"`)
	behindAnother     = regexp.MustCompile(`^[a-z0-9]+:[a-z0-9].*[ \t](//lock:[a-z0-9])`)
	bareItems         = regexp.MustCompile(`^(?:(?i:` + itemPattern + `)(?:[ \t]+|$))*$`)
)

// isNearMiss reports whether one line of a comment, without its "//", was meant as a directive.
func isNearMiss(line string) bool {
	m := nearShape.FindStringSubmatch(line)
	if m == nil {
		return false
	}
	space, mark, word, parting, items := m[1], m[2], strings.ToLower(m[3]), strings.TrimSpace(m[4]), m[5]
	switch {
	case mark == "go:":
		return space == "" && word == "lock" // the go command has no directive with that name
	case parting == "." || parting == "(" && mark == "": // lock.key = "x" and lock(key, "x") are code
		return tightKey.MatchString(items) || parting == "(" && quotedPlaceholder.MatchString(items)
	case quotedKey.MatchString(items):
		return m[4][:min(1, len(m[4]))] == ":" || !isMisspelt(word)
	case word != "lock":
		return false
	case laterKey.MatchString(items):
		return true
	case parting == "(":
		return quoted(items)
	case m[4] == "=" || parting == "": // `//lock="x"`, but not the prose `// lock "x"`
		return space == "" && quotedItem.MatchString(items)
	case parting != ":" && parting != "：":
		return false
	case valuedItem.MatchString(items):
		return true
	}
	// "//lock:", "//lock: try", `//lock:"…"` have the form of a directive and nothing else.
	return space == "" && (bareItems.MatchString(items) || quoted(items))
}

func isMisspelt(word string) bool { return !strings.HasPrefix(word, "lock") }

// quoted reports whether a text begins with a quote of any kind.
func quoted(text string) bool { return text != "" && (isQuote(text[0]) || foreignQuote(text) > 0) }

// scanNearMiss reports the lines of a comment that were meant as directives.
func (p *pkg) scanNearMiss(c *ast.Comment) {
	body, isLine := strings.CutPrefix(c.Text, "//")
	if isLine {
		if isNearMiss(body) {
			p.report(c.Slash, "write "+corrected(body), "this comment is no directive, so the method would not be locked")
		} else if m := behindAnother.FindStringSubmatchIndex(body); m != nil {
			p.report(c.Slash+token.Pos(len("//")+m[2]), "put it on a line of its own", "behind another directive it is none, so the method would not be locked")
		}
		return
	}
	for i, line := range strings.Split(c.Text, "\n") {
		text := strings.TrimSuffix(line, "*/")
		text = strings.TrimLeft(text, " \t*/")
		if isNearMiss(text) {
			p.report(p.inComment(c, i, strings.Index(line, text)), "write "+corrected(text), "a block comment is no directive, so the method would not be locked")
		}
	}
}

// inComment returns the position of a column in a line of a comment. The comment's text has lost
// the carriage returns that the file may have.
func (p *pkg) inComment(c *ast.Comment, line, column int) token.Pos {
	if line == 0 {
		return c.Slash + token.Pos(column)
	}
	file := p.run.fset.File(c.Slash)
	return file.LineStart(file.PositionFor(c.Slash, false).Line+line) + token.Pos(column)
}

var itemParts = regexp.MustCompile(`"[^"]*"|` + "`[^`]*`" + `|[ \t]*,[ \t]*|[ \t]+[=:][ \t]*|[=:][ \t]+`)

// corrected returns the directive that was meant.
func corrected(line string) string {
	m := nearShape.FindStringSubmatch(line)
	items := wideCharacters.Replace(m[5])
	if !strings.Contains(items, `"`) {
		items = strings.ReplaceAll(items, "'", `"`)
	}
	if strings.HasSuffix(strings.TrimSpace(m[4]), "(") { // name = "value", name = "value")
		items = strings.TrimSuffix(items, ")")
		items = itemParts.ReplaceAllStringFunc(items, func(s string) string {
			switch {
			case isQuote(s[0]):
				return s
			case strings.Contains(s, ","):
				return " "
			}
			return "="
		})
	}
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

// wideCharacters are the characters that other keyboards and editors write in place of = and ".
var wideCharacters = strings.NewReplacer("＝", "=", "：", ":", "“", `"`, "”", `"`, "„", `"`, "＂", `"`, "‘", `"`, "’", `"`, "«", `"`, "»", `"`)
