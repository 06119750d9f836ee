package main

import (
	"bytes"
	"image/color"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	width, height = 20 * vg.Centimeter, 11 * vg.Centimeter
	margin        = 10
)

// theme holds the colours of a page.
type theme struct {
	name                    string
	paper, ink, faint, grid color.Color
	ours                    color.Color
}

func rgb(hex uint32) color.Color {
	return color.NRGBA{R: uint8(hex >> 16), G: uint8(hex >> 8), B: uint8(hex), A: 255}
}

var (
	light = theme{"light", rgb(0xffffff), rgb(0x1f2328), rgb(0x59636e), rgb(0xd8dee4), rgb(0xc4320a)}
	dark  = theme{"dark", rgb(0x0d1117), rgb(0xe6edf3), rgb(0x9198a1), rgb(0x30363d), rgb(0xff7b54)}
)

// libraries lists the colours of the libraries, the same in every picture. lockgen is the first. On both
// pages the colours can be distinguished with red-green colour blindness.
var libraries = []struct {
	name string
	hex  uint32
}{
	{"lockgen", 0}, {"redsync", 0x2f81d6}, {"redislock", 0x4fa8a0}, {"rueidislock", 0xb07cc6}, {"raw-pubsub", 0xc9a227}, {"raw", 0x8b949e},
}

func rank(peer string) int {
	i := slices.IndexFunc(libraries, func(l struct {
		name string
		hex  uint32
	}) bool {
		return l.name == peer
	})
	if i < 0 {
		return len(libraries)
	}
	return i
}

func (t theme) of(peer string) color.Color {
	i := rank(peer)
	switch {
	case i == 0:
		return t.ours
	case i < len(libraries):
		return rgb(libraries[i].hex)
	}
	return t.faint
}

// draw writes the picture to file in each of the formats kinds.
func (p *picture) draw(d data, t theme, file string, kinds []string) error {
	pl := plot.New()
	p.dress(pl, d, t)
	if p.x == "" {
		p.bars(pl, d, t)
	} else if err := p.lines(pl, d, t); err != nil {
		return err
	}
	pl.Y.Min, pl.Y.Max = decades(d)
	for _, kind := range kinds {
		if err := save(pl, t, file, kind); err != nil {
			return err
		}
	}
	return nil
}

// A browser without the typeface of the pictures uses one with the same widths.
const (
	family   = "font-family:Liberation Sans;"
	families = "font-family:Liberation Sans,Arial,Helvetica,sans-serif;"
)

// save writes the plot with a margin.
func save(pl *plot.Plot, t theme, file, kind string) error {
	canvas, err := draw.NewFormattedCanvas(width, height, kind)
	if err != nil {
		return err
	}
	c := draw.New(canvas)
	c.FillPolygon(t.paper, []vg.Point{{}, {X: width}, {X: width, Y: height}, {Y: height}})
	pl.Draw(draw.Crop(c, margin, -margin, margin, -margin))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return err
	}
	return os.WriteFile(file+"."+kind, bytes.ReplaceAll(b.Bytes(), []byte(family), []byte(families)), 0o644)
}

func (p *picture) dress(pl *plot.Plot, d data, t theme) {
	pl.BackgroundColor = t.paper
	pl.Title.Text, pl.Title.TextStyle.Color = p.title, t.ink
	pl.Title.TextStyle.Font = font.Font{Typeface: "Liberation", Variant: "Sans", Size: 15}
	pl.Title.Padding = 6
	pl.X.Label.Text, pl.Y.Label.Text = strings.TrimSpace(p.x+"\n"+d.caption), p.unit
	for _, a := range []*plot.Axis{&pl.X, &pl.Y} {
		a.Color, a.Tick.Color = t.faint, t.faint
		a.Label.TextStyle.Color, a.Tick.Label.Color = t.faint, t.ink
		a.Label.TextStyle.Font = font.Font{Typeface: "Liberation", Variant: "Sans", Size: 9}
		a.Tick.Label.Font = font.Font{Typeface: "Liberation", Variant: "Sans", Size: 9}
	}
	pl.Y.Scale, pl.Y.Tick.Marker = plot.LogScale{}, powers{}
	grid := plotter.NewGrid()
	grid.Vertical.Width, grid.Horizontal.Color = 0, t.grid
	pl.Add(grid)
	pl.Legend.Top, pl.Legend.Left = true, false
	pl.Legend.TextStyle.Color = t.ink
	pl.Legend.TextStyle.Font = font.Font{Typeface: "Liberation", Variant: "Sans", Size: 10}
	pl.Legend.ThumbnailWidth, pl.Legend.Padding = 12, 2
}

