package sqllock

import (
	"context"
	"database/sql"
	"embed"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed *.sql
var files embed.FS

// template is a statement for one database, but for its values.
type template struct {
	literal bool     // values become literals in the text; else parameters
	parts   []string // of the text; a value follows each but the last
	names   []string // of those values
	params  []string // names in the order of parameters
	columns int      // of the answer's rows, all integers; 0 for none
}

// values are what a statement is about, by name.
type values map[string]any

// statement is a template with its values.
type statement struct {
	text    string
	args    []any
	columns int
	limit   time.Duration // for an attempt's answer; 0 is attemptLimit
}

// answer is what a statement came to.
type answer struct {
	rows     [][]int64
	affected int64
	insertID int64
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
	for {
		at := placeholder.FindStringIndex(text)
		if at == nil {
			t.parts = append(t.parts, text)
			break
		}
		name := text[at[0]+1 : at[1]-1]
		part := text[:at[0]]
		text = text[at[1]:]
		if !t.literal {
			n := slices.Index(t.params, name)
			if n < 0 {
				n = len(t.params)
				t.params = append(t.params, name)
			}
			text = part + d.parameter(n+1, name) + text
			continue
		}
		t.parts, t.names = append(t.parts, part), append(t.names, name)
	}
	return t
}

// parameter is how a value stands in a text.
func (d Dialect) parameter(n int, name string) string {
	if d == SQLite {
		return "?" + strconv.Itoa(n)
	}
	kind := "::bigint"
	switch strings.TrimRight(name, "0123456789") {
	case "key":
		kind = "::bytea"
	case "id", "me", "leaver", "mine", "mark", "channel", "lock":
		kind = "::text"
	}
	return "$" + strconv.Itoa(n) + kind
}

// with returns t as a statement about v.
func (t *template) with(v values) *statement {
	s := &statement{columns: t.columns}
	if !t.literal {
		s.text = t.parts[0]
		for _, name := range t.params {
			s.args = append(s.args, v.of(name))
		}
		return s
	}
	// The driver of MySQL would prepare and drop a statement with arguments, two
	// round trips more, unless it is told to write them into the text; so we do,
	// in a form that needs no quoting.
	var b strings.Builder
	for i, part := range t.parts {
		b.WriteString(part)
		if i < len(t.names) {
			b.WriteString(literal(v.of(t.names[i])))
		}
	}
	s.text = b.String()
	return s
}

func (v values) of(name string) any {
	value, ok := v[name]
	if !ok {
		panic(fmt.Sprintf("sqllock: a statement needs a value for {%s}, has %v", name, slices.Sorted(maps.Keys(v))))
	}
	return value
}

func literal(value any) string {
	switch v := value.(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case string:
		return bytesLiteral(v)
	case []byte:
		return bytesLiteral(string(v))
	}
	panic(fmt.Sprintf("sqllock: no literal for %T", value))
}

func bytesLiteral(s string) string {
	if s == "" {
		return "''"
	}
	return "X'" + hex.EncodeToString([]byte(s)) + "'"
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
	rows, err := conn.QueryContext(ctx, s.text, s.args...)
	if err != nil {
		return a, err
	}
	defer rows.Close()
	for rows.Next() {
		row := make([]int64, s.columns)
		into := make([]any, s.columns)
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			return a, err
		}
		a.rows = append(a.rows, row)
	}
	if err := rows.Err(); err != nil {
		return a, err
	}
	return a, rows.Close()
}
