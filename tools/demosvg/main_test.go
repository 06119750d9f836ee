package main

import (
	"strings"
	"testing"
)

func TestDraw(t *testing.T) {
	var out strings.Builder
	in := "go -C example/seckill generate\nwithout-lock  [####] 4 of 4\n500 pieces & 4 processes\n\n\noversold            1253             0\n"
	if err := draw(strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	got := out.String()
	for _, want := range []string{"500 pieces &amp; 4", `<tspan class="bad">            1253</tspan><tspan class="good">             0</tspan>`, "prefers-color-scheme: dark"} {
		if !strings.Contains(got, want) {
			t.Errorf("the picture has no %s:\n%s", want, got)
		}
	}
	for _, no := range []string{"generate", "[####]"} {
		if strings.Contains(got, no) {
			t.Errorf("the picture shows %s", no)
		}
	}
	if n := strings.Count(got, "<text "); n != 3 {
		t.Errorf("%d lines, want 3: two empty ones are one", n)
	}
	if err := draw(strings.NewReader("\n"), &out); err == nil {
		t.Error("a picture of nothing")
	}
}
