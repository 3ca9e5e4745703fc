package render

import (
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret"
)

// Hands tells whether the content has divided items whose replicas overrides may set,
// and rules.
func Hands(content *atoll.Content) bool {
	if content == nil || len(content.Rules) == 0 {
		return false
	}
	for i := range content.Items {
		if content.Items[i].ReplicaOverrides {
			return true
		}
	}
	return false
}

// HandedIn gives what Handed gives for each of the clusters, by name, those left out for
// which it gives nothing.
func HandedIn(content *atoll.Content, clusters iter.Seq[atoll.ClusterView]) map[string]map[string]int64 {
	if !Hands(content) {
		return nil
	}
	targets, out := TargetsOf(content), map[string]map[string]int64{}
	for c := range clusters {
		if shares := targets.Handed(c); len(shares) > 0 {
			out[c.Name] = shares
		}
	}
	return out
}

// Handed gives what Handed gives for the cluster, worked out once for each variant.
func (t *Targets) Handed(c atoll.ClusterView) map[string]int64 {
	variant := t.Variant(c)
	out, known := t.handed[variant]
	if !known {
		out = t.renderer.handed(matchingOf(t.key), &c)
		t.handed[variant] = out
	}
	return out
}

// Handed gives, by item key, the replicas that the rules set of divided items whose
// placement lets them: 0 where they keep it out of the cluster. Values are the cluster's;
// nil: there are none to take. An item to which a rule does not apply is left out:
// rendering it says why.
func Handed(content *atoll.Content, rules []int, c *atoll.ClusterView) map[string]int64 {
	return Compile(content).handed(rules, c)
}

func (r *Renderer) handed(rules []int, c *atoll.ClusterView) map[string]int64 {
	var out map[string]int64
	var values valueSet
	p := r.planOf(rules)
	if c != nil && len(p.texts) > 0 {
		values, _ = valuesOf(p.texts, c)
	}
	give := func(item *atoll.Item, n int64) {
		if out == nil {
			out = map[string]int64{}
		}
		out[item.Key.String()] = max(n, 0)
	}
	for i := range p.items {
		it := &p.items[i]
		if !it.item.ReplicaOverrides {
			continue
		}
		if it.kept != nil {
			give(it.item, 0)
			continue
		}
		b := it.basis()
		if b.whole != nil {
			continue // its rules do not apply, or nothing sets its replicas
		}
		o := &overriding{item: it.item, obj: copied(b.obj), notes: slices.Clip(b.notes), values: values}
		_, err := o.applyAll(it.rules[it.same:])
		if n, ok := o.handed(b.replicas); err == nil && ok {
			give(it.item, n)
		}
	}
	return out
}

// handed tells whether rules have set the object's replicas, which its template states
// as that, and to what.
func (o *overriding) handed(stated int64) (n int64, ok bool) {
	n, path, has := interpret.Replicas(&unstructured.Unstructured{Object: o.obj})
	if !has || !o.item.ReplicaOverrides {
		return 0, false
	}
	at := pointerTo(path...)
	for i := range o.notes {
		ok = ok || o.notes[i].Path == at && o.notes[i].Policy != PolicyPlacement
	}
	return n, ok || n != stated
}

// shared replicas are the placement's alone.
func (o *overriding) shared() bool { return o.item.Divided && !o.item.ReplicaOverrides }
