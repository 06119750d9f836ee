package main

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestRecord(t *testing.T) {
	runs := 0
	page, passed := record(phases(10, 3, time.Minute, time.Second, 5), func(args ...string) ([]byte, error) {
		runs++
		switch args[0] {
		case "sim":
			return []byte("seed 3 hash 00 sections 1 faults 2 ok\nseed 4 hash 01 sections 1 faults 2 FAILED\n10 episodes, 1 violations\n"), errors.New("exit status 1")
		case "--keep-going":
			return []byte("ok  \tgithub.com/x\n    a_test.go:1: storm \"redis\": seed 3, 1s: 5 holds\n"), nil
		}
		return nil, nil
	}, time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC))
	if passed || runs != 5 {
		t.Errorf("passed: %v after %d runs; want false after 5", passed, runs)
	}
	for _, want := range []string{"on 2026-01-02", "seed 4 hash 01", "10 episodes, 1 violations", "**failed**: exit status 1", "storm \"redis\": seed 3", "make sim SEEDS=10 SEED=3"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %s:\n%s", want, page)
		}
	}
	if strings.Contains(string(page), "seed 3 hash") || strings.Contains(string(page), "github.com/x") {
		t.Errorf("the page has lines that passed:\n%s", page)
	}
}
