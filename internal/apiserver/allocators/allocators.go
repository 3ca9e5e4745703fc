// Package allocators gives the storage of Services an allocator of addresses and ports on a
// cluster that has none.
//
// Contract: every requested address and port is accepted, however many Services request the same
// one, and nothing is stored. A Service without a requested cluster IP gets one of its own, of a
// range that means nothing in any network: upstream insists on an address, and tools that wait for
// Services look for one. IsHubAllocatedPort recognises an allocated node
// port, because it is no valid port. Safe for concurrent use.
package allocators

import (
	"crypto/rand"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	api "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/registry/core/service/ipallocator"
	"k8s.io/kubernetes/pkg/registry/core/service/portallocator"

	"atoll.dev/atoll/internal/atoll"
)

const (
	// DummyHealthCheckPort is the discard service's port, which no Service can
	// mean: upstream insists on a port where it checks health by one.
	DummyHealthCheckPort = atoll.DummyHealthCheckPort
	// firstUnasked is above all ports; it leaves room for as many in one
	// object as an object can hold.
	firstUnasked = 1 << 16
	unaskedCount = 1 << 20
)

// ServiceAddresses are the addresses of the hub's ranges that Services have. They are in memory only: Services
// themselves hold them, also those that another hub of the same store makes.
type ServiceAddresses struct {
	mu   sync.Mutex
	used map[netip.Addr]struct{}
}

// NewServiceAddresses returns Addresses of which none is used.
func NewServiceAddresses() *ServiceAddresses {
	return &ServiceAddresses{used: map[netip.Addr]struct{}{}}
}

// FollowServices records the addresses of all Services that the informer shows.
func (a *ServiceAddresses) FollowServices(informer cache.SharedInformer) error {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { a.recordAddresses(serviceClusterIPs(obj), nil) },
		UpdateFunc: func(old, obj any) {
			was, is := serviceClusterIPs(old), serviceClusterIPs(obj)
			a.recordAddresses(is, was)
		},
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			a.recordAddresses(nil, serviceClusterIPs(obj))
		},
	})
	return err
}

func serviceClusterIPs(obj any) []string {
	if service, ok := obj.(*corev1.Service); ok {
		return service.Spec.ClusterIPs
	}
	return nil
}

// recordAddresses records which addresses are used and which are not any more.
func (a *ServiceAddresses) recordAddresses(used, released []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, text := range released {
		if ip, err := netip.ParseAddr(text); err == nil {
			delete(a.used, ip)
		}
	}
	for _, text := range used {
		if ip, err := netip.ParseAddr(text); err == nil && atoll.IsHubAssignedAddress(text) {
			a.used[ip] = struct{}{}
		}
	}
}

// drawAddress returns an address of the range that no Service has, and records it as used.
func (a *ServiceAddresses) drawAddress(within netip.Prefix) netip.Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		ip := randomAddress(within)
		if _, used := a.used[ip]; !used {
			a.used[ip] = struct{}{}
			return ip
		}
	}
}

// randomAddress returns an address of the range that is neither its first nor its last.
func randomAddress(within netip.Prefix) netip.Addr {
	for {
		ip := within.Addr().AsSlice()
		_, _ = rand.Read(ip[within.Bits()/8:]) // which never fails
		addr, _ := netip.AddrFromSlice(ip)
		if addr != within.Addr() && within.Contains(addr) && within.Contains(addr.Next()) {
			return addr
		}
	}
}

// Allocators returns an allocator for each address family, so that Services of either
// or both are accepted.
func (a *ServiceAddresses) Allocators() map[api.IPFamily]ipallocator.Interface {
	return map[api.IPFamily]ipallocator.Interface{
		api.IPv4Protocol: serviceIPAllocator{addresses: a, family: api.IPv4Protocol, within: atoll.DummyIPv4Range},
		api.IPv6Protocol: serviceIPAllocator{addresses: a, family: api.IPv6Protocol, within: atoll.DummyIPv6Range},
	}
}

type serviceIPAllocator struct {
	addresses *ServiceAddresses
	family    api.IPFamily
	within    netip.Prefix
	isDryRun  bool
}

var _ ipallocator.Interface = serviceIPAllocator{}

// Allocate accepts an address that a user states. A range of a member is not known here.
func (i serviceIPAllocator) Allocate(ip net.IP) error {
	if !i.isDryRun {
		i.addresses.recordAddresses([]string{ip.String()}, nil)
	}
	return nil
}

// AllocateNext returns the first address of the range for a dry run, as upstream does.
func (i serviceIPAllocator) AllocateNext() (net.IP, error) {
	if i.isDryRun {
		return i.within.Addr().AsSlice(), nil
	}
	return i.addresses.drawAddress(i.within).AsSlice(), nil
}

func (i serviceIPAllocator) Release(ip net.IP) error {
	if !i.isDryRun {
		i.addresses.recordAddresses(nil, []string{ip.String()})
	}
	return nil
}

func (serviceIPAllocator) ForEach(func(net.IP))            {}
func (serviceIPAllocator) Has(net.IP) bool                 { return false }
func (serviceIPAllocator) Destroy()                        {}
func (serviceIPAllocator) EnableMetrics()                  {}
func (i serviceIPAllocator) DryRun() ipallocator.Interface { i.isDryRun = true; return i }
func (i serviceIPAllocator) IPFamily() api.IPFamily        { return i.family }

// CIDR is the whole address space of the family.
func (i serviceIPAllocator) CIDR() net.IPNet {
	bits := i.within.Addr().BitLen()
	return net.IPNet{IP: make(net.IP, bits/8), Mask: net.CIDRMask(0, bits)}
}

// NewNodePortAllocator returns an allocator of node ports.
func NewNodePortAllocator() portallocator.Interface { return &nodePortAllocator{} }

// IsHubAllocatedPort reports whether a port came from this allocator rather than from a
// user.
func IsHubAllocatedPort(port int32) bool { return port >= firstUnasked }

type nodePortAllocator struct {
	drawn atomic.Uint32
}

var _ portallocator.Interface = &nodePortAllocator{}

// AllocateNext returns another number each time, because the ports of one
// Service must differ until they are taken off again.
func (p *nodePortAllocator) AllocateNext() (int, error) {
	return firstUnasked + int(p.drawn.Add(1)%unaskedCount), nil
}

func (*nodePortAllocator) Allocate(int) error { return nil }
func (*nodePortAllocator) Release(int) error  { return nil }
func (*nodePortAllocator) ForEach(func(int))  {}
func (*nodePortAllocator) Has(int) bool       { return false }
func (*nodePortAllocator) Destroy()           {}
func (*nodePortAllocator) EnableMetrics()     {}
