//go:build !linux

package tunnel

import "net"

// LimitUnsent does nothing where the kernel is not known.
func LimitUnsent(net.Conn) {}
