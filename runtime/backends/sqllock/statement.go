package sqllock

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

//go:embed *.sql
var files embed.FS

// template is a statement for one database, but for its values.
type template struct {
	literal bool     // values become literals in the text; else parameters
	parts   []string // of the text; a value follows each but the last, if literal
	names   []string // of those values; or of the parameters, in their order
	columns int      // of the answer's rows, all integers; 0 for none
	hasText bool     // a text comes after them
}

// values are what a statement is about, by name: int64, string or []byte.
type values map[string]any

// statement is a template with its values.
type statement struct {
	text    string
	args    []any
	columns int
	hasText bool
	limit   time.Duration // for an attempt's answer; 0 is attemptLimit
}

// answer is what a statement came to.
type answer struct {
	sent     driver.Instant // from before the statement was sent
	rows     [][]int64
	text     string // of the last row, if the statement asks for one
	affected int64
	insertID int64
}

// freed returns how many locks a statement that freeing has made freed.
func (a answer) freed() int {
	if len(a.rows) == 1 {
		return int(a.rows[0][0])
	}
	return int(a.affected)
}

var placeholder = regexp.MustCompile(`\{[a-z0-9]+\}`)

// compile reads a statement: {name} is one of macros, which may hold others, or
// else a value.
func (d Dialect) compile(text string, macros map[string]string, columns int) *template {
	for range 8 { // deeper than any macro
		text = placeholder.ReplaceAllStringFunc(text, func(name string) string {
			if macro, ok := macros[name[1:len(name)-1]]; ok {
				return macro
			}
			return name
		})
	}
	t := &template{literal: d == MySQL, columns: columns}
	if t.literal {
		t.parts = placeholder.Split(text, -1)
		for _, name := range placeholder.FindAllString(text, -1) {
			t.names = append(t.names, name[1:len(name)-1])
		}
		return t
	}
	t.parts = []string{placeholder.ReplaceAllStringFunc(text, func(name string) string {
		name = name[1 : len(name)-1]
		n := slices.Index(t.names, name)
		if n < 0 {
			n = len(t.names)
			t.names = append(t.names, name)
		}
		return d.parameter(n+1, name)
	})}
	return t
}

// parameter is how a value stands in a text. PostgreSQL is told its type.
func (d Dialect) parameter(n int, name string) string {
	if d == SQLite {
		return "?" + strconv.Itoa(n)
	}
	kind := "::bigint"
	switch strings.TrimRight(name, "0123456789") {
	case "key":
		kind = "::bytea"
	case "id", "me", "leaver", "mark", "seen", "version", "value", "woken":
		kind = "::text"
	}
	return "$" + strconv.Itoa(n) + kind
}

// with returns t as a statement about v. The driver of MySQL would prepare and drop a
// statement with arguments, two round trips more, unless it is told to write them into
// the text; so we do, in a form that needs no quoting.
func (t *template) with(v values) *statement {
	s := &statement{columns: t.columns, hasText: t.hasText}
	var text strings.Builder
	text.WriteString(t.parts[0])
	for i, name := range t.names {
		value, ok := v[name]
		if !ok {
			panic("sqllock: a statement needs a value for " + name)
		}
		if !t.literal {
			s.args = append(s.args, value)
			continue
		}
		text.WriteString(literal(value))
		text.WriteString(t.parts[i+1])
	}
	s.text = text.String()
	return s
}

func literal(value any) string {
	if n, ok := value.(int64); ok {
		return strconv.FormatInt(n, 10)
	}
	text := fmt.Sprintf("%x", value) // of a string or bytes
	if text == "" {
		return "''"
	}
	return "X'" + text + "'"
}

// source returns the text of an .sql file without its comments.
func source(file string) string {
	text, err := files.ReadFile(file)
	if err != nil {
		panic(err)
	}
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "--") {
			b.WriteString(line)
		}
	}
	return strings.TrimSpace(b.String())
}

// on runs s. It blocks for as long as the driver does.
func (s *statement) on(ctx context.Context, conn *sql.Conn) (a answer, err error) {
	if s.columns == 0 {
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
	err = query(ctx, conn, s, func(rows *sql.Rows) error {
		row := make([]int64, s.columns)
		into := make([]any, s.columns)
		for i := range row {
			into[i] = &row[i]
		}
		if s.hasText {
			into = append(into, &a.text)
		}
		a.rows = append(a.rows, row)
		return rows.Scan(into...)
	})
	return a, err
}

// query runs s on a database or a connection of it, and calls scan for each row.
func query(ctx context.Context, on interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}, s *statement, scan func(*sql.Rows) error) error {
	rows, err := on.QueryContext(ctx, s.text, s.args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return rows.Close()
}
