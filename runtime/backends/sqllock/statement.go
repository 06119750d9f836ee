package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"

	"github.com/lockgen/lockgen/runtime/driver"
)

//go:embed *.sql
var files embed.FS

// template is a statement for one database, without its values.
type template struct {
	dialect Dialect
	parts   []string // of the text; a value follows each but the last
	names   []string // of those values

	// Unless values are written into the text:
	once   sync.Once // makes what follows
	text   string
	params []string // the names of the parameters, in their order
}

// values are what a statement is about, by name: int64, string or []byte.
type values map[string]any

func (v values) get(name string) any {
	value, ok := v[name]
	if !ok {
		panic("sqllock: a statement needs a value for " + name)
	}
	return value
}

// lock sets the key and the acquisition's id of lock i of a batch.
func (v values) lock(i int, key, id string) {
	v[fmt.Sprint("key", i)], v[fmt.Sprint("id", i)] = []byte(key), id
}

// statement is a template with its values.
type statement struct {
	text string
	args []any
}

// answer is the result of a statement.
type answer struct {
	sent     driver.Instant // from before the statement was sent
	rows     [][]string
	affected int64
	insertID int64
}

// number returns the number in a column of a row.
func (a answer) number(row, column int) int64 {
	n, err := strconv.ParseInt(a.rows[row][column], 10, 64)
	if err != nil {
		panic("sqllock: the database answered with " + strconv.Quote(a.rows[row][column]))
	}
	return n
}

// returned returns the number that a statement answers with: by RETURNING, or on MySQL as the
// insert id. It is 0 if the statement has changed nothing.
func (a answer) returned() int64 {
	switch {
	case len(a.rows) == 1:
		return a.number(0, 0)
	case a.affected > 0: // of MySQL, with CLIENT_FOUND_ROWS also where nothing was changed
		return a.insertID
	}
	return 0
}

// changed returns how many rows a statement has changed: notify.sql answers with that number.
func (a answer) changed() int {
	if len(a.rows) == 1 {
		return int(a.number(0, 0))
	}
	return int(a.affected)
}

var placeholder = regexp.MustCompile(`\{[a-z0-9]+\}`)

// compile reads a statement: {name} is one of macros, which may hold others, or
// else a value.
func (d Dialect) compile(text string, macros map[string]string) *template {
	for range 8 { // deeper than any macro
		text = placeholder.ReplaceAllStringFunc(text, func(name string) string {
			if macro, ok := macros[name[1:len(name)-1]]; ok {
				return macro
			}
			return name
		})
	}
	t := &template{dialect: d, parts: placeholder.Split(text, -1)}
	for _, name := range placeholder.FindAllString(text, -1) {
		t.names = append(t.names, name[1:len(name)-1])
	}
	return t
}

// bind returns t as a statement with the values v. On MySQL it writes them into the
// text, in a form that needs no quoting: unless configured otherwise, the driver prepares
// and drops each statement with arguments, which costs two more round trips.
func (t *template) bind(v values) *statement {
	if t.dialect == MySQL {
		return &statement{text: t.write(func(name string) string { return literal(v.get(name)) })}
	}
	t.once.Do(func() {
		t.text = t.write(func(name string) string {
			n := slices.Index(t.params, name)
			if n < 0 {
				n = len(t.params)
				t.params = append(t.params, name)
			}
			return t.dialect.parameter(n+1, v.get(name))
		})
	})
	s := &statement{text: t.text}
	for _, name := range t.params {
		s.args = append(s.args, v.get(name))
	}
	return s
}

// write returns the text of t, with what value returns for each name.
func (t *template) write(value func(name string) string) string {
	var text strings.Builder
	text.WriteString(t.parts[0])
	for i, name := range t.names {
		text.WriteString(value(name))
		text.WriteString(t.parts[i+1])
	}
	return text.String()
}

func literal(value any) string {
	if n, ok := value.(int64); ok {
		return strconv.FormatInt(n, 10)
	}
	return fmt.Sprintf("X'%x'", value) // of a string or bytes
}

// parameter returns the n-th placeholder of a text. PostgreSQL needs its type.
func (d Dialect) parameter(n int, value any) string {
	if d == SQLite {
		return "?" + strconv.Itoa(n)
	}
	switch value.(type) {
	case string:
		return fmt.Sprintf("$%d::text", n)
	case []byte:
		return fmt.Sprintf("$%d::bytea", n)
	}
	return fmt.Sprintf("$%d::bigint", n)
}

// answers reports whether s has an answer of rows.
func (s *statement) answers() bool {
	return strings.HasPrefix(s.text, "SELECT ") || strings.HasPrefix(s.text, "WITH ") || strings.Contains(s.text, "RETURNING ")
}

