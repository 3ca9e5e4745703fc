package bind

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/state"
)

// reported are rows that agents have reported on, or not, by Bundle.
type reported struct {
	Rows
	rows map[string][]state.Row
}

func (t reported) OfBundle(uid string) []state.Row { return t.rows[uid] }

// hearing is a Binder that hears of things one by one.
type hearing struct {
	*Binder
	lagoon *lagoon
	both
	reported
	cuts map[claim.BundleID]int64
}

func newHearing(t *testing.T) *hearing {
	l, b := shop(t)
	h := &hearing{
		Binder: b, lagoon: l, reported: reported{rows: map[string][]state.Row{}}, cuts: map[claim.BundleID]int64{},
		both: both{own: map[string]*v1alpha1.PropagationPolicy{}, cluster: map[string]*v1alpha1.ClusterPropagationPolicy{}},
	}
	clear(l.templates)
	b.claims, b.index, b.Options.Policies, b.Options.Rows = newClaims(), policyIndex{}, h.both, h.reported
	b.reports = newReporter(b)
	t.Cleanup(b.reports.queue.ShutDown)
	return h
}

func (h *hearing) hear(e event) {
	h.handle(e)
	for e, ok := h.inbox.take(); ok; e, ok = h.inbox.take() {
		h.handle(e)
	}
}

// cut a Revision for whoever places the key, to which its row moves. The agent has been
// given what was there before, or this too.
func (h *hearing) cut(key atoll.ItemKey, delivered bool) {
	id, placed := h.claims.placed[key]
	if !placed {
		return
	}
	h.cuts[id]++
	uid, n, had := "u-"+id.Name, h.cuts[id], int64(1)
	h.claims.has(id, uid, n, &atoll.Content{Items: []atoll.Item{{Key: key}}})
	if delivered {
		had = 1 + n
	}
	h.reported.rows[uid] = []state.Row{{
		Spec:   atoll.RowSpec{Revision: atoll.RevisionName(uid, n, "0123456789abcdef"), Generation: 1 + n},
		Status: &atoll.RowStatus{Generation: had},
	}}
}

// policy that is a random one of its kind, and the event of hearing of it.
func (h *hearing) policy(r *rand.Rand, name string) event {
	spec := v1alpha1.PropagationSpec{
		Priority:          int32(r.IntN(3)),
		ResourceSelectors: []v1alpha1.ResourceSelector{{APIVersion: "apps/v1", Kind: "Deployment", Name: []string{"", "web"}[r.IntN(2)]}},
	}
	meta := metav1.ObjectMeta{Name: name, UID: "uid-x", CreationTimestamp: metav1.NewTime(time.Unix(int64(r.IntN(2)), 0))}
	if r.IntN(2) == 0 {
		h.both.cluster[name] = &v1alpha1.ClusterPropagationPolicy{ObjectMeta: meta, Spec: spec}
		return event{policy: policyKey{v1alpha1.SourceClusterPropagationPolicy, "", name}}
	}
	meta.Namespace = "shop"
	h.both.own[name] = &v1alpha1.PropagationPolicy{ObjectMeta: meta, Spec: spec}
	return event{policy: policyKey{v1alpha1.SourcePropagationPolicy, "shop", name}}
}

// TestOwnersDoNotFollowFromTheOrderOfNews: in whatever order an object and the policies
// that select it are heard of, and whenever Revisions are cut meanwhile, the same policy
// places it in the end, as long as no agent has had it; from then on it stays.
func TestOwnersDoNotFollowFromTheOrderOfNews(t *testing.T) {
	web := edition("shop", "web", "web:1", 1)
	key := claim.KeyOf(web)
	for seed := range uint64(300) {
		owners := map[string]bool{}
		for order := range uint64(6) {
			h, r := newHearing(t), rand.New(rand.NewPCG(seed, 1))
			var news []event
			for i := range 2 + r.IntN(3) {
				news = append(news, h.policy(r, fmt.Sprint("p", i)))
			}
			own, cluster := h.both.own, h.both.cluster
			h.both.own, h.both.cluster = map[string]*v1alpha1.PropagationPolicy{}, map[string]*v1alpha1.ClusterPropagationPolicy{}
			h.Options.Policies = h.both
			news = append(news, event{template: key})
			r = rand.New(rand.NewPCG(seed, 2+order))
			r.Shuffle(len(news), func(i, j int) { news[i], news[j] = news[j], news[i] })
			for _, e := range news {
				switch e.policy.kind {
				case v1alpha1.SourcePropagationPolicy:
					h.both.own[e.policy.name] = own[e.policy.name]
				case v1alpha1.SourceClusterPropagationPolicy:
					h.both.cluster[e.policy.name] = cluster[e.policy.name]
				default:
					h.lagoon.templates[key] = web
				}
				h.hear(e)
				if r.IntN(2) == 0 {
					h.cut(key, false)
				}
			}
			owner := h.claims.placed[key]
			owners[owner.String()] = true
			want := h.decides(claim.SubjectFrom(web), nil)
			if id, _ := claim.BundleFor(*want.Winner, claim.SubjectFrom(web)); id != owner {
				t.Fatalf("seed %d, order %d: %s places it, and %s is the best", seed, order, owner, id)
			}

			// Once an agent has it, whoever comes later has to preempt.
			h.cut(key, true)
			h.both.own["late"] = pp("late", "web")
			h.both.own["late"].Spec.Priority = 100
			h.hear(event{policy: policyKey{v1alpha1.SourcePropagationPolicy, "shop", "late"}})
			if now := h.claims.placed[key]; now != owner {
				t.Fatalf("seed %d, order %d: delivered for %s, and %s takes it", seed, order, owner, now)
			}
		}
		if len(owners) != 1 {
			t.Fatalf("seed %d: %v, by the order of the news", seed, owners)
		}
	}
}

// TestWhatWasThereIsSettled: a hub that starts takes nothing from whoever holds it.
func TestWhatWasThereIsSettled(t *testing.T) {
	h := newHearing(t)
	web := edition("shop", "web", "web:1", 1)
	key := claim.KeyOf(web)
	h.lagoon.templates[key] = web
	h.both.own["weak"] = pp("weak", "web")
	h.hear(event{policy: policyKey{v1alpha1.SourcePropagationPolicy, "shop", "weak"}})
	id := h.claims.placed[key]
	h.claims.has(id, "u", 0, &atoll.Content{Items: []atoll.Item{{Key: key}}})
	h.both.own["strong"] = pp("strong", "web")
	h.both.own["strong"].Spec.Priority = 9
	h.hear(event{policy: policyKey{v1alpha1.SourcePropagationPolicy, "shop", "strong"}})
	if now := h.claims.placed[key]; now != id {
		t.Errorf("%s places it, and %s did", now, id)
	}
}
