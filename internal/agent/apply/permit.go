package apply

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"atoll.dev/atoll/internal/agent/claims"
	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/policy"
	"atoll.dev/atoll/internal/atoll"
)

// What the member's administrator does not allow is not done, and reported. What was applied
// before stays, with what is said of it; it is kept as it is neither from drift nor by new
// content.

// Weigh anew what may be done, since the member's policy has changed.
func (e *Engine) Weigh() {
	e.mu.Lock()
	for _, key := range e.book.Keys() {
		e.reweigh(key)
	}
	e.mu.Unlock()
	e.nudge()
}

// Relabelled tells that the labels of a namespace have changed, by which the member's policy
// may go, or that it came or went: what is in it is weighed anew.
func (e *Engine) Relabelled(namespace string) {
	e.mu.Lock()
	concerned := e.book.Inside(namespace)
	if ns := claims.Namespace(namespace); e.tasks[ns] != nil {
		concerned = append(concerned, ns)
	}
	for _, key := range concerned {
		e.reweigh(key)
	}
	e.mu.Unlock()
	if len(concerned) > 0 {
		e.nudge()
	}
}

// reweigh what may be done to the key. The caller holds mu.
func (e *Engine) reweigh(key atoll.ItemKey) {
	t := e.task(key)
	t.weigh = true
	if t.failure != nil && t.failure.Reason == ReasonPolicy {
		t.failures = 0
		e.due(key)
		return
	}
	e.soon(key)
}

// permitted tells why the plan's act may not be done; nil: it may.
func (e *Engine) permitted(ctx context.Context, p plan) *Failure {
	switch p.Verb {
	case claims.Apply, claims.Replace: // which makes again what it deletes
		return e.mayApply(ctx, p.Key)
	case claims.Delete, claims.DeleteNamespace, claims.Release:
		return e.may(ctx, p.Key, (*policy.Policy).Remove)
	case claims.Nothing:
		if p.correct {
			return e.mayApply(ctx, p.Key)
		}
	}
	return nil // it only looks, or asks itself
}

func (e *Engine) mayApply(ctx context.Context, key atoll.ItemKey) *Failure {
	return e.may(ctx, key, (*policy.Policy).Apply)
}

// may asks the policy by the question.
func (e *Engine) may(ctx context.Context, key atoll.ItemKey, question func(*policy.Policy, atoll.ItemKey, policy.Namespace) string) *Failure {
	p := e.o.Policy()
	ns, failure := e.namespaceFor(ctx, p, key)
	if failure != nil {
		return failure
	}
	why := question(p, key, ns)
	if why == "" {
		return nil
	}
	return &Failure{Reason: ReasonPolicy, Message: cut(why), First: deniedRest, Most: deniedRest}
}

// deniedRest is after how long what is denied is asked about again where nobody told that
// the policy, or the labels of a namespace, have changed: an agent that may not watch
// namespaces is told nothing of those.
const deniedRest = 10 * time.Minute

// namespaceFor the policy, as far as it asks for it.
func (e *Engine) namespaceFor(ctx context.Context, p *policy.Policy, key atoll.ItemKey) (ns policy.Namespace, failure *Failure) {
	if !p.Asks(key) {
		return ns, nil
	}
	name := key.Namespace
	if claims.IsNamespace(key) {
		name = key.Name
	}
	live, err := e.o.Client.Meta(ctx, namespaces, "", name)
	switch {
	case apierrors.IsNotFound(err):
		return ns, nil
	case err != nil:
		return ns, explain(err, claims.Namespace(name))
	}
	ns.Labels = labels.Set{}
	for k, v := range live.Labels {
		ns.Labels[k] = v
	}
	ns.Ours = live.Labels[atoll.LabelBundleUID] != ""
	return ns, nil
}

// weighed notes whether an object that is applied may be.
func (e *Engine) weighed(ctx context.Context, p plan) *Failure {
	e.mu.Lock()
	e.task(p.Key).weigh = false
	e.mu.Unlock()
	failure := e.mayApply(ctx, p.Key)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case failure == nil:
		delete(e.forbidden, p.Key)
	case failure.Reason == ReasonPolicy:
		e.forbidden[p.Key] = failure.Message
	default:
		e.task(p.Key).weigh = true
		return failure
	}
	return nil
}

// withoutNamespace explains that the namespace of an object is not there although it is
// needed; nil where that is not the administrator's doing. The caller holds mu.
func (e *Engine) withoutNamespace(ns string) *Failure {
	t := e.tasks[claims.Namespace(ns)]
	if t == nil || t.failure == nil || t.failure.Reason != ReasonPolicy {
		return nil
	}
	f := *t.failure
	f.Message = cut("namespace " + ns + " is not there, and " + f.Message)
	return &f
}

// inName of whom is written at the key.
func (e *Engine) inName(ctx context.Context, key atoll.ItemKey) context.Context {
	if account := e.o.Policy().ServiceAccount(key.Namespace); account != "" {
		return member.As(ctx, key.Namespace, account)
	}
	return ctx
}
