package generator

import (
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// item is one word of a directive: a flag, or a name with a value. Offsets
// count bytes from the start of the text that was read.
type item struct {
	name    string
	at      int
	valued  bool
	value   string // the value without quotes
	valueAt int    // the offset of the value as written, including its quote
	quoted  bool
	broken  bool  // it could not be read, and that was reported
	source  []int // for a quoted value: where each byte of value, and its end, is written
}

// offset returns where byte i of the value is written.
func (it *item) offset(i int) int {
	if it.quoted && i < len(it.source) {
		return it.source[i]
	}
	return it.valueAt + i
}

// readItems divides the text after "//lock:" into items. Spaces inside quotes belong to the value,
// so readItems does not split at the first space, as go/ast's ParseDirective does. It understands
// both spellings: name="value" and name "value".
func readItems(text string) (items []item, problems []problem) {
	r := &itemReader{text: text}
	for r.skipSpace(); r.at < len(text); r.skipSpace() {
		if what := comma(text[r.at]); what != "" {
			r.fail(r.at, "separate items by spaces, and quote a value that has a comma", what)
			r.at++
			continue
		}
		it, ok := r.item()
		it.broken = !ok
		items = append(items, it)
	}
	return items, r.problems
}

type itemReader struct {
	text     string
	at       int
	problems []problem
}

func (r *itemReader) fail(at int, hint, message string) {
	r.problems = append(r.problems, problem{at: at, message: message, hint: hint})
}

func (r *itemReader) skipSpace() (skipped bool) {
	start := r.at
	for r.at < len(r.text) && isSpace(r.text[r.at]) {
		r.at++
	}
	return r.at > start
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' }

// comma returns the name of a byte that separates items in other tools, or "" for other bytes.
func comma(c byte) string {
	switch c {
	case ',':
		return "a comma"
	case ';':
		return "a semicolon"
	}
	return ""
}

// endsItem matches a comma, or a semicolon, that ends a bare value.
var endsItem = regexp.MustCompile(`^[,;](?:$|[ \t\r]|(?:` + itemPattern + `)(?:$|[=,; \t\r]))`)

// gluedItem matches an item that follows a placeholder directly.
var gluedItem = regexp.MustCompile(`^(?:` + itemPattern + `)=`)

func isQuote(c byte) bool { return c == '"' || c == '`' }

// foreignQuotes are quotes with which no Go string literal begins.
const foreignQuotes = "'“”„‘’«»＂"

// foreignQuote returns the length of the foreign quote with which text begins, or 0.
func foreignQuote(text string) int {
	c, n := utf8.DecodeRuneInString(text)
	if n == 0 || !strings.ContainsRune(foreignQuotes, c) {
		return 0
	}
	return n
}

// wideEquals returns the length of the full-width equals sign or colon with which text begins, or
// 0.
func wideEquals(text string) int {
	if strings.HasPrefix(text, "＝") || strings.HasPrefix(text, "：") {
		return len("＝")
	}
	return 0
}

// item reads one item and the space after it.
func (r *itemReader) item() (item, bool) {
	it := item{at: r.at}
	for r.at < len(r.text) && !isSpace(r.text[r.at]) && r.text[r.at] != '=' && comma(r.text[r.at]) == "" && !quoted(r.text[r.at:]) && wideEquals(r.text[r.at:]) == 0 {
		r.at++
	}
	it.name = r.text[it.at:r.at]
	if name, _, ok := strings.Cut(it.name, ":"); ok && findItem(name) != nil { // as in the tag of a struct field
		it.name, r.at = name, it.at+len(name)
	}
	if it.name == "" {
		return it, r.nameless(it.at)
	}
	switch {
	case r.peek() == '=':
		r.at++
		return it, r.value(&it)
	case r.peek() == ':' || wideEquals(r.text[r.at:]) > 0:
		n := max(wideEquals(r.text[r.at:]), 1)
		r.fail(r.at, "write "+it.name+"=…", r.text[r.at:r.at+n]+" is no =")
		r.at += n
		r.skipSpace()
		r.value(&it)
		return it, false
	case foreignQuote(r.text[r.at:]) > 0:
		return it, r.value(&it)
	case isQuote(r.peek()):
		r.fail(r.at, "write "+it.name+"=…", "a value follows its name without = or space")
		return it, r.quoted(&it)
	}
	// This is name "value": a space and a quote, and = in neither place.
	end := r.at
	r.skipSpace()
	switch {
	case quoted(r.text[r.at:]):
		return it, r.value(&it)
	case r.peek() == '=':
		r.fail(r.at, "write "+it.name+"=…", "no space may stand before or after =")
		r.at++
		r.skipSpace()
		r.value(&it)
		return it, false
	}
	r.at = end
	return it, true
}

// nameless skips a value that has no name.
func (r *itemReader) nameless(at int) bool {
	if r.peek() == '=' {
		r.at++
		r.fail(at, "an item is a flag or name=value", "a name is missing before =")
	} else {
		r.fail(at, "write key=…", "a value has no name")
	}
	r.value(&item{})
	return false
}

func (r *itemReader) peek() byte {
	if r.at < len(r.text) {
		return r.text[r.at]
	}
	return 0
}

// value reads what follows "=": a Go string literal or a bare word.
func (r *itemReader) value(it *item) bool {
	it.valued, it.valueAt = true, r.at
	switch {
	case isQuote(r.peek()):
		return r.quoted(it)
	case foreignQuote(r.text[r.at:]) > 0:
		return r.foreignQuoted()
	}
	for r.at < len(r.text) && !isSpace(r.text[r.at]) && !endsItem.MatchString(r.text[r.at:]) {
		if strings.HasSuffix(r.text[:r.at], ">") && gluedItem.MatchString(r.text[r.at:]) {
			r.fail(r.at, "", "a space is missing after the value")
			break
		}
		if isQuote(r.text[r.at]) {
			r.fail(r.at, "put the whole value in quotes", "a quote inside a bare value")
			r.quoted(&item{})
			return false
		}
		r.at++
	}
	it.value = r.text[it.valueAt:r.at]
	if it.value == "" {
		if it.name != "" {
			r.fail(it.at, "no space may stand before or after =", it.name+" has no value after =")
		}
		return false
	}
	return true
}

// foreignQuoted skips a value in foreign quotes, which would otherwise become part of it.
func (r *itemReader) foreignQuoted() bool {
	n := foreignQuote(r.text[r.at:])
	r.fail(r.at, "write the value in \"\"", r.text[r.at:r.at+n]+" is no quote here")
	for r.at += n; r.at < len(r.text); r.at++ {
		if n := foreignQuote(r.text[r.at:]); n > 0 && (r.at+n == len(r.text) || isSpace(r.text[r.at+n])) {
			r.at += n
			break
		}
	}
	return false
}

// quoted reads a Go string literal and requires a space after it.
func (r *itemReader) quoted(it *item) bool {
	it.valued, it.quoted, it.valueAt = true, true, r.at
	literal, ok := r.literal()
	if !ok {
		r.fail(it.valueAt, "close it with "+r.text[it.valueAt:it.valueAt+1], "the quote is not closed")
		r.at = len(r.text)
		return false
	}
	r.at += len(literal)
	value, source, bad := unquote(literal, it.valueAt)
	if bad >= 0 {
		r.fail(bad, "a value is a Go string literal; a backslash is written \\\\", "unknown escape in the string")
		return false
	}
	it.value, it.source = value, source
	if r.at < len(r.text) && !isSpace(r.text[r.at]) && comma(r.text[r.at]) == "" {
		r.fail(r.at, "", "a space is missing after the value")
	}
	return true
}

// literal returns the string literal at r.at as it is written.
func (r *itemReader) literal() (string, bool) {
	rest := r.text[r.at:]
	quote := rest[0]
	for i := 1; i < len(rest); i++ {
		switch {
		case rest[i] == quote:
			return rest[:i+1], true
		case rest[i] == '\\' && quote == '"':
			i++
		}
	}
	return "", false
}

// unquote returns the value of a Go string literal that starts at offset at. source has, for each
// byte of the value and for its end, where that is written. bad is the offset of an escape that Go
// does not know, or -1.
func unquote(literal string, at int) (value string, source []int, bad int) {
	body, quote := literal[1:len(literal)-1], literal[0]
	var b strings.Builder
	pos := at + 1
	for len(body) > 0 {
		if quote == '`' {
			b.WriteByte(body[0])
			source = append(source, pos)
			body, pos = body[1:], pos+1
			continue
		}
		c, multibyte, tail, err := strconv.UnquoteChar(body, quote)
		if err != nil {
			return "", nil, pos
		}
		before := b.Len()
		switch {
		case body[0] != '\\': // as written, even if it is not valid UTF-8
			b.WriteString(body[:len(body)-len(tail)])
		case multibyte || c < utf8.RuneSelf:
			b.WriteRune(c)
		default: // \xff and \377 are single bytes
			b.WriteByte(byte(c))
		}
		for i := range b.Len() - before {
			if body[0] == '\\' {
				i = 0
			}
			source = append(source, pos+i)
		}
		pos += len(body) - len(tail)
		body = tail
	}
	return b.String(), append(source, pos), -1
}

// directive is one //lock: line on a method.
type directive struct {
	pos   token.Pos // of the comment
	start token.Pos // of the text after "//lock:"
	items map[string]*item
	key   pattern
	tick  pattern // the value of once
	wrong bool    // a diagnostic was reported for it
	settings
}

func (d *directive) posOf(offset int) token.Pos { return d.start + token.Pos(offset) }
