package fairness

import (
	"container/list"
	"sync"
)

// ConnectionPlaces bounds how many connections are in some state at a time. When all places are taken, a
// new connection displaces the oldest one of the network with the most. It is safe for
// concurrent use. Make it with NewPlaces.
type ConnectionPlaces struct {
	most int

	mu       sync.Mutex
	taken    int
	networks map[string]*list.List // of *place, the oldest first
}

// place is one taken place.
type place struct{ displace func() }

// NewPlaces returns so many free places, at least one.
func NewPlaces(most int) *ConnectionPlaces {
	return &ConnectionPlaces{most: most, networks: map[string]*list.List{}}
}

// Take takes a place for a connection of the network. displace is called at most once, and not
// after release has returned; it must not block. release may be called several times.
func (p *ConnectionPlaces) Take(network string, displace func()) (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken >= p.most {
		p.displaceOldestOfLargestNetwork()
	}
	places := p.networks[network]
	if places == nil {
		places = list.New()
		p.networks[network] = places
	}
	at := places.PushBack(&place{displace})
	p.taken++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.freePlace(network, at)
	}
}

// displaceOldestOfLargestNetwork frees the oldest place of the network with the most.
func (p *ConnectionPlaces) displaceOldestOfLargestNetwork() {
	var most string
	for network, places := range p.networks {
		if chosen := p.networks[most]; chosen == nil || places.Len() > chosen.Len() {
			most = network
		}
	}
	at := p.networks[most].Front()
	displaced := at.Value.(*place)
	p.freePlace(most, at)
	displaced.displace()
}

// freePlace frees a place, if it is taken.
func (p *ConnectionPlaces) freePlace(network string, at *list.Element) {
	if at.Value == nil {
		return
	}
	at.Value = nil
	places := p.networks[network]
	places.Remove(at)
	p.taken--
	if places.Len() == 0 {
		delete(p.networks, network)
	}
}

// Taken returns how many places are taken.
func (p *ConnectionPlaces) Taken() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}
