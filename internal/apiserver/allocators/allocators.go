// Package allocators gives the storage of Services an allocator of addresses and ports on a
// cluster that has none.
//
// Contract: every requested address and port is accepted, however many Services request the same
// one, and nothing is stored. A Service without a requested cluster IP gets one that IANA reserves
// as a dummy, the same for all: upstream insists on an address, and tools that wait for Services
// look for one, but it must mean nothing anywhere. IsAllocatedHere recognises an allocated node
// port, because it is no valid port. Safe for concurrent use.
package allocators

import (
	"net"
	"sync/atomic"

	api "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/registry/core/service/ipallocator"
	"k8s.io/kubernetes/pkg/registry/core/service/portallocator"

	"atoll.dev/atoll/internal/atoll"
)

const (
	// DummyIPv4 is the IPv4 dummy address of RFC 7600.
	DummyIPv4 = atoll.DummyIPv4
	// DummyIPv6 lies in the dummy IPv6 prefix of RFC 9780.
	DummyIPv6 = atoll.DummyIPv6
	// DummyHealthCheckPort is the discard service's port, which no Service can
	// mean: upstream insists on a port where it checks health by one.
	DummyHealthCheckPort = atoll.DummyHealthCheckPort
	// firstUnasked is above all ports; it leaves room for as many in one
	// object as an object can hold.
	firstUnasked = 1 << 16
	unaskedCount = 1 << 20
)

// IPs returns an allocator for each address family, so that Services of either
// or both are accepted.
func IPs() map[api.IPFamily]ipallocator.Interface {
	return map[api.IPFamily]ipallocator.Interface{
		api.IPv4Protocol: ips{family: api.IPv4Protocol, dummy: net.ParseIP(DummyIPv4)},
		api.IPv6Protocol: ips{family: api.IPv6Protocol, dummy: net.ParseIP(DummyIPv6)},
	}
}

type ips struct {
	family api.IPFamily
	dummy  net.IP
}

var _ ipallocator.Interface = ips{}

func (ips) Allocate(net.IP) error           { return nil }
func (i ips) AllocateNext() (net.IP, error) { return i.dummy, nil }
func (ips) Release(net.IP) error            { return nil }
func (ips) ForEach(func(net.IP))            {}
func (ips) Has(net.IP) bool                 { return false }
func (ips) Destroy()                        {}
func (ips) EnableMetrics()                  {}
func (i ips) DryRun() ipallocator.Interface { return i }
func (i ips) IPFamily() api.IPFamily        { return i.family }

// CIDR is the whole address space of the family.
func (i ips) CIDR() net.IPNet {
	bits := 8 * net.IPv4len
	if i.family == api.IPv6Protocol {
		bits = 8 * net.IPv6len
	}
	return net.IPNet{IP: make(net.IP, bits/8), Mask: net.CIDRMask(0, bits)}
}

// NewPortAllocator returns an allocator of node ports.
func NewPortAllocator() portallocator.Interface { return &ports{} }

// IsAllocatedHere reports whether a port came from this allocator rather than from a
// user.
func IsAllocatedHere(port int32) bool { return port >= firstUnasked }

type ports struct {
	drawn atomic.Uint32
}

var _ portallocator.Interface = &ports{}

// AllocateNext returns another number each time, because the ports of one
// Service must differ until they are taken off again.
func (p *ports) AllocateNext() (int, error) {
	return firstUnasked + int(p.drawn.Add(1)%unaskedCount), nil
}

func (*ports) Allocate(int) error { return nil }
func (*ports) Release(int) error  { return nil }
func (*ports) ForEach(func(int))  {}
func (*ports) Has(int) bool       { return false }
func (*ports) Destroy()           {}
func (*ports) EnableMetrics()     {}
