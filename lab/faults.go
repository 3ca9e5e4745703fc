package lab

import (
	"context"
	"fmt"
	"time"

	"atoll.dev/atoll/lab/relay"
)

// KillComponent ends a component with SIGKILL. A stopped one stays stopped.
func (l *Lab) KillComponent(ctx context.Context, name string) error {
	c, err := l.findComponent(name)
	if err != nil {
		return err
	}
	return c.process.KillProcess(ctx)
}

// StopComponent signals a component to end, and kills it after a limit. A stopped one stays stopped.
func (l *Lab) StopComponent(ctx context.Context, name string) error {
	c, err := l.findComponent(name)
	if err != nil {
		return err
	}
	return c.process.Stop(ctx, stopPatience)
}

// stopPatience is the time in which a component must end by itself in Stop: hubs hand over.
const stopPatience = 30 * time.Second

// StartComponent starts a component with the same ports and data, and returns when it works. An
// agent only has to run while its hub, member or link is down. For a running component it
// only waits.
func (l *Lab) StartComponent(ctx context.Context, name string) error {
	c, err := l.findComponent(name)
	if err != nil {
		return err
	}
	return l.startComponents(ctx, c)
}

// findComponent returns the component of that name.
func (l *Lab) findComponent(name string) (component, error) {
	r, err := l.loadRecord()
	if err != nil {
		return component{}, err
	}
	return r.find(name)
}

// CutLink resets the connections between a member's agent and the hub, and refuses new
// ones.
func (l *Lab) CutLink(ctx context.Context, member string) error {
	return l.setLink(ctx, member, relay.Cut)
}

// DiscardLinkTraffic keeps the connections between a member's agent and the hub established, and
// discards all bytes both ways.
func (l *Lab) DiscardLinkTraffic(ctx context.Context, member string) error {
	return l.setLink(ctx, member, relay.HalfOpen)
}

// HealLink undoes CutLink and DiscardLinkTraffic. Connections that lost bytes are reset.
func (l *Lab) HealLink(ctx context.Context, member string) error {
	return l.setLink(ctx, member, relay.Up)
}

func (l *Lab) setLink(ctx context.Context, member string, mode relay.Mode) error {
	r, err := l.loadRecord()
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
	for i := range m.linkPorts() {
		if err := l.relayClient().SetMode(ctx, linkName(member, i), mode); err != nil {
			return err
		}
	}
	return nil
}
