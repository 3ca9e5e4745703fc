package fleet

import (
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
)

// testMember returns an agent without a link, for tests of its member.
func testMember(t *testing.T) *simulatedAgent {
	s := &simulator{processConfig: processConfig{Seed: 7, Agents: 1, Prefix: "sim"}, shapes: newKeptManifestTable(), schedule: newTimerQueue()}
	s.rates.Store(&FaultRates{})
	return &simulatedAgent{sim: s}
}

func testItem(apiVersion, group, kind, namespace, name, spec string) atoll.RenderedItem {
	object := `{"apiVersion":"` + apiVersion + `","kind":"` + kind + `","metadata":{"name":"` + name + `"},"spec":` + spec + `}`
	return atoll.RenderedItem{
		Key: atoll.ItemKey{Group: group, Kind: kind, Namespace: namespace, Name: name}, APIVersion: apiVersion,
		Object: json.RawMessage(object), Hash: atoll.HashParts([]byte(object)),
	}
}

// TestMoods: an item of each kind is reported healthy when the member is well, and not
// healthy, or failed, when it is not.
func TestMoods(t *testing.T) {
	cases := []struct {
		item      atoll.RenderedItem
		reflected bool
		progress  atoll.RowState // while Progressing
		degraded  atoll.RowState
	}{
		{testItem("apps/v1", "apps", "Deployment", "shop", "d", `{"replicas":3}`), true, atoll.RowProgressing, atoll.RowDegraded},
		{testItem("apps/v1", "apps", "StatefulSet", "shop", "s", `{"replicas":2}`), true, atoll.RowProgressing, atoll.RowProgressing},
		{testItem("apps/v1", "apps", "DaemonSet", "shop", "ds", `{}`), true, atoll.RowProgressing, atoll.RowProgressing},
		{testItem("apps/v1", "apps", "ReplicaSet", "shop", "rs", `{}`), true, atoll.RowProgressing, atoll.RowProgressing},
		{testItem("batch/v1", "batch", "Job", "shop", "j", `{}`), true, atoll.RowProgressing, atoll.RowDegraded},
		{testItem("batch/v1", "batch", "CronJob", "shop", "cj", `{}`), false, atoll.RowReady, atoll.RowFailed},
		{testItem("v1", "", "Pod", "shop", "p", `{}`), true, atoll.RowProgressing, atoll.RowDegraded},
		{testItem("v1", "", "Service", "shop", "svc", `{"type":"ClusterIP"}`), false, atoll.RowReady, atoll.RowFailed},
		{testItem("v1", "", "Service", "shop", "lb", `{"type":"LoadBalancer"}`), true, atoll.RowProgressing, atoll.RowFailed},
		{testItem("networking.k8s.io/v1", "networking.k8s.io", "Ingress", "shop", "i", `{}`), true, atoll.RowReady, atoll.RowFailed},
		{testItem("v1", "", "PersistentVolumeClaim", "shop", "pvc", `{}`), true, atoll.RowProgressing, atoll.RowDegraded},
		{testItem("policy/v1", "policy", "PodDisruptionBudget", "shop", "pdb", `{}`), true, atoll.RowReady, atoll.RowFailed},
		{testItem("autoscaling/v2", "autoscaling", "HorizontalPodAutoscaler", "shop", "hpa", `{}`), true, atoll.RowReady, atoll.RowFailed},
		{testItem("apiextensions.k8s.io/v1", "apiextensions.k8s.io", "CustomResourceDefinition", "", "crd", `{}`), false, atoll.RowProgressing, atoll.RowFailed},
		{testItem("v1", "", "ConfigMap", "shop", "cm", `{}`), false, atoll.RowReady, atoll.RowFailed},
		{testItem("example.org/v1", "example.org", "Thing", "shop", "x", `{}`), false, atoll.RowReady, atoll.RowFailed},
	}
	for _, c := range cases {
		t.Run(c.item.Key.String(), func(t *testing.T) {
			a := testMember(t)
			a.storeManifest(&atoll.Manifest{Bundle: "b", Content: "c", Generation: 4, Namespace: "shop", Items: []atoll.RenderedItem{c.item}})
			h := a.findHeldBundle("b")
			for m, want := range map[healthMood]atoll.RowState{moodReady: atoll.RowReady, moodProgressing: c.progress, moodDegraded: c.degraded} {
				h.mood = m
				st := a.bundleStatus(h)
				if st.State != want || st.Generation != 4 || st.Content != "c" || st.Total != 1 || st.Applied != (want != atoll.RowFailed) {
					t.Errorf("mood %d: %+v, want state %s", m, st, want)
				}
				if got := len(st.Items) > 0 && len(st.Items[0].ReflectedStatus) > 0; m == moodReady && got != c.reflected {
					t.Errorf("the status is reflected: %t, want %t: %+v", got, c.reflected, st.Items)
				}
			}
		})
	}
}

