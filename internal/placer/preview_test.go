package placer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// previewEdit is one that is foreseen before it is made.
type previewEdit struct {
	bundle  func(*state.Bundle)
	content *atoll.Content
	cluster string // that gets the label, or comes
	offline string
	deleted string
	want    string
	held    bool
	waits   bool
}

func previewEdits() map[string]previewEdit {
	tight := intstr.FromInt32(0)
	place := func(p v1alpha1.PlacementSpec) func(*state.Bundle) {
		return func(b *state.Bundle) { b.Spec.Placement = p }
	}
	return map[string]previewEdit{
		"nothing": {want: "a Active 3, b Active 3"},
		"a move":  {bundle: place(placementNamed("b", "c")), want: "b Active 3, c Active 3"},
		"a move, old copies first": {bundle: func(b *state.Bundle) {
			b.Spec.Placement, b.Spec.MoveOrder = placementNamed("b", "c"), v1alpha1.MoveRecreate
		}, want: "b Active 3, c Active 3"},
		"a move, old copies first, from one that is away": {bundle: func(b *state.Bundle) {
			b.Spec.Placement, b.Spec.MoveOrder = placementNamed("b", "c"), v1alpha1.MoveRecreate
		}, offline: "a",
			want: "a Removing 3, b Active 3, c Pending 3", waits: true},
		"over the budget":       {bundle: func(b *state.Bundle) { b.Spec.Placement, b.Spec.Removal.Budget = placementNamed("b"), &tight }, want: "a Held 3, b Active 3", held: true},
		"new content":           {content: newDeploymentContent(9), want: "a Active 5, b Active 4"},
		"fewer replicas":        {content: newDeploymentContent(2), want: "a Active 1, b Active 1"},
		"onto one that is away": {bundle: place(placementNamed("c")), offline: "c", want: "a Leaving 3, b Leaving 3, c Active 6", waits: true},
		"a cluster's label":     {bundle: place(placementLabelled(map[string]string{"new": "yes"})), cluster: "c", want: "c Active 6"},
		"a new cluster":         {bundle: place(v1alpha1.PlacementSpec{}), cluster: "d", want: "a Active 2, b Active 2, c Active 1, d Active 1"},
		"a cluster that goes":   {deleted: "a", want: "b Active 6"},
		"all in one":            {bundle: place(placementNamed("a", "b", "c")), content: newDeploymentContent(3), want: "a Active 1, b Active 1, c Active 1"},
	}
}

// A preview comes true: each case is previewed, then done, and settled.
func TestWhatIsForeseenComesAbout(t *testing.T) {
	loose := intstr.FromInt32(5)
	divided := func(p v1alpha1.PlacementSpec) v1alpha1.PlacementSpec {
		p.ReplicaScheduling.ReplicaSchedulingType = v1alpha1.Divided
		return p
	}
	for name, e := range previewEdits() {
		t.Run(name, func(t *testing.T) {
			m := newFakeHub()
			addClusters(m, "a", "b", "c")
			runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
				m.changeBundle("web", func(b *state.Bundle) {
					b.Spec.Placement, b.Spec.Removal.Budget = divided(placementNamed("a", "b")), &loose
				})
				m.cutRevision("web", newDeploymentContent(6))
				m.settleRows("web")
				if e.offline != "" {
					m.setOnline(e.offline, false)
					synctest.Wait()
				}
				b, _ := fakeBundles{m}.Get("web")
				if e.bundle != nil {
					e.bundle(&b)
				}
				b.Spec.Placement = divided(b.Spec.Placement)
				s := SupposedBundle{Bundle: b, Revision: "web-1-r1", Content: m.contents["web-1-r1"]}
				if e.content != nil {
					s.Revision, s.Content = "web-2-r2", e.content
				}
				with := overlaidClusters{Clusters: fakeClusters{m}, Changed: map[string]*v1alpha1.Cluster{}}
				mark := func(c *v1alpha1.Cluster) { c.Labels = map[string]string{"new": "yes"} }
				if e.cluster != "" {
					c, ok := fakeClusters{m}.Get(e.cluster)
					if c = c.DeepCopy(); !ok {
						other := newFakeHub()
						other.changeCluster(e.cluster, nil)
						c = other.clusters[e.cluster]
					}
					mark(c)
					with.Changed[e.cluster] = c
				}
				if e.deleted != "" {
					with.Changed[e.deleted] = nil
				}
				writes, _ := m.countsAfterWait()
				got, err := r.PreviewBundles(t.Context(), &SupposedTables{Clusters: with}, []SupposedBundle{s})
				if err != nil {
					t.Fatal(err)
				}
				if now, _ := m.countsAfterWait(); now != writes || m.rowsOf("web") != "a Active r1 3, b Active r1 3" {
					t.Fatalf("foreseeing wrote: %s", m.rowsOf("web"))
				}
				if after := rowsText(got[0].After); !equalUpToTies(after, e.want) || (got[0].HeldPlan != nil) != e.held || (len(got[0].Waits) > 0) != (e.waits || e.held) {
					t.Errorf("foreseen %s, held %v, waits %v; want %s", after, got[0].HeldPlan, got[0].Waits, e.want)
				}
				if e.cluster != "" {
					m.changeCluster(e.cluster, mark)
				}
				if e.deleted != "" {
					m.deleteCluster(e.deleted)
				}
				if e.content != nil {
					m.cutRevision("web", e.content)
				}
				m.changeBundle("web", func(x *state.Bundle) { x.Spec = b.Spec })
				m.settleRows("web")
				did := map[string]atoll.RowSpec{}
				for _, row := range (fakeRows{m}).ListOfBundle("web") {
					did[row.Cluster] = row.Spec
				}
				if rowsText(did) != rowsText(got[0].After) {
					t.Errorf("foreseen %s, came about %s", rowsText(got[0].After), rowsText(did))
				}
			})
		})
	}
}

