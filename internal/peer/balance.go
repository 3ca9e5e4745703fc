package peer

import (
	"cmp"
	"slices"
)

// StreamDeficit is how many streams a hub has fewer than its share.
type StreamDeficit struct {
	// Address of its gateway.
	Address string
	Streams int
}

// surplusThreshold returns from how many streams on a hub has clearly more than its share: by
// chance alone, hubs differ by a few in a hundred.
func surplusThreshold(share int) int { return share + share/10 + 20 }

// ServingHubs returns the addresses of the hubs that serve agents now, this one among them, in
// order. A hub without a sign of life for Grace counts as not serving.
func (p *HubPeers) ServingHubs() []string {
	var out []string
	if p.hub.IsServing() {
		out = append(out, p.o.Address)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.found {
		if h := p.union.hubs[name]; h != nil && h.serves {
			out = append(out, addressOf(name))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// SurplusStreams returns the number of this hub's streams above its share of all serving hubs, and
// the hubs with fewer, the emptiest first. It begins when the surplus is clear, and lasts, while
// moving, until there is none. As long as a living hub has not sent its list there is none.
func (p *HubPeers) SurplusStreams(moving bool) (surplus int, rooms []StreamDeficit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.complete.Load() {
		return 0, nil
	}
	others := map[string]int{}
	for name := range p.found {
		if h := p.union.hubs[name]; h.serves {
			others[addressOf(name)] = len(h.sessions)
		}
	}
	return computeSurplus(len(p.union.own), others, moving)
}

// computeSurplus is the pure core of Surplus.
func computeSurplus(own int, others map[string]int, moving bool) (surplus int, rooms []StreamDeficit) {
	all := own
	for _, n := range others {
		all += n
	}
	share := (all + len(others)) / (len(others) + 1) // rounded up
	if own <= share || !moving && own <= surplusThreshold(share) {
		return 0, nil
	}
	for address, n := range others {
		if n < share {
			rooms = append(rooms, StreamDeficit{address, share - n})
		}
	}
	slices.SortFunc(rooms, func(a, b StreamDeficit) int {
		return cmp.Or(cmp.Compare(b.Streams, a.Streams), cmp.Compare(a.Address, b.Address))
	})
	return own - share, rooms
}
