// Package fairness divides places, turns and slots. Connections divide them by the networks of their
// peers before these are identified, and renderings by the namespaces of their Bundles. Much of one
// key delays that key first.
//
// Contract: nothing here reads from a connection. A network is an IPv4 address or an IPv6 /48,
// which is the largest part that a customer usually gets. All clusters behind one NAT gateway
// or load balancer are one network.
package fairness

import (
	"net"
	"net/netip"
)

// networkBits are the first bits of an IPv6 address, which name its network.
const networkBits = 48

// NetworkOf returns the network of a connection's other end. An address that is no IP address is
// a network by itself.
func NetworkOf(peer net.Addr) string {
	host, _, err := net.SplitHostPort(peer.String())
	if err != nil {
		host = peer.String()
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	return netip.PrefixFrom(ip, networkBits).Masked().String()
}
