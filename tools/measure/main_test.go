package main

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestMeasure(t *testing.T) {
	tree := fstest.MapFS{}
	for name, text := range map[string]string{
		"runtime/hold.go":                         "package lock\n\nfunc f() {\n" + strings.Repeat("\n", 59) + "}\n",
		"runtime/hold_test.go":                    "package lock\n",
		"runtime/driver/lease.go":                 "package driver\n",
		"runtime/internal/engine/a.go":            "package engine\n",
		"runtime/backends/redislock/redislock.go": "package redislock\n" + strings.Repeat("\n", 400),
		"runtime/backends/redislock/acquire.lua":  "return 1\n",
		"runtime/backends/redislock/swap.lua":     "return 1\nreturn 2\n",
		"runtime/internal/record/state.go":        "package record\n",
		"runtime/internal/record/ticks.go":        "package record\n",
		"runtime/cond.go":                         "package lock\n",
		"runtime/backends/backendtest/suite.go":   "package backendtest\n",
	} {
		tree[name] = &fstest.MapFile{Data: []byte(text)}
	}
	c, err := count(tree)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	c.print(&out)
	list := "# a list\ntask: one\nruntime/hold.go\nruntime/driver/lease.go\n\ntask: two\nruntime/driver/lease.go\n"
	if err := printTasks(&out, tree, list); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Fields(out.String()), " ")
	want := "runtime 2 files 64 lines runtime/backends/redislock 3 files 404 lines runtime/driver 1 files 1 lines " +
		"runtime/internal 3 files 3 lines engines together 3 files 404 lines " +
		"kinds, engines and record (of 2,500) 3 files 4 lines kinds, runtime (of 1,200) 1 files 1 lines " +
		"files over 400 lines and functions over 60: 2 " +
		"runtime/backends/redislock/redislock.go: 401 lines runtime/hold.go: func f: 61 lines " +
		"one 2 files 64 lines two 1 files 1 lines"
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if err := printTasks(&out, tree, "task: x\nabsent.go\n"); err == nil {
		t.Error("no error for a missing file")
	}
}