// runOn runs s on conn. It blocks for as long as the driver does.
func (s *statement) runOn(ctx context.Context, conn *sql.Conn) (a answer, err error) {
	if !s.answers() {
		result, err := conn.ExecContext(ctx, s.text, s.args...)
		if err != nil {
			return a, err
		}
		a.affected, err = result.RowsAffected()
		if err != nil {
			return a, err
		}
		a.insertID, _ = result.LastInsertId() // PostgreSQL's drivers have none
		return a, nil
	}
	rows, err := conn.QueryContext(ctx, s.text, s.args...)
	if err != nil {
		return a, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	for err == nil && rows.Next() {
		row, into := make([]string, len(columns)), make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		a.rows = append(a.rows, row)
		err = rows.Scan(into...)
	}
	return a, cmp.Or(err, rows.Err(), rows.Close())
}

// statements compiles the statements of a Backend, each at its first use.
type statements struct {
	dialect  Dialect
	notify   bool // statements that free a lock, or let others in, notify them
	macros   map[string]string
	compiled sync.Map // *template by statementID: texts are few
}

// statementID names a statement: an .sql file or a text, and how many locks it is on; 0 if its
// values have no numbers.
type statementID struct {
	source string
	n      int
}

// statement returns the statement of an .sql file, or of a text, with the values v.
func (s *statements) statement(source string, v values) *statement { return s.batch(source, 0, v) }

// batch returns the statement of an .sql file, or of a text, on n locks. Their keys, ids and
// last tokens are the values key0, id0, last0, key1 and so on.
func (s *statements) batch(source string, n int, v values) *statement {
	id := statementID{source, n}
	if t, ok := s.compiled.Load(id); ok {
		return t.(*template).bind(v)
	}
	macros := s.macros
	if n > 0 {
		macros = s.batchMacros(n)
	}
	t := s.dialect.compile(s.text(source), macros)
	s.compiled.Store(id, t)
	return t.bind(v)
}

// notifyWrappers are the statements that are put around others to notify waiters.
var notifyWrappers = map[string]string{
	"release.sql": "notify.sql", "put.sql": "notify.sql",
	"swap.sql": "notify_granted.sql", "create.sql": "notify_granted.sql",
}

// text returns source, or the text of the file of this name: the database's own version of it, if
// there is one.
func (s *statements) text(source string) string {
	if !strings.HasSuffix(source, ".sql") {
		return source
	}
	text := read(source)
	if s.dialect == MySQL {
		text = cmp.Or(read(strings.Replace(source, ".", "_mysql.", 1)), text)
	}
	if wrapper := notifyWrappers[source]; s.notify && wrapper != "" {
		text = strings.Replace(read(wrapper), "{statement}", text, 1)
	}
	return text
}

// read returns the text of an .sql file without its comments, or "" if there is none.
func read(file string) string {
	text, _ := files.ReadFile(file)
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "--") {
			b.WriteString(line)
		}
	}
	return strings.TrimSpace(b.String())
}

// batchMacros returns the macros of a statement on n locks.
func (s *statements) batchMacros(n int) map[string]string {
	m := maps.Clone(s.macros)
	m["keys"], m["ids"] = each(n, "{key#}", ", "), each(n, "{id#}", ", ")
	m["number"] = "CASE owner " + each(n, "WHEN {id#} THEN #", " ") + " ELSE -1 END"
	m["last"] = "CASE l.owner " + each(n, "WHEN {id#} THEN {last#}", " ") + " END"
	m["inorder"] = "l.name IN ({keys})" // MySQL walks by its primary key
	if s.dialect == Postgres {
		m["inorder"] = "l.name IN (SELECT o.name FROM {table} AS o WHERE o.name IN ({keys}) AND o.owner IN ({ids}) ORDER BY o.name FOR NO KEY UPDATE)"
	}
	// The locks that take.sql asks for: a table, unless there is one.
	m["key"], m["id"] = "a.column1", "a.column2"
	m["from"] = " FROM (VALUES " + each(n, "({key#}, {id#})", ", ") + ") AS a" // columns have these names
	if s.dialect == MySQL {
		m["from"] = " FROM (" + each(n, "SELECT {key#} AS column1, {id#} AS column2", " UNION ALL ") + ") AS a"
	}
	if n == 1 {
		m["last"], m["inorder"] = "{last0}", "l.name = {key0}"
		m["key"], m["id"], m["from"] = "{key0}", "{id0}", s.macros["fromnone"]
	}
	return m
}

// each returns n copies of format, in which # is the number of the copy.
func each(n int, format, separator string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = strings.ReplaceAll(format, "#", strconv.Itoa(i))
	}
	return strings.Join(all, separator)
}

// batchSize is how many locks one statement takes, renews or frees at most.
const batchSize = 100

// inBatches calls f with parts of all, of at most batchSize elements that are alike.
func inBatches[T any](all []T, alike func(x, y T) bool, f func(part []T)) {
	for len(all) > 0 {
		n := 1
		for n < min(len(all), batchSize) && alike(all[0], all[n]) {
			n++
		}
		f(all[:n])
		all = all[n:]
	}
}

// ascii returns JSON without characters beyond ASCII, which a database of another encoding may lack.
func ascii(text string) string {
	if !strings.ContainsFunc(text, func(char rune) bool { return char > unicode.MaxASCII }) {
		return text
	}
	var b strings.Builder
	for _, unit := range utf16.Encode([]rune(text)) {
		if unit <= unicode.MaxASCII {
			b.WriteByte(byte(unit))
		} else {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}
