package delivery

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/trust/handshake"
)

// createPushedCluster makes an accepted Cluster whose agent the hub runs.
func (h *testHub) createPushedCluster(name string) {
	h.t.Helper()
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterSpec{Accepted: true, Mode: v1alpha1.ModePush}}
	if err := h.client.Create(h.t.Context(), c); err != nil {
		h.t.Fatal(err)
	}
}

func (h *testHub) voucherFor(cluster string) string {
	c, ok := h.clusters.Get(cluster)
	if !ok {
		h.t.Fatalf("there is no cluster %s", cluster)
	}
	return trust.NewVoucher(h.keys.HubKey, cluster, string(c.UID)).RevealSecret()
}

// TestVoucherAdmitsOneAgent: the first that shows it, as the Cluster that it is for, and
// no other: an agent with another key later needs an administrator.
func TestVoucherAdmitsOneAgent(t *testing.T) {
	h := newTestHub(t, func(o *Options) { o.JoinWait = 10 * time.Millisecond })
	h.createPushedCluster("oslo")
	key := newKey(t)
	reply, err := h.pinnedClient().Join(t.Context(), joinRequest(t, h.voucherFor("oslo"), "oslo", key))
	if err != nil || reply.GetState() != stateAccepted {
		t.Fatalf("joined: %v, %v", reply, err)
	}
	h.newAgent(newKeyPair(t, reply.GetCertificate(), key), "one").connectSession()
	again, err := h.pinnedClient().Join(t.Context(), joinRequest(t, h.voucherFor("oslo"), "oslo", key))
	if err != nil || again.GetState() != stateAccepted {
		t.Errorf("the same agent: %v, %v", again, err)
	}
	testwait.UntilTrue(t, "its stream is up", func() bool { c, _ := h.clusters.Get("oslo"); return h.sessions.getByUID(string(c.UID)) != nil })
	if _, err := h.pinnedClient().Join(t.Context(), joinRequest(t, h.voucherFor("oslo"), "oslo", newKey(t))); status.Code(err) != codes.AlreadyExists {
		t.Errorf("another key while the first is connected: %v", err)
	}
	if n := h.MoveAgents(1, "10.0.0.2:6444", func(string) bool { return true }); n != 0 {
		t.Error("an agent that the hub runs itself was sent on to another hub")
	}
}

func TestOtherMemberOfTheNameWaitsForApproval(t *testing.T) {
	h := newTestHub(t, func(o *Options) { o.JoinWait = 10 * time.Millisecond })
	h.createPushedCluster("oslo")
	if _, err := h.pinnedClient().Join(t.Context(), joinRequest(t, h.voucherFor("oslo"), "oslo", newKey(t))); err != nil {
		t.Fatal(err)
	}
	reply, err := h.pinnedClient().Join(t.Context(), joinRequest(t, h.voucherFor("oslo"), "oslo", newKey(t)))
	if err != nil || reply.GetState() != statePending || !strings.Contains(reply.GetMessage(), "atoll accept oslo") {
		t.Errorf("another key: %v, %v", reply, err)
	}
}

// TestVouchersAreForOneCluster: not for another one, nor another of the name, nor one
// that is not accepted or whose agent is not the hub's to run.
func TestVouchersAreForOneCluster(t *testing.T) {
	h := newTestHub(t, func(o *Options) { o.JoinWait = 10 * time.Millisecond })
	h.createPushedCluster("oslo")
	h.createPushedCluster("lima")
	good := h.voucherFor("oslo")
	c, _ := h.clusters.Get("oslo")
	forged := trust.NewVoucher([]byte("another hub's key, of some length"), "oslo", string(c.UID)).RevealSecret()
	refused := func(what, token, cluster string) {
		t.Helper()
		if reply, err := h.pinnedClient().Join(t.Context(), joinRequest(t, token, cluster, newKey(t))); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v, %v", what, reply, err)
		}
	}
	refused("another cluster's", good, "lima")
	refused("no cluster of the name", good, "rome")
	refused("made by another key", forged, "oslo")
	refused("an earlier UID's", trust.NewVoucher(h.keys.HubKey, "oslo", "earlier").RevealSecret(), "oslo")
	spoil := func(change func(*v1alpha1.Cluster)) {
		t.Helper()
		c, _ := h.clusters.Get("oslo")
		c = c.DeepCopy()
		change(c)
		if err := h.client.Update(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	spoil(func(c *v1alpha1.Cluster) { c.Spec.Mode = v1alpha1.ModePull })
	refused("of mode Pull", good, "oslo")
	spoil(func(c *v1alpha1.Cluster) { c.Spec.Mode, c.Spec.Accepted = v1alpha1.ModePush, false })
	refused("not accepted", good, "oslo")
	c, _ = h.clusters.Get("oslo")
	if c.Annotations[handshake.AnnotationAgentKey] != "" {
		t.Error("the key of a refused agent was stored")
	}
	if strings.Contains(h.log.String(), good[strings.LastIndex(good, "."):]) {
		t.Error("the log holds a voucher's secret")
	}
}
