package fleet

import (
	"net"
	"runtime"
)

// sourceAddress returns the agent's own source address for a hub on this machine, and nil,
// which means any, for other hubs. One address reaches one port by 28,000 connections at
// most, closed ones of the last minute included. Near the limit the kernel searches longer
// for a free port. The limit belongs to the shared machine, not to the hub.
func (a *simulatedAgent) sourceAddress(hub net.IP) net.Addr {
	return LoopbackSource(hub, net.IPv4(127, 64|byte(a.index>>16), byte(a.index>>8), byte(a.index)))
}

// LoopbackSource returns a source address in the loopback network for a hub on this machine, and
// nil, which means any, for other hubs. Only Linux has all addresses of the loopback network.
func LoopbackSource(hub, source net.IP) net.Addr {
	if v4 := hub.To4(); v4 == nil || !v4.IsLoopback() || runtime.GOOS != "linux" {
		return nil
	}
	return &net.TCPAddr{IP: source}
}
