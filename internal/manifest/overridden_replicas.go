package manifest

import (
	"iter"
	"slices"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/overrides"
	"k8s.io/apimachinery/pkg/runtime"
)

// AllowsReplicaOverrides returns whether the content has rules, and divided items whose replicas
// overrides may set.
func AllowsReplicaOverrides(content *atoll.Content) bool {
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

// OverriddenReplicasByCluster returns OverriddenReplicas of each cluster, by name, without clusters
// for which it is empty.
func OverriddenReplicasByCluster(content *atoll.Content, clusters iter.Seq[atoll.ClusterView]) map[string]map[string]int64 {
	if !AllowsReplicaOverrides(content) {
		return nil
	}
	targets, out := NewVariantCache(content), map[string]map[string]int64{}
	for c := range clusters {
		if shares := targets.OverriddenReplicas(c); len(shares) > 0 {
			out[c.Name] = shares
		}
	}
	return out
}

// OverriddenReplicas returns the replicas that rules set in the cluster. It is computed once for
// each variant.
func (t *VariantCache) OverriddenReplicas(c atoll.ClusterView) map[string]int64 {
	variant := t.VariantOf(c)
	out, known := t.replicas[variant]
	if !known {
		out = t.renderer.overriddenReplicas(decodeRuleKey(t.key), &c)
		t.replicas[variant] = out
	}
	return out
}

// OverriddenReplicas returns, by item key, the replicas that rules set of divided items whose
// placement allows it. It is 0 where rules exclude the item. c provides the values of valueFrom;
// nil: there are none. An item to which a rule does not apply is left out, and RenderItems returns
// the error.
func OverriddenReplicas(content *atoll.Content, rules []int, c *atoll.ClusterView) map[string]int64 {
	return NewRenderer(content).overriddenReplicas(rules, c)
}

func (r *Renderer) overriddenReplicas(rules []int, c *atoll.ClusterView) map[string]int64 {
	var out map[string]int64
	var values overrides.ClusterValues
	p := r.ruleSetFor(rules)
	if c != nil && len(p.expressions) > 0 {
		values, _ = overrides.EvaluateValues(p.expressions, c)
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
		if it.exclusion != nil {
			give(it.item, 0)
			continue
		}
		b := it.ensureResult()
		if b.complete != nil {
			continue // its rules do not apply, or nothing sets its replicas
		}
		o := &overrides.ObjectPatcher{Item: it.item, Object: runtime.DeepCopyJSON(b.obj), Notes: slices.Clip(b.notes), Values: values}
		_, err := o.ApplyRules(it.rules[it.sharedRules:])
		if n, ok := o.OverriddenReplicas(b.statedReplicas); err == nil && ok {
			give(it.item, n)
		}
	}
	return out
}
