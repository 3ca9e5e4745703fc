package bundlestatus

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTheNewestLookAtAStreamIsRemembered: a stream that goes while something else about
// its cluster is noted has gone, so that its return is news.
func TestTheNewestLookAtAStreamIsRemembered(t *testing.T) {
	m := newMemory()
	m.addCluster("a")
	m.setReady("a", metav1.ConditionUnknown)
	r := New(m.newConfig())
	r.startAcceptingKeys()
	defer r.loop.Close()
	noted := make(chan struct{})
	m.afterLook = func() {
		go func() {
			defer close(noted)
			m.setStream("a", false)
		}()
		select {
		case <-noted: // it was not to be noted in between
		case <-time.After(100 * time.Millisecond):
		}
	}
	m.tellCluster("a")
	<-noted
	if reach, stream, _ := r.index.recordLinkChange("uid-a", func(string) seenCluster { return seenCluster{reachable: true, online: true} }); !reach || !stream {
		t.Errorf("that the stream is back is no news: reachable %t, stream %t", reach, stream)
	}
}
