package faultproxy

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/testserver"
)

// TestListenWhileProcessesBegin checks that a port can be listened on again after its listener was closed, while processes begin.
func TestListenWhileProcessesBegin(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(time.Second)
	var starting sync.WaitGroup
	for range 4 {
		starting.Go(func() {
			for time.Now().Before(end) {
				_ = exec.Command(self, "-test.run", "^$").Run()
			}
		})
	}
	defer starting.Wait()
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(testserver.Port(t)))
	l, err := listen(addr)
	for ; err == nil && time.Now().Before(end); l, err = listen(addr) {
		_ = l.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}
