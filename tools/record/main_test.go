package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fakeMake is a make that writes a report, prints the output of a storm, fails or hangs.
const fakeMake = `#!/bin/sh
case "$*" in
*"-engine redis"*) file=${5##*-json }
	echo '{"First":1,"FirstBad":7,"Episodes":9,"Violations":2,"FaultKinds":{"kill":3}}' >"$file"; exit 1 ;;
*sim/peers*) echo '[{"Peer":"x","Episodes":5,"Cells":[{"Oracle":"late","Findings":3,"Episodes":2,"Seed":4}]}]' >"${3##*-json }" ;;
*sim/mutants*) file=${3#*-json }; file=${file%% *}
	echo '[{"Name":"m","Mistake":"a|b","Searches":[{"Seeds":8,"Took":1500000000,"Found":""}]}]' >"$file"; exit 1 ;;
*ENGINE=etcd*)
	echo 'go: no JSON'
	echo '{"Action":"attr","Package":"p","Test":"T","Key":"storm","Value":"{\"Name\":\"etcd\",\"Seed\":1,\"Holds\":55}"}'
	echo '{"Action":"fail","Package":"p","Test":"T"}'; exit 2 ;;
*ENGINE=sql*) sleep 60 & wait ;;
*histories*) echo '7 histories' ;;
esac
`

func TestRecord(t *testing.T) {
	bin, folder := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "make"), []byte(fakeMake), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	all := sections(config{seed: 1, sim: time.Second, mutants: "m", peers: 5, soak: time.Second, storm: time.Second})
	for i := range all {
		for j, r := range all[i].runs {
			if r.name == "soak" {
				continue
			}
			if r.name == "storm/sql" {
				r.limit = 100 * time.Millisecond
				all[i].runs[j] = r
			}
			o := r.do(folder, "abc")
			if o.Took <= 0 {
				t.Errorf("%s took %v", r.name, o.Took)
			}
			o.Took = 2 * time.Second // a fixed time, since the real one depends on the machine
			if err := o.save(folder, r.name); err != nil {
				t.Fatal(err)
			}
		}
	}
	text, bad := page(all, "abc", func(name string) *outcome { return load(folder, name, "abc") })
	if bad != 5 {
		t.Errorf("%d runs are wrong, want 5", bad)
	}
	for _, want := range []string{
		"**Not as it should be:** sim/redis, mutants, soak, storm/etcd, storm/sql.",
		"| redis | 1 to 9 | 9 | 0 | 0 of 1 kinds | 0s | 0 | 2, first in seed 7 |",
		"SIMFLAGS=-engine redis -limit 3s'`: **failed**: exit status 1, in 2s",
		"SIMFLAGS=-engine etcd -limit 1s'`: passed, in 2s",
		`| m | a\|b | **not found** in 8 seeds, 1.5 s |  |`,
		"| x | 5 | 0 | 3 in 2, #4 |",
		"**not done** on this commit",
		"| etcd | etcd | 1 | 55 | 0 | 0 | 0 | **fail** |",
		"ENGINE=sql`: **failed**: ended after 100ms",
		"| 7 histories |",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if t.Failed() {
		t.Logf("%s", text)
	}
	if _, bad := page(all, "def", func(name string) *outcome { return load(folder, name, "def") }); bad != 20 {
		t.Errorf("on another commit %d runs are missing; want all 20", bad)
	}
}