func TestAHoldIsForeseen(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed("a") })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		m.holding = true
		b, _ := fakeBundles{m}.Get("web")
		b.Spec.Placement = placementNamed("b")
		got, err := r.PreviewBundles(t.Context(), nil, []SupposedBundle{{Bundle: b, Revision: "web-1-r1", Content: &atoll.Content{}}})
		if err != nil || !got[0].IsHolding || rowsText(got[0].After) != "a Active" {
			t.Errorf("%v: %+v", err, got)
		}
		m.holding = false
	})
}

// newDeploymentContent so many replicas, that are divided.
func newDeploymentContent(replicas int) *atoll.Content {
	return &atoll.Content{Items: []atoll.Item{{
		Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}, APIVersion: "apps/v1", Divided: true,
		Object: fmt.Appendf(nil, `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":%d}}`, replicas),
	}}}
}

// rowsText rows: "cluster phase replicas".
func rowsText(rows map[string]atoll.RowSpec) string {
	var out []string
	for cluster, row := range rows {
		s := cluster + " " + string(row.Phase)
		for _, n := range row.Assigned {
			s += fmt.Sprint(" ", n)
		}
		out = append(out, s)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// equalUpToTies compares rows of clusters with equal claims: any of them may get the odd
// replica.
func equalUpToTies(a, b string) bool {
	parts := func(s string) (rows, shares []string) {
		for one := range strings.SplitSeq(s, ", ") {
			row, share, _ := strings.Cut(one, "Active ")
			rows, shares = append(rows, row), append(shares, share)
		}
		slices.Sort(shares)
		return rows, shares
	}
	ra, sa := parts(a)
	rb, sb := parts(b)
	return slices.Equal(ra, rb) && slices.Equal(sa, sb)
}

// overlaidClusters is clusters as they would be: those named in Changed are that, or gone when nil.
type overlaidClusters struct {
	Clusters
	Changed map[string]*v1alpha1.Cluster
}

func (w overlaidClusters) Get(name string) (*v1alpha1.Cluster, bool) {
	if c, ok := w.Changed[name]; ok {
		return c, c != nil
	}
	return w.Clusters.Get(name)
}

func (w overlaidClusters) List() []*v1alpha1.Cluster {
	out := slices.DeleteFunc(slices.Clone(w.Clusters.List()), func(c *v1alpha1.Cluster) bool { _, ok := w.Changed[c.Name]; return ok })
	for _, name := range slices.Sorted(maps.Keys(w.Changed)) {
		if c := w.Changed[name]; c != nil {
			out = append(out, c)
		}
	}
	return out
}

func (w overlaidClusters) IsOnline(uid string) bool {
	for name, c := range w.Changed {
		if c != nil && string(c.UID) == uid {
			if was, ok := w.Clusters.Get(name); !ok || string(was.UID) != uid {
				return true
			}
		}
	}
	return w.Clusters.IsOnline(uid)
}

// newSupposedBundle a Bundle that is not there, in all clusters that the placement chooses.
func newSupposedBundle(name string, p v1alpha1.PlacementSpec, content *atoll.Content) SupposedBundle {
	b := state.Bundle{}
	b.Ref.UID, b.Ref.Namespace, b.Ref.Name, b.Spec.Placement = "new:"+name, "shop", name, p
	return SupposedBundle{Bundle: b, Revision: name + "-1-r1", Content: content}
}

// Bundles that are supposed together load the clusters, and are near each other, as they
// would.
func TestSupposedBundlesAreSeenByEachOther(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b", "c", "d")
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		var list []SupposedBundle
		for i := range 8 {
			list = append(list, newSupposedBundle(fmt.Sprint("web", i), atMostClusters(1), &atoll.Content{}))
		}
		near := atMostClusters(1)
		near.Scores = []v1alpha1.Score{{Name: v1alpha1.ScoreAffinity, Bundles: &v1alpha1.NearBundles{Names: []string{"home"}}}}
		list = append(list, newSupposedBundle("home", placementNamed("c"), &atoll.Content{}), newSupposedBundle("near", near, &atoll.Content{}))
		got, err := r.PreviewBundles(t.Context(), nil, list)
		if err != nil {
			t.Fatal(err)
		}
		per := map[string]int{}
		for _, f := range got[:8] {
			for cluster := range f.After {
				per[cluster]++
			}
		}
		if len(per) != 4 || per["a"] != 2 || per["b"] != 2 || per["c"] != 2 || per["d"] != 2 {
			t.Errorf("eight that take one cluster each are in %v", per)
		}
		if rowsText(got[9].After) != "c Active" {
			t.Errorf("one that is to be near another is in %s", rowsText(got[9].After))
		}
	})
}

