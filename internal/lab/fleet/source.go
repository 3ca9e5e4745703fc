package fleet

import (
	"net"
	"runtime"
)

// source is the agent's own address where it dials a hub on this machine; nil, which is any,
// elsewhere. From one address to one port there are 28,000 connections at once, those of
// the last minute that are over counted in, and the nearer to that the longer the kernel
// looks for one more: a limit of the machine that agents share, not one of the hub. Of the
// loopback's addresses only Linux has all.
func (a *agent) source(hub net.IP) *net.TCPAddr {
	if v4 := hub.To4(); v4 == nil || !v4.IsLoopback() || runtime.GOOS != "linux" {
		return nil
	}
	return &net.TCPAddr{IP: net.IPv4(127, 64|byte(a.index>>16), byte(a.index>>8), byte(a.index))}
}
