// Command cmd starts real servers, runs a command, and stops the servers:
//
//	go run ./internal/testserver/cmd exec [-only redis,...] -- go test ./...
//
// The command finds the addresses in LOCKGEN_TEST_REDIS and so on. Cmd exits with the exit
// code of the command. See package testserver.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/lockgen/lockgen/internal/testserver"
)

const usage = "usage: testserver exec [-only name,...] -- command [argument...]"

func main() {
	flags := flag.NewFlagSet("exec", flag.ExitOnError)
	flags.Usage = func() {
		fmt.Fprintln(os.Stderr, usage)
		flags.PrintDefaults()
	}
	only := flags.String("only", "", "the `names` of the servers to start, separated by commas (default all)")
	if len(os.Args) < 2 || os.Args[1] != "exec" {
		flags.Usage()
		os.Exit(2)
	}
	_ = flags.Parse(os.Args[2:]) // ExitOnError
	if flags.NArg() == 0 {
		flags.Usage()
		os.Exit(2)
	}
	var names []string
	if *only != "" {
		names = strings.Split(*only, ",")
	}
	code, err := testserver.Exec(context.Background(), os.Stderr, names, flags.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "testserver:", err)
		code = 1
	}
	os.Exit(code)
}