// A supposed Bundle sees the real Bundles of its namespace, but for those that are supposed otherwise.
func TestSupposedBundlesSeeTheRealOnes(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b", "c", "d")
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		for _, home := range []string{"home", "moving"} {
			m.placeBundle(home, placementNamed("c"), &atoll.Content{})
			m.settleRows(home)
		}
		nearTo := func(name string) v1alpha1.PlacementSpec {
			near := atMostClusters(1)
			near.Scores = []v1alpha1.Score{{Name: v1alpha1.ScoreAffinity, Bundles: &v1alpha1.NearBundles{Names: []string{name}}}}
			return near
		}
		moved, _ := fakeBundles{m}.Get("moving")
		moved.Spec.Placement = placementNamed("d")
		list := []SupposedBundle{
			{Bundle: moved, Revision: "moving-1-r1", Content: &atoll.Content{}}, newSupposedBundle("near", nearTo("home"), &atoll.Content{}), newSupposedBundle("following", nearTo("moving"), &atoll.Content{}),
		}
		var names []string
		for _, b := range (supposedBundles{fakeBundles{m}, list}).InNamespace("shop") {
			names = append(names, b.Ref.Name)
		}
		slices.Sort(names)
		if want := []string{"following", "home", "moving", "near"}; !slices.Equal(names, want) {
			t.Errorf("the namespace has %q, want each Bundle once: %q", names, want)
		}
		got, err := r.PreviewBundles(t.Context(), nil, list)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range map[int]string{1: "c Active", 2: "d Active"} {
			if is := rowsText(got[i].After); is != want {
				t.Errorf("%s is foreseen in %q, want %q", got[i].Bundle.Ref.Name, is, want)
			}
		}
	})
}

// A preview counts the recent removals once, whatever the number of Bundles of the namespace.
func TestAPreviewCountsRecentRemovalsOnce(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		list := []SupposedBundle{newSupposedBundle("one", placementNamed("a"), &atoll.Content{}), newSupposedBundle("two", placementNamed("a"), &atoll.Content{})}
		now := time.Now()
		r.ledgerMu.Lock()
		r.ledger.RecordDeletes("shop", now, 3)
		r.ledger.RecordDeletes("blog", now, 5)
		r.ledger.RecordRemovedClusters("new:one", now, []string{"b", "c"})
		r.ledgerMu.Unlock()
		f, _ := r.forkForPreview(SupposedTables{}, list)
		if deletes, other := f.ledger.CountDeletes("shop", now), f.ledger.CountDeletes("blog", now); deletes != 3 || other != 0 {
			t.Errorf("of 3 recent deletes it counts %d, and %d in a namespace of no Bundle", deletes, other)
		}
		if one, two := f.ledger.RemovedClusters("new:one", now), f.ledger.RemovedClusters("new:two", now); len(one) != 2 || len(two) != 0 {
			t.Errorf("it counts removals from %v and from %v", one, two)
		}
	})
}

