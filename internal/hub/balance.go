package hub

import (
	"context"
	"strings"
	"time"

	"atoll.dev/atoll/internal/session"
)

// How streams come back to a hub that was away
//
// Agents of a hub that is gone go to the others, and have no reason to come back. So a
// hub that has clearly more streams than its share asks some of them each second to go on
// to those that have fewer, first of all those whose first choice these are. One that
// goes is without a stream for the moment of a handshake: nobody is told, and nothing is
// written.

const (
	balanceEvery = time.Second
	// sentOn is how many agents a hub asks each time. The hub that they go to has one
	// handshake for each, and every other hub may send as many.
	sentOn = 50
)

// balance sends agents on for as long as this hub has more than its share, until ctx ends.
func (p *parts) balance(ctx context.Context) error {
	tick := time.NewTicker(balanceEvery)
	defer tick.Stop()
	for moving := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		surplus, rooms := p.peers.Surplus(moving)
		if surplus == 0 || !p.serves() {
			moving = false
			continue
		}
		if !moving {
			moving = true
			p.log.Info("this hub has more agents than its share: it sends some on to hubs that have fewer", "surplus", surplus)
		}
		left := min(surplus, sentOn)
		for _, r := range rooms {
			left -= p.gateway.SendOn(min(left, r.Streams), r.Address, p.prefers(r.Address))
		}
	}
}

// prefers tells of clusters, by name, whether their agents' first choice is the hub.
func (p *parts) prefers(hub string) func(cluster string) bool {
	hubs := strings.Split(p.door.address, ",")
	return func(cluster string) bool { return session.OrderHubs(cluster, hubs)[0] == hub }
}
