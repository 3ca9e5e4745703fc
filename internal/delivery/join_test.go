package delivery

import (
	"crypto/tls"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/pace"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/trust/handshake"
)

// acceptCluster a cluster and approve what waits, as `atoll accept` does.
func (h *testHub) acceptCluster(name string) {
	h.t.Helper()
	var c v1alpha1.Cluster
	if err := h.client.Get(h.t.Context(), client.ObjectKey{Name: name}, &c); err != nil {
		h.t.Fatal(err)
	}
	if !c.Spec.Accepted {
		c.Spec.Accepted = true
		if err := h.client.Update(h.t.Context(), &c); err != nil {
			h.t.Fatal(err)
		}
	}
	h.decideRequest(name, certificatesv1.CertificateApproved)
}

func (h *testHub) decideRequest(name string, verdict certificatesv1.RequestConditionType) {
	h.t.Helper()
	csrs := h.kube.CertificatesV1().CertificateSigningRequests()
	list, err := csrs.List(h.t.Context(), metav1.ListOptions{LabelSelector: handshake.LabelCluster + "=" + name})
	if err != nil {
		h.t.Fatal(err)
	}
	for _, r := range list.Items {
		if handshake.DecisionOn(&r) != handshake.Undecided {
			continue
		}
		r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: verdict, Status: corev1.ConditionTrue, Reason: "Test"})
		if _, err := csrs.UpdateApproval(h.t.Context(), r.Name, &r, metav1.UpdateOptions{}); err != nil {
			h.t.Fatal(err)
		}
	}
}

func TestPendingUntilAccepted(t *testing.T) {
	h := newTestHub(t)
	token, key := h.createToken(handshake.TokenSpec{}), newKey(t)
	type answer struct {
		reply *pb.JoinReply
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		r, err := h.pinnedClient().Join(t.Context(), joinRequest(t, token.RevealSecret(), "tokyo", key))
		if err != nil || !strings.Contains(r.GetMessage(), "atoll accept tokyo") {
			t.Errorf("asking for the first time: %v, %v", r, err)
		}
		r, err = h.pinnedClient().Join(t.Context(), joinRequest(t, token.RevealSecret(), "tokyo", key))
		answers <- answer{r, err}
	}()
	var csr *certificatesv1.CertificateSigningRequest
	testwait.UntilTrue(t, "the request waits", func() bool {
		list, err := h.kube.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) == 0 {
			return false
		}
		csr = &list.Items[0]
		return true
	})
	if c, _ := h.clusters.Get("tokyo"); c.Spec.Accepted || csr.Spec.SignerName != handshake.SignerName || !strings.HasPrefix(csr.Name, "atoll-tokyo-") {
		t.Errorf("accepted %t, request %s for %s", c.Spec.Accepted, csr.Name, csr.Spec.SignerName)
	}
	if from := csr.Annotations[handshake.AnnotationFrom]; !strings.HasPrefix(from, "127.0.0.1:") {
		t.Errorf("the request is noted as from %q", from)
	}
	h.acceptCluster("tokyo")
	a := <-answers
	if a.err != nil || a.reply.GetState() != stateAccepted {
		t.Fatalf("joined: %v, %v", a.reply, a.err)
	}
	testwait.UntilTrue(t, "the request is signed", func() bool {
		r, err := h.kube.CertificatesV1().CertificateSigningRequests().Get(t.Context(), csr.Name, metav1.GetOptions{})
		return err == nil && len(r.Status.Certificate) > 0
	})
	agent := h.newAgent(newKeyPair(t, a.reply.GetCertificate(), key), "one")
	agent.connectSession()
	testwait.UntilTrue(t, "welcome", func() bool {
		return agent.checkLocked(func() bool { return agent.welcome.GetClusterName() == "tokyo" })
	})

	// The same agent, its certificate expired: its old key is enough.
	again, err := h.pinnedClient().Join(t.Context(), joinRequest(t, "", "tokyo", key))
	if err != nil || again.GetState() != stateAccepted || again.GetClusterUid() != a.reply.GetClusterUid() {
		t.Errorf("re-attestation: %v, %v", again, err)
	}
}

func TestPendingJoinIsRepeated(t *testing.T) {
	h := newTestHub(t, func(o *Options) { o.JoinWait = 10 * time.Millisecond })
	token, key := h.createToken(handshake.TokenSpec{}), newKey(t)
	for range 3 { // one use is enough, however often the agent asks
		r, err := h.pinnedClient().Join(t.Context(), joinRequest(t, token.RevealSecret(), "tokyo", key))
		if err != nil || r.GetState() != statePending || !strings.Contains(r.GetMessage(), "atoll accept tokyo") {
			t.Fatalf("%v, %v", r, err)
		}
	}
	h.decideRequest("tokyo", certificatesv1.CertificateDenied)
	if _, err := h.pinnedClient().Join(t.Context(), joinRequest(t, token.RevealSecret(), "tokyo", key)); status.Code(err) != codes.PermissionDenied {
		t.Errorf("after the denial: %v", err)
	}
}

