package generator

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"go/build/constraint"
	"go/version"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// knownOS and knownArch are the words in a file's name that constrain its builds, as in go/build,
// which does not export its lists.
var (
	knownOS = strings.Fields("aix android darwin dragonfly freebsd hurd illumos ios js linux nacl netbsd " +
		"openbsd plan9 solaris wasip1 windows zos")
	knownArch = strings.Fields("386 amd64 amd64p32 arm armbe arm64 arm64be loong64 mips mipsle mips64 mips64le " +
		"mips64p32 mips64p32le ppc ppc64 ppc64le riscv riscv64 s390 s390x sparc sparc64 wasm")
	unixOS = strings.Fields("aix android darwin dragonfly freebsd hurd illumos ios linux netbsd openbsd solaris")
)

// constraintOf returns the constraint on the builds that a file is in: that of its name and its
// build line, and cgo if the file imports "C". nil means every build.
func constraintOf(f *source, text []byte) constraint.Expr {
	expr := both(nameConstraint(filepath.Base(f.path)), lineConstraint(text))
	for _, s := range f.imports() {
		if importPath(s) == "C" {
			expr = both(expr, &constraint.TagExpr{Tag: "cgo"})
		}
	}
	return expr
}

// nameConstraint returns the constraint in a file's name: x_linux.go, x_linux_arm64_test.go.
func nameConstraint(base string) constraint.Expr {
	name, _, _ := strings.Cut(base, ".")
	words := strings.Split(name, "_")[1:]
	if n := len(words); n > 0 && words[n-1] == "test" {
		words = words[:n-1]
	}
	n := len(words)
	switch {
	case n >= 2 && slices.Contains(knownOS, words[n-2]) && slices.Contains(knownArch, words[n-1]):
		return both(&constraint.TagExpr{Tag: words[n-2]}, &constraint.TagExpr{Tag: words[n-1]})
	case n >= 1 && (slices.Contains(knownOS, words[n-1]) || slices.Contains(knownArch, words[n-1])):
		return &constraint.TagExpr{Tag: words[n-1]}
	}
	return nil
}

// lineConstraint returns the constraint of the build line. That line comes before everything except
// comments, is a line of its own, and is not inside a block comment.
func lineConstraint(text []byte) constraint.Expr {
	inBlock := false
	for line := range bytes.Lines(bytes.TrimPrefix(text, []byte("\ufeff"))) {
		line = bytes.TrimSpace(line)
		if !inBlock && constraint.IsGoBuild(string(line)) {
			expr, _ := constraint.Parse(string(line)) // the go command reports a mistake in it
			return expr
		}
		for len(line) > 0 {
			switch {
			case inBlock:
				_, after, ended := bytes.Cut(line, []byte("*/"))
				line, inBlock = bytes.TrimSpace(after), !ended
			case bytes.HasPrefix(line, []byte("//")):
				line = nil
			case bytes.HasPrefix(line, []byte("/*")):
				line, inBlock = line[2:], true
			default:
				return nil
			}
		}
	}
	return nil
}

// both returns the conjunction of two constraints.
func both(a, b constraint.Expr) constraint.Expr {
	switch {
	case a == nil:
		return b
	case b == nil || a.String() == b.String():
		return a
	}
	return &constraint.AndExpr{X: a, Y: b}
}

// withGenericAlias adds to when a language version that has generic aliases, because a build line
// that asks for a lower version lowers that of the file. It excludes no build, because the runtime
// that generated code imports needs a later version.
func withGenericAlias(when constraint.Expr) constraint.Expr {
	const since = "go1.24"
	if when == nil || constraint.GoVersion(when) == "" || version.Compare(constraint.GoVersion(when), since) >= 0 {
		return when
	}
	return both(when, &constraint.TagExpr{Tag: since})
}

func constraintText(x constraint.Expr) string {
	if x == nil {
		return ""
	}
	return x.String()
}

// slug returns a constraint as a part of a file's name. The name must not constrain the builds in
// another way than the constraint.
func slug(x constraint.Expr) string {
	text := constraintText(x)
	plain := strings.ReplaceAll(text, " && ", "_")
	if implied := nameConstraint("lock_gen_" + plain + ".go"); implied != nil && implied.String() == text {
		return plain
	}
	s := strings.NewReplacer(" && ", "-and-", " || ", "-or-", "!", "not-", "(", "", ")", "").Replace(text)
	if len(s) > 40 || strings.ContainsAny(text, "()") {
		sum := sha256.Sum256([]byte(text))
		return "x" + hex.EncodeToString(sum[:4])
	}
	if implied := nameConstraint("lock_gen_" + s + ".go"); implied != nil || s == "test" || strings.HasSuffix(s, "_test") || strings.HasPrefix(s, externalWord) {
		s = "tag-" + strings.ReplaceAll(s, "_", "-")
	}
	return s
}

