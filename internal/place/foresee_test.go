package place

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// foreseenEdit is one that is foreseen before it is made.
type foreseenEdit struct {
	bundle  func(*state.Bundle)
	content *atoll.Content
	cluster string // that gets the label, or comes
	away    string
	gone    string
	want    string
	held    bool
	waits   bool
}

func foreseenEdits() map[string]foreseenEdit {
	tight := intstr.FromInt32(0)
	place := func(p v1alpha1.PlacementSpec) func(*state.Bundle) {
		return func(b *state.Bundle) { b.Spec.Placement = p }
	}
	return map[string]foreseenEdit{
		"nothing":               {want: "a Active 3, b Active 3"},
		"a move":                {bundle: place(names("b", "c")), want: "b Active 3, c Active 3"},
		"over the budget":       {bundle: func(b *state.Bundle) { b.Spec.Placement, b.Spec.Removal.Budget = names("b"), &tight }, want: "a Held 3, b Active 3", held: true},
		"new content":           {content: deploymentOf(9), want: "a Active 5, b Active 4"},
		"fewer replicas":        {content: deploymentOf(2), want: "a Active 1, b Active 1"},
		"onto one that is away": {bundle: place(names("c")), away: "c", want: "a Leaving 3, b Leaving 3, c Active 6", waits: true},
		"a cluster's label":     {bundle: place(labelled(map[string]string{"new": "yes"})), cluster: "c", want: "c Active 6"},
		"a new cluster":         {bundle: place(v1alpha1.PlacementSpec{}), cluster: "d", want: "a Active 2, b Active 2, c Active 1, d Active 1"},
		"a cluster that goes":   {gone: "a", want: "b Active 6"},
		"all in one":            {bundle: place(names("a", "b", "c")), content: deploymentOf(3), want: "a Active 1, b Active 1, c Active 1"},
	}
}

// What is foreseen is what comes about: each case is foreseen, then done, and settled.
func TestWhatIsForeseenComesAbout(t *testing.T) {
	loose := intstr.FromInt32(5)
	divided := func(p v1alpha1.PlacementSpec) v1alpha1.PlacementSpec {
		p.ReplicaScheduling.ReplicaSchedulingType = v1alpha1.Divided
		return p
	}
	for name, e := range foreseenEdits() {
		t.Run(name, func(t *testing.T) {
			m := newMemory()
			fleet(m, "a", "b", "c")
			run(t, m, func(t *testing.T, r *Reconciler) {
				m.bundle("web", func(b *state.Bundle) {
					b.Spec.Placement, b.Spec.Removal.Budget = divided(names("a", "b")), &loose
				})
				m.cut("web", deploymentOf(6))
				m.settle("web")
				if e.away != "" {
					m.setOnline(e.away, false)
					synctest.Wait()
				}
				b, _ := memBundles{m}.Get("web")
				if e.bundle != nil {
					e.bundle(&b)
				}
				b.Spec.Placement = divided(b.Spec.Placement)
				s := Supposed{Bundle: b, Revision: "web-1-r1", Content: m.contents["web-1-r1"]}
				if e.content != nil {
					s.Revision, s.Content = "web-2-r2", e.content
				}
				with := overlay{Clusters: memClusters{m}, Changed: map[string]*v1alpha1.Cluster{}}
				mark := func(c *v1alpha1.Cluster) { c.Labels = map[string]string{"new": "yes"} }
				if e.cluster != "" {
					c, ok := memClusters{m}.Get(e.cluster)
					if c = c.DeepCopy(); !ok {
						other := newMemory()
						other.cluster(e.cluster, nil)
						c = other.clusters[e.cluster]
					}
					mark(c)
					with.Changed[e.cluster] = c
				}
				if e.gone != "" {
					with.Changed[e.gone] = nil
				}
				writes, _ := m.counts()
				got, err := r.Foresee(t.Context(), &Tables{Clusters: with}, []Supposed{s})
				if err != nil {
					t.Fatal(err)
				}
				if now, _ := m.counts(); now != writes || m.show("web") != "a Active r1 3, b Active r1 3" {
					t.Fatalf("foreseeing wrote: %s", m.show("web"))
				}
				if after := shown(got[0].After); !sameUpToTies(after, e.want) || (got[0].Held != nil) != e.held || (len(got[0].Waits) > 0) != (e.waits || e.held) {
					t.Errorf("foreseen %s, held %v, waits %v; want %s", after, got[0].Held, got[0].Waits, e.want)
				}
				if e.cluster != "" {
					m.cluster(e.cluster, mark)
				}
				if e.gone != "" {
					m.deleteCluster(e.gone)
				}
				if e.content != nil {
					m.cut("web", e.content)
				}
				m.bundle("web", func(x *state.Bundle) { x.Spec = b.Spec })
				m.settle("web")
				did := map[string]atoll.RowSpec{}
				for _, row := range (memRows{m}).OfBundle("web") {
					did[row.Cluster] = row.Spec
				}
				if shown(did) != shown(got[0].After) {
					t.Errorf("foreseen %s, came about %s", shown(got[0].After), shown(did))
				}
			})
		})
	}
}

