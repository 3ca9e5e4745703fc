package limits

import (
	"context"
	"hash/maphash"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"atoll.dev/atoll/internal/agent/crash"
)

// followSelectedNamespaces follows the labels of namespaces while the policy selects by them, until ctx ends.
func (l *AgentPolicyFollower) followSelectedNamespaces(ctx context.Context) {
	for ctx.Err() == nil {
		if l.CurrentPolicy().SelectsByNamespaceLabels() {
			l.followNamespaceLabels(ctx)
			continue
		}
		select {
		case <-ctx.Done():
		case <-l.turned:
		}
	}
}

// followNamespaceLabels follows the labels of namespaces while the policy selects by them.
func (l *AgentPolicyFollower) followNamespaceLabels(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer crash.RecoverContained(ctx)
		expected := &metav1.PartialObjectMetadata{}
		expected.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
		cache.NewReflectorWithOptions(l.namespaceSource(), expected, &namespaceLabelStore{tell: l.o.Relabelled, seed: maphash.MakeSeed(), of: map[string]uint64{}},
			cache.ReflectorOptions{Name: "atoll", TypeDescription: "labels of namespaces"}).RunWithContext(ctx)
	}()
	defer func() { stop(); <-done }()
	for l.CurrentPolicy().SelectsByNamespaceLabels() {
		select {
		case <-ctx.Done():
			return
		case <-l.turned:
		}
	}
}

// namespaceSource lists and watches the namespaces of the member, without what is in them.
func (l *AgentPolicyFollower) namespaceSource() cache.ListerWatcher {
	at := l.o.Client.MetadataClient().Resource(corev1.SchemeGroupVersion.WithResource("namespaces"))
	told := false
	blind := func(err error) {
		if apierrors.IsForbidden(err) && !told {
			told = true
			l.o.Log.Warn("the labels of namespaces, by which the AgentPolicy selects, cannot be watched: namespaces that it excludes are checked every ten minutes instead", "err", err)
		}
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := at.List(ctx, o)
			blind(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := at.Watch(ctx, o)
			blind(err)
			return w, err
		},
	}
}

// namespaceLabelStore is the store of a reflector of namespaces: a sum of each one's labels. One
// goroutine calls it.
type namespaceLabelStore struct {
	tell func(namespace string)
	seed maphash.Seed
	of   map[string]uint64
}

func (s *namespaceLabelStore) labelHash(o *metav1.PartialObjectMetadata) uint64 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	for _, key := range slices.Sorted(maps.Keys(o.Labels)) {
		_, _ = h.WriteString(key)
		_ = h.WriteByte(0)
		_, _ = h.WriteString(o.Labels[key])
		_ = h.WriteByte(0)
	}
	return h.Sum64()
}

// Add stores a namespace's labels.
func (s *namespaceLabelStore) Add(obj any) error { return s.Update(obj) }

// Update stores a namespace's changed labels.
func (s *namespaceLabelStore) Update(obj any) error {
	o, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return nil
	}
	was, known := s.of[o.Name]
	if now := s.labelHash(o); !known || was != now {
		s.of[o.Name] = now
		s.tell(o.Name)
	}
	return nil
}

// Delete drops a namespace.
func (s *namespaceLabelStore) Delete(obj any) error {
	if o, ok := obj.(*metav1.PartialObjectMetadata); ok {
		delete(s.of, o.Name)
		s.tell(o.Name)
	}
	return nil
}

// Replace replaces all there are.
func (s *namespaceLabelStore) Replace(objs []any, _ string) error {
	gone := maps.Clone(s.of)
	for _, obj := range objs {
		if o, ok := obj.(*metav1.PartialObjectMetadata); ok {
			delete(gone, o.Name)
			_ = s.Update(o) // which has no error
		}
	}
	for name := range gone {
		delete(s.of, name)
		s.tell(name)
	}
	return nil
}

// Resync does nothing.
func (s *namespaceLabelStore) Resync() error { return nil }
