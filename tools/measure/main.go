// Command measure counts how much a reader of the project has to read.
//
// It prints the lines of Go, Lua and SQL without tests in each part of the project, the files
// over 400 lines and the functions over 60. For each task of docs/reading.txt it prints the
// files and lines to read. It fails if a file of a task does not exist.
//
// Usage: measure [folder]
package main

import (
	"fmt"
	"io/fs"
	"os"
)

func main() {
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	if err := run(os.DirFS(root)); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

func run(tree fs.FS) error {
	c, err := count(tree)
	if err != nil {
		return err
	}
	c.print(os.Stdout)
	list, err := fs.ReadFile(tree, "docs/reading.txt")
	if err != nil {
		return err
	}
	return printTasks(os.Stdout, tree, string(list))
}
