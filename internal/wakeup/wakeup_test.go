package wakeup

import "testing"

func TestSend(t *testing.T) {
	c := make(chan struct{}, 1)
	WakeReader(c)
	WakeReader(c)
	if len(c) != 1 {
		t.Fatalf("%d signals wait, want 1", len(c))
	}
	<-c
	WakeReader(c)
	if len(c) != 1 {
		t.Errorf("%d signals wait after a read, want 1", len(c))
	}
}
