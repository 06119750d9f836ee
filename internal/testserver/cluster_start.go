package testserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

const slots = 16384

// clusterServer has a reserved port for the cluster bus. The default is the client port plus
// 10000, which is not reserved.
var clusterServer = &Server{
	Name:    "redis",
	Ports:   2,
	Find:    redisServer.Find,
	Command: clusterCommand,
	Probe:   probeRedis,
}

func clusterCommand(ctx context.Context, l Launch) (*exec.Cmd, error) {
	l.Args = append([]string{
		"--cluster-enabled", "yes",
		"--cluster-port", strconv.Itoa(l.Ports[1]),
		"--cluster-config-file", clusterConf,
		"--cluster-node-timeout", "1000",
	}, l.Args...)
	return redisCommand(ctx, l)
}

// clusterConf is the file in which a node keeps what it knows of the cluster.
const clusterConf = "nodes.conf"

func (c *Cluster) assemble(ctx context.Context) error {
	if err := c.introduce(); err != nil {
		return err
	}
	if err := startAll(ctx, clusterServer, c.nodes...); err != nil {
		return err
	}
	return await(ctx, c.ready)
}

// introduce writes the configuration file that each node would have after CLUSTER MEET,
// ADDSLOTS, REPLICATE and some gossip.
func (c *Cluster) introduce() error {
	for range c.nodes {
		c.ids = append(c.ids, serverID())
	}
	var lines []string
	for n, node := range c.nodes {
		l := node.place.launch
		line := fmt.Sprintf("%s 127.0.0.1:%d@%d ", c.ids[n], l.Ports[0], l.Ports[1])
		master := n % masters
		epoch := master + 1
		if n == master {
			line += fmt.Sprintf("master - 0 0 %d connected %d-%d",
				epoch, slots*n/masters, slots*(n+1)/masters-1)
		} else {
			line += fmt.Sprintf("slave %s 0 0 %d connected", c.ids[master], epoch)
		}
		lines = append(lines, line+"\n")
	}
	for n, node := range c.nodes {
		own := append([]string(nil), lines...)
		address, rest, _ := strings.Cut(own[n], "@")
		bus, rest, _ := strings.Cut(rest, " ")
		own[n] = address + "@" + bus + " myself," + rest
		conf := strings.Join(own, "") + fmt.Sprintf("vars currentEpoch %d lastVoteEpoch 0\n", masters)
		if err := os.WriteFile(filepath.Join(node.place.launch.Dir, clusterConf), []byte(conf), 0o600); err != nil {
			return err
		}
	}
	return nil
}
