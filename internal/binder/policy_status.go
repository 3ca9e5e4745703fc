package binder

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bundlecontent"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/reconcile"
)

// statusDelay is how long the status of a policy may lag behind, so that many objects cost one
// write.
const statusDelay = 10 * time.Second

// policyStatusWriter writes the status of policies. enqueuePolicy, setProblems and recordUsedOverrides may
// be called concurrently.
type policyStatusWriter struct {
	binder *Binder
	loop   *reconcile.Loop[PolicyKey]

	mu               sync.Mutex
	reportedProblems map[policymatch.BundleID][]bundlecontent.TemplateProblem
	overrideUses     map[PolicyKey]*overrideUse
	overridesOf      map[policymatch.BundleID][]*overrideUse // only Bundles with rules
}

func newPolicyStatusWriter(b *Binder) *policyStatusWriter {
	r := &policyStatusWriter{
		binder: b, reportedProblems: map[policymatch.BundleID][]bundlecontent.TemplateProblem{},
		overrideUses: map[PolicyKey]*overrideUse{}, overridesOf: map[policymatch.BundleID][]*overrideUse{},
	}
	r.loop = reconcile.New(reconcile.Options[PolicyKey]{
		Name: "bind-policies",
		Reconcile: func(ctx context.Context, key PolicyKey) (time.Duration, error) {
			return 0, client.IgnoreNotFound(r.writeStatus(ctx, key))
		},
		Failed: func(key PolicyKey, err error) {
			b.Log.Warn("could not write a policy's status; trying again", "kind", key.Kind, "namespace", key.Namespace, "name", key.Name, "err", err)
		},
	})
	return r
}

// enqueuePolicy writes the status of a policy after statusDelay.
func (r *policyStatusWriter) enqueuePolicy(key PolicyKey) { r.loop.EnqueueAfter(key, statusDelay) }

// setProblems records which templates of a Bundle cannot become items. It logs and reports each
// problem once.
func (r *policyStatusWriter) setProblems(id policymatch.BundleID, reason atoll.Reason, setProblems []bundlecontent.TemplateProblem) {
	r.mu.Lock()
	before := r.reportedProblems[id]
	if r.reportedProblems[id] = setProblems; len(setProblems) == 0 {
		delete(r.reportedProblems, id)
	}
	r.mu.Unlock()
	for _, p := range setProblems {
		if !slices.ContainsFunc(before, func(o bundlecontent.TemplateProblem) bool { return o.Key == p.Key && o.Err.Error() == p.Err.Error() }) {
			r.binder.Log.Warn("a template cannot be sent as it is; members keep what they have", "bundle", id.String(), "template", p.Key.String(), "err", p.Err)
			if r.binder.Events != nil && p.Key.Kind != "" {
				r.binder.Events.RecordRefusal(p.Key, reason, fmt.Sprintf("%v; members keep what they have of it", p.Err))
			}
		}
	}
}

// writeStatus writes a policy's status when it has changed.
func (r *policyStatusWriter) writeStatus(ctx context.Context, key PolicyKey) error {
	switch key.Kind {
	case v1alpha1.SourcePropagationPolicy:
		if p, ok := r.binder.Policies.GetPropagationPolicy(key.Namespace, key.Name); ok {
			now := p.DeepCopy()
			now.Status = r.computeStatus(key, p.Status, p.Generation, &p.Spec)
			return r.patchStatus(ctx, p, now, apiequality.Semantic.DeepEqual(p.Status, now.Status))
		}
	case v1alpha1.SourceClusterPropagationPolicy:
		if p, ok := r.binder.Policies.GetClusterPropagationPolicy(key.Name); ok {
			now := p.DeepCopy()
			now.Status = r.computeStatus(key, p.Status, p.Generation, &p.Spec)
			return r.patchStatus(ctx, p, now, apiequality.Semantic.DeepEqual(p.Status, now.Status))
		}
	default:
		return r.writeOverrideStatus(ctx, key)
	}
	return nil
}

func (r *policyStatusWriter) patchStatus(ctx context.Context, old, now client.Object, same bool) error {
	if same {
		return nil
	}
	return r.binder.Client.Status().Patch(ctx, now, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}), fieldOwner)
}

// computeStatus returns the status of a policy from the Bundles that it places.
func (r *policyStatusWriter) computeStatus(key PolicyKey, old v1alpha1.PropagationStatus, generation int64, spec *v1alpha1.PropagationSpec) v1alpha1.PropagationStatus {
	now := *old.DeepCopy()
	var broken []string
	now.ObservedGeneration = generation
	now.Objects, broken = r.countObjects(key)
	c := metav1.Condition{Type: v1alpha1.PolicyApplied, Status: metav1.ConditionTrue, Reason: string(atoll.ReasonPlaced), ObservedGeneration: generation, Message: "what it selects is bound to Bundles"}
	unread := ""
	for _, rs := range spec.ResourceSelectors {
		if _, known := r.binder.Kinds.IsNamespaced(policymatch.SelectorKind(rs).Group, rs.Kind); known && unread == "" && !r.binder.Kinds.IsSynced(policymatch.SelectorKind(rs).Group, rs.Kind) {
			unread = r.binder.unreadableReason(policymatch.SelectorKind(rs))
		}
	}
	unplaced, lacking := r.binder.missingPlacementReason(key.Kind, key.Namespace, spec), r.binder.overridesWaitOf(key, spec)
	switch {
	case unplaced != "":
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, string(atoll.ReasonPlacementMissing), unplaced
	case lacking != "":
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, string(atoll.ReasonOverridesMissing), lacking
	case unread != "":
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, string(atoll.ReasonCannotRead), unread
	case len(broken) > 0:
		slices.Sort(broken)
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, string(atoll.ReasonCannotSend), strings.Join(broken, "; ")
		if len(c.Message) > 1024 {
			c.Message = c.Message[:1021] + "..."
		}
	case now.Objects == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, string(atoll.ReasonSelectsNothing), "no object that is not held by another policy or annotation matches resourceSelectors"
	}
	meta.SetStatusCondition(&now.Conditions, c)
	return now
}

// countObjects counts the objects that a policy places, and words their problems.
func (r *policyStatusWriter) countObjects(key PolicyKey) (objects int32, broken []string) {
	for _, id := range r.binder.ownership.bundlesOfSource(key.Kind, key.Namespace, key.Name) {
		_, placed := r.binder.ownership.originAndPlacedKeys(id)
		objects += int32(len(placed))
		r.mu.Lock()
		for _, p := range r.reportedProblems[id] {
			name := p.Key.Kind + " " + p.Key.Name + ": "
			if p.Key.Kind == "" || p.Key.IsSecret() {
				name = ""
			}
			broken = append(broken, name+redactSecrets(p))
		}
		r.mu.Unlock()
	}
	return objects, broken
}
