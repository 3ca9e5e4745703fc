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
				got, err := r.Foresee(t.Context(), Tables{Clusters: with}, []Supposed{s})
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
		got, err := r.Foresee(t.Context(), Tables{}, []Supposed{{Bundle: b, Revision: "web-1-r1", Content: &atoll.Content{}}})
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
