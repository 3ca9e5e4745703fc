//go:build !linux

package tunnel

import "net"

// Prompt does nothing where the kernel is not known.
func Prompt(net.Conn) {}
