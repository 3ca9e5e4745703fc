package lab

import (
	"context"
	"fmt"
	"time"

	"atoll.dev/atoll/internal/lab/relay"
)

// Kill ends a component with SIGKILL. One that does not run stays so.
func (l *Lab) Kill(ctx context.Context, name string) error {
	c, err := l.component(name)
	if err != nil {
		return err
	}
	return c.process.Kill(ctx)
}

// Stop asks a component to end, and kills it when it takes long. One that does not run
// stays so.
func (l *Lab) Stop(ctx context.Context, name string) error {
	c, err := l.component(name)
	if err != nil {
		return err
	}
	return c.process.Stop(ctx, stopPatience)
}

// stopPatience is what a component gets to end by itself in Stop: hubs hand over.
const stopPatience = 30 * time.Second

// Start brings a component back with the same ports and data, and returns when
// it works. An agent whose hub, member or link is down only has to run. One
// that runs already is only waited for.
func (l *Lab) Start(ctx context.Context, name string) error {
	c, err := l.component(name)
	if err != nil {
		return err
	}
	return l.bring(ctx, c)
}

// component of the lab by its name.
func (l *Lab) component(name string) (component, error) {
	r, err := l.load()
	if err != nil {
		return component{}, err
	}
	return r.find(name)
}

// Cut resets the connections between a member's agent and the hub, and refuses
// new ones.
func (l *Lab) Cut(ctx context.Context, member string) error {
	return l.setLink(ctx, member, relay.Cut)
}

// HalfOpen keeps the connections between a member's agent and the hub
// established, and swallows all bytes both ways.
func (l *Lab) HalfOpen(ctx context.Context, member string) error {
	return l.setLink(ctx, member, relay.HalfOpen)
}

// Heal undoes Cut and HalfOpen. Connections that lost bytes are reset.
func (l *Lab) Heal(ctx context.Context, member string) error {
	return l.setLink(ctx, member, relay.Up)
}

func (l *Lab) setLink(ctx context.Context, member string, mode relay.Mode) error {
	r, err := l.load()
	if err != nil {
		return err
	}
	if r.Hubless {
		return fmt.Errorf("the lab in %s has no hub, so %s has no link to break", l.dir, member)
	}
	m, err := r.memberNamed(member)
	if err != nil {
		return err
	}
	for i := range m.links() {
		if err := l.relay().SetMode(ctx, linkName(member, i), mode); err != nil {
			return err
		}
	}
	return nil
}