// config is a build, for which constraints are evaluated.
type config struct {
	goos, goarch string
	cgo          bool
	tags         []string
	compilesC    bool // its imports are also compiled with cgo
}

// hostConfig returns the present build. The constraints of files that the go command does not list
// are evaluated for it.
func hostConfig(opts Options) *config {
	env := map[string]string{}
	list := opts.Env
	if list == nil {
		list = os.Environ()
	}
	for _, e := range list {
		name, value, _ := strings.Cut(e, "=")
		env[name] = value
	}
	c := &config{
		goos: cmp.Or(env["GOOS"], runtime.GOOS), goarch: cmp.Or(env["GOARCH"], runtime.GOARCH),
		cgo: env["CGO_ENABLED"] != "0",
	}
	for _, flag := range slices.Concat(strings.Fields(env["GOFLAGS"]), opts.BuildFlags) {
		if tags, ok := strings.CutPrefix(strings.TrimLeft(flag, "-"), "tags="); ok {
			c.tags = tagList(tags)
		}
	}
	return c
}

func tagList(tags string) []string {
	return strings.FieldsFunc(tags, func(r rune) bool { return r == ',' || r == ' ' })
}

// apply makes the go command list packages for the configuration; nil means the present build.
func (c *config) apply(conf *packages.Config) {
	if c == nil {
		return
	}
	env := conf.Env
	if env == nil {
		env = os.Environ()
	}
	cgo := "0"
	if c.compilesC {
		cgo = "1"
	}
	conf.Env = append(slices.Clone(env), "GOOS="+c.goos, "GOARCH="+c.goarch, "CGO_ENABLED="+cgo)
	if len(c.tags) > 0 {
		conf.BuildFlags = append(slices.Clone(conf.BuildFlags), "-tags="+strings.Join(c.tags, ","))
	}
}

// has reports whether a tag is set. All release tags are set, because the toolchain that runs the
// generator is the newest that the module can ask for.
func (c *config) has(tag string) bool {
	switch tag {
	case c.goos, c.goarch, "gc":
		return true
	case "cgo":
		return c.cgo
	case "unix":
		return slices.Contains(unixOS, c.goos)
	case "linux":
		return c.goos == "android"
	case "darwin":
		return c.goos == "ios"
	case "solaris":
		return c.goos == "illumos"
	}
	return slices.Contains(c.tags, tag) || strings.HasPrefix(tag, "go1.")
}

// satisfies reports whether a file with that constraint is in the build.
func (c *config) satisfies(x constraint.Expr) bool { return x == nil || x.Eval(c.has) }

// configFor finds a build, as similar to the host's as possible, that contains a file with that
// constraint; nil if there is none.
func configFor(x constraint.Expr, host *config) *config {
	oses, arches, custom := []string{host.goos}, []string{host.goarch}, []string(nil)
	visitTags(x, func(tag string) {
		switch {
		case slices.Contains(knownOS, tag):
			oses = append(oses, tag)
		case slices.Contains(knownArch, tag):
			arches = append(arches, tag)
		case tag != "cgo" && tag != "gc" && tag != "unix" && !strings.HasPrefix(tag, "go1.") && !slices.Contains(custom, tag):
			custom = append(custom, tag)
		}
	})
	oses = append(oses, "linux", "windows", "darwin", "plan9")
	arches = append(arches, "amd64", "arm64", "386")
	custom = custom[:min(len(custom), 10)] // so that there are at most 1,024 sets
	for set := range 1 << len(custom) {
		tags := slices.DeleteFunc(slices.Clone(host.tags), func(t string) bool { return slices.Contains(custom, t) })
		for i, tag := range custom {
			if on := set>>i&1 == 1; on != slices.Contains(host.tags, tag) {
				tags = append(tags, tag)
			}
		}
		for _, goos := range oses {
			for _, goarch := range arches {
				for _, cgo := range []bool{host.cgo, !host.cgo} {
					if c := (&config{goos, goarch, cgo, tags, cgo && goos == runtime.GOOS}); c.satisfies(x) {
						return c.compiling(x)
					}
				}
			}
		}
	}
	return nil
}

// compiling returns c, with cgo for its imports if x asks for cgo. Otherwise they are without cgo,
// because there is rarely a C compiler for another system; packages that can't be compiled then are
// loaded from source.
func (c *config) compiling(x constraint.Expr) *config {
	bare := *c
	bare.cgo = false
	if bare.satisfies(x) {
		return c
	}
	out := *c
	out.compilesC = true
	return &out
}

func visitTags(x constraint.Expr, visit func(tag string)) {
	switch x := x.(type) {
	case *constraint.TagExpr:
		visit(x.Tag)
	case *constraint.NotExpr:
		visitTags(x.X, visit)
	case *constraint.AndExpr:
		visitTags(x.X, visit)
		visitTags(x.Y, visit)
	case *constraint.OrExpr:
		visitTags(x.X, visit)
		visitTags(x.Y, visit)
	}
}
