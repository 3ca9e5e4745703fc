package castatus

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/apiserver/keys"
	"atoll.dev/atoll/internal/trust/standing"
)

// fakeHub is everything that a Reporter reads.
type fakeHub struct {
	authorities *keys.Authorities
	clusters    []*v1alpha1.Cluster
	online      map[string]bool
	generations map[string]int // of agents' certificates, by UID; absent: unknown
	ends        time.Time      // of all of them
	transports  map[string]string
	incomplete  bool
	formerUser  bool
	gatewayEnds time.Time
}

func (h *fakeHub) CurrentAuthorities() *keys.Authorities { return h.authorities }

func (h *fakeHub) ListCertificates() []standing.Certificate {
	return []standing.Certificate{standing.NewCertificate("cluster CA", h.authorities.Cluster.Cert, false)}
}

func (h *fakeHub) FormerUsers() []standing.FormerUser { return []standing.FormerUser{{Name: "ann"}} }

func (h *fakeHub) RotateAuthorities(context.Context) (*keys.Authorities, error) {
	next, err := h.authorities.BeginRotation(time.Now())
	if err == nil {
		h.authorities = next
	}
	return next, err
}

func (h *fakeHub) FinishRotation(context.Context) (*keys.Authorities, error) {
	next, err := h.authorities.FinishRotation()
	if err == nil {
		h.authorities = next
	}
	return next, err
}

func (h *fakeHub) UsesRetiringCertificate(*http.Request) bool { return h.formerUser }

func (h *fakeHub) List() []*v1alpha1.Cluster { return h.clusters }

func (h *fakeHub) IsOnline(uid string) bool { return h.online[uid] }

func (h *fakeHub) CertificateOf(uid string) (time.Time, int, bool) {
	generation, ok := h.generations[uid]
	return h.ends, generation, ok
}

func (h *fakeHub) TransportOf(uid string) string { return h.transports[uid] }

func (h *fakeHub) newReporter() *CAReporter {
	return &CAReporter{
		Authorities: h, Rotation: h, Clusters: h, Agents: h, IsComplete: func() bool { return !h.incomplete },
		GatewayCertificate: func() standing.Certificate {
			return standing.Certificate{Name: "gateway", Ends: h.gatewayEnds, Issued: time.Now(), Own: true}
		},
	}
}

func newFakeHub(t *testing.T) *fakeHub {
	t.Helper()
	set, err := keys.LoadOrCreate(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	h := &fakeHub{
		authorities: set.FileAuthorities(), online: map[string]bool{}, generations: map[string]int{}, transports: map[string]string{},
		ends: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), gatewayEnds: time.Now().Add(365 * 24 * time.Hour),
	}
	return h
}

// addCluster adds an accepted Cluster with these conditions that are true.
func (h *fakeHub) addCluster(name string, conditions ...string) *v1alpha1.Cluster {
	c := &v1alpha1.Cluster{}
	c.Name, c.UID, c.Spec.Accepted = name, types.UID(name), true
	for _, kind := range conditions {
		c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue})
	}
	h.clusters = append(h.clusters, c)
	return c
}

