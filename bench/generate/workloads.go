package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Names of the commands in the report.
const (
	ours       = "lockgen"
	oursCheck  = "lockgen -check"
	loadSyntax = "go/packages LoadSyntax"
	goList     = "go list"
	oursVet    = "lockgen vet"
	goVet      = "go vet"
)

// workloads creates the modules and runs the generators in them once.
func (b *bench) workloads(ctx context.Context, o options) ([]*workload, error) {
	var out []*workload
	for i, module := range []func(o options) (*workload, error){b.service, b.layers, b.wide, b.vet} {
		if len(o.only) > 0 && !slices.Contains(o.only, workloadNames[i]) {
			continue
		}
		w, err := module(o)
		if err != nil {
			return nil, err
		}
		first := command{"first", []string{b.bin("lockgen"), "./..."}}
		if _, err := first.run(ctx, w.dir); err != nil {
			return nil, err
		}
		w.name = workloadNames[i]
		out = append(out, w)
	}
	return out, nil
}

// service is one package that imports what services import: 436 packages in all.
func (b *bench) service(options) (*workload, error) {
	w := &workload{
		about: "one service package (gin, gorm, go-redis, grpc; 436 packages in its closure), edited before each command",
		dir:   filepath.Join(b.dir, "service"),
		commands: []command{
			{ours, []string{b.bin("lockgen")}},
			{oursCheck, []string{b.bin("lockgen"), "-check"}},
		},
	}
	peerArgs := map[string][]string{
		"moq":     {b.bin("moq"), "-out", "moq_gen_test.go", ".", "Orders"},
		"mockery": {b.bin("mockery")},
	}
	for _, name := range b.peers {
		w.commands = append(w.commands, command{name, peerArgs[name]})
		w.targets = append(w.targets, target{ours, name, 0.2}, target{oursCheck, name, 0.2})
	}
	w.edit = edits(filepath.Join(w.dir, "service.go"))
	return w, b.unpack("service", "service")
}

// layers is a module of stores, of annotated services that use the stores, and of interfaces
// over the services. All services are edited before each command.
func (b *bench) layers(o options) (*workload, error) {
	services := o.packages / 6
	w := &workload{
		about: fmt.Sprintf("a module of %d such packages, %d annotated, these edited before each command", o.packages, services),
		dir:   filepath.Join(b.dir, "layers"),
		commands: []command{
			{ours, []string{b.bin("lockgen"), "./..."}},
			{oursCheck, []string{b.bin("lockgen"), "-check", "./..."}},
			{loadSyntax, []string{b.bin("loadsyntax"), "./..."}},
		},
		targets: []target{{ours, loadSyntax, 0.1}, {oursCheck, loadSyntax, 0.1}},
	}
	if err := b.unpack("service", "layers"); err != nil {
		return nil, err
	}
	if err := os.Remove(filepath.Join(w.dir, "service.go")); err != nil {
		return nil, err
	}
	var edited []string
	for i := range o.packages {
		name, text := fmt.Sprintf("api%d", i), fmt.Sprintf(apiSource, i, i%services)
		switch {
		case i < services:
			name, text = fmt.Sprintf("store%d", i), fmt.Sprintf(storeSource, i)
		case i < 2*services:
			name, text = fmt.Sprintf("svc%d", i-services), fmt.Sprintf(serviceSource, i-services)
			edited = append(edited, filepath.Join(w.dir, name, name+".go"))
		}
		if err := b.write(filepath.Join("layers", name, name+".go"), text); err != nil {
			return nil, err
		}
	}
	w.edit = edits(edited...)
	return w, nil
}

// wideEvery is n where one package in n of the wide module is annotated.
const wideEvery = 20

// wide is a module of many packages, a few of them annotated. Nothing is edited.
func (b *bench) wide(o options) (*workload, error) {
	w := &workload{
		about: fmt.Sprintf("a module of %d packages and %d lines, %d annotated, unchanged", o.wide, o.wide*wideLines, (o.wide+wideEvery-1)/wideEvery),
		dir:   filepath.Join(b.dir, "wide"),
		commands: []command{
			{oursCheck, []string{b.bin("lockgen"), "-check", "./..."}},
			{goList, []string{"go", "list", "./..."}},
		},
		targets: []target{{oursCheck, goList, 1.5}},
	}
	return w, b.makeWide(o)
}

// makeWide writes the wide module.
func (b *bench) makeWide(o options) error {
	mod := "module example.com/wide\n\ngo 1.26.0\n\nrequire github.com/lockgen/lockgen v0.0.0\n\nreplace github.com/lockgen/lockgen => " + b.repo + "\n"
	if err := b.write("wide/go.mod", mod); err != nil {
		return err
	}
	var body strings.Builder
	for i := range 62 {
		fmt.Fprintf(&body, bodySource, i)
	}
	for i := range o.wide {
		folder, annotation := filepath.Join("wide", fmt.Sprintf("p%d", i)), ""
		if i%wideEvery == 0 {
			annotation = "//lock:key=\"wide:<id>\" ttl=60s reentrant"
		}
		below := ""
		if i > 0 {
			below = fmt.Sprintf("import _ %q\n", fmt.Sprintf("example.com/wide/p%d", (i-1)/10))
		}
		for name, text := range map[string]string{
			"doc.go":     fmt.Sprintf("// Package p%d is one of many.\npackage p%[1]d\n\n%s", i, below),
			"body.go":    fmt.Sprintf("package p%d\n%s", i, body.String()),
			"service.go": fmt.Sprintf(wideSource, i, annotation),
		} {
			if err := b.write(filepath.Join(folder, name), text); err != nil {
				return err
			}
		}
	}
	return nil
}

// vet checks the same module. Before each command one file is edited, in a package that ten others import.
func (b *bench) vet(o options) (*workload, error) {
	edited := min(60, o.wide/20)
	w := &workload{
		about: fmt.Sprintf("a module of %d packages and %d lines, one file edited before each command", o.wide, o.wide*wideLines),
		dir:   filepath.Join(b.dir, "wide"),
		commands: []command{
			{oursVet, []string{b.bin("lockgen"), "vet", "./..."}},
			{goVet, []string{"go", "vet", "./..."}},
		},
		targets: []target{{oursVet, goVet, 0.5}},
		memory:  map[string]int64{oursVet: 300 << 20},
	}
	w.edit = edits(filepath.Join(w.dir, fmt.Sprintf("p%d", edited), "service.go"))
	return w, b.makeWide(o)
}

// edits returns a function that appends a comment to each file, a different one each turn. The go
// command compares contents, so it has to compile the files' packages again.
func edits(paths ...string) func(turn int) error {
	return func(turn int) error {
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			before, _, _ := strings.Cut(string(text), "\n// turn ")
			if err := os.WriteFile(path, fmt.Appendf(nil, "%s\n// turn %d of %d\n", before, turn, os.Getpid()), 0o644); err != nil {
				return err
			}
		}
		return nil
	}
}
