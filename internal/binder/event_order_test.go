package binder

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// reportedRows are rows that agents have reported on, or not, by Bundle.
type reportedRows struct {
	Rows
	rows map[string][]state.Row
}

func (t reportedRows) ListOfBundle(uid string) []state.Row { return t.rows[uid] }

// orderWalk is a Binder that hears of things one by one.
type orderWalk struct {
	*Binder
	tables *fakeTables
	twoPolicyTables
	reportedRows
	latestCuts map[policymatch.BundleID]int64
}

func newOrderWalk(t *testing.T) *orderWalk {
	l, b := newShopTables(t)
	h := &orderWalk{
		Binder: b, tables: l, reportedRows: reportedRows{rows: map[string][]state.Row{}}, latestCuts: map[policymatch.BundleID]int64{},
		twoPolicyTables: twoPolicyTables{namespaced: map[string]*v1alpha1.PropagationPolicy{}, cluster: map[string]*v1alpha1.ClusterPropagationPolicy{}},
	}
	clear(l.templates)
	b.ownership, b.index, b.Options.Policies, b.Options.Rows = newOwnershipIndex(), policyIndex{}, h.twoPolicyTables, h.reportedRows
	b.policyStatus = newPolicyStatusWriter(b)
	return h
}

func (h *orderWalk) handleAll(e tableEvent) {
	h.handleEvent(e)
	for e, ok := h.events.takeNext(); ok; e, ok = h.events.takeNext() {
		h.handleEvent(e)
	}
}

// cutRevision creates a Revision for the Bundle that places the key. The agent has received the
// earlier content, or this content too.
func (h *orderWalk) cutRevision(key atoll.ItemKey, delivered bool) {
	id, placed := h.ownership.placedBy[key]
	if !placed {
		return
	}
	h.latestCuts[id]++
	uid, n, had := "u-"+id.Name, h.latestCuts[id], int64(1)
	h.ownership.setContent(id, uid, n, &atoll.Content{Items: []atoll.Item{{Key: key}}})
	if delivered {
		had = 1 + n
	}
	h.reportedRows.rows[uid] = []state.Row{{
		Spec:   atoll.RowSpec{Revision: atoll.RevisionName(uid, n, "0123456789abcdef"), Generation: 1 + n},
		Status: &atoll.RowStatus{Generation: had},
	}}
}

// changePolicy that is a random one of its kind, and the event of hearing of it.
func (h *orderWalk) changePolicy(r *rand.Rand, name string) tableEvent {
	spec := v1alpha1.PropagationSpec{
		Priority:          int32(r.IntN(3)),
		ResourceSelectors: []v1alpha1.ResourceSelector{{APIVersion: "apps/v1", Kind: "Deployment", Name: []string{"", "web"}[r.IntN(2)]}},
	}
	meta := metav1.ObjectMeta{Name: name, UID: "uid-x", CreationTimestamp: metav1.NewTime(time.Unix(int64(r.IntN(2)), 0))}
	if r.IntN(2) == 0 {
		h.twoPolicyTables.cluster[name] = &v1alpha1.ClusterPropagationPolicy{ObjectMeta: meta, Spec: spec}
		return tableEvent{policy: PolicyKey{v1alpha1.SourceClusterPropagationPolicy, "", name}}
	}
	meta.Namespace = "shop"
	h.twoPolicyTables.namespaced[name] = &v1alpha1.PropagationPolicy{ObjectMeta: meta, Spec: spec}
	return tableEvent{policy: PolicyKey{v1alpha1.SourcePropagationPolicy, "shop", name}}
}

