package readme

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	span    = regexp.MustCompile("`([^`\n]+)`")
	typed   = regexp.MustCompile(`(?m)^    \S.*$`)
	command = regexp.MustCompile(`^\$? ?((?:cd bench && |cd bench$|GOWORK=off )*(?:make|go|lockgen|lockctl|git clone|scripts/\S+)(?: .*|$))`)
	remark  = regexp.MustCompile(`\s+#.*|\s{3,}\S.*`) // or the second column of a table
	flagged = regexp.MustCompile(`(?:^|[ '"=])-([a-z][\w-]*)`)
)

// commandsOf returns the commands that a page tells its reader to type: lines of code blocks, and code spans
// that are a command with an argument.
func commandsOf(text string) (commands []string) {
	var lines []string
	for _, m := range fenced.FindAllStringSubmatch(text, -1) {
		if m[1] == "sh" || m[1] == "" {
			lines = append(lines, strings.Split(m[2], "\n")...)
		}
	}
	rest := fenced.ReplaceAllString(text, "")
	lines = append(lines, typed.FindAllString(rest, -1)...)
	for _, m := range span.FindAllStringSubmatch(rest, -1) {
		if strings.Contains(m[1], " ") {
			lines = append(lines, m[1])
		}
	}
	for _, line := range lines {
		if m := command.FindStringSubmatch(remark.ReplaceAllString(strings.TrimSpace(line), "")); m != nil {
			commands = append(commands, m[1])
		}
	}
	return commands
}

// TestCommandsOfPages tries the commands on the pages: lockgen on the README's example, and make with
// a dry run. A command that needs more than that must be typed by the test or the script that is named
// in played, and the program must have its flags.
func TestCommandsOfPages(t *testing.T) {
	shop, lockgen := shopModule(t)
	write(t, shop, "lockgen.baseline", "")
	n := 0
	tried := map[string]string{} // the error of each command, since several pages may have it
	for page, text := range pages(t) {
		for _, line := range commandsOf(text) {
			n++
			wrong, known := tried[line]
			if !known {
				wrong = tryCommand(t, line, shop, lockgen)
				tried[line] = wrong
			}
			if wrong != "" {
				t.Errorf("%s: `%s`: %s", page, line, wrong)
			}
		}
	}
	if n < 100 {
		t.Errorf("only %d commands were found", n)
	}
}

// played lists commands that can't be tried here, with the file of a test or script that types them.
var played = []struct{ begin, in, by string }{
	{"lockgen -files ", "testdata/script/build.txtar", "-importpath"},
	{"go get ", "scripts/newcomer", ""},
	{"go mod init ", "scripts/newcomer", "go mod init "},
	{"go generate", "scripts/newcomer", ""},
	{"go run .", "scripts/newcomer", ""},
	{"go mod vendor", "testdata/script/vendor.txtar", ""},
	{"go build -trimpath ", "scripts/reproducible", "-trimpath"},
	{"go tool pprof ", "runtime/debug/locks/profile_test.go", "profile=wait"},
	{"go list", "generator/load.go", `"list"`},
	{"go vet -vettool", "testdata/script/vet.txtar", "-vettool"},
	{"git clone https://github.com/lockgen/lockgen && go -C lockgen/cmd/lockctl install .", "cmd/lockctl/main.go", "func main()"},
	{"scripts/set-version ", "scripts/set-version", ""},
	{"go test -run TestRandom -seeds ", "runtime/internal/record/random_test.go", `"seeds"`},
	{"go test ./lockcheck -run SeededMistakes", "lockcheck/seeded_test.go", "func TestSeededMistakes"},
	{"go test ./generator -run TestCases/", "generator/cases_test.go", "func TestCases("},
	{"go test ./cmd/lockgen -run TestScripts/", "cmd/lockgen/script_test.go", "func TestScripts("},
	{"scripts/adopt ", "scripts/adopt", "scripts/adopt.d"},
	{"go test -run '^$' -bench Sticky ./runtime/backends/redislock", "runtime/backends/redislock/stickybench_test.go", "func BenchmarkSticky("},
	{"GOWORK=off go test -C example/seckill -run '^$' -bench Merge ", "example/seckill/flash/flash_test.go", "func BenchmarkMerge("},
	{"go run -C example/seckill . -http ", "example/seckill/options.go", `"http"`},
}

