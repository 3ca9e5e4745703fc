package push

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/inventory"
	"atoll.dev/atoll/internal/session"
)

// How agents are shared out among hubs
//
// Each cluster goes to one of the hubs that serve, by rendezvous hashing of its name: all
// hubs work that out alike, nobody writes it, and when a hub comes or goes only its own
// share moves. Hubs may differ for a moment in who serves. Then two agents of one cluster are
// there, of which the Lease in the member lets one work; the other stands by and says
// nothing of it, so that no two hubs write one condition.

// Share tells which hubs serve agents now, by the addresses of their gateways. Of those
// clusters that are not this hub's among them no agent runs here. Without Self it is of
// no effect. The slice is not changed from then on. It is safe for concurrent use.
func (s *Supervisor) Share(hubs []string) {
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
		s.look(c.Name)
	}
}

// mine tells whether this hub sees to the agent of a cluster.
func (s *Supervisor) mine(cluster string) bool {
	if s.o.Self == "" {
		return true
	}
	hubs := s.hubs.Load()
	return hubs != nil && len(*hubs) > 0 && session.OrderHubs(cluster, *hubs)[0] == s.o.Self
}

// sister tells whether the holder of a member's Lease is an agent of a hub on the same
// store, this one among them.
func (s *Supervisor) sister(holder string) bool {
	fleet, _, ok := strings.Cut(s.o.Runner, "@")
	return ok && strings.HasPrefix(holder, fleet+"@")
}

// none is what is told of a Cluster whose agent is surely not the hub's, while its
// condition says something else; any is false where it does not.
func none(c *v1alpha1.Cluster) (w want, any bool) {
	if meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterPushed) == nil {
		return want{}, false
	}
	return want{uid: string(c.UID), instead: inventory.Pushed{}}, true
}
