package testserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// member is one line of CLUSTER NODES: a node as another node knows it.
type member struct {
	id, master string // the master is "-" for a master
	flags      []string
	epoch      int    // of the election or migration that gave it its slots
	link       string // "connected" or not
	slots      []string
}

func (m member) is(flag string) bool { return slices.Contains(m.flags, flag) }

// has reports whether the member serves the slot.
func (m member) has(slot int) bool {
	return slices.ContainsFunc(m.slots, func(span string) bool {
		first, last, ranged := strings.Cut(span, "-")
		if !ranged {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		return err == nil && err2 == nil && from <= slot && slot <= to
	})
}

// view returns all members as the node sees them, in the order of their ids.
func view(ctx context.Context, node *Instance) ([]member, error) {
	reply, err := node.Command(ctx, "CLUSTER", "NODES")
	if err != nil {
		return nil, err
	}
	var members []member
	for line := range strings.Lines(fmt.Sprint(reply)) {
		// id address flags master ping-sent pong-received epoch link slot...
		f := strings.Fields(line)
		if len(f) < 8 {
			return nil, fmt.Errorf("CLUSTER NODES: %q", line)
		}
		epoch, err := strconv.Atoi(f[6])
		if err != nil {
			return nil, err
		}
		m := member{id: f[0], flags: strings.Split(f[2], ","), master: f[3], epoch: epoch, link: f[7], slots: f[8:]}
		// Only its own node lists a migrating slot: [93->-id].
		m.slots = slices.DeleteFunc(m.slots, func(slot string) bool { return slot[0] == '[' })
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.id, b.id) })
	return members, nil
}

// self returns the node as it sees itself.
func (c *Cluster) self(ctx context.Context, node *Instance) (member, error) {
	members, err := view(ctx, node)
	if err != nil {
		return member{}, err
	}
	i := slices.IndexFunc(members, func(m member) bool { return m.is("myself") })
	if i < 0 {
		return member{}, fmt.Errorf("%s does not see itself", node.Addr())
	}
	return members[i], nil
}

func (c *Cluster) id(node *Instance) string { return c.ids[slices.Index(c.nodes, node)] }

func (c *Cluster) slot(ctx context.Context, key string) (int, error) {
	up := onlyRunning(c.nodes)
	if len(up) == 0 {
		return 0, errors.New("no node runs")
	}
	reply, err := up[0].Command(ctx, "CLUSTER", "KEYSLOT", key)
	if err != nil {
		return 0, err
	}
	slot, _ := reply.(int64)
	return int(slot), nil
}

func (c *Cluster) masterOf(ctx context.Context, key string) (master *Instance, err error) {
	slot, err := c.slot(ctx, key)
	if err != nil {
		return nil, err
	}
	latest := -1
	for _, node := range onlyRunning(c.nodes) {
		self, err := c.self(ctx, node)
		if err != nil {
			return nil, err
		}
		if self.has(slot) && self.epoch > latest {
			master, latest = node, self.epoch
		}
	}
	if master == nil {
		return nil, fmt.Errorf("no node serves slot %d", slot)
	}
	return master, nil
}

func (c *Cluster) replicaOf(ctx context.Context, master *Instance) (*Instance, error) {
	for _, node := range onlyRunning(c.nodes) {
		self, err := c.self(ctx, node)
		if err != nil {
			return nil, err
		}
		if self.master == c.id(master) {
			return node, nil
		}
	}
	return nil, fmt.Errorf("%s has no replica that runs", master.Addr())
}

// stateOK returns an error unless the node takes commands.
func stateOK(ctx context.Context, node *Instance) error {
	info, err := node.Command(ctx, "CLUSTER", "INFO")
	if err == nil && !strings.Contains(fmt.Sprint(info), "cluster_state:ok") {
		err = fmt.Errorf("%s: cluster state is not ok", node.Addr())
	}
	return err
}

func (c *Cluster) ready(ctx context.Context) error {
	up := onlyRunning(c.nodes)
	var agreed string
	for _, node := range up {
		if err := stateOK(ctx, node); err != nil {
			return err
		}
		seen, err := c.settled(ctx, node, up)
		if err != nil {
			return err
		}
		if agreed == "" {
			agreed = seen
		}
		if seen != agreed {
			return fmt.Errorf("%s and %s differ:\n%s\n%s", up[0].Addr(), node.Addr(), agreed, seen)
		}
	}
	if agreed == "" {
		return errors.New("no node runs")
	}
	return nil
}

// settled returns the roles and slots of up as the node knows them, if it is connected to all of
// them and, as a replica, to its master.
func (c *Cluster) settled(ctx context.Context, node *Instance, up []*Instance) (string, error) {
	members, err := view(ctx, node)
	if err != nil {
		return "", err
	}
	var roles strings.Builder
	for _, m := range members {
		if !slices.ContainsFunc(up, func(i *Instance) bool { return c.id(i) == m.id }) {
			continue
		}
		switch {
		case m.link != "connected", m.is("fail"), m.is("fail?"), m.is("handshake"):
			return "", fmt.Errorf("%s sees %s %q, %s", node.Addr(), m.id, m.flags, m.link)
		case m.is("myself") && m.is("slave"):
			if err := node.mustFollow(ctx); err != nil {
				return "", err
			}
		}
		fmt.Fprintln(&roles, m.id, m.master, m.slots)
	}
	return roles.String(), nil
}
