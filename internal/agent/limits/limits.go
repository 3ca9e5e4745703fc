// Package limits keeps up with the AgentPolicy of a member.
//
// Contract: Current is what holds now, never older than the last that the member's API
// said. A member that does not serve the kind, or has no policy, has none (nil). One that has
// a policy which may not be read, or followed, or is not understood, has a policy that
// refuses everything. While the member's API does not answer, what it said last holds.
// Nothing is watched in a member that does not serve the kind. Of namespaces the labels are,
// while the policy selects by them.
//
// Read has to be called before anything is done to the member, Run once; all methods may be
// called from any goroutine.
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

// Limits of what the agent does in its member.
type Limits struct {
	o      Options
	served chan struct{}
	turned chan struct{} // capacity 1: Current did

	mu sync.Mutex
	// said is the policy as it was read last; blind says why it cannot be followed.
	said    *policy.Policy
	blind   error
	current *policy.Policy
}

// New gives Limits that are not known yet, so that nothing is allowed.
func New(o Options) *Limits {
	closed := policy.Closed("it was not read yet")
	return &Limits{o: o, served: make(chan struct{}, 1), turned: make(chan struct{}, 1), said: closed, current: closed}
}

// Current policy.
func (l *Limits) Current() *policy.Policy {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}

// Served is told that what the member serves has changed.
func (l *Limits) Served() {
	select {
	case l.served <- struct{}{}:
	default:
	}
}

// resource that serves policies, if the member does in the version that this agent knows.
func (l *Limits) resource() (member.Resource, bool) {
	return l.o.Client.APIs().Lookup(v1alpha1.GroupVersion.WithKind(v1alpha1.AgentPolicyKind))
}

// Read the policy. The error says that the member did not answer; whatever it answers is
// Current. The client must have discovered.
func (l *Limits) Read(ctx context.Context) error {
	res, served := l.resource()
	if !served {
		return l.unserved()
	}
	obj, err := l.o.Client.Get(ctx, res, "", v1alpha1.AgentPolicyName)
	switch {
	case err == nil:
		l.set(read(obj))
	case !l.heard(err):
		return fmt.Errorf("read AgentPolicy %s of the member: %w", v1alpha1.AgentPolicyName, err)
	}
	return nil
}

// unserved says what holds where the member does not serve the kind as this agent knows it.
func (l *Limits) unserved() error {
	apis := l.o.Client.APIs()
	switch _, other := apis.Preferred(schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: v1alpha1.AgentPolicyKind}); {
	case other:
		l.set(policy.Closed("it is served in no version that this agent knows, which is " + v1alpha1.GroupVersion.Version + ": update the agent"))
	case apis.Silent(v1alpha1.GroupVersion.Group):
		return errors.New("the member does not say whether it serves AgentPolicies")
	default:
		l.set(nil)
	}
	return nil
}

// heard takes in an answer that is an error; false where it is none.
func (l *Limits) heard(err error) bool {
	switch {
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		l.set(nil) // the object, or its kind, is gone
	case apierrors.IsForbidden(err):
		l.change(func() {
			l.blind = fmt.Errorf("the agent may not get, list and watch agentpolicies.%s: %w", v1alpha1.GroupVersion.Group, err)
		})
	default:
		return false
	}
	return true
}

// set what was read, by who could.
func (l *Limits) set(said *policy.Policy) { l.change(func() { l.said, l.blind = said, nil }) }

// change what is known, and tell of it where something else holds then.
func (l *Limits) change(how func()) {
	l.mu.Lock()
	how()
	now := l.said
	if l.blind != nil {
		now = policy.Closed(l.blind.Error())
	}
	changed := !now.Equal(l.current)
	l.current = now
	l.mu.Unlock()
	if changed {
		select {
		case l.turned <- struct{}{}:
		default:
		}
		l.o.Log.Info("what the hub may do in this member has changed", "agentPolicy", now)
		l.o.Changed()
	}
}

// Run keeps up until ctx ends.
func (l *Limits) Run(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer crash.Recover(ctx)
		l.selecting(ctx)
	}()
	defer func() { <-done }()
	defer crash.Recover(ctx) // before what runs is waited for: it is to end
	for ctx.Err() == nil {
		res, served := l.resource()
		if served {
			l.follow(ctx, res)
			continue
		}
		if err := l.unserved(); err != nil {
			l.o.Log.Warn("what the hub may do stays as it was known last", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-l.served:
		}
	}
}

// follow the policy while the kind is served.
func (l *Limits) follow(ctx context.Context, res member.Resource) {
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer crash.Recover(ctx)
		expected := &unstructured.Unstructured{}
		expected.SetGroupVersionKind(res.GVK())
		cache.NewReflectorWithOptions(l.source(res), expected, (*mirror)(l),
			cache.ReflectorOptions{Name: "atoll", TypeDescription: res.GVK().String()}).RunWithContext(ctx)
	}()
	defer func() { stop(); <-done }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.served:
			if now, served := l.resource(); !served || now != res {
				return
			}
		}
	}
}

// source of the one policy that counts.
func (l *Limits) source(res member.Resource) cache.ListerWatcher {
	at := l.o.Client.Dynamic().Resource(res.GroupVersionResource)
	one := func(o metav1.ListOptions) metav1.ListOptions {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, v1alpha1.AgentPolicyName).String()
		return o
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := at.List(ctx, one(o))
			if err != nil {
				l.heard(err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := at.Watch(ctx, one(o))
			if err != nil {
				l.heard(err)
			} else {
				l.change(func() { l.blind = nil })
			}
			return w, err
		},
	}
}

func read(obj any) *policy.Policy {
	text, err := json.Marshal(obj)
	if err != nil {
		return policy.Closed(fmt.Sprintf("it cannot be read: %v", err))
	}
	return policy.Read(text)
}

// say what a watch told: it does not prove that it may be followed.
func (l *Limits) say(said *policy.Policy) { l.change(func() { l.said = said }) }

// mirror is the store of the reflector.
type mirror Limits

// Add the policy.
func (m *mirror) Add(obj any) error { return m.Update(obj) }

// Update the policy.
func (m *mirror) Update(obj any) error {
	(*Limits)(m).say(read(obj))
	return nil
}

// Delete the policy.
func (m *mirror) Delete(any) error {
	(*Limits)(m).say(nil)
	return nil
}

// Replace all there are: one, or none.
func (m *mirror) Replace(objs []any, _ string) error {
	var said *policy.Policy
	for _, obj := range objs {
		said = read(obj)
	}
	(*Limits)(m).say(said)
	return nil
}

// Resync does nothing.
func (m *mirror) Resync() error { return nil }
