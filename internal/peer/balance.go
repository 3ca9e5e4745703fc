package peer

import (
	"cmp"
	"slices"
)

// Room is how many streams a hub has fewer than its share.
type Room struct {
	// Address of its gateway.
	Address string
	Streams int
}

// clearlyMore says from how many streams on a hub has clearly more than its share: by
// chance alone, hubs differ by a few in a hundred.
func clearlyMore(share int) int { return share + share/10 + 20 }

// Serving gives the addresses of the hubs that serve agents now, this one among them, in
// order. A hub that has not been heard of for Grace serves nobody as far as this one knows.
func (p *Peers) Serving() []string {
	var out []string
	if p.o.Serves() {
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

// Surplus tells how many streams this hub has more than its share of all that serve, and
// which others have room for them, the emptiest first. It begins to tell when that is
// clearly more, and then, while moving, until there is none. As long as a living hub has
// not told what it holds there is none.
func (p *Peers) Surplus(moving bool) (surplus int, rooms []Room) {
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
	return balance(len(p.union.own), others, moving)
}

// balance is the pure core of Surplus.
func balance(own int, others map[string]int, moving bool) (surplus int, rooms []Room) {
	all := own
	for _, n := range others {
		all += n
	}
	share := (all + len(others)) / (len(others) + 1) // rounded up
	if own <= share || !moving && own <= clearlyMore(share) {
		return 0, nil
	}
	for address, n := range others {
		if n < share {
			rooms = append(rooms, Room{address, share - n})
		}
	}
	slices.SortFunc(rooms, func(a, b Room) int {
		return cmp.Or(cmp.Compare(b.Streams, a.Streams), cmp.Compare(a.Address, b.Address))
	})
	return own - share, rooms
}