// They load the clusters by the replicas that they bring, as they will when they are there.
func TestSupposedBundlesLoadByTheirReplicas(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		content := contentAsking("x", 40)
		content.Items[0].Divided = false
		m.placeBundle("there", placementNamed("a"), newDeploymentContent(2))
		list := []SupposedBundle{newSupposedBundle("large", placementNamed("b"), content)}
		for i := range 4 { // to a, until it has more
			list = append(list, newSupposedBundle(fmt.Sprint("web", i), atMostClusters(1), &atoll.Content{}))
		}
		got, err := r.PreviewBundles(t.Context(), nil, list)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range got[1:] {
			if rowsText(f.After) != "a Active" {
				t.Errorf("%s is foreseen in %s, though b is about to have 40 pods and a has few", f.Bundle.Ref.UID, rowsText(f.After))
			}
		}
		for i, s := range list {
			m.placeBundle(s.Bundle.Ref.UID, s.Bundle.Spec.Placement, s.Content)
			m.settleRows(s.Bundle.Ref.UID)
			did := map[string]atoll.RowSpec{}
			for _, row := range (fakeRows{m}).ListOfBundle(s.Bundle.Ref.UID) {
				did[row.Cluster] = row.Spec
			}
			if rowsText(did) != rowsText(got[i].After) {
				t.Errorf("%s: foreseen %s, came about %s", s.Bundle.Ref.UID, rowsText(got[i].After), rowsText(did))
			}
		}
	})
}

// Room that one takes is not another's, and the hub promises nothing by foreseeing.
func TestForeseeingPromisesNoRoom(t *testing.T) {
	m := newFakeHub()
	m.changeCluster("a", withFreeCPUs(3))
	m.changeCluster("b", withFreeCPUs(2))
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		synctest.Wait()
		got, err := r.PreviewBundles(t.Context(), nil, []SupposedBundle{newSupposedBundle("one", byFreeCapacity, contentAsking("one", 4)), newSupposedBundle("two", byFreeCapacity, contentAsking("two", 4))})
		if err != nil {
			t.Fatal(err)
		}
		sum := map[string]int64{}
		for _, f := range got {
			for cluster, row := range f.After {
				for _, n := range row.Assigned {
					sum[cluster] += n
				}
			}
		}
		if sum["a"] != 3 || sum["b"] != 2 {
			t.Errorf("of room for 3 and 2 they take %v", sum)
		}
		m.placeBundle("web", byFreeCapacity, contentAsking("web", 5))
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1 3, b Active r1 2")
	})
}

// setsByNamespace returns which sets namespaces may place on, ratings how clusters are rated.
type setsByNamespace map[string][]string

func (b setsByNamespace) AllowedSets(ns string) []string { return b[ns] }
func (setsByNamespace) Subscribe(func(string))           {}

// nameSetViews see clusters in the set that their label names.
// A Bundle that shrinks in a disconnected cluster, which reports nothing, frees capacity there for another Bundle of
// the preview.
func TestAPreviewGoesOnAfterAChangeInADisconnectedCluster(t *testing.T) {
	m := newFakeHub()
	m.changeCluster("a", withCapacity(5))
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		m.placeBundle("web", placementNamed("a"), undividedContent("web", 4))
		m.settleRows("web")
		m.setOnline("a", false)
		synctest.Wait()
		web, _ := fakeBundles{m}.Get("web")
		list := []SupposedBundle{
			newSupposedBundle("api", placementNamed("a"), undividedContent("api", 3)),
			{Bundle: web, Revision: "web-2-r2", Content: undividedContent("web", 1)},
		}
		got, err := r.PreviewBundles(t.Context(), nil, list)
		if err != nil {
			t.Fatal(err)
		}
		if rowsText(got[0].After) != "a Active" {
			t.Errorf("api is foreseen in %q, want a", rowsText(got[0].After))
		}
		m.cutRevision("web", undividedContent("web", 1))
		synctest.Wait()
		m.placeBundle("api", placementNamed("a"), undividedContent("api", 3))
		expectRows(t, m, "api", "a Active r1")
	})
}

