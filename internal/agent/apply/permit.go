package apply

import (
	"cmp"
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/agent/policy"
	"atoll.dev/atoll/internal/atoll"
)

// An act that the member's administrator forbids is not done, and is reported. Objects that were
// applied before stay, with the report. They are protected neither from drift nor by new content.

// ReevaluateAgentPolicy decides again about all objects, because the member's policy has changed.
func (e *MemberApplier) ReevaluateAgentPolicy() {
	e.mu.Lock()
	for _, key := range e.book.RecordedKeys() {
		e.reevaluatePermission(key)
	}
	e.mu.Unlock()
	e.wakeRun()
}

// NamespaceLabelsChanged decides again about the objects of a namespace whose labels changed, or
// that was created or deleted.
func (e *MemberApplier) NamespaceLabelsChanged(namespace string) {
	e.mu.Lock()
	concerned := e.book.KeysInNamespace(namespace)
	if ns := atoll.NamespaceKey(namespace); e.tasks[ns] != nil {
		concerned = append(concerned, ns)
	}
	for _, key := range concerned {
		e.reevaluatePermission(key)
	}
	e.mu.Unlock()
	if len(concerned) > 0 {
		e.wakeRun()
	}
}

// reevaluatePermission decides again what may be done to the key. The caller holds mu.
func (e *MemberApplier) reevaluatePermission(key atoll.ItemKey) {
	t := e.ensureTask(key)
	t.weigh = true
	e.markObservationStale(key)
	if t.failure.isForPolicy() {
		t.failures = 0
		e.markDue(key)
		return
	}
	e.markDueUnlessBackingOff(key)
}

// isForPolicy reports whether the member's policy keeps the object from being written.
func (f *Failure) isForPolicy() bool {
	return f != nil && (f.Reason == atoll.ReasonDeniedByPolicy || f.Reason == atoll.ReasonHeldByPolicy)
}

// changesMember reports whether the work creates, changes or deletes something in the member.
func (p *pendingWork) changesMember() bool {
	switch p.Verb {
	case ownership.Apply, ownership.Replace, ownership.Expire, ownership.Delete, ownership.DeleteNamespace, ownership.Release, keepNamespace:
		return true
	}
	return p.correct && p.Item != nil
}

// checkHold returns why the policy lets no change start now; nil: it does. The work is tried again when that may be different.
func (e *MemberApplier) checkHold(p *pendingWork) *Failure {
	if !p.changesMember() {
		return nil
	}
	now := time.Now()
	why, until := e.o.Policy().HoldAt(now)
	if why == "" {
		return nil
	}
	rest := deniedRest
	if !until.IsZero() {
		rest = min(rest, max(until.Sub(now), time.Second))
	}
	return &Failure{Reason: atoll.ReasonHeldByPolicy, Message: truncateText(why), Waits: true, First: rest, Most: rest}
}

// checkPermitted returns why the policy forbids the plan's operation; nil: it is allowed.
func (e *MemberApplier) checkPermitted(ctx context.Context, p pendingWork) *Failure {
	if failure := e.checkHold(&p); failure != nil {
		return failure
	}
	switch p.Verb {
	case ownership.Apply, ownership.Replace, ownership.Expire, observeItem: // Replace makes again what it deletes
		return e.mayApply(ctx, p.Key, p.Account)
	case ownership.Delete, ownership.DeleteNamespace, ownership.Release:
		return e.evaluateAgentPolicy(ctx, p.Key, (*policy.Policy).RemovalRefusal)
	case ownership.Nothing:
		if p.correct {
			return e.mayApply(ctx, p.Key, p.Account)
		}
	}
	return nil // it only reads, or sends its own access review
}

// mayApply returns why the policy forbids to apply the object. account is the ServiceAccount that the hub names for it.
func (e *MemberApplier) mayApply(ctx context.Context, key atoll.ItemKey, account string) *Failure {
	return e.evaluateAgentPolicy(ctx, key, func(p *policy.Policy, key atoll.ItemKey, ns policy.Namespace) string {
		return cmp.Or(p.ApplyRefusal(key, ns), p.NamedAccountRefusal(key, account))
	})
}

// evaluateAgentPolicy returns the policy's decision.
func (e *MemberApplier) evaluateAgentPolicy(ctx context.Context, key atoll.ItemKey, question func(*policy.Policy, atoll.ItemKey, policy.Namespace) string) *Failure {
	p := e.o.Policy()
	ns, failure := e.readPolicyNamespace(ctx, p, key)
	if failure != nil {
		return failure
	}
	why := question(p, key, ns)
	if why == "" {
		return nil
	}
	return &Failure{Reason: atoll.ReasonDeniedByPolicy, Message: truncateText(why), First: deniedRest, Most: deniedRest}
}

// deniedRest is the delay until a denied object is checked again without an event. An agent that
// may not watch namespaces gets no events of them.
const deniedRest = 10 * time.Minute

// readPolicyNamespace reads the namespace if the policy depends on its labels.
func (e *MemberApplier) readPolicyNamespace(ctx context.Context, p *policy.Policy, key atoll.ItemKey) (ns policy.Namespace, failure *Failure) {
	if !p.NeedsNamespaceLabels(key) {
		return ns, nil
	}
	name := key.Namespace
	if key.IsNamespace() {
		name = key.Name
	}
	live, err := e.o.Client.GetMetadata(ctx, namespaces, "", name)
	switch {
	case apierrors.IsNotFound(err):
		return ns, nil
	case err != nil:
		return ns, failureFromError(err, atoll.NamespaceKey(name))
	}
	ns.Labels = labels.Set{}
	for k, v := range live.Labels {
		ns.Labels[k] = v
	}
	ns.Ours = live.Labels[atoll.LabelBundleUID] != ""
	return ns, nil
}

// recheckApplyPermission notes whether an object that is applied may be.
func (e *MemberApplier) recheckApplyPermission(ctx context.Context, p pendingWork) *Failure {
	e.mu.Lock()
	e.ensureTask(p.Key).weigh = false
	e.mu.Unlock()
	failure := e.mayApply(ctx, p.Key, p.Account)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case failure == nil:
		e.setForbidden(p.Key, "")
	case failure.Reason == atoll.ReasonDeniedByPolicy:
		e.setForbidden(p.Key, failure.Message)
	default:
		e.ensureTask(p.Key).weigh = true
		return failure
	}
	return nil
}

// deniedNamespaceFailure explains that the namespace of an object is not there although it is
// needed; nil where that is not the administrator's doing. The caller holds mu.
func (e *MemberApplier) deniedNamespaceFailure(ns string) *Failure {
	t := e.tasks[atoll.NamespaceKey(ns)]
	if t == nil || !t.failure.isForPolicy() && (t.failure == nil || t.failure.Reason != atoll.ReasonServiceAccountForbidden) {
		return nil
	}
	f := *t.failure
	f.Message = truncateText("namespace " + ns + " is not there, and " + f.Message)
	return &f
}

// withWriterServiceAccount returns the context of the ServiceAccount in whose name the key is written.
func (e *MemberApplier) withWriterServiceAccount(ctx context.Context, key atoll.ItemKey) context.Context {
	if account := e.o.Policy().ServiceAccount(key.Namespace); account != "" {
		return member.WithServiceAccount(ctx, key.Namespace, account)
	}
	return ctx
}
