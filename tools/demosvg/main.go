// Demosvg draws the output of the demo as an SVG for light and dark pages. It reads the text
// from its standard input and writes the picture to its standard output.
//
//	make demo DEMOFLAGS=-kill | go run -C tools ./demosvg >docs/demo.svg
//
// It leaves out progress lines and the commands that make prints. In the first column after the label are
// the numbers without the lock, in red; in the second those with it, in green. In the rows of the lesson
// those numbers are red that show that something was sold too often, or was never sold again.
package main

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	lineHeight = 18
	charWidth  = 8.4
	margin     = 16
	longest    = 118 // most characters of a line
)

const style = `<style>
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre; fill: #1f2328 }
rect { fill: #f6f8fa; stroke: #d1d9e0 }
.bad { fill: #b3261e } .good { fill: #116329 } .head { font-weight: bold }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } rect { fill: #0d1117; stroke: #3d444d } .bad { fill: #ff7b72 } .good { fill: #56d364 }
}
</style>
`

var (
	omitted = regexp.MustCompile(`^(go |\\|\s+go run|with(out)?-lock |scripts/|.*warning: |echo; go )`)
	row     = regexp.MustCompile(`^(sold|oversold|duplicates)(\s+\S+)(\s+\S+)$`)
	lesson  = regexp.MustCompile(`^(\S.*\s\d+\s+)(\d+)(\s+)(\d+)(\s+)(ever|[\d.]+ s)(\s.*)$`)
)

func main() {
	if err := draw(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "demosvg:", err)
		os.Exit(1)
	}
}

func draw(in io.Reader, out io.Writer) error {
	var lines []string
	widest := 0
	for scanner := bufio.NewScanner(in); ; {
		if !scanner.Scan() {
			if err := scanner.Err(); err != nil {
				return err
			}
			break
		}
		line := strings.TrimRight(scanner.Text(), " ")
		if omitted.MatchString(line) || line == "" && (len(lines) == 0 || lines[len(lines)-1] == "") {
			continue
		}
		for _, part := range wrap(line, longest) {
			lines = append(lines, part)
			widest = max(widest, utf8.RuneCountInString(part))
		}
	}
	if len(lines) == 0 {
		return fmt.Errorf("standard input has no text to draw")
	}
	width, height := int(float64(widest)*charWidth)+2*margin, len(lines)*lineHeight+2*margin
	w := bufio.NewWriter(out)
	fmt.Fprintf(w, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\">\n", width, height, width, height)
	fmt.Fprint(w, "<title>What make demo prints</title>\n", style)
	fmt.Fprintf(w, "<rect x=\"0.5\" y=\"0.5\" width=\"%d\" height=\"%d\" rx=\"8\"/>\n", width-1, height-1)
	for i, line := range lines {
		fmt.Fprintf(w, "<text x=\"%d\" y=\"%d\">%s</text>\n", margin, margin+(i+1)*lineHeight-5, spans(line))
	}
	fmt.Fprintln(w, "</svg>")
	return w.Flush()
}

// spans colors the numbers that show the effect of the lock.
func spans(line string) string {
	if m := row.FindStringSubmatch(line); m != nil {
		return html.EscapeString(m[1]) + `<tspan class="bad">` + html.EscapeString(m[2]) + `</tspan><tspan class="good">` + html.EscapeString(m[3]) + `</tspan>`
	}
	if m := lesson.FindStringSubmatch(line); m != nil {
		return html.EscapeString(m[1]) + judged(m[2], m[2] == "0") + m[3] + judged(m[4], m[4] == "0") + m[5] +
			judged(m[6], m[6] != "ever") + html.EscapeString(m[7])
	}
	if strings.Contains(line, "without lock     with lock") || strings.HasSuffix(line, "what struck") {
		return `<tspan class="head">` + html.EscapeString(line) + `</tspan>`
	}
	return html.EscapeString(line)
}

// judged returns a number in green if it is good, else in red.
func judged(number string, good bool) string {
	class := "bad"
	if good {
		class = "good"
	}
	return `<tspan class="` + class + `">` + number + `</tspan>`
}

// wrap splits line at spaces into parts of at most width characters. The rest of a row of the
// lesson is indented to its last column.
func wrap(line string, width int) (parts []string) {
	indent := ""
	if m := lesson.FindStringSubmatch(line); m != nil {
		indent = strings.Repeat(" ", utf8.RuneCountInString(line)-utf8.RuneCountInString(strings.TrimLeft(m[7], " ")))
	}
	for utf8.RuneCountInString(line) > width {
		at := strings.LastIndex(line[:width], " ")
		if at <= len(indent) {
			break
		}
		parts = append(parts, line[:at])
		line = indent + line[at+1:]
	}
	return append(parts, line)
}
