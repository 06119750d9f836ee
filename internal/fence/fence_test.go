// Package fence tests which packages import which.
//
// A user's program compiles everything that its imports import. So the runtime may import only
// the standard library, and a backend only the standard library and its own client.
package fence

import (
	"errors"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const project = "github.com/lockgen/lockgen/"

// fences lists, for each package of the root module, the packages of ours and the modules of
// others that it may depend on, directly or indirectly. Every package may use the standard
// library.
var fences = []struct {
	pkg    string
	ours   []string
	others []string
}{
	{"runtime", []string{"runtime/driver", "runtime/internal/bootclock"}, nil},
	{"runtime/driver", []string{"runtime/internal/bootclock"}, nil},
	{"runtime/internal/bootclock", nil, nil},
	{"runtime/internal/engine", []string{"runtime/driver", "runtime/internal/bootclock"}, nil},
	{"runtime/internal/record", []string{"runtime/driver", "runtime/internal/bootclock", "runtime/internal/engine"}, nil},
	{"runtime/backends/memlock", engines, nil},
	{"runtime/backends/failover", []string{"runtime/driver", "runtime/internal/bootclock", "runtime/internal/engine"}, nil},
	{"runtime/backends/quorum", []string{"runtime/driver", "runtime/internal/bootclock", "runtime/internal/engine"}, nil},
	{"runtime/backends/sharded", []string{"runtime/driver", "runtime/internal/bootclock", "runtime/internal/engine"}, nil},
	{"runtime/backends/redislock", engines, goRedis},
	{"runtime/backends/backendtest", slices.Concat(users, []string{"internal/lagmeter"}), nil},
	{"runtime/backends/etcdlock", engines, etcdClient},
	{"runtime/backends/sqllock", engines, nil},
	{"runtime/backends/zklock", append(slices.Clip(engines), "runtime/backends/zklock/internal/client"), []string{"github.com/go-zookeeper/zk"}},
	{"runtime/backends/zklock/internal/client", engines, []string{"github.com/go-zookeeper/zk"}},
	{"runtime/fence", []string{"runtime", "runtime/driver", "runtime/internal/bootclock"}, nil},
	{"runtime/debug/locks", []string{"runtime", "runtime/driver", "runtime/internal/bootclock", "lockcheck/draw"}, nil},
	{"runtime/locktest", slices.Concat(users, []string{"runtime/backends/memlock"}), nil},

	{"templates", nil, jennifer},
	{"generator", []string{"templates"}, slices.Concat(jennifer, goPackages)},
	{"cmd/lockgen", slices.Concat([]string{"generator", "templates"}, users, checks), slices.Concat(jennifer, goPackages, diff)},

	{"example/javabeside", append(slices.Clip(users), "runtime/backends/redislock"), goRedis},
	{"example/nightly", users, nil},
	{"example/prices", users, nil},

	// Packages that only tests use are in the users' module graphs too, so they must not add dependencies.
	{"internal/lagmeter", nil, nil},
	{"internal/testserver", nil, nil},
	{"internal/testserver/cmd", []string{"internal/testserver"}, nil},
	{"internal/faultproxy", []string{"internal/testserver"}, nil},
	{"internal/severaltest", slices.Concat(users, []string{"internal/lagmeter", "internal/testserver", "runtime/backends/backendtest"}), nil},

	{"lockcheck", checkRooms, checkModules},
	{"lockcheck/bypass", checkFacts, checkModules},
	{"lockcheck/collisions", checkGraph, checkModules},
	{"lockcheck/errlost", checkFacts, checkModules},
	{"lockcheck/fencing", checkFacts, checkModules},
	{"lockcheck/lostctx", checkGraph, checkModules},
	{"lockcheck/nearmiss", checkFacts, checkModules},
	{"lockcheck/order", checkGraph, checkModules},
	{"lockcheck/readwrite", checkFacts, checkModules},
	{"lockcheck/scope", checkFacts, checkModules},
	{"lockcheck/internal/doctext", nil, nil},
	{"lockcheck/internal/facts", []string{"generator", "templates"}, checkModules},
	{"lockcheck/internal/lockgraph", checkFacts, checkModules},
	{"lockcheck/draw", nil, nil},
	{"lockcheck/module", checks, checkModules},
	{"lockcheck/internal/source", nil, goPackages},
	{"lockcheck/migrate", checks, checkModules},
	{"lockcheck/suggest", slices.Concat(checkSource, checkGraph, []string{"lockcheck/lostctx"}), checkModules},
}

// An engine imports driver, but not the Locker that calls it.
var (
	engines = []string{"runtime/driver", "runtime/internal/bootclock", "runtime/internal/engine", "runtime/internal/record"}
	users   = append(slices.Clip(engines), "runtime")
)

// The checks use the generator's parser. They use each other's results only through facts.
var (
	checkFacts  = []string{"generator", "templates", "lockcheck/internal/doctext", "lockcheck/internal/facts"}
	checkSource = append(slices.Clip(checkFacts), "lockcheck/internal/source")
	checkGraph  = append(slices.Clip(checkFacts), "lockcheck/internal/lockgraph")
	checkRooms  = append(slices.Clip(checkGraph), "lockcheck/bypass", "lockcheck/collisions", "lockcheck/errlost",
		"lockcheck/fencing", "lockcheck/lostctx", "lockcheck/nearmiss", "lockcheck/order", "lockcheck/readwrite", "lockcheck/scope")
	checks       = append(slices.Clip(checkRooms), "lockcheck", "lockcheck/draw", "lockcheck/module", "lockcheck/internal/source", "lockcheck/migrate", "lockcheck/suggest")
	checkModules = slices.Concat(jennifer, goPackages)
)

// Each client with its own dependencies.
var (
	goRedis = []string{
		"github.com/redis/go-redis/v9", "github.com/cespare/xxhash/v2", "go.uber.org/atomic", "golang.org/x/sys",
	}
	jennifer   = []string{"github.com/dave/jennifer"}
	diff       = []string{"github.com/rogpeppe/go-internal/diff"}
	goPackages = []string{"golang.org/x/tools", "golang.org/x/mod", "golang.org/x/sync"}
	etcdClient = []string{
		"go.etcd.io/etcd", "google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto",
		"github.com/golang/protobuf", "github.com/grpc-ecosystem/grpc-gateway/v2", "github.com/coreos",
		"go.uber.org/zap", "go.uber.org/multierr", "golang.org/x/net", "golang.org/x/sys", "golang.org/x/text",
	}
)

func TestImportsPointOneWay(t *testing.T) {
	readFolders(t)
	args := []string{"-f", "{{range .Deps}}{{$.ImportPath}} {{.}}\n{{end}}"} // includes indirect dependencies
	for _, fence := range fences {
		args = append(args, project+fence.pkg)
	}
	deps := map[string][]string{}
	for pair := range slices.Chunk(goList(t, args...), 2) {
		if host, _, _ := strings.Cut(pair[1], "/"); strings.Contains(host, ".") { // not in the standard library
			deps[pair[0]] = append(deps[pair[0]], pair[1])
		}
	}
	for _, fence := range fences {
		for _, dep := range deps[project+fence.pkg] {
			if ours, ok := strings.CutPrefix(dep, project); ok {
				if ours != fence.pkg && !slices.Contains(fence.ours, ours) {
					t.Errorf("%s depends on %s of ours", fence.pkg, ours)
				}
				continue
			}
			allowed := func(module string) bool { return dep == module || strings.HasPrefix(dep, module+"/") }
			if !slices.ContainsFunc(fence.others, allowed) {
				t.Errorf("%s depends on %s", fence.pkg, dep)
			}
		}
	}
}

func TestEveryPackageIsFenced(t *testing.T) {
	// The pattern does not match nested modules. Their go.mod limits their imports.
	for _, path := range goList(t, "-f", "{{if .GoFiles}}{{.ImportPath}}{{end}}", "../../...") {
		if pkg := strings.TrimPrefix(path, project); !isFenced(pkg) {
			t.Errorf("%s: add a row that says what it may import", pkg)
		}
	}
}

func isFenced(pkg string) bool {
	for _, fence := range fences {
		if fence.pkg == pkg {
			return true
		}
	}
	return false
}

// readFolders makes go test run this package again after any change to the tree. go test
// uses a cached result as long as the files that the test itself has read are unchanged;
// files that go list reads do not count.
func readFolders(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir("../..", func(_ string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // another test's temporary file
			return nil
		case err == nil && entry.IsDir() && (entry.Name() == ".git" || entry.Name() == ".cache"):
			return fs.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// goList returns the lines that go list prints, without empty ones.
func goList(t *testing.T, args ...string) []string {
	t.Helper()
	var stderr strings.Builder
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %q: %v\n%s", args, err, &stderr)
	}
	return strings.Fields(string(out))
}
