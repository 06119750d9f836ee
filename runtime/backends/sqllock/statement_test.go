package sqllock

import (
	"slices"
	"testing"
)

// S82: a statement for a database server takes no time from the client. SQLite's database is in the
// process, and uses the process's clock.
func TestNoClientClockInTheStatements(t *testing.T) {
	const instant = "instant" // the one value that is read from this machine's clock
	all, err := files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []Dialect{MySQL, Postgres, SQLite} {
		for _, withKinds := range []bool{false, true} {
			s := &statements{dialect: d, notify: d == Postgres, macros: d.macros("locks", withKinds)}
			taken := 0
			for _, file := range all {
				for _, macros := range []map[string]string{s.macros, s.batchMacros(3)} {
					if slices.Contains(d.compile(s.text(file.Name()), macros).names, instant) {
						taken++
						if d != SQLite {
							t.Errorf("%v: %s takes the client's time", d, file.Name())
						}
					}
				}
			}
			if d == SQLite && taken == 0 {
				t.Errorf("no statement takes %s: it must have been renamed", instant)
			}
		}
	}
}
