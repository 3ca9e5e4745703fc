package truth

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/lab/fleet"
)

const clusters = 4

// world is a hub and its agents: one application on the clusters with an odd number.
type world struct {
	clusters []v1alpha1.Cluster
	bundle   v1alpha1.Bundle
	specs    map[string]atoll.RowSpec
	statuses map[string]atoll.RowStatus
	template appsv1.Deployment
	holdings []fleet.Holding
}

func rightWorld() *world {
	w := &world{specs: map[string]atoll.RowSpec{}, statuses: map[string]atoll.RowStatus{}}
	w.bundle.Name, w.bundle.Namespace, w.bundle.UID, w.bundle.Spec.Source.Name = "app", "shop", "bundle-uid", "app"
	w.bundle.Status = v1alpha1.BundleStatus{Items: 1, Clusters: v1alpha1.BundleClusters{Desired: 2, Updated: 2, Ready: 2}}
	for i := range clusters {
		name, uid := fmt.Sprintf("c%d", i), fmt.Sprintf("uid-%d", i)
		w.clusters = append(w.clusters, v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), Labels: map[string]string{"group": fmt.Sprintf("g%d", i%2)}}})
		h := fleet.Holding{Name: name, UID: uid, Bundles: map[string]fleet.Held{}}
		if i%2 == 1 {
			w.specs[name] = atoll.RowSpec{UID: uid, Generation: 3, Revision: "r", Phase: atoll.RowActive, Since: 1}
			w.statuses[name] = atoll.RowStatus{UID: uid, Generation: 3, Content: "hash", Seq: 9, State: atoll.RowReady, Applied: true, Total: 1, Ready: 1}
			h.Bundles["bundle-uid"] = fleet.Held{Generation: 3, Content: "hash", Items: 1, State: atoll.RowReady, Mark: 7}
		}
		w.holdings = append(w.holdings, h)
	}
	w.template.Name, w.template.Namespace, w.template.Generation = "app", "shop", 2
	w.template.Status = appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2}
	return w
}

// slice of the rows.
func (w *world) slice() enginev1.TargetSlice {
	s := enginev1.TargetSlice{ObjectMeta: metav1.ObjectMeta{Name: "bundle-uid-0"}}
	s.Spec.Bundle = enginev1.BundleRef{UID: "bundle-uid", Namespace: "shop", Name: "app"}
	var specs, statuses []atoll.Line
	for name, r := range w.specs {
		specs = append(specs, atoll.Line{Cluster: name, Text: r.Encode()})
	}
	for name, r := range w.statuses {
		statuses = append(statuses, atoll.Line{Cluster: name, Text: r.Encode()})
	}
	s.Spec.Rows, s.Status.Rows = atoll.JoinLines(specs), atoll.JoinLines(statuses)
	return s
}

// check gives a Check of the world, over HTTP as it is used.
func (w *world) check(t *testing.T) *Check {
	t.Helper()
	list := func(items any) http.HandlerFunc {
		return func(out http.ResponseWriter, _ *http.Request) {
			out.Header().Set("Content-Type", "application/json")
			if err := json.NewEncoder(out).Encode(map[string]any{"metadata": map[string]any{}, "items": items}); err != nil {
				t.Error(err)
			}
		}
	}
	hub := http.NewServeMux()
	hub.Handle("/apis/atoll.dev/v1alpha1/clusters", list(w.clusters))
	hub.Handle("/apis/atoll.dev/v1alpha1/bundles", list([]v1alpha1.Bundle{w.bundle}))
	hub.Handle("/apis/engine.atoll.dev/v1alpha1/targetslices", list([]enginev1.TargetSlice{w.slice()}))
	hub.Handle("/apis/apps/v1/deployments", list([]appsv1.Deployment{w.template}))
	server := httptest.NewServer(hub)
	t.Cleanup(server.Close)
	api, err := rest.UnversionedRESTClientFor(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{
		GroupVersion: &schema.GroupVersion{}, NegotiatedSerializer: scheme.Codecs.WithoutConversion(),
	}})
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	listener, err := net.Listen("unix", fleet.SocketPath(dir, ""))
	if err != nil {
		t.Fatalf("%s: %v", filepath.Join(dir), err)
	}
	agents := &http.Server{Handler: http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		e := json.NewEncoder(out)
		for _, h := range append(w.holdings, fleet.Holding{Name: "."}) {
			if err := e.Encode(h); err != nil {
				t.Error(err)
			}
		}
	})}
	go func() { _ = agents.Serve(listener) }()
	t.Cleanup(func() { agents.Close() })
	return &Check{API: api, Fleets: []*fleet.Control{fleet.Dial(dir, "")}, Apps: []App{{
		Namespace: "shop", Policy: "app", Deployment: "app", Replicas: 2, Items: 1, Mark: 7,
		In: func(labels map[string]string) bool { return labels["group"] == "g1" },
	}}}
}

