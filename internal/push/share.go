package push

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/clusterstatus"
	"atoll.dev/atoll/internal/session"
)

// Division of agents among hubs
//
// Each cluster goes to one of the serving hubs, by rendezvous hashing of its name: all hubs
// compute the same result, nothing is written, and when a hub comes or goes only its own share
// moves. Hubs may differ for a moment about the serving hubs. Then a cluster has two agents, of
// which the Lease in the member lets one work. The other stands by without a report, so that no
// two hubs write one condition.

// shareInterval is how often the list of serving hubs is read.
const shareInterval = time.Second

// Hubs is the list of hubs that serve agents.
type Hubs interface {
	// IsComplete reports whether every living hub has sent its list.
	IsComplete() bool
	ServingHubs() []string
}

// FollowServingHubs keeps the serving hubs up to date until ctx ends. A hub that has just started may not
// have received the list of the others. So the first list counts when it is complete, or after grace. A
// hub
// without contact to the store serves no agents and runs none.
func (s *AgentSupervisor) FollowServingHubs(ctx context.Context, hubs Hubs, grace time.Duration) error {
	tick := time.NewTicker(shareInterval)
	defer tick.Stop()
	for begin := time.Now(); ; {
		if hubs.IsComplete() || time.Since(begin) > grace {
			grace = 0
			s.SetServingHubs(hubs.ServingHubs())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// FleetName returns a word that only hubs with the key have in common. The word does not reveal
// the key.
func FleetName(key []byte) string {
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write([]byte("the hubs whose agents hold members' Leases")) // never fails
	return "atoll-hub-" + hex.EncodeToString(mac.Sum(nil)[:4])
}

// SetServingHubs sets the hubs that serve agents now, by the addresses of their gateways. Agents
// of clusters outside of this hub's share stop here. Without Self it has no effect. The slice is
// not changed from then on. It is safe for concurrent use.
func (s *AgentSupervisor) SetServingHubs(hubs []string) {
	s.mu.Lock()
	before := s.hubs.Load()
	if before != nil && slices.Equal(*before, hubs) {
		s.mu.Unlock()
		return
	}
	s.hubs.Store(&hubs)
	alive := s.life != nil
	s.mu.Unlock()
	if !alive {
		return // all are looked at when it runs
	}
	for _, c := range s.o.Clusters.List() {
		s.reconcileCluster(c.Name)
	}
}

// isServedByThisHub reports whether this hub sees to the agent of a cluster.
func (s *AgentSupervisor) isServedByThisHub(cluster string) bool {
	if s.o.Self == "" {
		return true
	}
	hubs := s.hubs.Load()
	return hubs != nil && len(*hubs) > 0 && session.OrderHubs(cluster, *hubs)[0] == s.o.Self
}

// isHeldByHubOfFleet reports whether the holder of a member's Lease is an agent of a hub on the same
// store, this one among them.
func (s *AgentSupervisor) isHeldByHubOfFleet(holder string) bool {
	fleet, _, ok := strings.Cut(s.o.Runner, "@")
	return ok && strings.HasPrefix(holder, fleet+"@")
}

// wantClearedReport returns the report for a Cluster whose agent is certainly not the hub's, while its
// condition differs; any is false where it does not.
func wantClearedReport(c *v1alpha1.Cluster) (w wantedAgent, any bool) {
	if meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterPushed) == nil {
		return wantedAgent{}, false
	}
	return wantedAgent{uid: string(c.UID), instead: clusterstatus.Pushed{}}, true
}