// bars draws the libraries of each workload side by side.
func (p *picture) bars(pl *plot.Plot, d data, t theme) {
	var labels []string
	for _, g := range p.groups {
		labels = append(labels, g.label)
	}
	each := 0.8 / float64(len(d.series))
	for i, s := range d.series {
		b := &bar{color: t.of(s.peer), left: -0.4 + float64(i)*each, right: -0.4 + (float64(i)+0.88)*each, points: s.points}
		pl.Add(b)
		pl.Legend.Add(s.peer, b)
	}
	pl.NominalX(labels...)
	pl.X.Tick.Label.Color, pl.X.Padding = t.ink, 2
	pl.X.Min, pl.X.Max = -0.5, 1.18*float64(len(p.groups))-0.5 // room for the legend
}

func (p *picture) lines(pl *plot.Plot, d data, t theme) error {
	least, most := math.Inf(1), 0.0
	var legend []func()
	for _, s := range slices.Backward(d.series) { // so that ours is drawn last, above the others
		var xys plotter.XYs
		for _, at := range s.points {
			if at.y > 0 {
				xys = append(xys, plotter.XY{X: at.x, Y: at.y})
				least, most = min(least, at.x), max(most, at.x)
			}
		}
		line, dots, err := plotter.NewLinePoints(xys)
		if err != nil {
			return err
		}
		line.Color, dots.Color = t.of(s.peer), t.of(s.peer)
		line.Width, dots.Radius, dots.Shape = 1.6, 3, draw.CircleGlyph{}
		if rank(s.peer) == 0 {
			line.Width = 3
		}
		pl.Add(line, dots)
		legend = append(legend, func() { pl.Legend.Add(s.peer, line, dots) })
	}
	for _, add := range slices.Backward(legend) {
		add()
	}
	pl.X.Scale, pl.X.Tick.Marker = plot.LogScale{}, at(d)
	pl.X.Min, pl.X.Max = least/1.1, most*math.Pow(most/least, 0.22)
	return nil
}

// bar draws one library's bars. They begin at the lower end of the axis, which has no zero.
type bar struct {
	color       color.Color
	left, right float64
	points      []point
}

// Plot implements [plot.Plotter].
func (b *bar) Plot(c draw.Canvas, pl *plot.Plot) {
	x, y := pl.Transforms(&c)
	for _, at := range b.points {
		if at.y < pl.Y.Min {
			continue
		}
		from, to := x(at.x+b.left), x(at.x+b.right)
		c.FillPolygon(b.color, []vg.Point{{X: from, Y: y(pl.Y.Min)}, {X: from, Y: y(at.y)}, {X: to, Y: y(at.y)}, {X: to, Y: y(pl.Y.Min)}})
	}
}

// Thumbnail implements [plot.Thumbnailer].
func (b *bar) Thumbnail(c *draw.Canvas) {
	c.FillPolygon(b.color, []vg.Point{{X: c.Min.X, Y: c.Min.Y}, {X: c.Min.X, Y: c.Max.Y}, {X: c.Max.X, Y: c.Max.Y}, {X: c.Max.X, Y: c.Min.Y}})
}

// decades returns the powers of ten around all values. The lower one leaves the bar of the least value visible.
func decades(d data) (least, most float64) {
	least, most = math.Inf(1), 0
	for _, s := range d.series {
		for _, at := range s.points {
			if at.y > 0 {
				least, most = min(least, at.y), max(most, at.y)
			}
		}
	}
	return math.Pow(10, math.Floor(math.Log10(least/1.3))), math.Pow(10, math.Ceil(math.Log10(most)))
}

// powers marks an axis at powers of ten.
type powers struct{}

// Ticks implements [plot.Ticker].
func (powers) Ticks(least, most float64) (all []plot.Tick) {
	for v := least; v <= most*1.01; v *= 10 {
		all = append(all, plot.Tick{Value: v, Label: short(v)})
	}
	return all
}

// at marks an axis at the values that were measured.
func at(d data) plot.Ticker {
	var marks plot.ConstantTicks
	for _, s := range d.series {
		for _, at := range s.points {
			if !slices.ContainsFunc(marks, func(t plot.Tick) bool { return t.Value == at.x }) {
				marks = append(marks, plot.Tick{Value: at.x, Label: short(at.x)})
			}
		}
	}
	return marks
}

// short formats 100000 as 100k.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return strconv.FormatFloat(v/1e6, 'g', 4, 64) + "M"
	case v >= 1e3:
		return strconv.FormatFloat(v/1e3, 'g', 4, 64) + "k"
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