func TestAHoldIsForeseen(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b")
	run(t, m, func(t *testing.T, r *Reconciler) {
		m.bundle("web", func(b *state.Bundle) { b.Spec.Placement = names("a") })
		m.cut("web", &atoll.Content{})
		m.settle("web")
		m.holding = true
		b, _ := memBundles{m}.Get("web")
		b.Spec.Placement = names("b")
		got, err := r.Foresee(t.Context(), nil, []Supposed{{Bundle: b, Revision: "web-1-r1", Content: &atoll.Content{}}})
		if err != nil || !got[0].Holding || shown(got[0].After) != "a Active" {
			t.Errorf("%v: %+v", err, got)
		}
		m.holding = false
	})
}

// deploymentOf so many replicas, that are divided.
func deploymentOf(replicas int) *atoll.Content {
	return &atoll.Content{Items: []atoll.Item{{
		Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}, APIVersion: "apps/v1", Divided: true,
		Object: fmt.Appendf(nil, `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":%d}}`, replicas),
	}}}
}

// shown rows: "cluster phase replicas".
func shown(rows map[string]atoll.RowSpec) string {
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

// sameUpToTies compares rows where clusters have equal claims: who of them gets the odd
// replica is not said.
func sameUpToTies(a, b string) bool {
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

// overlay is clusters as they would be: those named in Changed are that, or gone when nil.
type overlay struct {
	Clusters
	Changed map[string]*v1alpha1.Cluster
}

func (w overlay) Get(name string) (*v1alpha1.Cluster, bool) {
	if c, ok := w.Changed[name]; ok {
		return c, c != nil
	}
	return w.Clusters.Get(name)
}

func (w overlay) List() []*v1alpha1.Cluster {
	out := slices.DeleteFunc(slices.Clone(w.Clusters.List()), func(c *v1alpha1.Cluster) bool { _, ok := w.Changed[c.Name]; return ok })
	for _, name := range slices.Sorted(maps.Keys(w.Changed)) {
		if c := w.Changed[name]; c != nil {
			out = append(out, c)
		}
	}
	return out
}

func (w overlay) Online(uid string) bool {
	for name, c := range w.Changed {
		if c != nil && string(c.UID) == uid {
			if was, ok := w.Clusters.Get(name); !ok || string(was.UID) != uid {
				return true
			}
		}
	}
	return w.Clusters.Online(uid)
}

// supposedOf a Bundle that is not there, in all clusters that the placement chooses.
func supposedOf(name string, p v1alpha1.PlacementSpec, content *atoll.Content) Supposed {
	b := state.Bundle{}
	b.Ref.UID, b.Ref.Namespace, b.Ref.Name, b.Spec.Placement = "new:"+name, "shop", name, p
	return Supposed{Bundle: b, Revision: name + "-1-r1", Content: content}
}

// Bundles that are supposed together load the clusters, and are near each other, as they
// would.
func TestSupposedBundlesAreSeenByEachOther(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b", "c", "d")
	run(t, m, func(t *testing.T, r *Reconciler) {
		var list []Supposed
		for i := range 8 {
			list = append(list, supposedOf(fmt.Sprint("web", i), most(1), &atoll.Content{}))
		}
		near := most(1)
		near.Scores = []v1alpha1.Score{{Name: v1alpha1.ScoreAffinity, Bundles: &v1alpha1.NearBundles{Names: []string{"home"}}}}
		list = append(list, supposedOf("home", names("c"), &atoll.Content{}), supposedOf("near", near, &atoll.Content{}))
		got, err := r.Foresee(t.Context(), nil, list)
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
		if shown(got[9].After) != "c Active" {
			t.Errorf("one that is to be near another is in %s", shown(got[9].After))
		}
	})
}

// They load the clusters by the replicas that they bring, as they will when they are there.
func TestSupposedBundlesLoadByTheirReplicas(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b")
	run(t, m, func(t *testing.T, r *Reconciler) {
		content := asking("x", 40)
		content.Items[0].Divided = false
		m.place("there", names("a"), deploymentOf(2))
		list := []Supposed{supposedOf("large", names("b"), content)}
		for i := range 4 { // to a, until it has more
			list = append(list, supposedOf(fmt.Sprint("web", i), most(1), &atoll.Content{}))
		}
		got, err := r.Foresee(t.Context(), nil, list)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range got[1:] {
			if shown(f.After) != "a Active" {
				t.Errorf("%s is foreseen in %s, though b is about to have 40 pods and a has few", f.Bundle.Ref.UID, shown(f.After))
			}
		}
		for i, s := range list {
			m.place(s.Bundle.Ref.UID, s.Bundle.Spec.Placement, s.Content)
			m.settle(s.Bundle.Ref.UID)
			did := map[string]atoll.RowSpec{}
			for _, row := range (memRows{m}).OfBundle(s.Bundle.Ref.UID) {
				did[row.Cluster] = row.Spec
			}
			if shown(did) != shown(got[i].After) {
				t.Errorf("%s: foreseen %s, came about %s", s.Bundle.Ref.UID, shown(got[i].After), shown(did))
			}
		}
	})
}

// Room that one takes is not another's, and the hub promises nothing by foreseeing.
func TestForeseeingPromisesNoRoom(t *testing.T) {
	m := newMemory()
	m.cluster("a", left(3))
	m.cluster("b", left(2))
	run(t, m, func(t *testing.T, r *Reconciler) {
		synctest.Wait()
		got, err := r.Foresee(t.Context(), nil, []Supposed{supposedOf("one", byRoom, asking("one", 4)), supposedOf("two", byRoom, asking("two", 4))})
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
		m.place("web", byRoom, asking("web", 5))
		m.settle("web")
		want(t, m, "web", "a Active r1 3, b Active r1 2")
	})
}

// boundTo says which sets namespaces may place on, ratings how clusters are rated.
type boundTo map[string][]string

func (b boundTo) Bound(ns string) []string { return b[ns] }
func (boundTo) Subscribe(func(string))     {}

// inSets see clusters in the set that their label names.
type inSets struct{ plainViews }

func (inSets) Of(c *v1alpha1.Cluster) schedule.Cluster {
	out := schedule.ClusterOf(c)
	if set := c.Labels["set"]; set != "" {
		out.Sets = []string{set}
	}
	return out
}

// Only Bundles to which what is supposed may matter are looked at.
func TestTouched(t *testing.T) {
	m := newMemory()
	in := func(set string) func(*v1alpha1.Cluster) {
		return func(c *v1alpha1.Cluster) { c.Labels = map[string]string{"set": set} }
	}
	m.cluster("a", in("asia"))
	m.cluster("b", in("europe"))
	all := boundTo{"shop": {"asia", "europe"}}
	runWith(t, m, func(c *Config) { c.Sets, c.Views = all, inSets{} }, func(t *testing.T, r *Reconciler) {
		m.bundle("anywhere", nil)
		m.bundle("inA", func(b *state.Bundle) { b.Spec.Placement = names("a") })
		m.bundle("inC", func(b *state.Bundle) { b.Spec.Placement = names("c") })
		m.bundle("rated", func(b *state.Bundle) {
			b.Spec.Placement = most(1)
			b.Spec.Placement.ClusterAffinity = names("a").ClusterAffinity
			b.Spec.Placement.Scores = []v1alpha1.Score{{Name: v1alpha1.ScoreCluster, Measure: "price"}}
		})
		for _, uid := range []string{"anywhere", "inA", "inC", "rated"} {
			m.cut(uid, &atoll.Content{})
			m.settle(uid)
		}
		with := func(name string, mark func(*v1alpha1.Cluster)) *Tables {
			var c *v1alpha1.Cluster
			if mark != nil {
				if is, ok := (memClusters{m}).Get(name); ok {
					c = is.DeepCopy()
					mark(c)
				} else {
					other := newMemory()
					other.cluster(name, mark)
					c = other.clusters[name]
				}
			}
			return &Tables{Clusters: overlay{memClusters{m}, map[string]*v1alpha1.Cluster{name: c}}}
		}
		for name, tc := range map[string]struct {
			tables *Tables
			want   string
		}{
			"nothing":                     {&Tables{}, ""},
			"the same again":              {with("a", in("asia")), ""},
			"a label of one that is held": {with("a", func(c *v1alpha1.Cluster) { c.Labels["env"] = "prod" }), "anywhere inA rated"},
			"a taint":                     {with("b", func(c *v1alpha1.Cluster) { c.Spec.Taints = []v1alpha1.Taint{{Key: "k", Effect: "NoSchedule"}} }), "anywhere"},
			"one that comes":              {with("c", in("asia")), "anywhere inC"},
			"one that comes out of reach": {with("c", in("africa")), ""},
			"one that goes":               {with("a", nil), "anywhere inA rated"},
			"other bindings":              {&Tables{Sets: boundTo{"shop": {"asia"}}}, "anywhere inA inC rated"},
			"the same bindings":           {&Tables{Sets: boundTo{"shop": {"asia", "europe"}, "blog": {"asia"}}}, ""},
			"scores":                      {&Tables{Scores: noScores{}}, "rated"},
		} {
			list, err := r.Touched(t.Context(), *tc.tables)
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
