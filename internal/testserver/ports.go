package testserver

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Ports come in blocks below the range of local ports of outgoing connections (from 32768 on
// Linux, from 49152 on macOS). While a server with a port in that range is down, an outgoing
// connection could get the port, and a client that dials it could even be connected to itself.
const (
	firstPort = 20000
	lastPort  = 32000
	blockSize = 16
)

// portBlock is a set of ports that no other process of the tests uses while it is held. A block is
// held by binding its lowest port over UDP. The kernel frees the port when the process ends in any way.
type portBlock struct {
	guard net.PacketConn
	ports []int
}

func reservePorts(n int) (*portBlock, error) {
	if n >= blockSize {
		return nil, fmt.Errorf("a block has no %d ports", n)
	}
	const blocks = (lastPort - firstPort) / blockSize
	start := rand.IntN(blocks) // so that processes that start together rarely try the same block
	for i := range blocks {
		base := firstPort + (start+i)%blocks*blockSize
		guard, err := net.ListenPacket("udp", loopback(base))
		if err != nil {
			continue
		}
		block := &portBlock{guard: guard}
		for port := base + 1; port < base+blockSize && len(block.ports) < n; port++ {
			if isFree(port) {
				block.ports = append(block.ports, port)
			}
		}
		if len(block.ports) == n {
			return block, nil
		}
		block.release()
	}
	return nil, fmt.Errorf("no %d free ports between %d and %d", n, firstPort, lastPort)
}

func (b *portBlock) release() { _ = b.guard.Close() }

func isFree(port int) bool {
	l, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Port returns a free TCP port. It is reserved for the test until the test ends, even while
// nothing listens on it.
func Port(t testing.TB) int {
	t.Helper()
	block, err := reservePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(block.release)
	return block.ports[0]
}