func TestWhatIsRightIsFoundRight(t *testing.T) {
	v, err := rightWorld().check(t).Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !v.OK() || v.Rows != 2 || v.Holdings.Looked != clusters || v.Templates.Looked != 2 {
		t.Errorf("%s; %s; %s", v.RowsSay(), v.HoldingsSay(), v.TemplatesSay())
	}
}

func TestWhatIsWrongIsFound(t *testing.T) {
	rowIs := func(change func(*atoll.RowSpec, *atoll.RowStatus)) func(*world) {
		return func(w *world) {
			spec, status := w.specs["c1"], w.statuses["c1"]
			change(&spec, &status)
			w.specs["c1"], w.statuses["c1"] = spec, status
		}
	}
	for name, c := range map[string]struct {
		spoil func(*world)
		say   func(Verdict) string
		want  string
	}{
		"a row is missing":       {func(w *world) { delete(w.specs, "c1"); delete(w.statuses, "c1") }, Verdict.RowsSay, "there are 1 rows"},
		"a row too many":         {func(w *world) { w.specs["c0"] = atoll.RowSpec{UID: "uid-0", Generation: 1, Phase: atoll.RowActive} }, Verdict.RowsSay, "not for this cluster"},
		"a cluster that is none": {func(w *world) { w.specs["c9"] = w.specs["c1"] }, Verdict.RowsSay, "no such cluster"},
		"another cluster's row":  {rowIs(func(s *atoll.RowSpec, _ *atoll.RowStatus) { s.UID = "uid-3" }), Verdict.RowsSay, "the row is of cluster"},
		"a row that leaves":      {rowIs(func(s *atoll.RowSpec, _ *atoll.RowStatus) { s.Phase = atoll.RowRemoving }), Verdict.RowsSay, "the row is Removing"},
		"nothing reported":       {func(w *world) { delete(w.statuses, "c1") }, Verdict.RowsSay, "nothing was reported"},
		"an old report":          {rowIs(func(_ *atoll.RowSpec, s *atoll.RowStatus) { s.Generation = 2 }), Verdict.RowsSay, "generation 3 is wanted, 2 is reported"},
		"not healthy":            {rowIs(func(_ *atoll.RowSpec, s *atoll.RowStatus) { s.State = atoll.RowDegraded }), Verdict.RowsSay, "Degraded"},
		"a status without row":   {func(w *world) { w.statuses["c0"] = w.statuses["c1"] }, Verdict.RowsSay, "and no row"},
		"an agent holds nothing": {func(w *world) { delete(w.holdings[1].Bundles, "bundle-uid") }, Verdict.HoldingsSay, "agents hold 1"},
		"an agent holds too much": {func(w *world) {
			w.holdings[0].Bundles["bundle-uid"] = w.holdings[1].Bundles["bundle-uid"]
		}, Verdict.HoldingsSay, "there is no row"},
		"an agent holds another content": {func(w *world) {
			w.holdings[1].Bundles["bundle-uid"] = fleet.Held{Generation: 3, Content: "other", Items: 1, State: atoll.RowReady, Mark: 7}
		}, Verdict.HoldingsSay, "which the row is not at"},
		"an agent holds what was not applied": {func(w *world) {
			w.holdings[1].Bundles["bundle-uid"] = fleet.Held{Generation: 3, Content: "hash", Items: 1, State: atoll.RowReady, Mark: 8}
		}, Verdict.HoldingsSay, "other objects of shop/app than were applied"},
		"an agent holds an unknown Bundle": {func(w *world) { w.holdings[0].Bundles["x"] = fleet.Held{} }, Verdict.HoldingsSay, "no Bundle"},
		"an agent is missing":              {func(w *world) { w.holdings = w.holdings[1:] }, Verdict.HoldingsSay, "4 clusters and 3 agents"},
		"a template's status is behind":    {func(w *world) { w.template.Status.ObservedGeneration = 1 }, Verdict.TemplatesSay, "has status 1"},
		"a template's replicas are wrong":  {func(w *world) { w.template.Status.ReadyReplicas = 4 }, Verdict.TemplatesSay, "4 ready"},
		"a Bundle counts wrong":            {func(w *world) { w.bundle.Status.Clusters.Ready = 1 }, Verdict.TemplatesSay, "Bundle shop/app says"},
	} {
		t.Run(name, func(t *testing.T) {
			w := rightWorld()
			c.spoil(w)
			v, err := w.check(t).Look(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := c.say(v); v.OK() || !strings.Contains(got, c.want) {
				t.Errorf("it does not say %q: %s", c.want, got)
			}
		})
	}
}

func TestHoldingsThatEndEarlyAreNoTruth(t *testing.T) {
	w := rightWorld()
	check := w.check(t)
	w.holdings = append(w.holdings[:1:1], fleet.Holding{Name: "."}) // the answer seems to end here
	if v, err := check.Look(t.Context()); err == nil && v.OK() {
		t.Error("three agents are missing, and nothing was said")
	}
}
