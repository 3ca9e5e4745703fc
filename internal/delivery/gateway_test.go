package delivery

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/internal/trust/handshake"
)

// TestJoinAndReceiveOrders goes the whole way of an agent: token, acceptance by token,
// stream, order, report, removal.
func TestJoinAndReceiveOrders(t *testing.T) {
	h := newTestHub(t)
	token := h.createToken(handshake.TokenSpec{AutoAccept: true, Labels: map[string]string{"env": "prod"}})
	key := newKey(t)
	reply, err := h.pinnedClient().Join(t.Context(), joinRequest(t, token.RevealSecret(), "tokyo", key))
	if err != nil {
		t.Fatal(err)
	}
	if reply.GetState() != stateAccepted {
		t.Fatalf("state %s: %s", reply.GetState(), reply.GetMessage())
	}
	c, _ := h.clusters.Get("tokyo")
	if len(c.Spec.Taints) != 1 || c.Spec.Taints[0].Key != handshake.TaintUnreviewed || c.Labels["env"] != "prod" {
		t.Errorf("labels %v and taints %v of an auto-accepted cluster", c.Labels, c.Spec.Taints)
	}
	uid := reply.GetClusterUid()
	h.rows.setRows("b1", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "r1", 1)})
	a := h.newAgent(newKeyPair(t, reply.GetCertificate(), key), "one")
	a.connectSession()
	testwait.UntilTrue(t, "the agent holds r1", a.holdsManifest("b1", "r1", 1))
	h.rows.setRows("b1", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "r2", 2)})
	testwait.UntilTrue(t, "the agent holds r2", a.holdsManifest("b1", "r2", 2))
	a.reportReady("b1")
	testwait.UntilTrue(t, "the report is in the row and acknowledged", func() bool {
		r, _ := h.rows.Get("b1", "tokyo")
		return r.Status != nil && r.Status.State == atoll.RowReady && a.checkLocked(func() bool { return a.core.CountUnacknowledged() == 0 })
	})
	removing := activeSpec(uid, "r2", 3)
	removing.Phase = atoll.RowRemoving
	h.rows.setRows("b1", map[string]atoll.RowSpec{"tokyo": removing})
	testwait.UntilTrue(t, "the row says that it is removed and the agent forgets", func() bool {
		r, _ := h.rows.Get("b1", "tokyo")
		return r.Status.State == atoll.RowRemoved && a.checkLocked(func() bool { return len(a.stored) == 0 })
	})
	a.cutStream()
	testwait.UntilTrue(t, "the cluster is offline", func() bool { return !h.clusters.isOnline(uid) })
}
