package readme

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// pages returns the texts of all pages by path relative to the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == ".cache"):
			return fs.SkipDir
		case filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		found[strings.TrimPrefix(path, "../../")] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

var (
	fenced = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	link   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

// TestLinks finds links to files or headings that do not exist.
func TestLinks(t *testing.T) {
	all := pages(t)
	for page, text := range all {
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			to := page
			if target != "" {
				to = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(filepath.Join("../..", to)); err != nil {
				t.Errorf("%s: the link %s leads nowhere", page, m[1])
			}
			if anchor != "" && !slices.Contains(anchors(all[to]), anchor) {
				t.Errorf("%s: the link %s names no heading of %s", page, m[1], to)
			}
		}
	}
}

// TestContents finds pages of docs/ that docs/README.md does not link.
func TestContents(t *testing.T) {
	all := pages(t)
	for page := range all {
		name, ok := strings.CutPrefix(page, "docs/")
		if ok && name != "README.md" && !strings.Contains(all["docs/README.md"], "]("+name+")") {
			t.Errorf("docs/README.md does not link %s", name)
		}
	}
}

// anchors returns the names that GitHub gives to a page's headings.
func anchors(text string) []string {
	var names []string
	for line := range strings.Lines(fenced.ReplaceAllString(text, "")) {
		heading, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		if !ok || line[0] != '#' {
			continue
		}
		names = append(names, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(heading)))
	}
	return names
}

// TestCodeOfPages finds Go and Java code of pages that is in no compiled file. TestExample compiles the
// README's first example.
func TestCodeOfPages(t *testing.T) {
	code := compiled(t)
	for page, text := range pages(t) {
		for _, block := range fenced.FindAllStringSubmatch(text, -1) {
			if strings.HasPrefix(block[2], "package main\n") && strings.HasPrefix(page, "README") {
				continue
			}
			for _, piece := range codeOf(block[1], block[2]) {
				if !strings.Contains(code, flat(piece)) {
					t.Errorf("%s: no file that is compiled has this code:\n%s", page, piece)
				}
			}
		}
	}
}

// TestMigrations finds libraries whose section of migration.md has no diff. TestCodeOfPages
// checks that both sides of a diff are compiled.
func TestMigrations(t *testing.T) {
	sections := strings.Split(pages(t)["docs/migration.md"], "\n## ")
	for _, name := range []string{"redsync", "bsm/redislock", "Redisson", "ShedLock", "Hazelcast FencedLock", "client-go leader election"} {
		at := slices.IndexFunc(sections, func(s string) bool { return strings.HasPrefix(s, name+"\n") })
		if at < 0 || !strings.Contains(sections[at], "```diff\n-") {
			t.Errorf("docs/migration.md: no section %q with a diff", name)
		}
	}
}

// codeOf returns the code of a block: all of it, or both sides of a diff.
func codeOf(language, text string) []string {
	switch language {
	case "go", "java":
		return []string{text}
	case "diff":
		var sides [2]strings.Builder
		for line := range strings.Lines(text) {
			for i, sign := range []string{"-", "+"} {
				if rest, ok := strings.CutPrefix(line, sign); ok {
					sides[i].WriteString(rest)
				}
			}
		}
		return []string{sides[0].String(), sides[1].String()}
	}
	return nil
}

// compiled returns all Go code of the tree, except files that only tests of the generator read, and
// the Java code that `make interop` compiles.
func compiled(t *testing.T) string {
	t.Helper()
	var all bytes.Buffer
	for _, dir := range []string{"docs/code", "example", "runtime", "adapters", "lockcheck", "interop/java"} {
		err := filepath.WalkDir(filepath.Join("../..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" && filepath.Ext(path) != ".java" {
				return err
			}
			text, err := os.ReadFile(path)
			all.WriteString(flat(string(text)))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

// flat returns text without indentation and empty lines.
func flat(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// TestTestsOfPages finds tests that a page names and that do not exist.
func TestTestsOfPages(t *testing.T) {
	declared := map[string]bool{}
	eachTest(t, func(_, text string) {
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(text, -1) {
			declared[m[1]] = true
		}
	})
	for page, text := range pages(t) {
		for _, m := range regexp.MustCompile("`(Test[A-Z]\\w+)`").FindAllStringSubmatch(text, -1) {
			if !declared[m[1]] {
				t.Errorf("%s names %s, which is not a test of the project", page, m[1])
			}
		}
	}
}

// TestCitations finds numbers that tests cite but guarantees.md does not explain.
func TestCitations(t *testing.T) {
	explained := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^- ([GSPNF]\d+): `).FindAllStringSubmatch(pages(t)["docs/guarantees.md"], -1) {
		explained[m[1]] = true
	}
	cited := regexp.MustCompile(`(?m)^\s*// (?:[GSPNF]\d+, )*([GSPNF]\d+)(?:, [GSPNF]\d+)*: `)
	number := regexp.MustCompile(`[GSPNF]\d+`)
	n := 0
	eachTest(t, func(path, text string) {
		for _, m := range cited.FindAllString(text, -1) {
			for _, c := range number.FindAllString(m, -1) {
				if n++; !explained[c] {
					t.Errorf("%s cites %s, which docs/guarantees.md does not explain", path, c)
				}
			}
		}
	})
	if n < 100 {
		t.Errorf("only %d citations were found", n)
	}
}

// eachTest calls f with the path and the text of each test file.
func eachTest(t *testing.T, f func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == ".cache"):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		f(path, string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestTranslation compares the structure of the two READMEs: headings by level, code by
// content, tables by rows, links by target.
func TestTranslation(t *testing.T) {
	all := pages(t)
	english, chinese := skeleton(all["README.md"]), skeleton(all["README.zh-CN.md"])
	for i := range max(len(english), len(chinese)) {
		if i >= len(english) || i >= len(chinese) || english[i] != chinese[i] {
			t.Fatalf("README.md and README.zh-CN.md differ from this element on:\n%q\n%q", english[min(i, len(english)-1):][:1], chinese[min(i, len(chinese)-1):][:1])
		}
	}
	if len(english) < 20 {
		t.Fatalf("README.md has %d elements: the comparison is broken", len(english))
	}
}

func skeleton(text string) (elements []string) {
	comment := regexp.MustCompile(`(?m)\s*(//|#).*$`) // comments are translated
	rest := fenced.ReplaceAllStringFunc(text, func(block string) string {
		elements = append(elements, "code: "+flat(comment.ReplaceAllString(block, "")))
		return ""
	})
	for line := range strings.Lines(rest) {
		if level := len(line) - len(strings.TrimLeft(line, "#")); level > 0 {
			elements = append(elements, strings.Repeat("#", level))
		}
		if strings.HasPrefix(line, "|") {
			first, _, _ := strings.Cut(strings.Trim(line, "| "), "|")
			elements = append(elements, "row: "+strings.Join(regexp.MustCompile("`[^`]+`").FindAllString(first, -1), " "))
		}
		for _, m := range link.FindAllStringSubmatch(line, -1) {
			if !strings.HasPrefix(m[1], "README") && !strings.HasPrefix(m[1], "#") {
				elements = append(elements, "link: "+m[1])
			}
		}
	}
	return elements
}
