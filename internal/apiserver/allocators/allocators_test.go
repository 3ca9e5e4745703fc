package allocators_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	cachetest "k8s.io/client-go/tools/cache/testing"
	api "k8s.io/kubernetes/pkg/apis/core"

	"atoll.dev/atoll/internal/apiserver/allocators"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/testwait"
)

// Each requested address is accepted, as often as it is requested; others are of the hub's range, and
// differ.
func TestAddressesMeanNothing(t *testing.T) {
	for family, asked := range map[api.IPFamily]string{api.IPv4Protocol: "10.0.0.1", api.IPv6Protocol: "fd00::1"} {
		ips := allocators.NewServiceAddresses().Allocators()[family]
		if ips == nil || ips.IPFamily() != family {
			t.Fatalf("%s has no allocator of its own", family)
		}
		drawn := map[string]bool{}
		for range 1000 {
			if err := ips.Allocate(net.ParseIP(asked)); err != nil {
				t.Errorf("%s: %v", asked, err)
			}
			got, err := ips.AllocateNext()
			if err != nil || !atoll.IsHubAssignedAddress(got.String()) || drawn[got.String()] {
				t.Errorf("the next %s is %s, %v", family, got, err)
			}
			drawn[got.String()] = true
			if whole := ips.CIDR(); !whole.Contains(got) || !whole.Contains(net.ParseIP(asked)) {
				t.Errorf("%s or %s lies outside of %s", asked, got, &whole)
			}
		}
		if got, err := ips.DryRun().AllocateNext(); err != nil || !atoll.IsHubAssignedAddress(got.String()) {
			t.Errorf("a dry run: %s, %v", got, err)
		}
	}
}

// An address that a Service has is not drawn again before the Service is gone, whichever hub made it. Other
// addresses are not remembered.
func TestAddressesOfServicesAreNotDrawnAgain(t *testing.T) {
	within := netip.MustParsePrefix("255.1.2.248/29")
	services := cachetest.NewFakeControllerSource()
	informer := cache.NewSharedInformer(services, &corev1.Service{}, 0)
	addresses := allocators.NewServiceAddresses()
	if err := addresses.FollowServices(informer); err != nil {
		t.Fatal(err)
	}
	service := func(n int) *corev1.Service {
		ip := fmt.Sprintf("255.1.2.%d", 248+n)
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(n)}, Spec: corev1.ServiceSpec{ClusterIPs: []string{ip, "10.0.0.1"}}}
	}
	for n := 1; n < 6; n++ {
		services.Add(service(n))
	}
	go informer.Run(t.Context().Done())
	testwait.Until(t, "all are seen", func(context.Context) (bool, string) { return addresses.Count() == 5, fmt.Sprint(addresses.Count()) })
	if got := addresses.Draw(within); got.String() != "255.1.2.254" {
		t.Errorf("drew %s, and only 255.1.2.254 is free", got)
	}
	services.Delete(service(3))
	testwait.Until(t, "it is gone", func(context.Context) (bool, string) { return addresses.Count() == 5, fmt.Sprint(addresses.Count()) })
	if got := addresses.Draw(within); got.String() != "255.1.2.251" {
		t.Errorf("drew %s, and only 255.1.2.251 is free", got)
	}
}

// Drawn ports differ, and are no ports that a user can state.
func TestDrawnPortsAreRecognised(t *testing.T) {
	ports := allocators.NewNodePortAllocator()
	drawn := map[int]bool{}
	for range 100 {
		port, err := ports.AllocateNext()
		if err != nil || drawn[port] || !allocators.IsHubAllocatedPort(int32(port)) {
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
		if allocators.IsHubAllocatedPort(port) {
			t.Errorf("port %d of a user is taken for a drawn one", port)
		}
	}
}
