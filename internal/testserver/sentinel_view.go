package testserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
)

func (s *Sentinel) primaryOf(ctx context.Context, sentinel *Instance) (*Instance, error) {
	reply, err := sentinel.Command(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", masterName)
	if err != nil {
		return nil, err
	}
	parts, _ := reply.([]any)
	if len(parts) == 2 {
		addr := net.JoinHostPort(fmt.Sprint(parts[0]), fmt.Sprint(parts[1]))
		for _, i := range s.instances {
			if i.Addr() == addr {
				return i, nil
			}
		}
	}
	return nil, fmt.Errorf("%s takes %v for the primary", sentinel.Addr(), reply)
}

// agreed returns the primary of all sentinels that run.
func (s *Sentinel) agreed(ctx context.Context) (primary *Instance, err error) {
	for _, sentinel := range onlyRunning(s.sentinels) {
		seen, err := s.primaryOf(ctx, sentinel)
		if err != nil {
			return nil, err
		}
		if primary != nil && seen != primary {
			return nil, fmt.Errorf("the sentinels see primaries %s and %s", primary.Addr(), seen.Addr())
		}
		primary = seen
	}
	if primary == nil {
		return nil, errors.New("no sentinel runs")
	}
	return primary, nil
}

// promoted returns the agreed primary if it is not old and knows that it is the primary.
func (s *Sentinel) promoted(ctx context.Context, old *Instance) (*Instance, error) {
	primary, err := s.agreed(ctx)
	switch {
	case err != nil:
		return nil, err
	case primary == old:
		return nil, fmt.Errorf("the primary is %s as before", old.Addr())
	case !primary.running():
		return nil, fmt.Errorf("the primary %s does not run", primary.Addr())
	}
	role, _, err := primary.role(ctx)
	if err == nil && role != "master" {
		err = fmt.Errorf("the primary %s considers itself a %s", primary.Addr(), role)
	}
	return primary, err
}

func (s *Sentinel) ready(ctx context.Context) error {
	primary, err := s.promoted(ctx, nil)
	if err != nil {
		return err
	}
	replicas := 0
	for _, i := range onlyRunning(s.instances) {
		if i == primary {
			continue
		}
		if err := i.mustFollow(ctx); err != nil {
			return err
		}
		replicas++
	}
	up := onlyRunning(s.sentinels)
	for _, sentinel := range up {
		for _, see := range []struct {
			what string
			want map[string]string
			n    int
		}{
			{"MASTERS", map[string]string{"flags": "master"}, 1},
			{"SENTINELS", map[string]string{"flags": "sentinel"}, len(up) - 1},
			{"REPLICAS", map[string]string{
				"flags": "slave", "master-link-status": "ok", "master-port": primary.place.launch.Port(),
			}, replicas},
		} {
			n, err := count(ctx, sentinel, see.what, see.want)
			if err != nil {
				return err
			}
			if n != see.n {
				return fmt.Errorf("%s sees %d of %d %s", sentinel.Addr(), n, see.n, see.what)
			}
		}
	}
	return nil
}

// count returns for how many servers the sentinel reports all values of want.
func count(ctx context.Context, sentinel *Instance, what string, want map[string]string) (n int, err error) {
	args := []string{"SENTINEL", what}
	if what != "MASTERS" {
		args = append(args, masterName)
	}
	reply, err := sentinel.Command(ctx, args...)
	if err != nil {
		return 0, err
	}
	reports, _ := reply.([]any)
	for _, report := range reports {
		fields, _ := report.([]any) // names and values in turn
		met := 0
		for pair := range slices.Chunk(fields, 2) {
			name, _ := pair[0].(string)
			value, _ := pair[1].(string)
			// A sentinel keeps this flag for some seconds after it has lost its meaning.
			value = strings.TrimSuffix(value, ",master_down")
			if expected, wanted := want[name]; wanted && value == expected {
				met++
			}
		}
		if met == len(want) {
			n++
		}
	}
	return n, nil
}
