package delivery

import (
	"crypto/tls"
	"io"
	"net"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// BenchmarkTunnel compares what one tunnel carries, from the agent to the hub, with what
// one connection of TLS does between the same two.
func BenchmarkTunnel(b *testing.B) {
	drink := func(b *testing.B, c net.Conn) {
		chunk := make([]byte, 64<<10)
		b.SetBytes(int64(len(chunk)))
		for b.Loop() {
			if _, err := io.ReadFull(c, chunk); err != nil {
				b.Fatal(err)
			}
		}
	}
	for what, beside := range map[string]int{"tunnel": 0, "beside 500 that are quiet": 500} {
		b.Run(what, func(b *testing.B) {
			h := newTestHub(b)
			uid, id := h.createCluster("tokyo")
			a := h.newAgent(id, "one")
			a.serveTunnels(func(c net.Conn) {
				if _, err := io.ReadFull(c, make([]byte, 1)); err == nil {
					writeForever(c)
				}
			})
			a.connectSession()
			testwait.UntilTrue(b, "the session begins", func() bool { return a.checkLocked(func() bool { return a.welcome != nil }) })
			var c net.Conn
			for range beside + 1 {
				var err error
				if c, err = h.DialCluster(b.Context(), uid); err != nil {
					b.Fatal(err)
				}
				defer c.Close()
			}
			if _, err := c.Write([]byte("x")); err != nil {
				b.Fatal(err)
			}
			drink(b, c)
		})
	}
	b.Run("direct", func(b *testing.B) {
		h := newTestHub(b)
		l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{h.servingCertificate()}})
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close()
		go func() {
			if c, err := l.Accept(); err == nil {
				writeForever(c)
			}
		}()
		c, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: h.keys.ClusterCA.CertPool(), ServerName: "127.0.0.1"})
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		drink(b, c)
	})
}
