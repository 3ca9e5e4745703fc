package verify

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
	"atoll.dev/atoll/internal/rowcodec"
	"atoll.dev/atoll/lab/fleet"
)

const clusterCount = 4

// testFleet is a hub and its agents: one application on the clusters with an odd number.
type testFleet struct {
	clusters []v1alpha1.Cluster
	bundle   v1alpha1.Bundle
	specs    map[string]atoll.RowSpec
	statuses map[string]atoll.RowStatus
	template appsv1.Deployment
	holdings []fleet.AgentState
}

func rightWorld() *testFleet {
	w := &testFleet{specs: map[string]atoll.RowSpec{}, statuses: map[string]atoll.RowStatus{}}
	w.bundle.Name, w.bundle.Namespace, w.bundle.UID, w.bundle.Spec.Source.Name = "app", "shop", "bundle-uid", "app"
	w.bundle.Status = v1alpha1.BundleStatus{Items: 1, Clusters: v1alpha1.BundleClusters{Desired: 2, Updated: 2, Ready: 2}}
	for i := range clusterCount {
		name, uid := fmt.Sprintf("c%d", i), fmt.Sprintf("uid-%d", i)
		w.clusters = append(w.clusters, v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), Labels: map[string]string{"group": fmt.Sprintf("g%d", i%2)}}})
		h := fleet.AgentState{Name: name, UID: uid, Bundles: map[string]fleet.BundleState{}}
		if i%2 == 1 {
			w.specs[name] = atoll.RowSpec{UID: uid, Generation: 3, Revision: "r", Phase: atoll.RowActive, Since: 1}
			w.statuses[name] = atoll.RowStatus{UID: uid, Generation: 3, Content: "hash", Seq: 9, State: atoll.RowReady, Applied: true, Total: 1, Ready: 1}
			h.Bundles["bundle-uid"] = fleet.BundleState{Generation: 3, Content: "hash", Items: 1, State: atoll.RowReady, Mark: 7}
		}
		w.holdings = append(w.holdings, h)
	}
	w.template.Name, w.template.Namespace, w.template.Generation = "app", "shop", 2
	w.template.Status = appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2}
	return w
}

// targetSlice returns a slice of the rows.
func (w *testFleet) targetSlice() enginev1.TargetSlice {
	s := enginev1.TargetSlice{ObjectMeta: metav1.ObjectMeta{Name: "bundle-uid-0"}}
	s.Spec.Bundle = enginev1.BundleRef{UID: "bundle-uid", Namespace: "shop", Name: "app"}
	var specs, statuses []rowcodec.Line
	for name, r := range w.specs {
		specs = append(specs, rowcodec.Line{Cluster: name, Text: rowcodec.EncodeSpec(r, nil)})
	}
	for name, r := range w.statuses {
		statuses = append(statuses, rowcodec.Line{Cluster: name, Text: rowcodec.EncodeStatus(r, nil)})
	}
	s.Spec.Rows, s.Status.Rows = rowcodec.JoinLines(specs), rowcodec.JoinLines(statuses)
	return s
}

// newCheck returns a Check of the world, over HTTP as it is used.
func (w *testFleet) newCheck(t *testing.T) *FleetCheck {
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
	hub.Handle("/apis/engine.atoll.dev/v1alpha1/targetslices", list([]enginev1.TargetSlice{w.targetSlice()}))
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
	listener, err := net.Listen("unix", fleet.ControlSocketPath(dir, ""))
	if err != nil {
		t.Fatalf("%s: %v", filepath.Join(dir), err)
	}
	agents := &http.Server{Handler: http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		e := json.NewEncoder(out)
		for _, h := range append(w.holdings, fleet.AgentState{Name: "."}) {
			if err := e.Encode(h); err != nil {
				t.Error(err)
			}
		}
	})}
	go func() { _ = agents.Serve(listener) }()
	t.Cleanup(func() { agents.Close() })
	return &FleetCheck{API: api, Fleets: []*fleet.SimulatorClient{fleet.NewSimulatorClient(dir, "")}, Apps: []WantedApp{{
		Namespace: "shop", Policy: "app", Deployment: "app", Replicas: 2, Items: 1, Mark: 7,
		In: func(labels map[string]string) bool { return labels["group"] == "g1" },
	}}}
}

