package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

var sentinelServer = &Server{
	Name:  "sentinel",
	Ports: 1,
	Find:  redisServer.Find,
	Command: func(_ context.Context, l Launch) (*exec.Cmd, error) {
		return exec.Command(l.Bin, sentinelConf(l), "--sentinel"), nil
	},
	Probe: probeSentinel,
}

func sentinelConf(l Launch) string { return filepath.Join(l.Dir, "sentinel.conf") }

// probeSentinel sets the periods that can't be set in a configuration file. With the defaults,
// a failover and its consequences would wait 10 s for the next INFO, 8 s until
// an old master is made a replica, and, after a stop of the sentinel, the 30 s in which it
// does not act.
//
// The ping period is also how long a sentinel waits before it connects again to
// another sentinel that was not up yet, or to a server that has closed its connections
// because its role has changed. It must be below down-after-milliseconds: otherwise such a
// server would be considered dead, and one failover would cause the next. It must not
// be much lower: a replica is promoted only if its last INFO is younger than five
// ping periods, and without a primary there is one INFO a second.
//
// Redis before 7.0 does not have this command. If it refuses the command, the sentinel is up.
func probeSentinel(ctx context.Context, addr string) error {
	_, err := Command(ctx, addr, "SENTINEL", "DEBUG", "PING-PERIOD", "300",
		"INFO-PERIOD", "500", "PUBLISH-PERIOD", "250", "TILT-PERIOD", "500")
	var refused ServerError
	if errors.As(err, &refused) {
		return nil
	}
	return err
}

// assemble starts the primary first, since a replica that does not find it tries
// again only after a second. It starts the sentinels last, since they would wait as long
// before they check a disconnected replica again.
func (s *Sentinel) assemble(ctx context.Context) error {
	primary, replicas := s.instances[0], s.instances[1:]
	if err := s.introduce(); err != nil {
		return err
	}
	if err := startAll(ctx, redisServer, primary); err != nil {
		return err
	}
	if err := startAll(ctx, redisServer, replicas...); err != nil {
		return err
	}
	for _, replica := range replicas {
		if err := await(ctx, replica.mustFollow); err != nil {
			return err
		}
	}
	if err := startAll(ctx, sentinelServer, s.sentinels...); err != nil {
		return err
	}
	return await(ctx, s.ready)
}

// introduce writes the primary into the configuration of the replicas, and all other servers into
// that of the sentinels. To find each other would take them ten seconds.
func (s *Sentinel) introduce() error {
	primary, replicas := s.instances[0].place.launch.Port(), ""
	for _, replica := range s.instances[1:] {
		replica.place.launch.Args = []string{"--replicaof", "127.0.0.1", primary}
		replicas += fmt.Sprintf("sentinel known-replica %s 127.0.0.1 %s\n", masterName, replica.place.launch.Port())
	}
	ids := []string{serverID(), serverID(), serverID()}
	for n, sentinel := range s.sentinels {
		l := sentinel.place.launch
		conf := fmt.Sprintf(`port %s
bind 127.0.0.1
protected-mode no
dir %s
sentinel myid %s
sentinel monitor MASTER 127.0.0.1 %s 2
sentinel down-after-milliseconds MASTER 500
sentinel failover-timeout MASTER 2000
sentinel parallel-syncs MASTER 2
`, l.Port(), l.Dir, ids[n], primary)
		conf = strings.ReplaceAll(conf, "MASTER", masterName) + replicas
		for m, other := range s.sentinels {
			if m != n {
				conf += fmt.Sprintf("sentinel known-sentinel %s 127.0.0.1 %s %s\n",
					masterName, other.place.launch.Port(), ids[m])
			}
		}
		if err := os.WriteFile(sentinelConf(l), []byte(conf), 0o600); err != nil {
			return err
		}
	}
	return nil
}
