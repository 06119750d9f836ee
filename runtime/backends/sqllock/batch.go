package sqllock

import (
	"maps"
	"strconv"
	"strings"
	"sync"
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

// statements are those of a Backend, each compiled when it is needed first.
type statements struct {
	dialect  Dialect
	notify   bool              // what frees a lock, or replaces a record, calls those that it lets in
	macros   map[string]string // see Dialect.macros
	compiled sync.Map          // *template, by statementID
}

// statementID is a file, and for how many locks its statement is.
type statementID struct {
	file string
	n    int
}

// of returns the statement of a file, for n locks. Their keys, ids and last tokens are the values
// key0, id0, last0, key1 and so on; n is 0 where they are key, id and last.
func (s *statements) of(file string, n int) *template {
	id := statementID{file, n}
	if t, ok := s.compiled.Load(id); ok {
		return t.(*template)
	}
	m := s.macros
	if n > 0 {
		m = maps.Clone(m)
		m["keys"], m["ids"] = each(n, "{key#}", ", "), each(n, "{id#}", ", ")
		m["number"] = "CASE owner " + each(n, "WHEN {id#} THEN #", " ") + " ELSE -1 END"
		m["named"] = "CASE l.name " + each(n, "WHEN {key#} THEN #", " ") + " END"
		m["last"] = "CASE l.name " + each(n, "WHEN {key#} THEN {last#}", " ") + " END"
		m["asked"] = "VALUES " + each(n, "({key#}, {id#})", ", ") // as column1 and column2
		if s.dialect == MySQL {
			m["asked"] = each(n, "SELECT {key#} AS column1, {id#} AS column2", " UNION ALL ")
		}
	}
	t := s.dialect.compile(s.source(file), m)
	s.compiled.Store(id, t)
	return t
}

// source is the text of a file, in the database's own form if there is one, and within the
// statement that calls those it lets in.
func (s *statements) source(file string) string {
	if s.dialect == MySQL && (file == "acquire_all" || file == "create") {
		file += "_mysql"
	}
	text := source(file)
	switch file {
	case "release_all", "undo":
		if s.notify {
			text = strings.Replace(source("notify"), "{freeing}", text, 1)
		}
	case "swap", "create":
		if s.notify {
			text = strings.Replace(source("notify_granted"), "{swap}", text, 1)
		}
	}
	return text
}

// each returns n copies of format, in which # is the number of the copy.
func each(n int, format, separator string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = strings.ReplaceAll(format, "#", strconv.Itoa(i))
	}
	return strings.Join(all, separator)
}
