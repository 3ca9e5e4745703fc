package handshake

import (
	"testing"

	"atoll.dev/atoll/internal/trust"
)

// A request asks for a life that Kubernetes takes, however short those of agents are.
func TestARequestAsksForALifeThatMayBeAskedFor(t *testing.T) {
	for seconds, want := range map[int32]int32{30: 600, 599: 600, 600: 600, 86400: 86400} {
		if got := NewRequest("oslo", "u1", trust.Request{}, seconds).Spec.ExpirationSeconds; *got != want {
			t.Errorf("for %d seconds it asks for %d", seconds, *got)
		}
	}
}