// TestRemovals: tombstones are confirmed, and a removed Bundle reports whether its
// namespace stays.
func TestRemovals(t *testing.T) {
	shirt := testItem("v1", "", "ConfigMap", "shop", "shirt", `{}`)
	shoe := testItem("v1", "", "ConfigMap", "shop", "shoe", `{}`)
	gone := atoll.Tombstone{Key: shoe.Key, UID: "u", Cause: atoll.CauseDeleted}
	moved := atoll.Tombstone{Key: shoe.Key, UID: "u", Cause: atoll.CauseMoved, MovedTo: []string{"other"}}
	holds := func(bundle string, generation int64, items ...atoll.RenderedItem) *atoll.Manifest {
		return &atoll.Manifest{Bundle: bundle, Content: atoll.HashJSON(items), Generation: generation, Namespace: "shop", Items: items}
	}
	removal := func(bundle string, namespaces ...string) *atoll.Manifest {
		return &atoll.Manifest{Bundle: bundle, Content: "none", Generation: 9, Namespace: "shop", Remove: true, DeletedNamespaces: namespaces}
	}
	with := func(m *atoll.Manifest, t ...atoll.Tombstone) *atoll.Manifest {
		m.Tombstones, m.Content = t, m.Content+t[0].ID()+string(t[0].Cause)
		return m
	}
	cases := map[string]struct {
		orders []*atoll.Manifest
		state  atoll.RowState // of bundle "b"
		gone   []string
		vacant bool
	}{
		"an item":               {[]*atoll.Manifest{holds("b", 1, shirt, shoe), with(holds("b", 2, shirt), gone)}, atoll.RowReady, []string{gone.ID()}, false},
		"an item that moves":    {[]*atoll.Manifest{holds("b", 1, shirt, shoe), with(holds("b", 2, shirt), moved)}, atoll.RowProgressing, nil, false},
		"an item that moved":    {[]*atoll.Manifest{holds("b", 1, shirt, shoe), with(holds("b", 2, shirt), moved), holds("other", 1, shoe)}, atoll.RowReady, []string{gone.ID()}, false},
		"the last one":          {[]*atoll.Manifest{holds("b", 1, shirt), removal("b")}, atoll.RowRemoved, nil, true},
		"with its namespace":    {[]*atoll.Manifest{holds("b", 1, shirt), removal("b", "shop")}, atoll.RowRemoved, nil, false},
		"beside another":        {[]*atoll.Manifest{holds("b", 1, shirt), holds("other", 1, shoe), removal("b")}, atoll.RowRemoved, nil, false},
		"what never came":       {[]*atoll.Manifest{removal("b")}, atoll.RowRemoved, nil, false},
		"of a placed namespace": {[]*atoll.Manifest{holds("ns", 1, testItem("v1", "", "Namespace", "", "shop", `{}`)), holds("b", 1, shirt), removal("b")}, atoll.RowRemoved, nil, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			a := testMember(t)
			for _, m := range c.orders {
				a.storeManifest(m)
			}
			st := a.bundleStatus(a.findHeldBundle("b"))
			if st.State != c.state || !slices.Equal(st.DoneTombstones, c.gone) || st.NamespaceKept != c.vacant {
				t.Errorf("%+v, want %s, gone %v, vacant %t", st, c.state, c.gone, c.vacant)
			}
		})
	}
}

// TestShapesAreShared: shapes are shared, and vanish with their last holder.
func TestShapesAreShared(t *testing.T) {
	a := testMember(t)
	b := &simulatedAgent{sim: a.sim, index: 1}
	one, two := webBundle("x", 1, 1), webBundle("x", 2, 2)
	a.storeManifest(&one)
	b.storeManifest(&one)
	if a.findHeldBundle("x").shape != b.findHeldBundle("x").shape {
		t.Error("equal contents are kept twice")
	}
	a.storeManifest(&two)
	b.storeManifest(&two)
	b.dropAcknowledgedRemoval("x", 2)
	if table := a.sim.shapes; len(table.byKey) != 1 || len(table.viewsByHash) != 2 {
		t.Errorf("%d contents and %d objects are kept of 1 and 2", len(table.byKey), len(table.viewsByHash))
	}
	if _, ok := a.objectByHash("x", "conf"); !ok {
		t.Error("the agent does not know an object that it holds")
	}
	if _, ok := b.objectByHash("x", "conf"); ok {
		t.Error("the agent knows an object that it does not hold")
	}
}

func TestDraws(t *testing.T) {
	a := testMember(t)
	a.sim.rates.Store(&FaultRates{HealthDelay: time.Second})
	sum, longest := time.Duration(0), time.Duration(0)
	const n = 20000
	for range n {
		d := a.drawReadyDelay()
		sum, longest = sum+d, max(longest, d)
	}
	if mean := sum / n; mean < 950*time.Millisecond || mean > 1050*time.Millisecond || longest < 3*time.Second {
		t.Errorf("delays of a second are %v in the mean and %v at most", mean, longest)
	}
	again := testMember(t)
	again.sim.rates.Store(&FaultRates{HealthDelay: time.Second})
	a.drawCount = 0
	if x, y := a.drawReadyDelay(), again.drawReadyDelay(); x != y {
		t.Errorf("the same seed draws %v and %v", x, y)
	}
	if hashToUnit(1, 2, 3) == hashToUnit(1, 3, 2) || hashToUnit(1, 2, 3) == hashToUnit(2, 2, 3) {
		t.Error("agents draw alike")
	}
}

func TestDurations(t *testing.T) {
	var a, b Durations
	for i := range 1000 {
		(map[bool]*Durations{true: &a, false: &b})[i%2 == 0].add(time.Duration(i) * time.Millisecond)
	}
	a.mergeFrom(b)
	got := a.withPercentiles()
	for want, q := range map[time.Duration]time.Duration{500 * time.Millisecond: got.P50, 900 * time.Millisecond: got.P90, 990 * time.Millisecond: got.P99} {
		if math.Abs(float64(q-want)) > 0.1*float64(want) {
			t.Errorf("%v, want about %v", q, want)
		}
	}
	if got.Count != 1000 || got.Max != 999*time.Millisecond {
		t.Errorf("%d durations, %v at most", got.Count, got.Max)
	}
}
