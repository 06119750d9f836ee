package main

import (
	"context"
	"flag"
)

// settings are the values of all flags of all commands.
type settings struct {
	check, diff, dry, json, watch, version, markdown, fix, write bool
	tags, directory, checks, format, baseline, locker            string
	files, importPath, exports, out                              string // from a build system
}

// spec describes one command. The parser, the help, the manual page and the completion
// scripts are made from the specs.
type spec struct {
	name    string // empty for lockgen without a command
	args    string
	summary string
	about   string // paragraphs
	flags   []flagSpec
	words   []string // the values that an argument can have, if they are known
	run     func(c *command, ctx context.Context) int
}

// flagSpec describes one flag. Exactly one of on and text is set.
type flagSpec struct {
	name, usage string
	value       string          // the name of its value in the help; empty for a bool
	values      func() []string // the values that it can have, if they are known
	on          func(s *settings) *bool
	text        func(s *settings) *string
}

var (
	tagsFlag = flagSpec{name: "tags", value: "list", usage: "build tags, separated by commas, as for the go command",
		text: func(s *settings) *string { return &s.tags }}
	dirFlag = flagSpec{name: "C", value: "dir", usage: "run as if started in dir",
		text: func(s *settings) *string { return &s.directory }}
	jsonFlag = flagSpec{name: "json", usage: "print JSON", on: func(s *settings) *bool { return &s.json }}
)

// specs begins with lockgen without a command. init fills it in, because help and
// completion print it.
var specs []spec

func init() {
	specs = []spec{
		{args: "[packages]", summary: "write the generated files", about: about, flags: []flagSpec{
			{name: "check", usage: "write nothing; exit 1 and say which files are stale (for CI)", on: func(s *settings) *bool { return &s.check }},
			{name: "diff", usage: "write nothing; print what would change as a unified diff, exit 1 if anything would", on: func(s *settings) *bool { return &s.diff }},
			{name: "n", usage: "write nothing; say what would be written", on: func(s *settings) *bool { return &s.dry }},
			{name: "json", usage: "print results and diagnostics as one JSON object", on: func(s *settings) *bool { return &s.json }},
			{name: "watch", usage: "keep running, write again whenever a file is saved, and say what changed", on: func(s *settings) *bool { return &s.watch }},
			{name: "files", value: "list", usage: "for build systems: the Go files of one package, separated by commas; no go command runs", text: func(s *settings) *string { return &s.files }},
			{name: "importpath", value: "path", usage: "the import path of the package of -files", text: func(s *settings) *string { return &s.importPath }},
			{name: "exports", value: "file", usage: "a file of lines packagefile PATH=FILE: where the export data of the imports is", text: func(s *settings) *string { return &s.exports }},
			{name: "out", value: "file", usage: "the generated file of -files", text: func(s *settings) *string { return &s.out }},
			tagsFlag, dirFlag,
			{name: "version", usage: "print the version", on: func(s *settings) *bool { return &s.version }},
		}, run: (*command).generate},
		{name: "list", args: "[packages]", summary: "list every lock", about: listAbout, flags: []flagSpec{
			jsonFlag,
			{name: "markdown", usage: "print a Markdown table", on: func(s *settings) *bool { return &s.markdown }},
			tagsFlag, dirFlag,
		}, run: (*command).list},
		{name: "explain", args: "KEY [packages]", summary: "say which methods can lock a key", about: explainAbout,
			flags: []flagSpec{jsonFlag, tagsFlag, dirFlag}, run: (*command).explain},
		{name: "vet", args: "[packages]", summary: "find code that goes around its locks or misuses them", about: vetAbout + checksAbout(), flags: []flagSpec{
			{name: "checks", value: "list", usage: "run only these checks, separated by commas", values: checkNames, text: func(s *settings) *string { return &s.checks }},
			{name: "fix", usage: "apply the suggested fixes, report what is left", on: func(s *settings) *bool { return &s.fix }},
			{name: "diff", usage: "print what -fix would change as a unified diff", on: func(s *settings) *bool { return &s.diff }},
			{name: "format", value: "name", usage: "text, json or sarif (default text)", values: vetFormats, text: func(s *settings) *string { return &s.format }},
			{name: "baseline", value: "file", usage: "report only findings that file does not list", text: func(s *settings) *string { return &s.baseline }},
			{name: "write", usage: "write all findings to the -baseline file", on: func(s *settings) *bool { return &s.write }},
			jsonFlag, tagsFlag, dirFlag,
		}, run: (*command).vet},
		{name: "graph", args: "[packages]", summary: "draw which locks are taken while others are held", about: graphAbout, flags: []flagSpec{
			{name: "format", value: "name", usage: "dot, mermaid or svg (default dot)", values: graphFormats, text: func(s *settings) *string { return &s.format }},
			tagsFlag, dirFlag,
		}, run: (*command).graph},
		{name: "migrate", args: "[packages]", summary: "rewrite code so that it calls the wrappers", about: migrateAbout, flags: []flagSpec{
			{name: "w", usage: "write the files; without it a unified diff is printed", on: func(s *settings) *bool { return &s.write }},
			{name: "locker", value: "expr", usage: "the Locker for new wrappers (default: the one in scope)", text: func(s *settings) *string { return &s.locker }},
			tagsFlag, dirFlag,
		}, run: (*command).migrate},
		{name: "suggest", args: "[packages]", summary: "say which calls lack a lock that most others have", about: suggestAbout,
			flags: []flagSpec{jsonFlag, tagsFlag, dirFlag}, run: (*command).suggest},
		{name: "completion", args: "SHELL", summary: "print a completion script", about: completionAbout,
			words: shells, run: (*command).completion},
		{name: "man", summary: "print the manual page", about: manAbout, run: (*command).man},
		{name: "help", args: "[command]", summary: "print this, or the help of a command", run: (*command).help},
	}
	help := findSpec("help")
	for _, s := range specs[1:] {
		help.words = append(help.words, s.name)
	}
}

func findSpec(name string) *spec {
	for i := range specs {
		if specs[i].name == name && name != "" {
			return &specs[i]
		}
	}
	return nil
}

// flagSet returns a parser of the command's flags.
func (c *command) flagSet(s *spec) *flag.FlagSet {
	flags := flag.NewFlagSet("lockgen", flag.ContinueOnError)
	for _, f := range s.flags {
		if f.on != nil {
			flags.BoolVar(f.on(&c.settings), f.name, false, f.usage)
		} else {
			flags.StringVar(f.text(&c.settings), f.name, "", f.usage)
		}
	}
	return flags
}
