package generator

import (
	"slices"
	"strings"
	"unicode"
)

// pattern is a key as written in a directive: literals and placeholders.
type pattern struct {
	text  string // as written, unquoted
	parts []part
	torn  bool // a single < or > makes the literals unknown
}

// part is a literal, or a placeholder if path is not empty. Offsets count bytes of the pattern's
// text.
type part struct {
	literal string
	text    string   // the placeholder as written: "<order.Customer.ID>"
	path    []string // "order", "Customer", "ID"
	each    bool     // it ends with ...: one key for each element
	at      int      // where the placeholder starts
	bytes   []int    // where each byte of the literal is written
}

func (p part) isPlaceholder() bool { return len(p.path) > 0 }

// parseKey parses the value of the key item.
func (d *directive) parseKey(it *item) []problem {
	if it.broken || !it.valued {
		return nil // reported where the item was read
	}
	if it.value == "" {
		return []problem{{it.valueAt, "the key is empty", `write key="seckill:voucher:<id>"`}}
	}
	parsed, problems := parsePattern(it.value)
	problems = append(problems, parsed.lists()...)
	problems = append(problems, parsed.ambiguities("key")...)
	problems = append(problems, d.listInSingle(parsed)...)
	problems = append(problems, parsed.braces()...)
	d.key = parsed
	return it.place(problems)
}

// parseTick parses the value of the once item.
func (d *directive) parseTick(it *item) []problem {
	if it.broken || it.value == "" {
		return nil // reported where the item was read
	}
	parsed, problems := parsePattern(it.value)
	problems = append(problems, parsed.ambiguities("tick")...)
	problems = append(problems, parsed.listInTick()...)
	if len(problems) == 0 && !slices.ContainsFunc(parsed.parts, part.isPlaceholder) {
		problems = []problem{{0, "the tick has no placeholder: the method would run once for ever", `name the run by a parameter: once="<day>"`}}
	}
	d.tick = parsed
	return it.place(problems)
}

// place turns offsets in the value into offsets in the directive.
func (it *item) place(problems []problem) []problem {
	for i := range problems {
		problems[i].at = it.offset(problems[i].at)
	}
	return problems
}

// parsePattern divides text into literals and placeholders.
func parsePattern(text string) (pattern, []problem) {
	p := pattern{text: text}
	var problems []problem
	var literal part
	write := func(i int) {
		literal.literal += text[i : i+1]
		literal.bytes = append(literal.bytes, i)
	}
	flush := func() {
		if literal.literal != "" {
			p.parts = append(p.parts, literal)
			literal = part{}
		}
	}
	for i := 0; i < len(text); {
		switch {
		case strings.HasPrefix(text[i:], "<<"), strings.HasPrefix(text[i:], ">>"):
			write(i)
			i += 2
		case text[i] == '>':
			problems = append(problems, problem{i, "> closes no placeholder", "a literal > is written >>"})
			p.torn = true
			i++
		case text[i] == '<':
			end := strings.IndexAny(text[i+1:], "<>")
			if end < 0 || text[i+1+end] == '<' {
				problems = append(problems, problem{i, "the placeholder is not closed", "close it with >; a literal < is written <<"})
				p.torn = true
				i++
				continue
			}
			flush()
			end += i + 2
			ph, bad := parsePlaceholder(text[i:end], i)
			problems = append(problems, bad...)
			p.parts = append(p.parts, ph)
			i = end
		default:
			write(i)
			i++
		}
	}
	flush()
	return p, problems
}

// parsePlaceholder reads "<a.b.c>", which starts at offset at of the pattern.
func parsePlaceholder(text string, at int) (part, []problem) {
	ph := part{text: text, at: at, path: []string{"?"}}
	inner, each := strings.CutSuffix(text[1:len(text)-1], "...")
	ph.each = each
	switch {
	case inner == "" && each:
		return ph, []problem{{at, "the placeholder " + text + " has no name", "name a slice: <ids...>"}}
	case inner == "":
		return ph, []problem{{at, "the placeholder is empty", "name a parameter: <id>"}}
	case strings.HasSuffix(inner, "()"):
		return ph, []problem{{at, text + ": a method is named without ()", "write " + strings.ReplaceAll(text, "()", "")}}
	}
	path := strings.Split(inner, ".")
	for _, name := range path {
		if !isIdentifier(name) {
			return ph, []problem{{at, text + " is no placeholder", "write a parameter, or fields and methods of one: <order.Customer.ID>; a literal < is written <<"}}
		}
	}
	ph.path = path
	return ph, nil
}

func isIdentifier(s string) bool {
	for i, c := range s {
		if !unicode.IsLetter(c) && c != '_' && (i == 0 || !unicode.IsDigit(c)) {
			return false
		}
	}
	return s != "" && s != "_"
}

// isPlain reports whether an encoded value may contain c. Such a byte, or the % of an escape, does
// not separate a literal from a value.
func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '.' || c == '-'
}

func separates(literal string) bool {
	for i := range len(literal) {
		if !isPlain(literal[i]) && literal[i] != '%' {
			return true
		}
	}
	return false
}

// ambiguities reports patterns in which two lists of values could make one key, or tick.
func (p pattern) ambiguities(what string) []problem {
	var out []problem
	for i, ph := range p.parts {
		if i == 0 || !ph.isPlaceholder() {
			continue
		}
		between, left := "", i-1
		if !p.parts[left].isPlaceholder() {
			between, left = p.parts[left].literal, left-1
		}
		if left >= 0 && !separates(between) {
			out = append(out, problem{ph.at,
				p.parts[left].text + " and " + ph.text + " run together: two lists of values could make one " + what,
				`part them by a byte outside A-Z a-z 0-9 _ . - %, such as ":"`})
		}
	}
	return out
}

// braces checks that every { has its }, with text in between. Redis Cluster hashes the text between
// the first pair, or the whole key if there is none.
func (p pattern) braces() []problem {
	const hint = "Redis Cluster would place the lock's keys in different slots"
	open, filled := []int(nil), false
	for _, part := range p.parts {
		if part.isPlaceholder() {
			filled = true
			continue
		}
		for i := range len(part.literal) {
			at := part.bytes[i]
			switch part.literal[i] {
			case '{':
				open, filled = append(open, at), false
			case '}':
				if len(open) == 0 {
					return []problem{{at, "} has no {", hint}}
				}
				if !filled {
					return []problem{{open[len(open)-1], "{} is empty", hint}}
				}
				open = open[:len(open)-1]
			default:
				filled = true
			}
		}
	}
	if len(open) > 0 {
		return []problem{{open[len(open)-1], "{ has no }", hint}}
	}
	return nil
}
