package generator

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Other tools write a placeholder as {id}, ${id}, #id, #{#id}, {{.id}}, :id or %d. In a key that is
// text, and the same in every call. So it is refused if it has the name of a parameter or the
// receiver, or of a field or method of one. Braces around other text are the hash tag of a Redis
// Cluster, and so are those of {<id>}. Therefore letter case counts in {ID} if the key has a
// placeholder; it doesn't in ${ID}.

const (
	selectorPattern = `([\pL_][\pL\p{Nd}_]*)(?:\.[\pL_][\pL\p{Nd}_]*)*`

	bracedPattern = `[#$%]?\{\{\s*[.#$]?` + selectorPattern + `\s*\}\}|[#$%]?\{[#$]?` + selectorPattern + `\}`
	widePattern   = `[＜〈《‹«]\s*` + selectorPattern + `\s*[＞〉》›»]`
	markedPattern = `[:#$]` + selectorPattern
	verbPattern   = `%[+#]*(?:\[[0-9]+\])?[dsvqxXt]` // %20 and %C3 are not verbs
)

var (
	selectorShape  = regexp.MustCompile(selectorPattern)
	markedShape    = regexp.MustCompile(`^[:#$][\pL_]`)
	hashTagShape   = regexp.MustCompile(`^\{[\pL_]`)
	lookalikeShape = regexp.MustCompile(bracedPattern + `|` + widePattern + `|` + markedPattern + `|` + verbPattern)
)

// checkLookalikes reports placeholders that are written in the form of other tools.
func (p *pkg) checkLookalikes(t *target, d *directive) {
	p.lookalikesIn(t, d, "key", d.key)
	p.lookalikesIn(t, d, "once", d.tick)
}

func (p *pkg) lookalikesIn(t *target, d *directive, name string, in pattern) {
	if in.torn {
		return
	}
	what := map[string]string{"key": "key", "once": "tick"}[name]
	params := append(fieldNames(t.recv), fieldNames(t.typ.Params)...)
	for i, part := range in.parts {
		for _, found := range lookalikeShape.FindAllStringSubmatchIndex(part.literal, -1) {
			text := part.literal[found[0]:found[1]]
			root := firstGroup(part.literal, found)
			hint := t.insteadOfVerb()
			if root != "" {
				meant := in.meantBy(text, root, params)
				if meant == "" || in.partsWords(i, found[0]) {
					continue
				}
				hint = "write <" + strings.Replace(selectorShape.FindString(text), root, meant, 1) + ">, or rename the parameter if this text is meant"
			}
			d.wrong = true
			at := d.items[name].offset(part.bytes[found[0]])
			p.report(d.posOf(at), hint, "%s is no placeholder: it would be the same text in every %s", text, what)
		}
	}
}

// meantBy returns the parameter that root means in text, or "" if there is none.
func (p pattern) meantBy(text, root string, params []string) string {
	switch {
	case root == "_":
		return ""
	case slices.Contains(params, root):
		return root
	case markedShape.MatchString(text), hashTagShape.MatchString(text) && slices.ContainsFunc(p.parts, part.isPlaceholder):
		return ""
	}
	if i := slices.IndexFunc(params, func(name string) bool { return strings.EqualFold(name, root) }); i >= 0 {
		return params[i]
	}
	return ""
}

// firstGroup returns the text of the first group that matched.
func firstGroup(s string, match []int) string {
	for i := 2; i < len(match); i += 2 {
		if match[i] >= 0 {
			return s[match[i]:match[i+1]]
		}
	}
	return ""
}

// partsWords reports whether the : or # at an offset of a literal separates words, as in
// "order:status:<id>", which may well lock a method with a parameter status. In a key without any
// placeholder it counts as the mark of one: such a key has one lock for all calls, which a user who
// names a parameter in it does not want.
func (p pattern) partsWords(i, at int) bool {
	literal := p.parts[i].literal
	mark := literal[at]
	if mark != ':' && mark != '#' || !slices.ContainsFunc(p.parts, part.isPlaceholder) {
		return false
	}
	if at == 0 {
		return i > 0 // after a placeholder
	}
	before := literal[at-1]
	return before == mark || before >= utf8.RuneSelf || isPlain(before) || strings.IndexByte("})]", before) >= 0
}

// insteadOfVerb returns the parameters that a verb could mean.
func (t *target) insteadOfVerb() string {
	var have []string
	for i, name := range fieldNames(t.typ.Params) {
		if i > 0 && name != "_" { // the first one is the context
			have = append(have, "<"+name+">")
		}
	}
	switch len(have) {
	case 0:
		return "name a parameter, and write its name in < >"
	case 1:
		return "write " + have[0]
	}
	return "write one of " + strings.Join(have, ", ")
}
