package binder

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/overrides"
	"atoll.dev/atoll/internal/policymatch"
)

const (
	kindOverridePolicy        = "OverridePolicy"
	kindClusterOverridePolicy = "ClusterOverridePolicy"
)

// overrideUse counts the Bundles whose latest content has rules of an override policy.
type overrideUse struct {
	policy  PolicyKey
	bundles int32
}

// recordUsedOverrides records the override policies that have rules in a Bundle's content. It enqueues
// the policies whose count changed. nil: the Bundle is deleted.
func (r *policyStatusWriter) recordUsedOverrides(id policymatch.BundleID, content *atoll.Content) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, now := r.overridesOf[id], r.usesIn(content)
	if r.overridesOf[id] = now; len(now) == 0 {
		delete(r.overridesOf, id)
	}
	r.addToCounts(now, before, 1)
	r.addToCounts(before, now, -1)
}

// addToCounts adds n to the counts of the policies that are not in the other list.
func (r *policyStatusWriter) addToCounts(uses, other []*overrideUse, n int32) {
	for _, u := range uses {
		if slices.Contains(other, u) {
			continue
		}
		if u.bundles += n; u.bundles == 0 {
			delete(r.overrideUses, u.policy)
		}
		r.enqueuePolicy(u.policy)
	}
}

// usesIn returns the override policies of a content, each once.
func (r *policyStatusWriter) usesIn(content *atoll.Content) (out []*overrideUse) {
	if content == nil {
		return nil
	}
	last := ""
	for i := range content.Rules {
		if content.Rules[i].Policy == last {
			continue
		}
		last = content.Rules[i].Policy
		key := policyKeyOfRule(last)
		if r.overrideUses[key] == nil {
			r.overrideUses[key] = &overrideUse{policy: key}
		}
		if u := r.overrideUses[key]; !slices.Contains(out, u) {
			out = append(out, u)
		}
	}
	return out
}

// policyKeyOfRule returns the policy that atoll.Rule names.
func policyKeyOfRule(policy string) PolicyKey {
	kind, name, _ := strings.Cut(policy, "/")
	key := PolicyKey{Kind: kind, Name: name}
	if ns, own, isNamespaced := strings.Cut(name, "/"); isNamespaced {
		key.Namespace, key.Name = ns, own
	}
	return key
}

// enqueueOverridePolicies rechecks the status of all override policies.
func (r *policyStatusWriter) enqueueOverridePolicies() {
	enqueue := func(key PolicyKey) { r.loop.EnqueueRecheck(key, statusDelay) }
	for _, p := range r.binder.Overrides.ClusterOverridePolicies() {
		enqueue(PolicyKey{kindClusterOverridePolicy, "", p.Name})
	}
	for _, ns := range r.binder.Namespaces.List() {
		for _, p := range r.binder.Overrides.OverridePolicies(ns) {
			enqueue(PolicyKey{kindOverridePolicy, ns, p.Name})
		}
	}
}

// writeOverrideStatus writes the status of an override policy when it has changed.
func (r *policyStatusWriter) writeOverrideStatus(ctx context.Context, key PolicyKey) error {
	r.mu.Lock()
	bundles := int32(0)
	if u := r.overrideUses[key]; u != nil {
		bundles = u.bundles
	}
	r.mu.Unlock()
	switch key.Kind {
	case kindOverridePolicy:
		for _, p := range r.binder.Overrides.OverridePolicies(key.Namespace) {
			if p.Name == key.Name {
				now := p.DeepCopy()
				now.Status = overrideStatus(p.Status, p.Generation, &p.Spec, bundles)
				return r.patchStatus(ctx, p, now, apiequality.Semantic.DeepEqual(p.Status, now.Status))
			}
		}
	case kindClusterOverridePolicy:
		for _, p := range r.binder.Overrides.ClusterOverridePolicies() {
			if p.Name == key.Name {
				now := p.DeepCopy()
				now.Status = overrideStatus(p.Status, p.Generation, &p.Spec.OverrideSpec, bundles)
				return r.patchStatus(ctx, p, now, apiequality.Semantic.DeepEqual(p.Status, now.Status))
			}
		}
	}
	return nil
}

// overrideStatus returns the status of an override policy that has rules in so many Bundles.
func overrideStatus(old v1alpha1.OverrideStatus, generation int64, spec *v1alpha1.OverrideSpec, bundles int32) v1alpha1.OverrideStatus {
	now := *old.DeepCopy()
	now.ObservedGeneration, now.Bundles = generation, bundles
	c := metav1.Condition{
		Type: v1alpha1.PolicyApplied, Status: metav1.ConditionTrue, Reason: string(atoll.ReasonRulesApply), ObservedGeneration: generation,
		Message: "its rules are in the content of Bundles",
	}
	switch fault := firstOverrideFault(spec); {
	case fault != "":
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, string(atoll.ReasonInvalidRule), fault
	case bundles == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, string(atoll.ReasonSelectsNothing), "no Bundle has an object that resourceSelectors select"
	}
	meta.SetStatusCondition(&now.Conditions, c)
	return now
}

// firstOverrideFault returns what makes a policy impossible to carry out; empty: nothing does.
// Admission refuses such policies. They can be in a store that an older version wrote.
func firstOverrideFault(spec *v1alpha1.OverrideSpec) string {
	for i, rs := range spec.ResourceSelectors {
		if _, err := metav1.LabelSelectorAsSelector(rs.LabelSelector); err != nil {
			return fmt.Sprintf("resourceSelectors[%d].labelSelector: %v", i, err)
		}
	}
	for i := range spec.OverrideRules {
		for _, problem := range overrides.CheckOverriders(spec.OverrideRules[i].Overriders) {
			return fmt.Sprintf("overrideRules[%d].overriders.%s: %s", i, problem.Path, problem.Reason)
		}
	}
	return ""
}