// All bad tokens get the same refusal, and the log has the reason.
func TestBadTokensAreRefused(t *testing.T) {
	h := newTestHub(t, func(o *Options) { o.JoinWait = time.Millisecond })
	spent := h.createToken(handshake.TokenSpec{})
	if _, err := h.pinnedClient().Join(t.Context(), joinRequest(t, spent.RevealSecret(), "first", newKey(t))); err != nil {
		t.Fatal(err)
	}
	good := h.createToken(handshake.TokenSpec{NamePattern: "shop-*"})
	guessed := good.RevealSecret()[:len(good.RevealSecret())-3] + "aaa"
	for _, c := range []struct{ name, token, cluster, logged string }{
		{"none", "", "shop-1", "no token"},
		{"malformed", "atoll1.x", "shop-1", "not a join token"},
		{"unknown", trust.NewToken().RevealSecret(), "shop-1", "there is no such token"},
		{"wrong secret", guessed, "shop-1", "secret is wrong"},
		{"expired", h.createToken(handshake.TokenSpec{Lifetime: time.Nanosecond}).RevealSecret(), "shop-1", "expired"},
		{"spent", spent.RevealSecret(), "shop-1", "uses are spent"},
		{"name", good.RevealSecret(), "bank", "names like"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := h.pinnedClient().Join(t.Context(), joinRequest(t, c.token, c.cluster, newKey(t)))
			if status.Code(err) != codes.PermissionDenied || status.Convert(err).Message() != tokenRefusedMessage {
				t.Errorf("the agent learns %v", err)
			}
			if !strings.Contains(h.log.String(), c.logged) {
				t.Errorf("the log does not say %q", c.logged)
			}
		})
	}
	for _, secret := range []string{spent.RevealSecret(), good.RevealSecret(), guessed} {
		if strings.Contains(h.log.String(), secret[strings.LastIndex(secret, "."):]) {
			t.Error("the log holds a token's secret")
		}
	}
	if _, ok := h.clusters.Get("shop-1"); ok {
		t.Error("a refused agent made a Cluster")
	}
	if _, err := h.pinnedClient().Join(t.Context(), joinRequest(t, good.RevealSecret(), "shop-1", newKey(t))); err != nil {
		t.Errorf("the good token, after all that: %v", err)
	}
}

