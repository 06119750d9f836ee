package peers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/lockgen/lockgen/internal/sim/launch"
)

// Order is the task of a program that simulates. Package launch passes it to the program
// as JSON.
type Order struct {
	Peers        []string
	First, Count uint64 // seeds
	Explain      bool   // write a log of the episodes, instead of a row for each library
}

// Check returns an error if o is invalid.
func (o Order) Check() error {
	for _, name := range o.Peers {
		if named(name) == nil {
			return fmt.Errorf("no library %q; there is %s", name, strings.Join(Names(), ", "))
		}
	}
	return nil
}

// Names returns the names of all libraries and of the control.
func Names() (names []string) {
	for _, p := range everything() {
		names = append(names, p.Name())
	}
	return names
}

// everything returns All and the control.
func everything() []Peer { return append(slices.Clone(All), Naive) }

func named(name string) Peer {
	for _, p := range everything() {
		if p.Name() == name {
			return p
		}
	}
	return nil
}

// do executes o, in a program that launch has started. It writes a Row, as JSON,
// for each library.
func (o Order) do(t *testing.T, out io.Writer) {
	prepare(t)
	encode := json.NewEncoder(out)
	for _, name := range o.Peers {
		p := named(name)
		if !o.Explain {
			if err := encode.Encode(Run(t, p, o.First, o.Count)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		for seed := o.First; seed < o.First+o.Count; seed++ {
			Play(t, p, seed, true).explain(out)
		}
	}
}

// explain writes the plan, the log and the findings.
func (r *Result) explain(out io.Writer) {
	fmt.Fprintf(out, "%s, %v\n%s\n", r.Peer, r.Plan, strings.Join(r.Log, "\n"))
	for _, f := range r.Findings {
		fmt.Fprintf(out, "finding: %v\n", f)
	}
	fmt.Fprintf(out, "hash %016x, %d sections, %v of virtual time\n", r.Hash, r.Sections, r.Virtual)
}

// Launch executes o by binary, which launch.Build has made. It returns the rows,
// or copies the log to log if o.Explain is set.
func Launch(binary string, o Order, log io.Writer) (rows []Row, err error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	to := io.Writer(&out)
	if o.Explain {
		to = log
	}
	passed, err := launch.Run(binary, "TestEpisodes", string(text), to)
	if err != nil {
		return nil, err
	}
	if !passed {
		return nil, fmt.Errorf("peers: the simulation failed: %s", out.String())
	}
	for decode := json.NewDecoder(&out); decode.More(); {
		var row Row
		if err := decode.Decode(&row); err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}