// tryCommand returns what is wrong with a command.
func tryCommand(t *testing.T, line, shop, lockgen string) string {
	if first, _, ok := strings.Cut(line, " && "); ok && strings.HasPrefix(line, "go generate") {
		line = first
	}
	if rest, ok := strings.CutPrefix(strings.TrimPrefix(line, "cd bench && "), "GOWORK=off go run "); ok {
		dir, flags, _ := strings.Cut(rest, " ")
		return unknownFlags(filepath.Join("bench", dir), flags)
	}
	for _, p := range played {
		if strings.HasPrefix(line, p.begin) {
			text, err := os.ReadFile(filepath.Join("../..", p.in))
			if want := p.by; err != nil || want == "" && !strings.Contains(string(text), strings.Fields(line)[1]) || !strings.Contains(string(text), want) {
				return p.in + " does not run it"
			}
			return ""
		}
	}
	switch words := strings.Fields(line); words[0] {
	case "cd":
		return ""
	case "make":
		return dryMake(line)
	case "lockctl":
		return inScripts(words[1:])
	case "go", "lockgen":
		line, isOurs := strings.CutPrefix(strings.TrimPrefix(line, "go tool "), "lockgen")
		if !isOurs {
			return "no test types it"
		}
		line = strings.NewReplacer(" [flags] [packages]", "", " KEY", " shop:item:42", ">locks.svg", "").Replace(line)
		cmd := exec.Command("sh", "-c", lockgen+line)
		cmd.Dir = shop
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "GOPROXY=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			return err.Error() + "\n" + string(out)
		}
		return ""
	}
	return "no test types it"
}

// flagsOf maps the variables of make that hold flags to the program that takes them.
var flagsOf = map[string]string{
	"DEMOFLAGS": "example/seckill", "BENCHFLAGS": "bench", "SOAKFLAGS": "internal/soak/cmd", "RECORDFLAGS": "tools/record",
	"SIMFLAGS": "internal/sim/cmd", "sim/mutants SIMFLAGS": "internal/sim/mutants", "sim/peers SIMFLAGS": "internal/sim/peers/cmd",
}

// dryMake tries line with make -n and checks its variables and flags.
func dryMake(line string) string {
	line = strings.ReplaceAll(strings.ReplaceAll(line, "…", ""), ">report.json", "")
	cmd := exec.Command("sh", "-c", "make --dry-run"+strings.TrimPrefix(line, "make"))
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		return err.Error() + "\n" + string(out)
	}
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		return err.Error()
	}
	for _, m := range regexp.MustCompile(`([A-Z]+)=('[^']*'|\S+)`).FindAllStringSubmatch(line, -1) {
		if !strings.Contains(string(text), "$("+m[1]+")") {
			return "the Makefile reads no " + m[1]
		}
		if dir := flagsOf[m[1]]; dir != "" {
			for target, other := range flagsOf {
				if before, ok := strings.CutSuffix(target, " "+m[1]); ok && strings.Contains(line, before) {
					dir = other
				}
			}
			if wrong := unknownFlags(dir, m[2]); wrong != "" {
				return wrong
			}
		}
	}
	return ""
}

// unknownFlags returns an error text for flags that a program does not declare.
func unknownFlags(dir, flags string) string {
	files, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
	if err != nil || len(files) == 0 {
		return "there is no program in " + dir
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err.Error()
		}
		all.Write(text)
	}
	for _, m := range flagged.FindAllStringSubmatch(flags, -1) {
		if !strings.Contains(all.String(), `"`+m[1]+`", `) {
			return dir + " has no flag -" + m[1]
		}
	}
	return ""
}

// inScripts returns an error text if no script of lockctl's tests has that command with these flags.
func inScripts(words []string) string {
	files, err := filepath.Glob("../../cmd/lockctl/testdata/*/*.txtar")
	if err != nil || len(files) == 0 {
		return "lockctl has no scripts"
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err.Error()
		}
		all.Write(text)
	}
	for i, word := range words {
		if word == "--" {
			break
		}
		if (i == 0 || strings.HasPrefix(word, "-")) && !regexp.MustCompile(`lockctl (.* )?`+regexp.QuoteMeta(word)+`\b`).MatchString(all.String()) {
			return "no script of cmd/lockctl/testdata types " + word
		}
	}
	return ""
}

// shown matches a complete cell of faults.md: it names a test or a seed, says that there is
// none or that the fault can't happen, or refers to another cell.
var shown = regexp.MustCompile(`_test\.go\)|backendtest/|make sim|not tested[:,]|^\s*(?:has no|one server has no)|^\s*as (?:etcd|above)\s*$`)

// TestFaultsAreLinked finds an empty or incomplete cell of faults.md, and a row that names no
// test or seed.
func TestFaultsAreLinked(t *testing.T) {
	rows := 0
	for line := range strings.Lines(pages(t)["docs/faults.md"]) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) < 3 || strings.Contains(line, "| fault |") {
			continue
		}
		rows++
		if !strings.Contains(line, "_test.go)") && !strings.Contains(line, "backendtest/") && !strings.Contains(line, "`make ") {
			t.Errorf("docs/faults.md: no test or seed is named for %q", cells[0])
		}
		for _, cell := range cells {
			if strings.TrimSpace(cell) == "" {
				t.Errorf("docs/faults.md: a cell of %q is empty", cells[0])
			}
		}
		for _, cell := range cells[1:] {
			if len(cells) == 7 && !shown.MatchString(cell) { // a row of a table with a column for each engine
				t.Errorf("docs/faults.md: a cell of %q names no test or seed, and does not say that there is none: %s", cells[0], cell)
			}
		}
	}
	if rows < 15 {
		t.Errorf("docs/faults.md has %d rows: the test is broken", rows)
	}
}
