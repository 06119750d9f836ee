package lockcheck_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/lockcheck"
	"github.com/lockgen/lockgen/lockcheck/module"
)

// A seed is a line of the corpus in testdata/seeded that says what is wrong with it, or
// why it is correct:
//
//	go work(ctx)   // mistake lostctx: ctx goes to a goroutine
//	go work(other) // right: owns nothing
//	start(ctx)     // unseen lostctx: why no check can know
//
// The text after a mistake is part of its finding. A comment on a line of its own is
// about the next line.
type seed struct {
	file        string
	line        int
	kind, check string
	text        string
}

func (s seed) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", s.file, s.line, s.check, s.text)
}

var seedComment = regexp.MustCompile(`//(?: |lockcheck:ignore \w+ )(mistake|unseen|right)(?: (\w+))?: (.*)$`)

func seeds(t *testing.T, file string) []seed {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	lines := strings.Split(string(text), "\n")
	var out []seed
	for i, line := range lines {
		m := seedComment.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		at := i
		if strings.HasPrefix(line, "//") || strings.HasPrefix(strings.TrimSpace(line), "// mistake") {
			for at++; strings.TrimSpace(lines[at]) == "//"; at++ {
			}
		}
		out = append(out, seed{file, at + 1, m[1], m[2], m[3]})
	}
	return out
}

// TestSeededMistakes counts how many of the seeded mistakes the checks find, and their findings in
// correct code.
func TestSeededMistakes(t *testing.T) {
	t.Setenv("GOWORK", "off")
	t.Setenv("LOCKGENCACHE", "off")
	total, seen, right := 0, 0, 0
	var alarms []module.Diagnostic
	for _, a := range lockcheck.Analyzers() {
		folder := filepath.Join("testdata", "seeded", a.Name)
		all, wrong := seedsOf(t, folder), 0
		found := findings(t, folder)
		for _, s := range all {
			got, ok := take(found, s)
			switch s.kind {
			case "mistake":
				assert.True(t, ok, "not seen: %s; found: %q", s, got)
				total++
			case "unseen":
				assert.False(t, ok, "is seen, and so a mistake: %s; found: %q", s, got)
				t.Logf("not found: %s", s)
				total++
			case "right":
				right++
			}
			if ok {
				seen++
			}
			if s.kind != "right" {
				assert.Equal(t, a.Name, s.check, "%s", s)
				wrong++
			}
		}
		for _, left := range found {
			alarms = append(alarms, left...)
		}
		t.Logf("%-10s %3d mistakes, %3d counter-examples", a.Name, wrong, len(all)-wrong)
	}
	for _, d := range alarms {
		t.Errorf("false alarm: %s:%d: %s (%s)", d.File, d.Line, d.Message, d.Check)
	}
	t.Logf("found %d of %d mistakes; false alarms %d, of %d counter-examples", seen, total, len(alarms), right)
	assert.GreaterOrEqual(t, total, 116)
	assert.GreaterOrEqual(t, right, total)
}

func seedsOf(t *testing.T, folder string) []seed {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var out []seed
	for _, file := range files {
		if filepath.Base(file) != "lock_gen.go" { // that file repeats the comments of methods
			out = append(out, seeds(t, file)...)
		}
	}
	return out
}

// findings returns the findings of all checks in a package of the corpus, by file and line.
func findings(t *testing.T, folder string) map[string][]module.Diagnostic {
	t.Helper()
	res, err := module.Check(context.Background(), module.Options{Dir: folder})
	require.NoError(t, err)
	require.Empty(t, res.Broken)
	require.Equal(t, 1, res.Packages)
	out := map[string][]module.Diagnostic{}
	for _, d := range res.Diagnostics {
		place := fmt.Sprintf("%s:%d", filepath.Join(folder, filepath.Base(d.File)), d.Line)
		out[place] = append(out[place], d)
	}
	return out
}

// take removes the finding that a mistake must have from the findings, and returns the messages of
// all findings on its line.
func take(found map[string][]module.Diagnostic, s seed) (messages []string, ok bool) {
	place := fmt.Sprintf("%s:%d", s.file, s.line)
	var left []module.Diagnostic
	for _, d := range found[place] {
		messages = append(messages, d.Check+": "+d.Message)
		if s.kind != "right" && d.Check == s.check && (s.kind == "unseen" || strings.Contains(d.Message, s.text)) {
			ok = true
			continue
		}
		left = append(left, d)
	}
	found[place] = left
	return messages, ok
}
