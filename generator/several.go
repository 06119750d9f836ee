package generator

// singles are the items that allow only one lock.
var singles = []string{"once", "leader", "merge"}

// single returns the first of the directive's items that allows only one lock, or "".
func (d *directive) single() string {
	for _, name := range singles {
		if d.items[name] != nil {
			return name
		}
	}
	return ""
}

// checkSeveral reports items that allow only one lock, and differences between items that concern
// the whole call.
func (p *pkg) checkSeveral(t *target) {
	if len(t.directives) < 2 {
		return
	}
	for _, d := range t.directives {
		for _, name := range singles {
			if it := d.items[name]; it != nil {
				d.wrong = true
				p.report(d.posOf(it.at), "call a method that has the other locks from it", "%s is for one lock, and %s has %d", name, t.id.Name, len(t.directives))
			}
		}
	}
	for _, name := range []string{"skip", "fallback"} {
		var with, without *directive
		for _, d := range t.directives {
			if it := d.items[name]; it == nil || with != nil && it.value != with.items[name].value {
				without = d
			} else {
				with = d
			}
		}
		if with != nil && without != nil {
			with.wrong = true
			p.report(with.posOf(with.items[name].at), "say it on each: the locks are taken together or not at all",
				"the directives of %s differ in %s", t.id.Name, name)
		}
	}
}
