package measure

import "testing"

func TestOnlyTheHubsOwnLeasesAreItsUpkeep(t *testing.T) {
	before := Upkeep{
		"compact_rev_key":                               1,
		"/registry/leases/kube-system/atoll-hub":        10,
		"/registry/leases/kube-system/atoll-gateway-a":  5,
		"/registry/leases/kube-system/atoll-gateway-b":  5,
		"/registry/leases/atoll-clusters/c1":            3,
		"/registry/leases/atoll-clusters/c2":            3,
		"/registry/leases/atoll-clusters/c3":            3,
		"/registry/leases/kube-system/somebody-else":    1,
		"/registry/leases/kube-system-2/atoll-hub":      1,
		"/registry/leases/kube-system/atoll-gateway-b2": 1,
	}
	now := Upkeep{
		"compact_rev_key":                               2,  // 1
		"/registry/leases/kube-system/atoll-hub":        14, // 4
		"/registry/leases/kube-system/atoll-gateway-a":  2,  // made anew: 2
		"/registry/leases/kube-system/atoll-gateway-b2": 1,
		"/registry/leases/atoll-clusters/c1":            4, // 1
		"/registry/leases/atoll-clusters/c2":            3,
		"/registry/leases/atoll-clusters/new":           2, // 2
		"/registry/leases/kube-system/somebody-else":    3, // 2
		"/registry/leases/kube-system-2/atoll-hub":      2, // 1
	} // and gateway-b and c3 are deleted
	if own, others := now.Since(before); own != 8 || others != 7 {
		t.Errorf("the hub wrote %v for itself and %v for others, want 8 and 7", own, others)
	}
}