// A preview decides by the supposed scores, and without them by the real ones.
func TestAPreviewUsesSupposedScores(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	scores := &fakeScores{values: map[string]int64{"shop a price": 700, "shop b price": 500}}
	supposed := &fakeScores{values: map[string]int64{"shop a price": 700, "shop b price": 900}}
	runWith(t, m, func(c *Config) { c.Scores = scores }, func(t *testing.T, r *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) {
			b.Spec.Placement = atMostClusters(1)
			b.Spec.Placement.Scores = []v1alpha1.Score{{Name: v1alpha1.ScoreCluster, Measure: "price"}}
		})
		b, _ := fakeBundles{m}.Get("web")
		list := []SupposedBundle{{Bundle: b, Revision: "web-1-r1", Content: &atoll.Content{}}}
		for want, tables := range map[string]*SupposedTables{"a": {}, "b": {Scores: supposed}} {
			got, err := r.PreviewBundles(t.Context(), tables, list)
			if err != nil {
				t.Fatal(err)
			}
			if clusters := slices.Sorted(maps.Keys(got[0].After)); !slices.Equal(clusters, []string{want}) {
				t.Errorf("foreseen in %q, want %s", clusters, want)
			}
		}
	})
}

type nameSetViews struct{ plainViews }

func (nameSetViews) ViewOf(c *v1alpha1.Cluster) schedule.Cluster {
	out := schedule.ClusterOf(c)
	if set := c.Labels["set"]; set != "" {
		out.Sets = []string{set}
	}
	return out
}

// Only Bundles to which what is supposed may matter are looked at.
func TestTouched(t *testing.T) {
	m := newFakeHub()
	in := func(set string) func(*v1alpha1.Cluster) {
		return func(c *v1alpha1.Cluster) { c.Labels = map[string]string{"set": set} }
	}
	m.changeCluster("a", in("asia"))
	m.changeCluster("b", in("europe"))
	all := setsByNamespace{"shop": {"asia", "europe"}}
	runWith(t, m, func(c *Config) { c.Sets, c.Views = all, nameSetViews{} }, func(t *testing.T, r *PlacementReconciler) {
		m.changeBundle("anywhere", nil)
		m.changeBundle("inA", func(b *state.Bundle) { b.Spec.Placement = placementNamed("a") })
		m.changeBundle("inC", func(b *state.Bundle) { b.Spec.Placement = placementNamed("c") })
		m.changeBundle("rated", func(b *state.Bundle) {
			b.Spec.Placement = atMostClusters(1)
			b.Spec.Placement.ClusterAffinity = placementNamed("a").ClusterAffinity
			b.Spec.Placement.Scores = []v1alpha1.Score{{Name: v1alpha1.ScoreCluster, Measure: "price"}}
		})
		for _, uid := range []string{"anywhere", "inA", "inC", "rated"} {
			m.cutRevision(uid, &atoll.Content{})
			m.settleRows(uid)
		}
		with := func(name string, mark func(*v1alpha1.Cluster)) *SupposedTables {
			var c *v1alpha1.Cluster
			if mark != nil {
				if is, ok := (fakeClusters{m}).Get(name); ok {
					c = is.DeepCopy()
					mark(c)
				} else {
					other := newFakeHub()
					other.changeCluster(name, mark)
					c = other.clusters[name]
				}
			}
			return &SupposedTables{Clusters: overlaidClusters{fakeClusters{m}, map[string]*v1alpha1.Cluster{name: c}}}
		}
		for name, tc := range map[string]struct {
			tables *SupposedTables
			want   string
		}{
			"nothing":                     {&SupposedTables{}, ""},
			"the same again":              {with("a", in("asia")), ""},
			"a label of one that is held": {with("a", func(c *v1alpha1.Cluster) { c.Labels["env"] = "prod" }), "anywhere inA rated"},
			"a taint":                     {with("b", func(c *v1alpha1.Cluster) { c.Spec.Taints = []v1alpha1.Taint{{Key: "k", Effect: "NoSchedule"}} }), "anywhere"},
			"one that comes":              {with("c", in("asia")), "anywhere inC"},
			"one that comes out of reach": {with("c", in("africa")), ""},
			"one that goes":               {with("a", nil), "anywhere inA rated"},
			"other bindings":              {&SupposedTables{Sets: setsByNamespace{"shop": {"asia"}}}, "anywhere inA inC rated"},
			"the same bindings":           {&SupposedTables{Sets: setsByNamespace{"shop": {"asia", "europe"}, "blog": {"asia"}}}, ""},
			"scores":                      {&SupposedTables{Scores: noScores{}}, "rated"},
		} {
			list, err := r.BundlesTouchedBy(t.Context(), *tc.tables)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, b := range list {
				got = append(got, b.Ref.UID)
			}
			slices.Sort(got)
			if strings.Join(got, " ") != tc.want {
				t.Errorf("%s: %q, want %q", name, strings.Join(got, " "), tc.want)
			}
		}
	})
}
