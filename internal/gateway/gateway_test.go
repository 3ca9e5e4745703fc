package gateway

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/trust/handshake"
)

// TestJoinAndWork goes the whole way of an agent: token, acceptance by token,
// stream, order, report, removal.
func TestJoinAndWork(t *testing.T) {
	h := newTestHub(t)
	token := h.token(handshake.TokenSpec{AutoAccept: true, Labels: map[string]string{"env": "prod"}})
	key := newKey(t)
	reply, err := h.pinned().Join(t.Context(), joinRequest(t, token.Reveal(), "tokyo", key))
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
	h.rows.set("b1", map[string]atoll.RowSpec{"tokyo": active(uid, "r1", 1)})
	a := h.agent(pair(t, reply.GetCertificate(), key), "one")
	a.connect()
	eventually(t, "the agent holds r1", a.holds("b1", "r1", 1))
	h.rows.set("b1", map[string]atoll.RowSpec{"tokyo": active(uid, "r2", 2)})
	eventually(t, "the agent holds r2", a.holds("b1", "r2", 2))
	a.ready("b1")
	eventually(t, "the report is in the row and acknowledged", func() bool {
		r, _ := h.rows.Get("b1", "tokyo")
		return r.Status != nil && r.Status.State == atoll.RowReady && a.see(func() bool { return a.core.Unacknowledged() == 0 })
	})
	removing := active(uid, "r2", 3)
	removing.Phase = atoll.RowRemoving
	h.rows.set("b1", map[string]atoll.RowSpec{"tokyo": removing})
	eventually(t, "the row says that it is removed and the agent forgets", func() bool {
		r, _ := h.rows.Get("b1", "tokyo")
		return r.Status.State == atoll.RowRemoved && a.see(func() bool { return len(a.stored) == 0 })
	})
	a.cut()
	eventually(t, "the cluster is offline", func() bool { return !h.clusters.isOnline(uid) })
}