// Many agents compete for few uses.
func TestTokenUsesAreExact(t *testing.T) {
	h := newTestHub(t, func(o *Options) { o.JoinWait = time.Millisecond })
	token := h.createToken(handshake.TokenSpec{Uses: 5, AutoAccept: true})
	client := h.pinnedClient()
	var wg sync.WaitGroup
	var mu sync.Mutex
	joined := 0
	for i := range 20 {
		r := joinRequest(t, token.RevealSecret(), "c"+string(rune('a'+i)), newKey(t))
		wg.Go(func() {
			if reply, err := client.Join(t.Context(), r); err == nil && reply.GetState() == stateAccepted {
				mu.Lock()
				joined++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if joined != 5 {
		t.Errorf("%d joined by a token of 5 uses", joined)
	}
}

func TestAutoAcceptWithSet(t *testing.T) {
	h := newTestHub(t)
	token := h.createToken(handshake.TokenSpec{AutoAccept: true, Set: "edge"})
	if _, err := h.pinnedClient().Join(t.Context(), joinRequest(t, token.RevealSecret(), "tokyo", newKey(t))); err != nil {
		t.Fatal(err)
	}
	c, _ := h.clusters.Get("tokyo")
	if len(c.Spec.Taints) != 0 || c.Labels[handshake.LabelSet] != "edge" {
		t.Errorf("taints %v, labels %v", c.Spec.Taints, c.Labels)
	}
	if list, err := h.kube.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
		t.Errorf("auto-accept wrote requests: %v, %v", list.Items, err)
	}
}

// Agents request a name that another agent has.
func TestSameNameOtherKey(t *testing.T) {
	h := newTestHub(t, func(o *Options) { o.JoinWait = 10 * time.Millisecond })
	token := h.createToken(handshake.TokenSpec{Uses: 10})
	first, second := newKey(t), newKey(t)
	join := func(key interface{}, tok string) (*pb.JoinReply, error) {
		if key == 1 {
			return h.pinnedClient().Join(t.Context(), joinRequest(t, tok, "tokyo", first))
		}
		return h.pinnedClient().Join(t.Context(), joinRequest(t, tok, "tokyo", second))
	}
	if _, err := join(1, token.RevealSecret()); err != nil {
		t.Fatal(err)
	}
	if _, err := join(2, token.RevealSecret()); status.Code(err) != codes.AlreadyExists {
		t.Fatalf("while the first waits: %v", err)
	}
	h.acceptCluster("tokyo")
	reply, err := join(1, "")
	if err != nil {
		t.Fatal(err)
	}
	agent := h.newAgent(newKeyPair(t, reply.GetCertificate(), first), "one")
	agent.connectSession()
	testwait.UntilTrue(t, "the first is connected", func() bool { return h.clusters.isOnline(reply.GetClusterUid()) })
	if _, err := join(2, token.RevealSecret()); status.Code(err) != codes.AlreadyExists {
		t.Fatalf("while the first is connected: %v", err)
	}
	agent.cutStream()
	testwait.UntilTrue(t, "the first is gone", func() bool { return h.sessions.getByUID(reply.GetClusterUid()) == nil })
	if _, err := join(2, ""); status.Code(err) != codes.PermissionDenied {
		t.Fatalf("without a token: %v", err)
	}
	r, err := join(2, token.RevealSecret())
	if err != nil || r.GetState() != statePending || !strings.Contains(r.GetMessage(), "accepted again") {
		t.Fatalf("with a token: %v, %v", r, err)
	}
	if _, err := h.pinnedClient().Join(t.Context(), joinRequest(t, token.RevealSecret(), "tokyo", newKey(t))); status.Code(err) != codes.AlreadyExists {
		t.Fatalf("a third while the second waits: %v", err)
	}
	h.acceptCluster("tokyo")
	testwait.UntilTrue(t, "the second is in", func() bool { r, err = join(2, ""); return err == nil && r.GetState() == stateAccepted })
	if r.GetClusterUid() != reply.GetClusterUid() {
		t.Error("the cluster changed its identity")
	}
	agent.connectSession() // the first, with a certificate that has not expired
	<-agent.closed
	if agent.refused.GetReason() != "Replaced" {
		t.Errorf("the replaced agent: %v, %v", agent.refused, agent.err)
	}
}

// TestAnotherClusterUnderTheName: an approval does not carry over to a Cluster that was
// created again under the name.
func TestAnotherClusterUnderTheName(t *testing.T) {
	h := newTestHub(t, func(o *Options) { o.JoinWait = 10 * time.Millisecond })
	token, key := h.createToken(handshake.TokenSpec{Uses: 3}), newKey(t)
	if _, err := h.pinnedClient().Join(t.Context(), joinRequest(t, token.RevealSecret(), "tokyo", key)); err != nil {
		t.Fatal(err)
	}
	var c v1alpha1.Cluster
	if err := h.client.Get(t.Context(), client.ObjectKey{Name: "tokyo"}, &c); err != nil {
		t.Fatal(err)
	}
	if err := h.client.Delete(t.Context(), &c); err != nil {
		t.Fatal(err)
	}
	h.decideRequest("tokyo", certificatesv1.CertificateApproved)
	testwait.UntilTrue(t, "the old request fails", func() bool { return strings.Contains(h.log.String(), "is gone") })
	r, err := h.pinnedClient().Join(t.Context(), joinRequest(t, token.RevealSecret(), "tokyo", key))
	if err != nil || r.GetState() != statePending || r.GetClusterUid() == string(c.UID) {
		t.Errorf("%v, %v", r, err)
	}
}

// A user that may edit Clusters cannot replace the agent of one.
func TestEditedKeyIsNotTrusted(t *testing.T) {
	h := newTestHub(t, func(o *Options) { o.JoinWait = time.Millisecond })
	h.createCluster("tokyo")
	mine := newKey(t)
	hash, err := trust.KeyHash(mine.Public())
	if err != nil {
		t.Fatal(err)
	}
	var c v1alpha1.Cluster
	if err := h.client.Get(t.Context(), client.ObjectKey{Name: "tokyo"}, &c); err != nil {
		t.Fatal(err)
	}
	c.Annotations[handshake.AnnotationAgentKey] = trust.SealKeyHash([]byte("not the hub's key"), "tokyo", hash)
	if err := h.client.Update(t.Context(), &c); err != nil {
		t.Fatal(err)
	}
	if _, err := h.pinnedClient().Join(t.Context(), joinRequest(t, "", "tokyo", mine)); status.Code(err) != codes.PermissionDenied {
		t.Errorf("an edited key: %v", err)
	}
}

func TestStrangersAreRefused(t *testing.T) {
	h := newTestHub(t)
	connect := func(id *tls.Certificate) error {
		cfg := &tls.Config{MinVersion: tls.VersionTLS13, ServerName: "127.0.0.1", RootCAs: h.keys.ClusterCA.CertPool()}
		if id != nil {
			cfg.Certificates = []tls.Certificate{*id}
		}
		stream, err := pb.NewSessionClient(h.dialHub(cfg)).Connect(t.Context())
		if err != nil {
			return err
		}
		for {
			if f, err := stream.Recv(); err != nil {
				return err
			} else if f.GetRefused() == nil {
				t.Errorf("a stranger gets %v", f)
			}
		}
	}
	if err := connect(nil); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without a certificate: %v", err)
	}
	key := newKey(t)
	admin, err := h.signAgentKey(key.Public(), "kubernetes-admin", "system:masters", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if id := newKeyPair(t, admin, key); status.Code(connect(&id)) != codes.Unauthenticated {
		t.Error("a certificate that is not an agent's is taken")
	}
	gone, err := h.signAgentKey(key.Public(), atoll.UserClusterPrefix+"no-such-uid", atoll.GroupAgents, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if id := newKeyPair(t, gone, key); status.Code(connect(&id)) != codes.PermissionDenied {
		t.Error("an identity without a Cluster is taken")
	}
	other := newTestHub(t)
	foreign, err := other.signAgentKey(key.Public(), atoll.UserClusterPrefix+"x", atoll.GroupAgents, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if id := newKeyPair(t, foreign, key); connect(&id) == nil {
		t.Error("another hub's certificate is taken")
	}
	cfg, err := trust.PinnedTLSConfig("127.0.0.1", trust.CertificateKeyHash(other.keys.ClusterCA.Cert), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = pb.NewRegistrationClient(h.dialHub(cfg)).Join(t.Context(), joinRequest(t, "x", "tokyo", key))
	if err == nil || !strings.Contains(err.Error(), "does not belong to the CA") {
		t.Errorf("a wrong CA hash: %v", err)
	}
}

// The signature of a request is verified only for the bearer of a good token, and takes no use of
// the token where it is not of the key.
func TestTheTokenIsCheckedBeforeTheSignature(t *testing.T) {
	h := newTestHub(t, func(o *Options) { o.JoinWait = time.Millisecond })
	token := h.createToken(handshake.TokenSpec{})
	forged := joinRequest(t, "", "tokyo", newKey(t))
	forged.Csr[len(forged.Csr)-5] ^= 1
	for _, c := range []struct {
		token string
		want  codes.Code
	}{{"", codes.PermissionDenied}, {trust.NewToken().RevealSecret(), codes.PermissionDenied}, {token.RevealSecret(), codes.InvalidArgument}} {
		forged.Token = c.token
		if _, err := h.pinnedClient().Join(t.Context(), forged); status.Code(err) != c.want {
			t.Errorf("token %q: %v, want %s", c.token, err, c.want)
		}
	}
	if r, err := h.pinnedClient().Join(t.Context(), joinRequest(t, token.RevealSecret(), "tokyo", newKey(t))); err != nil || r.GetState() != statePending {
		t.Errorf("the one use of the token is gone: %v, %v", r, err)
	}
}

// Fields over their bounds are refused before anything else is read, and are not logged.
func TestOversizedJoinFieldsAreRefused(t *testing.T) {
	h := newTestHub(t)
	for name, change := range map[string]func(*pb.JoinRequest){
		"name":    func(r *pb.JoinRequest) { r.Name = strings.Repeat("x", 64) },
		"form":    func(r *pb.JoinRequest) { r.Name = "evil\x1b[2J\n" },
		"version": func(r *pb.JoinRequest) { r.AgentVersion = strings.Repeat("x", 200) },
		"csr":     func(r *pb.JoinRequest) { r.Csr = make([]byte, trust.MaxRequestBytes+1) },
	} {
		r := joinRequest(t, "", "tokyo", newKey(t))
		change(r)
		if _, err := h.pinnedClient().Join(t.Context(), r); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if log := h.log.String(); strings.Contains(log, "xxxx") || strings.Contains(log, "evil") {
		t.Errorf("the log has what was refused: %s", log)
	}
}

// Refusals beyond the budget of strangers are counted, and the next line of the log shows how many.
func TestStrangersDoNotFillTheLog(t *testing.T) {
	l, now, burst := newUncertifiedCallerLog(), time.Now(), pace.StrangerLines.Burst
	lines := 0
	for range 10 * burst {
		if ok, _ := l.admitLine(now); ok {
			lines++
		}
	}
	if lines != burst {
		t.Errorf("%d lines at once, want %d", lines, burst)
	}
	if ok, dropped := l.admitLine(now.Add(time.Second)); !ok || dropped != int64(9*burst) {
		t.Errorf("a second later: %v, %d dropped", ok, dropped)
	}
}
