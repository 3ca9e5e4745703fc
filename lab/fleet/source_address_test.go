package fleet

import (
	"net"
	"runtime"
	"testing"
)

func TestAgentsOfThisMachineShareNoAddress(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("not all of 127/8 is the machine's own")
	}
	loopback, seen := net.IPv4(127, 0, 0, 1), map[string]int{}
	for index := 0; index < 1_000_000; index += 63 {
		a := &simulatedAgent{index: index}
		source, ok := a.sourceAddress(loopback).(*net.TCPAddr)
		if !ok || !source.IP.IsLoopback() || source.IP.Equal(loopback) || source.Port != 0 {
			t.Fatalf("agent %d dials from %v", index, source)
		}
		if other, ok := seen[source.IP.String()]; ok {
			t.Fatalf("agents %d and %d dial from %s", other, index, source.IP)
		}
		seen[source.IP.String()] = index
	}
	for _, hub := range []net.IP{nil, net.ParseIP("::1"), net.IPv4(192, 0, 2, 1)} {
		if source := (&simulatedAgent{index: 7}).sourceAddress(hub); source != nil {
			t.Errorf("a hub at %v is dialled from %v; want any address", hub, source)
		}
	}
}
