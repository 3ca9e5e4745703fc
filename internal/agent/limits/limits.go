// Package limits follows the AgentPolicy of a member.
//
// Contract: CurrentPolicy returns the policy in force, never older than the last answer of the
// member's API. A member that does not serve the kind, or has no policy, has none (nil). A policy
// that may not be read or watched, or is not understood, counts as one that refuses everything.
// While the member's API does not answer, its last answer holds. Nothing is watched in a member
// that does not serve the kind. Labels of namespaces are watched while the policy selects by them.
//
// Read is called before anything is done to the member, Run once. All methods may be called from
// any goroutine.
package limits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"atoll.dev/atoll/api/agent/v1alpha1"
	"atoll.dev/atoll/internal/agent/crash"
	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/policy"
	"atoll.dev/atoll/internal/wakeup"
)

// Options of Limits. All are required.
type Options struct {
	Client *member.Client
	// Changed is called after Current has changed. It must not block.
	Changed func()
	// Relabelled is called, while the policy selects namespaces by labels, for each namespace
	// once, and when its labels have changed, or it came or went. It must not block.
	Relabelled func(namespace string)
	Log        *slog.Logger
}

// AgentPolicyFollower limits what the agent does in its member.
type AgentPolicyFollower struct {
	o      Options
	served chan struct{}
	turned chan struct{} // capacity 1: Current did

	mu sync.Mutex
	// lastReported is the policy as it was read last; blind is why it cannot be followed.
	lastReported *policy.Policy
	blind        error
	current      *policy.Policy
}

// New gives Limits that are not known yet, so that nothing is allowed.
func New(o Options) *AgentPolicyFollower {
	closed := policy.DenyAllPolicy("it was not read yet")
	return &AgentPolicyFollower{o: o, served: make(chan struct{}, 1), turned: make(chan struct{}, 1), lastReported: closed, current: closed}
}

// CurrentPolicy returns the current policy.
func (l *AgentPolicyFollower) CurrentPolicy() *policy.Policy {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}

// APIsChanged is called when the member serves other APIs than before.
func (l *AgentPolicyFollower) APIsChanged() { wakeup.WakeReader(l.served) }

// policyResource returns the resource that serves policies, if the member does in the version that
// this agent supports.
func (l *AgentPolicyFollower) policyResource() (member.Resource, bool) {
	return l.o.Client.APIs().LookupKind(v1alpha1.GroupVersion.WithKind(v1alpha1.AgentPolicyKind))
}

// Read reads the policy. An error means that the member did not answer; whatever it answers is
// Current. The client must have discovered.
func (l *AgentPolicyFollower) Read(ctx context.Context) error {
	res, served := l.policyResource()
	if !served {
		return l.applyUnservedPolicy()
	}
	obj, err := l.o.Client.Get(ctx, res, "", v1alpha1.AgentPolicyName)
	switch {
	case err == nil:
		l.setReadPolicy(parsePolicyOrDenyAll(obj))
	case !l.handlePolicyReadError(err):
		return fmt.Errorf("read AgentPolicy %s of the member: %w", v1alpha1.AgentPolicyName, err)
	}
	return nil
}

// applyUnservedPolicy sets the policy for a member that does not serve the kind: deny-all where
// another version is served, else none.
func (l *AgentPolicyFollower) applyUnservedPolicy() error {
	apis := l.o.Client.APIs()
	switch _, other := apis.PreferredResource(schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: v1alpha1.AgentPolicyKind}); {
	case other:
		l.setReadPolicy(policy.DenyAllPolicy("it is served in no version that this agent supports, which is " + v1alpha1.GroupVersion.Version + ": update the agent"))
	case apis.IsGroupSilent(v1alpha1.GroupVersion.Group):
		return errors.New("the member does not report whether it serves AgentPolicies")
	default:
		l.setReadPolicy(nil)
	}
	return nil
}

// handlePolicyReadError handles an error that answers the read of the policy: not found is no
// policy, forbidden blocks the agent; it returns false for other errors.
func (l *AgentPolicyFollower) handlePolicyReadError(err error) bool {
	switch {
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		l.setReadPolicy(nil) // the object, or its kind, is gone
	case apierrors.IsForbidden(err):
		l.changeAndNotify(func() {
			l.blind = fmt.Errorf("the agent may not get, list and watch agentpolicies.%s: %w", v1alpha1.GroupVersion.Group, err)
		})
	default:
		return false
	}
	return true
}

