package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/generator"
)

// companions has the other items that an item requires.
var companions = map[string]string{"weight": " permits=3", "skip": " try", "fallback": " try"}

// The list shows each item that exists, in a column of its own or in the column of the kind.
func TestListShowsEveryItem(t *testing.T) {
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "")
	dir := t.TempDir()
	source := "package items\n\nimport \"context\"\n"
	add := func(name, items string) {
		source += fmt.Sprintf("\n//lock:%s\nfunc %s(ctx context.Context, id, day string) error { return nil }\n", items, name)
	}
	for _, item := range generator.Items() {
		with := `key="k:<id>"` + companions[item.Name]
		if item.Name == "key" {
			add("Without_key", with)
			add("With_key", item.Example)
			continue
		}
		add("Without_"+item.Name, with)
		add("With_"+item.Name, with+" "+item.Example)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/items\n\ngo 1.26.0\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "items.go"), []byte(source), 0o600))

	list := func(flags ...string) string {
		var out, wrong bytes.Buffer
		require.Equal(t, fine, run(append([]string{"list", "-C", dir}, flags...), &out, &wrong), wrong.String())
		return out.String()
	}
	table, markdown := rows(list(), ""), rows(list("-markdown"), "|")
	var objects []map[string]any
	require.NoError(t, json.Unmarshal([]byte(list("-json")), &objects))
	asJSON := map[string]string{}
	for _, o := range objects {
		method := o["method"].(string)
		delete(o, "method")
		delete(o, "line")
		text, _ := json.Marshal(o)
		asJSON[method] = string(text)
	}
	for _, item := range generator.Items() {
		for _, shown := range []map[string]string{table, markdown, asJSON} {
			require.NotEmpty(t, shown["With_"+item.Name])
			require.NotEqual(t, shown["Without_"+item.Name], shown["With_"+item.Name], item.Name)
		}
		require.Contains(t, asJSON["With_"+item.Name], item.Name, "the JSON has no field with the item's name")
	}
}

// rows returns the lines of a table by their method, without the method and the position.
func rows(table, separator string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(table) {
		var cells []string
		method := ""
		split := strings.Fields
		if separator != "" {
			split = func(s string) []string { return strings.Split(s, separator) }
		}
		for _, cell := range split(line) {
			cell = strings.Trim(cell, " `\n")
			switch {
			case strings.HasPrefix(cell, "With"):
				method = cell
			case !strings.HasPrefix(cell, "items.go:"):
				cells = append(cells, cell)
			}
		}
		out[method] = strings.Join(cells, " ")
	}
	return out
}
