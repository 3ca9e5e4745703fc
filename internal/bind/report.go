package bind

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
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/claim"
)

// reportAfter is how long the status of a policy may lag behind: counts of objects
// are not worth a write for every object.
const reportAfter = 10 * time.Second

// ConditionApplied of a policy is false where it selects nothing, or something that
// cannot be sent.
const ConditionApplied = "Applied"

// reporter writes the status of policies. touch and problems may be called
// concurrently.
type reporter struct {
	b     *Binder
	queue workqueue.TypedRateLimitingInterface[policyKey]

	mu   sync.Mutex
	said map[claim.BundleID][]claim.Problem
}

func newReporter(b *Binder) *reporter {
	return &reporter{
		b: b, said: map[claim.BundleID][]claim.Problem{},
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.DefaultTypedControllerRateLimiter[policyKey](),
			workqueue.TypedRateLimitingQueueConfig[policyKey]{Name: "bind-policies"}),
	}
}

// touch a policy that may place other objects now.
func (r *reporter) touch(key policyKey) { r.queue.AddAfter(key, reportAfter) }

// problems notes what of a Bundle cannot become an item, and says it once, for a reason.
func (r *reporter) problems(id claim.BundleID, reason string, problems []claim.Problem) {
	r.mu.Lock()
	before := r.said[id]
	if r.said[id] = problems; len(problems) == 0 {
		delete(r.said, id)
	}
	r.mu.Unlock()
	for _, p := range problems {
		if !slices.ContainsFunc(before, func(o claim.Problem) bool { return o.Key == p.Key && o.Err.Error() == p.Err.Error() }) {
			r.b.Log.Warn("a template cannot be sent as it is; members keep what they have", "bundle", id.String(), "template", p.Key.String(), "err", p.Err)
			if r.b.Events != nil && p.Key.Kind != "" {
				r.b.Events.Refused(p.Key, reason, fmt.Sprintf("%v; members keep what they have of it", p.Err))
			}
		}
	}
}

// work on one policy; false when the queue has been shut down.
func (r *reporter) work(ctx context.Context) bool {
	key, shutdown := r.queue.Get()
	if shutdown {
		return false
	}
	defer r.queue.Done(key)
	if err := client.IgnoreNotFound(r.report(ctx, key)); err != nil && ctx.Err() == nil {
		r.b.Log.Warn("could not write a policy's status; trying again", "kind", key.kind, "namespace", key.namespace, "name", key.name, "err", err)
		r.queue.AddRateLimited(key)
		return true
	}
	r.queue.Forget(key)
	return true
}

// report writes a policy's status where it has changed.
func (r *reporter) report(ctx context.Context, key policyKey) error {
	switch key.kind {
	case v1alpha1.SourcePropagationPolicy:
		if p, ok := r.b.Policies.PropagationPolicy(key.namespace, key.name); ok {
			now := p.DeepCopy()
			now.Status = r.status(key, p.Status, p.Generation, &p.Spec)
			return r.write(ctx, p, now, apiequality.Semantic.DeepEqual(p.Status, now.Status))
		}
	case v1alpha1.SourceClusterPropagationPolicy:
		if p, ok := r.b.Policies.ClusterPropagationPolicy(key.name); ok {
			now := p.DeepCopy()
			now.Status = r.status(key, p.Status, p.Generation, &p.Spec)
			return r.write(ctx, p, now, apiequality.Semantic.DeepEqual(p.Status, now.Status))
		}
	}
	return nil
}

func (r *reporter) write(ctx context.Context, old, now client.Object, same bool) error {
	if same {
		return nil
	}
	return r.b.Client.Status().Patch(ctx, now, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}), owner)
}

// status of a policy that places these objects now.
func (r *reporter) status(key policyKey, old v1alpha1.PropagationStatus, generation int64, spec *v1alpha1.PropagationSpec) v1alpha1.PropagationStatus {
	now := *old.DeepCopy()
	now.Objects = 0
	var broken []string
	for _, id := range r.b.claims.ofSource(key.kind, key.namespace, key.name) {
		_, placed := r.b.claims.known(id)
		now.Objects += int32(len(placed))
		r.mu.Lock()
		for _, p := range r.said[id] {
			name := p.Key.Kind + " " + p.Key.Name + ": "
			if p.Key.Kind == "" || p.Key.IsSecret() {
				name = ""
			}
			broken = append(broken, name+openly(p))
		}
		r.mu.Unlock()
	}
	c := metav1.Condition{Type: ConditionApplied, Status: metav1.ConditionTrue, Reason: "Placed", ObservedGeneration: generation, Message: "what it selects is bound to Bundles"}
	unread := ""
	for _, rs := range spec.ResourceSelectors {
		if _, known := r.b.Templates.Namespaced(claim.KindOf(rs).Group, rs.Kind); known && unread == "" && !r.b.Templates.Synced(claim.KindOf(rs).Group, rs.Kind) {
			unread = r.b.why(claim.KindOf(rs))
		}
	}
	unplaced := r.b.unplaced(key.kind, key.namespace, spec)
	switch {
	case unplaced != "":
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, reasonNoPlacement, unplaced
	case unread != "":
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, reasonUnread, unread
	case len(broken) > 0:
		slices.Sort(broken)
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, ReasonCannotSend, strings.Join(broken, "; ")
		if len(c.Message) > 1024 {
			c.Message = c.Message[:1021] + "..."
		}
	case now.Objects == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "SelectsNothing", "no object that is not held by another policy or annotation matches resourceSelectors"
	}
	meta.SetStatusCondition(&now.Conditions, c)
	return now
}
