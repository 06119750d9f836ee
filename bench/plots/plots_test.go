package main

import (
	"encoding/json"
	"encoding/xml"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sample writes a report in which every library is in every workload, one of them without values, and returns its file.
func sample(t *testing.T) string {
	t.Helper()
	r := map[string]any{"Began": "2026-01-02T03:04:05Z", "Commit": "abc1234", "Go": "go1.26", "Engine": "redis", "Version": "7.0", "Cores": 2, "Runs": 1, "Seconds": 0.5}
	var parts []any
	seen := map[string]bool{}
	for _, p := range pictures {
		for i, g := range p.groups {
			if seen[g.workload] {
				continue
			}
			seen[g.workload] = true
			var rows []any
			for n, l := range libraries {
				values := map[string]any{}
				for _, p := range pictures {
					values[p.column] = map[string]float64{"Median": float64(n * (i + 1) * 1000)}
				}
				values["holds"] = map[string]float64{"Median": float64(100 * (i + 1))}
				rows = append(rows, map[string]any{"Peer": l.name, "Values": values})
			}
			parts = append(parts, map[string]any{"Workload": g.workload, "Rows": rows})
		}
	}
	r["Parts"] = parts
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "sample.json")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestEveryPictureIsDrawn checks that each picture exists for both pages, names every library and the
// machine, and is the same when it is drawn again.
func TestEveryPictureIsDrawn(t *testing.T) {
	file, once, again := sample(t), t.TempDir(), t.TempDir()
	for folder, drawn := range map[string][]picture{once: pictures, again: {pictures[0], pictures[len(pictures)-1]}} { // bars and lines
		if err := run(folder, []string{file}, drawn, "svg"); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range pictures {
		for _, theme := range []theme{light, dark} {
			name := p.name + "-" + theme.name
			svg, err := os.ReadFile(filepath.Join(once, name+".svg"))
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"lockgen abc1234", "2 cores", "redis 7.0", "2026-01-02", "redsync", "rueidislock", p.title, ",Arial,"} {
				if !strings.Contains(string(svg), want) {
					t.Errorf("%s.svg lacks %q", name, want)
				}
			}
			for d := xml.NewDecoder(strings.NewReader(string(svg))); ; {
				if _, err := d.Token(); err == io.EOF {
					break
				} else if err != nil {
					t.Fatalf("%s.svg: %v", name, err)
				}
			}
			if other, err := os.ReadFile(filepath.Join(again, name+".svg")); err == nil && string(other) != string(svg) {
				t.Errorf("%s.svg differs when it is drawn again", name)
			}
		}
	}
	if err := run(once, []string{file}, pictures[:1], "png"); err != nil { // more pictures would take a minute under the race detector
		t.Fatal(err)
	}
	for _, theme := range []theme{light, dark} {
		bitmap(t, filepath.Join(once, pictures[0].name+"-"+theme.name+".png"), theme)
	}
}

// bitmap checks that the corner of a PNG has the colour of the page.
func bitmap(t *testing.T, file string, of theme) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	picture, err := png.Decode(f)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	r, g, b, _ := picture.At(2, 2).RGBA()
	wantR, wantG, wantB, _ := of.paper.RGBA()
	if r != wantR || g != wantG || b != wantB {
		t.Errorf("%s: the colour of the corner is %x %x %x", file, r, g, b)
	}
}

// TestThePageShowsEveryPicture checks that docs/performance.md shows exactly the pictures that are drawn.
func TestThePageShowsEveryPicture(t *testing.T) {
	page, err := os.ReadFile("../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pictures {
		for _, theme := range []theme{light, dark} {
			name := p.name + "-" + theme.name
			if !strings.Contains(string(page), "plots/"+name+".svg") {
				t.Errorf("docs/performance.md lacks %s.svg", name)
			}
			for _, kind := range []string{".svg", ".png"} {
				if _, err := os.Stat("../../docs/plots/" + name + kind); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

func TestWhatIsNoReportIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.json")
	for _, text := range []string{"", "[]", `{"Began": "x"}`, `{"Began": "2026-01-02T03:04:05Z"}`} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := run(t.TempDir(), []string{file}, pictures, "svg"); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}
