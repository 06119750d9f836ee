package sqllock

import (
	"maps"
	"strconv"
	"strings"
)

// batch is how many locks one statement takes, renews or frees.
const batch = 100

// inBatches calls f with parts of all whose elements are alike.
func inBatches[T any](all []T, alike func(x, y T) bool, f func(part []T)) {
	for len(all) > 0 {
		n := 1
		for n < min(len(all), batch) && alike(all[0], all[n]) {
			n++
		}
		f(all[:n])
		all = all[n:]
	}
}

// batchID names a statement on several locks.
type batchID struct {
	file string
	n    int
}

// batched returns the statement of a file for n locks. Their keys, ids and last tokens are
// the values key0, id0, last0, key1 and so on.
func (s *statements) batched(file string, n int) *template {
	id := batchID{file, n}
	if t, ok := s.ofBatches.Load(id); ok {
		return t.(*template)
	}
	m := maps.Clone(s.now)
	m["keys"], m["ids"] = each(n, "{key#}", ", "), each(n, "{id#}", ", ")
	m["number"] = "CASE owner " + each(n, "WHEN {id#} THEN #", " ") + " ELSE -1 END"
	m["named"] = "CASE l.name " + each(n, "WHEN {key#} THEN #", " ") + " END"
	m["last"] = "CASE l.name " + each(n, "WHEN {key#} THEN {last#}", " ") + " END"
	m["free"] = "({l}expires <= {now} AND {l}waiting = '' AND {l}undone_until <= {now})"
	m["asked"] = "VALUES " + each(n, "({key#}, {id#})", ", ") // as column1 and column2
	if s.dialect == MySQL {
		m["asked"] = each(n, "SELECT {key#} AS column1, {id#} AS column2", " UNION ALL ")
	}
	m["inorder"] = "l.name IN ({keys})" // MySQL walks by its primary key
	if s.dialect == Postgres {
		m["inorder"] = "l.name IN (SELECT o.name FROM {table} AS o WHERE o.name IN ({keys}) AND o.owner IN ({ids}) ORDER BY o.name FOR NO KEY UPDATE)"
	}
	m["apart"] = m["allapart"]
	var t *template
	switch file {
	case "acquire_all.sql":
		m["now"] = "(excluded.expires - {ttl})"
		t = s.dialect.compile(source(file), m, 2)
	case "owned.sql":
		t = s.dialect.compile(source(file), m, 2)
	case "released.sql":
		t = s.dialect.compile(source(file), m, 1)
	case "release_all.sql":
		t = s.freeing(file, m)
	default:
		t = s.dialect.compile(source(file), m, 0)
	}
	s.ofBatches.Store(id, t)
	return t
}

// each returns n copies of format, in which # is the number of the copy.
func each(n int, format, separator string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = strings.ReplaceAll(format, "#", strconv.Itoa(i))
	}
	return strings.Join(all, separator)
}
