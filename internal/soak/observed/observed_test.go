package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// two has two holds. The first was released before the second was asked for.
const two = `{"proc":1,"seq":1,"op":"acquire","key":"a","hold":1,"callNs":10,"retNs":20,"outcome":"ok","token":900000000000001}
{"proc":1,"seq":2,"op":"check","key":"a","hold":1,"callNs":30,"retNs":31,"outcome":"ok"}
{"proc":1,"seq":3,"op":"release","key":"a","hold":1,"callNs":40,"retNs":50,"outcome":"ok"}
{"proc":2,"seq":1,"op":"acquire","key":"a","hold":1,"callNs":60,"retNs":70,"outcome":"ok","token":900000000000009}
{"proc":2,"seq":2,"op":"check","key":"a","hold":1,"callNs":80,"retNs":81,"outcome":"ok"}
{"proc":2,"seq":3,"op":"release","key":"a","hold":1,"callNs":90,"retNs":95,"outcome":"lost"}
{"proc":3,"seq":1,"op":"acquire","key":"a","hold":1,"callNs":60,"retNs":99,"outcome":"ok","token":900000000000010}
{"kind":"pause-client","class":"plain","proc":3,"beginNs":60,"endNs":99}
`

func TestRead(t *testing.T) {
	traces, err := read("f", strings.NewReader(two))
	if err != nil || len(traces) != 1 {
		t.Fatal(traces, err)
	}
	const want = "[{ask 1 10} {in 1 20} {leave 1 40} {in 1 40} {left 1 50} {ask 2 60} {in 2 70} {leave 2 80} {in 2 80}] [1 2]"
	if got := fmt.Sprint(traces[0].events, traces[0].tokens); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if n := len(traces[0].altered()); n != 3 {
		t.Errorf("%d altered histories", n)
	}
	if traces, err := read("f", strings.NewReader(two+`{"fault":{"kind":"flush-all","class":"data loss"}}`)); err != nil || traces != nil {
		t.Error("a history with lost promises is not left out:", traces, err)
	}
}

// TestVerdicts checks that a history passes only if TLC has reached its last event and has checked all states.
func TestVerdicts(t *testing.T) {
	traces, err := read("f", strings.NewReader(two))
	if err != nil {
		t.Fatal(err)
	}
	traces = append(traces, traces[0].altered()[0])
	seen := func(of, last int) (said string) {
		for n := range last {
			said += fmt.Sprintf("<<\"SEEN\", %d, %d>>\n", of, n+1)
		}
		return said
	}
	all := len(traces[0].events)
	for _, c := range []struct {
		said  string
		wrong string
	}{
		{seen(1, all) + seen(2, all), ""},
		{seen(2, all) + seen(1, all-1), `event 9 of 9, "in" of hold 2`},
		{seen(2, all), `event 1 of 9, "ask" of hold 1`},
		{seen(1, all) + seen(2, all+1), "it was altered, and passed"},
		{seen(3, 1), "history 3 of 2"},
	} {
		wrong, refused := verdicts(traces, []byte(c.said))
		if err := errors.Join(wrong...); c.wrong == "" && (err != nil || refused != 1) || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%v, want %q", err, c.wrong)
		}
	}
	const end = "Model checking completed. No error has been found.\n"
	if ended([]byte(end), nil) != nil {
		t.Error("an error although TLC finished")
	}
	for _, stopped := range []error{ended([]byte(seen(1, all)), nil), ended([]byte(end), errors.New("exit status 12"))} {
		if stopped == nil {
			t.Error("no error although TLC did not finish")
		}
	}
}
