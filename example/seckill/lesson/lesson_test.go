//go:build unix

package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A test starts the test binary as a worker.
func TestMain(m *testing.M) {
	if len(os.Args) == 5 && os.Args[1] == workerArg {
		main()
		return
	}
	os.Exit(m.Run())
}

// Each lock by hand fails because of the fault that articles warn of, and lockgen's lock because of
// none.
func TestLesson(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var out strings.Builder
	require.NoError(t, teach(ctx, &out))
	t.Log(out.String())
	rows := map[string]string{}
	title := ""
	for line := range strings.Lines(out.String()) {
		for _, l := range locks {
			if strings.HasPrefix(line, l.title+"  ") {
				title = l.name
			}
		}
		rows[title] += line
	}
	require.Regexp(t, `^lock +sold +oversold +duplicates +no sale for +what struck\n`, rows[""][strings.Index(rows[""], "lock  "):])
	require.Contains(t, rows["none"], "sold twice")
	require.Regexp(t, `^no lock +\d+ +[1-9]\d* +[1-9]\d* `, rows["none"])
	require.Contains(t, rows["setnx"], "killed in a sale: nobody can sell any more")
	require.Contains(t, rows["expire"], "killed between two commands: ")
	for _, name := range []string{"del", "getdel", "lua"} {
		require.Contains(t, rows[name], "stopped in a sale: ", name)
		require.Contains(t, rows[name], "a slow sale: ", name)
	}
	require.Regexp(t, `^lockgen +900 +0 +0 .* nothing: `, rows["lockgen"])
}