func TestACorrectFleetPasses(t *testing.T) {
	v, err := rightWorld().newCheck(t).CompareOnce(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !v.IsCorrect() || v.Rows != 2 || v.Holdings.Looked != clusterCount || v.Templates.Looked != 2 {
		t.Errorf("%s; %s; %s", v.DescribeRows(), v.DescribeHoldings(), v.DescribeTemplates())
	}
}

func TestErrorsAreFound(t *testing.T) {
	rowIs := func(change func(*atoll.RowSpec, *atoll.RowStatus)) func(*testFleet) {
		return func(w *testFleet) {
			spec, status := w.specs["c1"], w.statuses["c1"]
			change(&spec, &status)
			w.specs["c1"], w.statuses["c1"] = spec, status
		}
	}
	for name, c := range map[string]struct {
		spoil func(*testFleet)
		say   func(Verdict) string
		want  string
	}{
		"a row is missing":       {func(w *testFleet) { delete(w.specs, "c1"); delete(w.statuses, "c1") }, Verdict.DescribeRows, "there are 1 rows"},
		"a row too many":         {func(w *testFleet) { w.specs["c0"] = atoll.RowSpec{UID: "uid-0", Generation: 1, Phase: atoll.RowActive} }, Verdict.DescribeRows, "not for this cluster"},
		"a cluster that is none": {func(w *testFleet) { w.specs["c9"] = w.specs["c1"] }, Verdict.DescribeRows, "no such cluster"},
		"another cluster's row":  {rowIs(func(s *atoll.RowSpec, _ *atoll.RowStatus) { s.UID = "uid-3" }), Verdict.DescribeRows, "the row is of cluster"},
		"a row that leaves":      {rowIs(func(s *atoll.RowSpec, _ *atoll.RowStatus) { s.Phase = atoll.RowRemoving }), Verdict.DescribeRows, "the row is Removing"},
		"nothing reported":       {func(w *testFleet) { delete(w.statuses, "c1") }, Verdict.DescribeRows, "nothing was reported"},
		"an old report":          {rowIs(func(_ *atoll.RowSpec, s *atoll.RowStatus) { s.Generation = 2 }), Verdict.DescribeRows, "generation 3 is ordered, 2 is reported"},
		"not healthy":            {rowIs(func(_ *atoll.RowSpec, s *atoll.RowStatus) { s.State = atoll.RowDegraded }), Verdict.DescribeRows, "Degraded"},
		"a status without row":   {func(w *testFleet) { w.statuses["c0"] = w.statuses["c1"] }, Verdict.DescribeRows, "and no row"},
		"an agent holds nothing": {func(w *testFleet) { delete(w.holdings[1].Bundles, "bundle-uid") }, Verdict.DescribeHoldings, "agents hold 1"},
		"an agent holds too much": {func(w *testFleet) {
			w.holdings[0].Bundles["bundle-uid"] = w.holdings[1].Bundles["bundle-uid"]
		}, Verdict.DescribeHoldings, "there is no row"},
		"an agent holds another content": {func(w *testFleet) {
			w.holdings[1].Bundles["bundle-uid"] = fleet.BundleState{Generation: 3, Content: "other", Items: 1, State: atoll.RowReady, Mark: 7}
		}, Verdict.DescribeHoldings, "which the row is not at"},
		"an agent holds what was not applied": {func(w *testFleet) {
			w.holdings[1].Bundles["bundle-uid"] = fleet.BundleState{Generation: 3, Content: "hash", Items: 1, State: atoll.RowReady, Mark: 8}
		}, Verdict.DescribeHoldings, "other objects of shop/app than were applied"},
		"an agent holds an unknown Bundle": {func(w *testFleet) { w.holdings[0].Bundles["x"] = fleet.BundleState{} }, Verdict.DescribeHoldings, "no Bundle"},
		"an agent is missing":              {func(w *testFleet) { w.holdings = w.holdings[1:] }, Verdict.DescribeHoldings, "4 clusters and 3 agents"},
		"a template's status is behind":    {func(w *testFleet) { w.template.Status.ObservedGeneration = 1 }, Verdict.DescribeTemplates, "has status 1"},
		"a template's replicas are wrong":  {func(w *testFleet) { w.template.Status.ReadyReplicas = 4 }, Verdict.DescribeTemplates, "4 ready"},
		"a Bundle counts wrong":            {func(w *testFleet) { w.bundle.Status.Clusters.Ready = 1 }, Verdict.DescribeTemplates, "Bundle shop/app shows"},
	} {
		t.Run(name, func(t *testing.T) {
			w := rightWorld()
			c.spoil(w)
			v, err := w.newCheck(t).CompareOnce(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := c.say(v); v.IsCorrect() || !strings.Contains(got, c.want) {
				t.Errorf("it does not contain %q: %s", c.want, got)
			}
		})
	}
}

func TestTruncatedHoldingsAreAnError(t *testing.T) {
	w := rightWorld()
	check := w.newCheck(t)
	w.holdings = append(w.holdings[:1:1], fleet.AgentState{Name: "."}) // the answer seems to end here
	if v, err := check.CompareOnce(t.Context()); err == nil && v.IsCorrect() {
		t.Error("three agents are missing, and nothing was said")
	}
}
