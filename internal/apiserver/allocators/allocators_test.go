package allocators_test

import (
	"net"
	"testing"

	api "k8s.io/kubernetes/pkg/apis/core"

	"atoll.dev/atoll/internal/apiserver/allocators"
)

// Each requested address is accepted, as often as it is requested; others are the family's dummy.
func TestAddressesMeanNothing(t *testing.T) {
	for family, c := range map[api.IPFamily]struct{ dummy, asked string }{
		api.IPv4Protocol: {allocators.DummyIPv4, "10.0.0.1"}, api.IPv6Protocol: {allocators.DummyIPv6, "fd00::1"},
	} {
		ips := allocators.IPs()[family]
		if ips == nil || ips.IPFamily() != family {
			t.Fatalf("%s has no allocator of its own", family)
		}
		asked := net.ParseIP(c.asked)
		for range 2 {
			if err := ips.Allocate(asked); err != nil {
				t.Errorf("%s: %v", asked, err)
			}
			if got, err := ips.AllocateNext(); err != nil || got.String() != net.ParseIP(c.dummy).String() {
				t.Errorf("the next %s is %s, %v", family, got, err)
			}
		}
		if ips.Has(asked) {
			t.Errorf("%s is stored", asked)
		}
		if whole := ips.CIDR(); !whole.Contains(asked) || !whole.Contains(net.ParseIP(c.dummy)) {
			t.Errorf("%s lies outside of %s", asked, &whole)
		}
	}
}

// Drawn ports differ, and are no ports that a user can state.
func TestDrawnPortsAreRecognised(t *testing.T) {
	ports := allocators.NewPortAllocator()
	drawn := map[int]bool{}
	for range 100 {
		port, err := ports.AllocateNext()
		if err != nil || drawn[port] || !allocators.IsAllocatedHere(int32(port)) {
			t.Fatalf("port %d, %v, after %d", port, err, len(drawn))
		}
		drawn[port] = true
	}
	for range 2 {
		if err := ports.Allocate(30080); err != nil || ports.Has(30080) {
			t.Errorf("a stated port: %v", err)
		}
	}
	for _, port := range []int32{0, 1, 30080, 65535} {
		if allocators.IsAllocatedHere(port) {
			t.Errorf("port %d of a user is taken for a drawn one", port)
		}
	}
}
