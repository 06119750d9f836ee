// Package goruntime makes Go's runtime repeatable for a simulation. With the same seed
// goroutines run in the same order, timers of one instant fire in the same order, and
// select, maps and math/rand make the same choices.
//
// It copies a few files of the installed Go's standard library, changes a line or two in
// each, and writes the JSON file that the -overlay flag of the go command takes.
// Outside of bubbles of testing/synctest only one thing changes: a goroutine is not
// preempted before it has run for ten seconds.
//
// A program that is built with it must also run with GOMAXPROCS=1, and without garbage
// collection while a bubble exists, because a collection preempts goroutines.
package goruntime

import (
	"encoding/json"
	"fmt"
	"go/version"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Tag is the build tag of code that needs the changed runtime.
const Tag = "simruntime"

// change replaces a piece of text in a file of the standard library. The piece must occur there exactly once.
type change struct{ file, old, new string }

// changes fit Go 1.26. Another version may need other changes; then the error of Overlay names
// the piece that it does not find.
var changes = []change{
	// The order of goroutines is random, as under the race detector, but drawn from the
	// bubble's own random source. A goroutine outside of the bubble, such as one of the
	// runtime, goes to the end of the queue: as the next to run it would displace another.
	{"runtime/proc.go", "if randomizeScheduler && next && randn(2) == 0 {", "if next && (gp.bubble == nil || gp.bubble.simNext()>>63 == 0) {"},
	// When the global queue is checked depends on what ran before the bubble.
	{"runtime/proc.go", "if pp.schedtick%61 == 0 && !sched.runq.empty() {", "if false {"},
	// A busy machine preempts goroutines at different places each time.
	{"runtime/proc.go", "const forcePreemptNS = 10 * 1000 * 1000 // 10ms", "const forcePreemptNS = 10 * 1000 * 1000 * 1000"},
	// A mutex is handed on in a different way if a goroutine has waited for it for a
	// millisecond of real time.
	{"internal/sync/mutex.go", "starvationThresholdNs = 1e6\n", "starvationThresholdNs = 1e18\n"},
	// The key of the hash functions of maps, and everything else that is drawn at the start.
	{"runtime/rand.go", "func randinit() {\n", "func randinit() {\n\tstartupRand = simStart[:]\n"},
	{"runtime/rand.go", "func rand() uint64 {\n", "func rand() uint64 {\n\tif b := simBubble(); b != nil {\n\t\treturn b.simNext()\n\t}\n"},
	// A map's seed and the start of its iteration are a constant, because a library that
	// makes a map only once must not change the random numbers of what follows.
	{"runtime/rand.go", "func maps_rand() uint64 {\n", "func maps_rand() uint64 {\n\tif simBubble() != nil {\n\t\treturn 0x9e3779b97f4a7c15\n\t}\n"},
	{"internal/sync/hashtriemap.go", "ht.seed = uintptr(runtime_rand())", "ht.seed = uintptr(0x9e3779b97f4a7c15 & (1<<31 - 1)); _ = runtime_rand"},
	// Which of several ready cases a select takes, and which of two timers fires first. Other
	// uses of cheaprand depend on what ran before the bubble.
	{"runtime/select.go", "j := cheaprandn(uint32(norder + 1))", "j := simRandn(uint32(norder + 1))"},
	{"runtime/time.go", "t.rand = cheaprand()", "t.rand = simRandn(1 << 31)"},
	// A stall leaves timers in the past.
	{"runtime/synctest.go", "throw(\"time went backwards\")", "next = bubble.now"},
	{"runtime/synctest.go", "type synctestBubble struct {\n", "type synctestBubble struct {\n\tsimChance uint64\n"},
}

// added is an additional file of package runtime.
const added = `package runtime

import _ "unsafe"

var simStart = [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

// simBubble returns the bubble for which the caller works, or nil.
//
//go:nosplit
func simBubble() *synctestBubble {
	gp := getg()
	if gp.bubble != nil {
		return gp.bubble
	}
	if curg := gp.m.curg; curg != nil {
		return curg.bubble
	}
	return nil
}

// simNext is splitmix64.
//
//go:nosplit
func (b *synctestBubble) simNext() uint64 {
	b.simChance += 0x9e3779b97f4a7c15
	z := b.simChance
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// simRandn is [0, n) from the bubble's chance, or from anywhere outside one.
func simRandn(n uint32) uint32 {
	if b := simBubble(); b != nil {
		return uint32(b.simNext() >> 32 * uint64(n) >> 32)
	}
	return cheaprandn(n)
}

// simSeed sets the source of chance of the caller's bubble.
//
//go:linkname simSeed
func simSeed(seed uint64) { getg().bubble.simChance = seed }

// simStall lets ns pass in which no goroutine of the caller's bubble runs and no
// timer fires: what falls due in between does so afterwards.
//
//go:linkname simStall
func simStall(ns int64) {
	bubble := getg().bubble
	lock(&bubble.mu)
	bubble.now += ns
	unlock(&bubble.mu)
}
`

// Overlay creates the folder dir, writes the changed files into it, and returns
// the path of the file for -overlay. An error names the change that does not fit
// the installed Go.
func Overlay(dir string) (path string, err error) {
	out, err := exec.Command("go", "env", "GOROOT", "GOVERSION").Output()
	if err != nil {
		return "", fmt.Errorf("go env: %w", err)
	}
	root, goVersion, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	changed := map[string]string{}
	for _, c := range changes {
		text, ok := changed[c.file]
		if !ok {
			original, err := os.ReadFile(filepath.Join(root, "src", c.file))
			if err != nil {
				return "", err
			}
			text = string(original)
		}
		if n := strings.Count(text, c.old); n != 1 {
			return "", fmt.Errorf("%s of %s has %d places like %q, not one: the changes in internal/sim/goruntime were made for %s",
				c.file, goVersion, n, c.old, version.Lang("go1.26"))
		}
		changed[c.file] = strings.Replace(text, c.old, c.new, 1)
	}
	changed["runtime/zz_sim.go"] = added
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for name, text := range changed {
		copied := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(copied, []byte(text), 0o644); err != nil {
			return "", err
		}
		overlay.Replace[filepath.Join(root, "src", name)] = copied
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o644)
}
