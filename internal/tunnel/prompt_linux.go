package tunnel

import (
	"net"

	"golang.org/x/sys/unix"
)

// unsentMost is what the kernel takes before it is sent: 13 ms of 20 Mbit/s.
const unsentMost = 32 << 10

// LimitUnsent has the kernel take only so much of what is written to a connection of TCP as it is
// about to send: what is written after it need not wait until megabytes are out.
func LimitUnsent(c net.Conn) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentMost) // without it things are as they were
	})
}