// Agents count by the CA of their certificates. Without a rotation, each connected agent has a
// certificate of the present CA.
func TestAgentsCountByTheirCA(t *testing.T) {
	h := newFakeHub(t)
	h.addCluster("new", v1alpha1.ClusterJoined)
	h.addCluster("old", v1alpha1.ClusterJoined, v1alpha1.ClusterCertificateExpiring)
	h.addCluster("unknown", v1alpha1.ClusterJoined)
	h.addCluster("away", v1alpha1.ClusterJoined)
	h.addCluster("never joined")
	h.addCluster("refused", v1alpha1.ClusterJoined).Spec.Accepted = false
	h.online = map[string]bool{"new": true, "old": true, "unknown": true, "refused": true}
	h.generations = map[string]int{"new": 2, "old": 1}
	now := time.Now()
	if got := h.newReporter().Status(now, true).Agents; got.Current != 3 || got.Former != 0 || got.Away != 1 {
		t.Errorf("without a rotation: %+v", got)
	}
	if _, err := h.RotateAuthorities(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := h.newReporter().Status(now, true)
	if got := s.Agents; got.Current != 1 || got.Former != 2 || got.Away != 1 || got.Overdue != 1 ||
		!slices.Equal(got.FormerClusters, []string{"old", "unknown"}) || !slices.Equal(got.OverdueClusters, []string{"old"}) || !got.Soonest.Equal(h.ends) {
		t.Errorf("during a rotation: %+v", got)
	}
	if s.RotatingSince == nil || s.Generation != 2 || len(s.FormerHashes) != 1 || s.CAHash == s.FormerHashes[0] || len(s.FormerUsers) != 1 {
		t.Errorf("%+v", s)
	}
	if got := h.newReporter().Status(now, false).Agents; got.Current != 0 || got.Former != 0 {
		t.Errorf("agents were counted without a request: %+v", got)
	}
}

func TestAStatusNamesFewClusters(t *testing.T) {
	h := newFakeHub(t)
	for i := range maxExampleClusters + 5 {
		name := fmt.Sprint("c", i)
		h.addCluster(name, v1alpha1.ClusterJoined)
		h.online[name] = true
	}
	if _, err := h.RotateAuthorities(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := h.newReporter().Status(time.Now(), true).Agents; got.Former != maxExampleClusters+5 || len(got.FormerClusters) != maxExampleClusters {
		t.Errorf("%d agents, %d names", got.Former, len(got.FormerClusters))
	}
}

func TestAnExpiringCertificateIsAWarning(t *testing.T) {
	h := newFakeHub(t)
	if got := h.newReporter().Status(time.Now(), false).Warnings; len(got) != 0 {
		t.Errorf("%q", got)
	}
	h.gatewayEnds = time.Now().Add(-time.Hour)
	if got := h.newReporter().Status(time.Now(), false).Warnings; len(got) != 1 || !strings.Contains(got[0], "gateway has ended") {
		t.Errorf("%q", got)
	}
}

// allowed grants these verbs on resources.
type allowed map[string]bool

func (a allowed) Authorize(_ context.Context, what authorizer.Attributes) (authorizer.Decision, string, error) {
	if what.GetAPIGroup() == v1alpha1.GroupVersion.Group && a[what.GetVerb()+" "+what.GetResource()] {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "no rule", nil
}

// call sends a request of a user to the endpoints, without a user where rights is nil.
func call(t *testing.T, r *CAReporter, rights allowed, method, target string) (int, string) {
	t.Helper()
	e := CAEndpoints{Reporter: func() (*CAReporter, bool) { return r, r != nil }, Authorizer: func() authorizer.Authorizer { return rights }}
	req := httptest.NewRequestWithContext(t.Context(), method, target, nil)
	if rights != nil {
		req = req.WithContext(request.WithUser(req.Context(), &user.DefaultInfo{Name: "ann"}))
	}
	w := httptest.NewRecorder()
	if strings.HasPrefix(target, standing.CertificatesPath) {
		e.ServeAgentCertificates(w, req)
	} else {
		e.ServeCARequest(w, req)
	}
	return w.Code, w.Body.String()
}

func TestEndpointsAskTheAuthorizer(t *testing.T) {
	r := newFakeHub(t).newReporter()
	for _, c := range []struct {
		name           string
		reporter       *CAReporter
		rights         allowed
		method, target string
		want           int
	}{
		{"read", r, allowed{"get hubsettings": true}, "GET", standing.Path, 200},
		{"read as text", r, allowed{"get hubsettings": true}, "GET", standing.Path + "?output=text&all=true", 200},
		{"without a user", r, nil, "GET", standing.Path, 401},
		{"without a right", r, allowed{}, "GET", standing.Path, 403},
		{"to read is not to rotate", r, allowed{"get hubsettings": true}, "POST", standing.Path + "?action=rotate", 403},
		{"another method", r, allowed{"get hubsettings": true}, "PUT", standing.Path, 405},
		{"another parameter", r, allowed{"get hubsettings": true}, "GET", standing.Path + "?x=y", 400},
		{"another action", r, allowed{"rotate hubsettings": true}, "POST", standing.Path + "?action=x", 400},
		{"before the tables are read", nil, allowed{"get hubsettings": true}, "GET", standing.Path, 503},
		{"certificates", r, allowed{"list clusters": true}, "GET", standing.CertificatesPath, 200},
		{"certificates without a right", r, allowed{}, "GET", standing.CertificatesPath, 403},
		{"certificates by another method", r, allowed{"list clusters": true}, "POST", standing.CertificatesPath, 405},
	} {
		if code, body := call(t, c.reporter, c.rights, c.method, c.target); code != c.want {
			t.Errorf("%s: %d, not %d: %s", c.name, code, c.want, body)
		}
	}
}

// A rotation is not finished while that cuts off an agent or the user that asks, unless forced.
func TestARotationIsFinishedInTime(t *testing.T) {
	h := newFakeHub(t)
	r, rights := h.newReporter(), allowed{"rotate hubsettings": true}
	step := func(query, refusal string) {
		t.Helper()
		code, body := call(t, r, rights, "POST", standing.Path+"?"+query)
		if refusal == "" && code != 200 || refusal != "" && (code != 409 || !strings.Contains(body, refusal)) {
			t.Fatalf("%s: %d %s", query, code, body)
		}
	}
	step("action=finish", "no rotation")
	step("action=rotate", "")
	step("action=rotate", "under way")
	h.addCluster("old", v1alpha1.ClusterJoined)
	h.online["old"], h.generations["old"] = true, 1
	step("action=finish", "1 agents that are in touch")
	h.formerUser = true
	step("action=finish", "you come by a client certificate of the former CA")
	h.incomplete = true
	step("action=finish", "another hub has not sent")
	step("action=finish&force=true", "")
	step("action=rotate", "")
	h.formerUser, h.incomplete, h.generations["old"] = false, false, 3
	step("action=finish", "")
	if h.authorities.IsRotating() || h.authorities.Generation != 3 {
		t.Errorf("generation %d", h.authorities.Generation)
	}
}

func TestCertificatesOfAgents(t *testing.T) {
	h := newFakeHub(t)
	h.addCluster("a")
	h.addCluster("b")
	h.generations["a"], h.transports["b"] = 1, "WebSocket"
	code, body := call(t, h.newReporter(), allowed{"list clusters": true}, "GET", standing.CertificatesPath)
	var got standing.Certificates
	if err := json.Unmarshal([]byte(body), &got); err != nil || code != 200 {
		t.Fatal(code, body, err)
	}
	if len(got.Ends) != 1 || !got.Ends["a"].Equal(h.ends) || len(got.Carriage) != 1 || got.Carriage["b"] != "WebSocket" {
		t.Errorf("%+v", got)
	}
}

func TestMetricsOfCertificates(t *testing.T) {
	h := newFakeHub(t)
	h.gatewayEnds = time.Unix(2e9, 0)
	h.addCluster("old", v1alpha1.ClusterJoined)
	h.online["old"] = true
	if _, err := h.RotateAuthorities(t.Context()); err != nil {
		t.Fatal(err)
	}
	ready := false
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(CertificateCollector{Reporter: func() (*CAReporter, bool) { return h.newReporter(), ready }})
	if n, err := testutil.GatherAndCount(registry); n != 0 || err != nil {
		t.Errorf("%d metrics before the tables are read, %v", n, err)
	}
	ready = true
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			key := f.GetName()
			for _, l := range m.Label {
				key += " " + l.GetValue()
			}
			got[key] = m.GetGauge().GetValue()
		}
	}
	if got["atoll_hub_certificate_expiry_timestamp_seconds gateway"] != 2e9 || got["atoll_hub_agents_of_former_ca"] != 1 || len(got) != 3 {
		t.Errorf("%v", got)
	}
}
