package testserver

import (
	"context"
	"fmt"
	"slices"
	"strconv"
)

// MigrateSlot moves the key's slot with all its keys to another master, and returns when all
// nodes know.
//
// Without finish it stops half-way, until it is called again: the slot is migrating, and only
// key has moved. Then the old node answers ASK for a key of the slot that it does not have. For
// a command with keys of which it has only some, it answers TRYAGAIN.
func (c *Cluster) MigrateSlot(ctx context.Context, key string, to *Instance, finish bool) {
	c.t.Helper()
	slot, err := c.slot(ctx, key)
	if err == nil {
		from := c.NodeFor(key)
		err = c.migrate(ctx, move{from, to, strconv.Itoa(slot)}, key, finish)
	}
	if err == nil && finish {
		err = await(ctx, func(ctx context.Context) error { return c.seenAt(ctx, slot, to) })
	}
	c.must("migrate the slot of "+key, err)
}

// move is the migration of a slot from one master to another.
type move struct {
	from, to *Instance
	slot     string
}

func (c *Cluster) migrate(ctx context.Context, m move, key string, finish bool) error {
	if err := m.setSlot(ctx, m.to, "IMPORTING", c.id(m.from)); err != nil {
		return err
	}
	if err := m.setSlot(ctx, m.from, "MIGRATING", c.id(m.to)); err != nil {
		return err
	}
	if !finish {
		return m.carry(ctx, key)
	}
	if err := m.carryAll(ctx); err != nil {
		return err
	}
	// Tell the new owner first, so that the slot always has an owner.
	order := []*Instance{m.to, m.from}
	for _, node := range onlyRunning(c.nodes) {
		self, err := c.self(ctx, node)
		if err != nil {
			return err
		}
		if self.is("master") && !slices.Contains(order, node) {
			order = append(order, node)
		}
	}
	for _, node := range order {
		if err := m.setSlot(ctx, node, "NODE", c.id(m.to)); err != nil {
			return err
		}
	}
	return nil
}

func (m move) setSlot(ctx context.Context, at *Instance, state, id string) error {
	_, err := at.Command(ctx, "CLUSTER", "SETSLOT", m.slot, state, id)
	return err
}

// carryAll moves keys until none is left.
func (m move) carryAll(ctx context.Context) error {
	for {
		reply, err := m.from.Command(ctx, "CLUSTER", "GETKEYSINSLOT", m.slot, "100")
		if err != nil {
			return err
		}
		found, _ := reply.([]any)
		if len(found) == 0 {
			return nil
		}
		var keys []string
		for _, key := range found {
			keys = append(keys, fmt.Sprint(key))
		}
		if err := m.carry(ctx, keys...); err != nil {
			return err
		}
	}
}

func (m move) carry(ctx context.Context, keys ...string) error {
	timeout := strconv.FormatInt(commandTimeout.Milliseconds(), 10)
	args := []string{"MIGRATE", "127.0.0.1", m.to.place.launch.Port(), "", "0", timeout, "KEYS"}
	_, err := m.from.Command(ctx, append(args, keys...)...)
	return err
}

// seenAt returns an error unless all nodes know owner as the owner of the slot.
func (c *Cluster) seenAt(ctx context.Context, slot int, owner *Instance) error {
	for _, node := range onlyRunning(c.nodes) {
		members, err := view(ctx, node)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(members, func(m member) bool { return m.id == c.id(owner) && m.has(slot) }) {
			return fmt.Errorf("%s does not see slot %d at %s", node.Addr(), slot, owner.Addr())
		}
	}
	return nil
}
