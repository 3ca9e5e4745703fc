package fairness

import (
	"fmt"
	"net"
	"slices"
	"testing"
)

// taker takes places, and records which connections are displaced.
type taker struct {
	places    *ConnectionPlaces
	displaced []string
	n         map[string]int
}

func (k *taker) takePlace(network string) (release func()) {
	k.n[network]++
	name := fmt.Sprint(network, k.n[network])
	return k.places.Take(network, func() { k.displaced = append(k.displaced, name) })
}

// The network with the most connections loses its oldest.
func TestTheOldestOfTheLargestNetworkIsDisplaced(t *testing.T) {
	k := &taker{places: NewPlaces(5), n: map[string]int{}}
	k.takePlace("small")
	for range 4 {
		k.takePlace("flood")
	}
	if len(k.displaced) > 0 {
		t.Fatalf("%v are displaced while places are free", k.displaced)
	}
	k.takePlace("small")
	k.takePlace("other")
	for range 3 {
		k.takePlace("flood")
	}
	// flood1 for small2, flood2 for other1, then flood3, flood4, and small1 or flood5 where both have two.
	if len(k.displaced) != 5 || !slices.Equal(k.displaced[:2], []string{"flood1", "flood2"}) || slices.Contains(k.displaced, "other1") || slices.Contains(k.displaced, "small2") {
		t.Errorf("displaced: %v", k.displaced)
	}
	if n := k.places.Taken(); n != 5 {
		t.Errorf("%d places are taken, want 5", n)
	}
}

// Freeing a place twice frees it once, also after a displacement.
func TestAPlaceIsFreedOnce(t *testing.T) {
	k := &taker{places: NewPlaces(2), n: map[string]int{}}
	first, second := k.takePlace("a"), k.takePlace("b")
	first()
	first()
	if n := k.places.Taken(); n != 1 {
		t.Errorf("%d places are taken after one is freed twice, want 1", n)
	}
	k.takePlace("a")
	k.takePlace("a") // displaces a2
	first()
	if n := k.places.Taken(); n != 2 || !slices.Equal(k.displaced, []string{"a2"}) && !slices.Equal(k.displaced, []string{"b1"}) {
		t.Errorf("%d places are taken, and %v are displaced", n, k.displaced)
	}
	second()
	for n := range k.places.networks {
		if k.places.networks[n].Len() == 0 {
			t.Errorf("a network without places stays: %s", n)
		}
	}
}

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// A customer may have all addresses of an IPv6 /48.
func TestNetworksOfAddresses(t *testing.T) {
	for peer, want := range map[string]string{
		"192.0.2.1:443":              "192.0.2.1",
		"[::ffff:192.0.2.1]:443":     "192.0.2.1",
		"[2001:db8:1:2:3:4:5:6]:443": "2001:db8:1::/48",
		"[2001:db8:1:ffff::1]:1":     "2001:db8:1::/48",
		"[2001:db8:2:2::1]:1":        "2001:db8:2::/48",
		"[fe80::1%eth0]:443":         "fe80::/48",
		"pipe":                       "pipe",
		"@":                          "@",
	} {
		if got := NetworkOf(address(peer)); got != want {
			t.Errorf("%s is of %s, want %s", peer, got, want)
		}
	}
	var _ net.Addr = address("")
}
