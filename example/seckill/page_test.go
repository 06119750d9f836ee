//go:build unix

package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// While a worker sells with locks, its page shows them.
func TestPage(t *testing.T) {
	t.Parallel()
	r := start(t, "-http", "127.0.0.1:0", "-buyers", "4000", "-stock", "3000", "-workers", "2")
	var address string
	for lines := bufio.NewScanner(&oneByte{r.stderr}); address == "" && lines.Scan(); {
		if found := regexp.MustCompile(`the locks of worker 2 .*: (http://\S+)`).FindStringSubmatch(lines.Text()); found != nil {
			address = found[1]
		}
	}
	require.NotEmpty(t, address)
	answer, err := http.Get(address)
	require.NoError(t, err)
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Contains(t, string(page), "Locks of ")
	require.NoError(t, r.Process.Signal(os.Interrupt))
	code, stderr := r.end(t)
	require.Equal(t, exitInterrupted, code, stderr)
}

func TestPageOf(t *testing.T) {
	at, err := plan{page: "localhost:6060", processes: 4}.pageOf(3)
	require.NoError(t, err)
	require.Equal(t, "localhost:6062", at)
	at, err = plan{page: ":0", processes: 4}.pageOf(3)
	require.NoError(t, err)
	require.Equal(t, ":0", at)
	for _, wrong := range []string{"6060", "localhost:http", "localhost:-1", "localhost:65533"} {
		_, err = plan{page: wrong, processes: 4}.pageOf(1)
		require.ErrorContains(t, err, "-http "+wrong)
	}
}
