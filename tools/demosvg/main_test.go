package main

import (
	"strings"
	"testing"
)

func TestDraw(t *testing.T) {
	var out strings.Builder
	in := "go -C example/seckill generate\nwithout-lock  [####] 4 of 4\n500 pieces & 4 processes\n\n\noversold            1253             0\nSETNX, then EXPIRE  41  0  7  ever   killed\nno lock  3679  2779  2779  0.2 s  no fault\n"
	if err := draw(strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	got := out.String()
	for _, want := range []string{"500 pieces &amp; 4", `<tspan class="bad">            1253</tspan><tspan class="good">             0</tspan>`, "prefers-color-scheme: dark",
		`  41  <tspan class="good">0</tspan>  <tspan class="bad">7</tspan>  <tspan class="bad">ever</tspan>   killed`, `  3679  <tspan class="bad">2779</tspan>  <tspan class="bad">2779</tspan>  <tspan class="good">0.2 s</tspan>  no fault`} {
		if !strings.Contains(got, want) {
			t.Errorf("the picture has no %s:\n%s", want, got)
		}
	}
	for _, no := range []string{"generate", "[####]"} {
		if strings.Contains(got, no) {
			t.Errorf("the picture shows %s", no)
		}
	}
	if n := strings.Count(got, "<text "); n != 5 {
		t.Errorf("%d lines, want 5: two empty lines count as one", n)
	}
	row := "SETNX  41  0  0  ever  " + strings.Repeat("no sale ", 14)
	if parts := wrap(row, longest); len(parts) != 2 || parts[1] != strings.Repeat(" ", 23)+"sale no sale no sale " {
		t.Errorf("a long row is split into %q", parts)
	}
	if err := draw(strings.NewReader("\n"), &out); err == nil {
		t.Error("empty input gives a picture, want an error")
	}
}
