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

// probeSentinel sets the periods that no configuration file takes, so that a
// failover and what follows it need not wait for the 10 s of the next INFO, for
// the 8 s until a master of old is made a replica, or, after a stop of the
// sentinel, for the 30 s in which it only looks on.
//
// The ping period is also how long a sentinel waits before it connects anew: to
// another that was not up yet, or to a server that has closed its connections
// because its role has changed. Were it not below down-after-milliseconds, such a
// server would be taken for dead, and one failover would bring on the next. Nor may
// it be much less: a replica is promoted only if its last INFO is younger than five
// of it, and while there is no primary that comes once a second.
//
// Before 7.0 there is no such command; its refusal means that the sentinel is up.
func probeSentinel(ctx context.Context, addr string) error {
	_, err := Command(ctx, addr, "SENTINEL", "DEBUG", "PING-PERIOD", "300",
		"INFO-PERIOD", "500", "PUBLISH-PERIOD", "250", "TILT-PERIOD", "500")
	var refused ServerError
	if errors.As(err, &refused) {
		return nil
	}
	return err
}

// assemble starts first the primary, since a replica that does not find it tries
// again only after a second, and last the sentinels, which would look again at a
// replica without a link after as long.
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

// introduce tells the replicas of the primary, and the sentinels of all the rest:
// to find one another takes them ten seconds.
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