// TestOwnersDoNotFollowFromTheOrderOfNews: the events of an object and of its policies come in
// any order, with Revisions in between. The same policy places the object in the end, until an
// agent has received it.
func TestOwnersDoNotFollowFromTheOrderOfNews(t *testing.T) {
	web := newDeployment("shop", "web", "web:1", 1)
	key := policymatch.ItemKeyOf(web)
	for seed := range uint64(300) {
		owners := map[string]bool{}
		for order := range uint64(6) {
			h, r := newOrderWalk(t), rand.New(rand.NewPCG(seed, 1))
			var news []tableEvent
			for i := range 2 + r.IntN(3) {
				news = append(news, h.changePolicy(r, fmt.Sprint("p", i)))
			}
			own, cluster := h.twoPolicyTables.namespaced, h.twoPolicyTables.cluster
			h.twoPolicyTables.namespaced, h.twoPolicyTables.cluster = map[string]*v1alpha1.PropagationPolicy{}, map[string]*v1alpha1.ClusterPropagationPolicy{}
			h.Options.Policies = h.twoPolicyTables
			news = append(news, tableEvent{template: key})
			r = rand.New(rand.NewPCG(seed, 2+order))
			r.Shuffle(len(news), func(i, j int) { news[i], news[j] = news[j], news[i] })
			for _, e := range news {
				switch e.policy.Kind {
				case v1alpha1.SourcePropagationPolicy:
					h.twoPolicyTables.namespaced[e.policy.Name] = own[e.policy.Name]
				case v1alpha1.SourceClusterPropagationPolicy:
					h.twoPolicyTables.cluster[e.policy.Name] = cluster[e.policy.Name]
				default:
					h.tables.templates[key] = web
				}
				h.handleAll(e)
				if r.IntN(2) == 0 {
					h.cutRevision(key, false)
				}
			}
			owner := h.ownership.placedBy[key]
			owners[owner.String()] = true
			want := h.decideWithHolder(policymatch.SubjectFromObject(web), nil)
			if id, _ := policymatch.BundleForSubject(*want.Winner, policymatch.SubjectFromObject(web)); id != owner {
				t.Fatalf("seed %d, order %d: %s places it, and %s is the best", seed, order, owner, id)
			}

			// Once an agent has it, a later policy has to preempt.
			h.cutRevision(key, true)
			h.twoPolicyTables.namespaced["late"] = newPolicy("late", "web")
			h.twoPolicyTables.namespaced["late"].Spec.Priority = 100
			h.handleAll(tableEvent{policy: PolicyKey{v1alpha1.SourcePropagationPolicy, "shop", "late"}})
			if now := h.ownership.placedBy[key]; now != owner {
				t.Fatalf("seed %d, order %d: delivered for %s, and %s takes it", seed, order, owner, now)
			}
		}
		if len(owners) != 1 {
			t.Fatalf("seed %d: %v, by the order of the news", seed, owners)
		}
	}
}

// TestDecideOwnerReportsTheHolder: the owner follows the rank until an agent has received the
// object, and the holder is reported in each case.
func TestDecideOwnerReportsTheHolder(t *testing.T) {
	web := newDeployment("shop", "web", "web:1", 1)
	sub := policymatch.SubjectFromObject(web)
	for _, c := range []struct {
		name                  string
		cut, delivered, later bool
		want                  string
		held                  bool
	}{
		{"no Revision has it", false, false, false, "weak", false},
		{"no Revision has it, and a stronger policy comes", false, false, true, "strong", false},
		{"a Revision has it", true, false, false, "weak", true},
		{"an agent has it", true, true, false, "weak", true},
		{"a Revision has it, and a stronger policy comes", true, false, true, "strong", true},
		{"an agent has it, and a stronger policy comes", true, true, true, "weak", true},
	} {
		h := newOrderWalk(t)
		h.tables.templates[sub.Key] = web
		add := func(name string, priority int32) {
			h.twoPolicyTables.namespaced[name] = newPolicy(name, "web")
			h.twoPolicyTables.namespaced[name].Spec.Priority = priority
			h.handleEvent(tableEvent{policy: PolicyKey{v1alpha1.SourcePropagationPolicy, "shop", name}})
		}
		add("weak", 1)
		h.handleAll(tableEvent{template: sub.Key})
		if c.cut {
			h.cutRevision(sub.Key, c.delivered)
		}
		if c.later {
			add("strong", 9)
		}
		d, held := h.decidePlacingSource(sub)
		if d.Winner == nil || d.Winner.Source.Name != c.want || held != c.held {
			t.Errorf("%s: %+v, held %t; want %s, held %t", c.name, d.Winner, held, c.want, c.held)
		}
	}
}

// TestWhatWasThereIsSettled: a hub that starts takes nothing from an earlier holder.
func TestWhatWasThereIsSettled(t *testing.T) {
	h := newOrderWalk(t)
	web := newDeployment("shop", "web", "web:1", 1)
	key := policymatch.ItemKeyOf(web)
	h.tables.templates[key] = web
	h.twoPolicyTables.namespaced["weak"] = newPolicy("weak", "web")
	h.handleAll(tableEvent{policy: PolicyKey{v1alpha1.SourcePropagationPolicy, "shop", "weak"}})
	id := h.ownership.placedBy[key]
	h.ownership.setContent(id, "u", 0, &atoll.Content{Items: []atoll.Item{{Key: key}}})
	h.twoPolicyTables.namespaced["strong"] = newPolicy("strong", "web")
	h.twoPolicyTables.namespaced["strong"].Spec.Priority = 9
	h.handleAll(tableEvent{policy: PolicyKey{v1alpha1.SourcePropagationPolicy, "shop", "strong"}})
	if now := h.ownership.placedBy[key]; now != id {
		t.Errorf("%s places it, and %s did", now, id)
	}
}