// setReadPolicy stores a policy that a successful read returned.
func (l *AgentPolicyFollower) setReadPolicy(said *policy.Policy) {
	l.changeAndNotify(func() { l.lastReported, l.blind = said, nil })
}

// changeAndNotify applies a change of the known policies, and notifies subscribers when the
// effective policy differs.
func (l *AgentPolicyFollower) changeAndNotify(how func()) {
	l.mu.Lock()
	how()
	now := l.lastReported
	if l.blind != nil {
		now = policy.DenyAllPolicy(l.blind.Error())
	}
	changed := !now.Equal(l.current)
	l.current = now
	l.mu.Unlock()
	if changed {
		wakeup.WakeReader(l.turned)
		l.o.Log.Info("what the hub may do in this member has changed", "agentPolicy", now)
		l.o.Changed()
	}
}

// Run keeps up until ctx ends.
func (l *AgentPolicyFollower) Run(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer crash.RecoverContained(ctx)
		l.followSelectedNamespaces(ctx)
	}()
	defer func() { <-done }()
	defer crash.RecoverContained(ctx) // before what runs is waited for: it is to end
	for ctx.Err() == nil {
		res, served := l.policyResource()
		if served {
			l.followPolicy(ctx, res)
			continue
		}
		if err := l.applyUnservedPolicy(); err != nil {
			l.o.Log.Warn("what the hub may do stays as it was known last", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-l.served:
		}
	}
}

// followPolicy follows the policy while the kind is served.
func (l *AgentPolicyFollower) followPolicy(ctx context.Context, res member.Resource) {
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer crash.RecoverContained(ctx)
		expected := &unstructured.Unstructured{}
		expected.SetGroupVersionKind(res.GVK())
		cache.NewReflectorWithOptions(l.policySource(res), expected, (*agentPolicyStore)(l),
			cache.ReflectorOptions{Name: "atoll", TypeDescription: res.GVK().String()}).RunWithContext(ctx)
	}()
	defer func() { stop(); <-done }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.served:
			if now, served := l.policyResource(); !served || now != res {
				return
			}
		}
	}
}

// policySource lists and watches objects of the one policy that counts.
func (l *AgentPolicyFollower) policySource(res member.Resource) cache.ListerWatcher {
	at := l.o.Client.DynamicClient().Resource(res.GroupVersionResource)
	one := func(o metav1.ListOptions) metav1.ListOptions {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, v1alpha1.AgentPolicyName).String()
		return o
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := at.List(ctx, one(o))
			if err != nil {
				l.handlePolicyReadError(err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := at.Watch(ctx, one(o))
			if err != nil {
				l.handlePolicyReadError(err)
			} else {
				l.changeAndNotify(func() { l.blind = nil })
			}
			return w, err
		},
	}
}

func parsePolicyOrDenyAll(obj any) *policy.Policy {
	text, err := json.Marshal(obj)
	if err != nil {
		return policy.DenyAllPolicy(fmt.Sprintf("it cannot be read: %v", err))
	}
	return policy.ParsePolicy(text)
}

// setWatchedPolicy stores the policy of a watch event: the event does not prove that the policy may be
// watched.
func (l *AgentPolicyFollower) setWatchedPolicy(said *policy.Policy) {
	l.changeAndNotify(func() { l.lastReported = said })
}

// agentPolicyStore is the store of the reflector.
type agentPolicyStore AgentPolicyFollower

// Add stores a policy.
func (m *agentPolicyStore) Add(obj any) error { return m.Update(obj) }

// Update stores a changed policy.
func (m *agentPolicyStore) Update(obj any) error {
	(*AgentPolicyFollower)(m).setWatchedPolicy(parsePolicyOrDenyAll(obj))
	return nil
}

// Delete drops a policy.
func (m *agentPolicyStore) Delete(any) error {
	(*AgentPolicyFollower)(m).setWatchedPolicy(nil)
	return nil
}

// Replace replaces all there are: one, or none.
func (m *agentPolicyStore) Replace(objs []any, _ string) error {
	var said *policy.Policy
	for _, obj := range objs {
		said = parsePolicyOrDenyAll(obj)
	}
	(*AgentPolicyFollower)(m).setWatchedPolicy(said)
	return nil
}

// Resync does nothing.
func (m *agentPolicyStore) Resync() error { return nil }
