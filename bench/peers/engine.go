package peers

import (
	"fmt"
	"strings"
)

// Engine is a kind of server and the libraries that lock on it.
type Engine struct {
	Name  string // as internal/testserver and -engine call it
	Env   string // the variable with the address of a running server
	Peers []*Peer
}

// Redis is the engine whose server tells how many commands it has received. Some
// workloads need that.
var Redis = &Engine{Name: "redis", Env: "LOCKGEN_TEST_REDIS", Peers: All}

// Engines lists the values of -engine.
var Engines = []*Engine{
	Redis,
	consulEngine,
	etcdEngine,
	zookeeperEngine,
}

// EngineNamed returns the engine with this name.
func EngineNamed(name string) (*Engine, error) {
	var names []string
	for _, e := range Engines {
		if e.Name == name {
			return e, nil
		}
		names = append(names, e.Name)
	}
	return nil, fmt.Errorf("no engine %q; there is %s", name, strings.Join(names, ", "))
}
