package atoll

import "net/netip"

// Placeholders for fields of a Service on the hub that upstream requires. They have no meaning
// in any cluster.
const (
	// DummyIPv4 is the address that a hub before v0.2.0 gave to each Service.
	DummyIPv4            = "192.0.0.8"
	DummyHealthCheckPort = 9
)

// DummyIPv4Range and DummyIPv6Range are the addresses of Services on the hub. No network has addresses of
// RFC 1112's last block, and those of RFC 9780's prefix are dummies.
var (
	DummyIPv4Range = netip.MustParsePrefix("255.0.0.0/8")
	DummyIPv6Range = netip.MustParsePrefix("100:0:0:1::/64")
)

// IsHubAssignedAddress reports whether the hub gave a Service the address.
func IsHubAssignedAddress(text string) bool {
	ip, err := netip.ParseAddr(text)
	return text == DummyIPv4 || err == nil && (DummyIPv4Range.Contains(ip) || DummyIPv6Range.Contains(ip))
}
