package inventory

import (
	"context"
	"maps"
	"slices"
	"unique"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/wakeup"
)

// node is what is kept of a node.
type node struct {
	allocatable resourceAmounts
	ready       bool
	cordoned    bool
	taints      []v1alpha1.Taint
	labels      nodeLabels
	// provider and region of its labels; empty: it has none.
	provider, region string
	// reportedLabels have keys that the AgentPolicy states.
	reportedLabels unique.Handle[string]
}

func (i *Inventory) newNodeSumStore() *reflectorCallbackStore {
	put := func(obj any) {
		n, ok := obj.(*corev1.Node)
		if !ok {
			return
		}
		now := node{
			allocatable: amountsOf(n.Status.Allocatable), cordoned: n.Spec.Unschedulable, taints: taintsOf(n), labels: labelsOf(n),
			provider: providerOf(n), region: n.Labels[corev1.LabelTopologyRegion], reportedLabels: i.reportedLabelsOf(n),
		}
		for _, c := range n.Status.Conditions {
			now.ready = now.ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}
		was, known := i.nodes[n.Name]
		i.groupsStale = i.groupsStale || !known || was.labels != now.labels || !slices.Equal(was.taints, now.taints) || !maps.Equal(was.allocatable, now.allocatable)
		i.total.add(was.allocatable, -1)
		delete(i.nodes, n.Name)
		if !i.mayKeepObject(countNodes, len(i.nodes), maxNodes, nodeTextSize(n.Name, now), maxNodeText) {
			return
		}
		i.total.add(now.allocatable, 1)
		i.nodes[n.Name] = now
	}
	return &reflectorCallbackStore{
		Inventory: i, what: countNodes, put: put,
		drop: func(name string) {
			i.total.add(i.nodes[name].allocatable, -1)
			delete(i.nodes, name)
			i.groupsStale = true
		},
		clear: func() {
			i.nodes, i.total, i.groupsStale, i.labelKeys = map[string]node{}, resourceAmounts{}, true, i.nextLabelKeys
			wakeup.WakeReader(i.rescan) // the member may have come back as another version
		},
	}
}

func (i *Inventory) watchPods(ctx context.Context) {
	i.watch(ctx, countPods, &corev1.Pod{}, &corev1.PodList{}, i.newPodSumStore())
}

func (i *Inventory) newPodSumStore() *reflectorCallbackStore {
	put := func(obj any) {
		p, ok := obj.(*corev1.Pod)
		if !ok {
			return
		}
		name := p.Namespace + "/" + p.Name
		i.countPod(i.pods[name], -1)
		delete(i.pods, name)
		if p.Spec.NodeName == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			return
		}
		requested := resourceAmounts(kinds.PodRequests(&p.Spec))
		if !i.mayKeepObject(countPods, len(i.pods), maxPods, podTextSize(p, requested), maxPodText) {
			return
		}
		now := pod{node: unique.Make(p.Spec.NodeName).Value(), requested: requested}
		i.countPod(now, 1)
		i.pods[name] = now
	}
	return &reflectorCallbackStore{
		Inventory: i, what: countPods, put: put, reduce: reducePod,
		drop: func(name string) {
			i.countPod(i.pods[name], -1)
			delete(i.pods, name)
		},
		clear: func() { i.pods, i.used, i.requested = map[string]pod{}, map[string]*use{}, resourceAmounts{} },
	}
}

// reducePod leaves of a pod only what its requests need.
func reducePod(obj any) (any, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	small := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, ResourceVersion: p.ResourceVersion}}
	small.Spec.NodeName, small.Spec.Overhead, small.Spec.Resources, small.Status.Phase = p.Spec.NodeName, p.Spec.Overhead, p.Spec.Resources, p.Status.Phase
	reduce := func(from []corev1.Container) (to []corev1.Container) {
		for _, c := range from {
			to = append(to, corev1.Container{Resources: corev1.ResourceRequirements{Requests: c.Resources.Requests}, RestartPolicy: c.RestartPolicy})
		}
		return to
	}
	small.Spec.Containers, small.Spec.InitContainers = reduce(p.Spec.Containers), reduce(p.Spec.InitContainers)
	return small, nil
}

// watch reduces a core kind into sums.
func (i *Inventory) watch(ctx context.Context, plural string, kind, list runtime.Object, into *reflectorCallbackStore) {
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			out := list.DeepCopyObject()
			err := i.core.Get().Resource(plural).VersionedParams(&o, member.ParameterCodec()).Do(ctx).Into(out)
			i.recordListRefusal(plural, err)
			return out, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			w, err := i.core.Get().Resource(plural).VersionedParams(&o, member.ParameterCodec()).Watch(ctx)
			i.recordListRefusal(plural, err)
			return w, err
		},
	}
	cache.NewReflectorWithOptions(source, kind, into, cache.ReflectorOptions{Name: "atoll", TypeDescription: plural}).RunWithContext(ctx)
}

// recordListRefusal notes that what was to be listed cannot be: the agent may not, or it is not served.
// Nothing of it is waited for then. Another error is no answer, and the reflector tries on.
func (i *Inventory) recordListRefusal(what string, err error) {
	if err == nil {
		return
	}
	i.mu.Lock()
	if i.failed[what] = err.Error(); apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		i.read[what] = true
	}
	i.mu.Unlock()
	wakeup.WakeReader(i.wake)
}

// reflectorCallbackStore is a reflector's store that keeps sums.
type reflectorCallbackStore struct {
	*Inventory
	what   string // for what has to be listed before it counts
	put    func(obj any)
	drop   func(name string)
	clear  func()
	reduce cache.TransformFunc
}

// Transformer reduces objects while the reflector lists.
func (s *reflectorCallbackStore) Transformer() cache.TransformFunc { return s.reduce }

// Add counts a new object.
func (s *reflectorCallbackStore) Add(obj any) error { return s.Update(obj) }

// Update counts a changed object.
func (s *reflectorCallbackStore) Update(obj any) error {
	s.mu.Lock()
	s.put(obj)
	s.mu.Unlock()
	wakeup.WakeReader(s.wake)
	return nil
}

// Delete stops counting an object.
func (s *reflectorCallbackStore) Delete(obj any) error {
	name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.drop(name)
	s.mu.Unlock()
	wakeup.WakeReader(s.wake)
	return nil
}

// Replace counts the objects of a new list in place of all others.
func (s *reflectorCallbackStore) Replace(objs []any, _ string) error {
	s.mu.Lock()
	delete(s.excess, s.what)
	s.clear()
	for _, obj := range objs {
		s.put(obj)
	}
	s.counted[s.what], s.read[s.what] = true, true
	s.mu.Unlock()
	wakeup.WakeReader(s.wake)
	return nil
}

// Resync does nothing.
func (s *reflectorCallbackStore) Resync() error { return nil }

// watchAPIDefinitions discovers again when objects of a kind that define APIs change.
func (i *Inventory) watchAPIDefinitions(ctx context.Context, kind schema.GroupVersionResource) {
	at := i.o.Client.MetadataClient().Resource(kind)
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return at.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return at.Watch(ctx, o)
		},
	}
	look := func() { wakeup.WakeReader(i.rescan) }
	into := &reflectorCallbackStore{Inventory: i, put: func(any) { look() }, drop: func(string) { look() }, clear: look, reduce: func(obj any) (any, error) {
		if m, ok := obj.(*metav1.PartialObjectMetadata); ok {
			return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: m.Name, ResourceVersion: m.ResourceVersion}}, nil
		}
		return obj, nil
	}}
	cache.NewReflectorWithOptions(source, &metav1.PartialObjectMetadata{}, into,
		cache.ReflectorOptions{Name: "atoll", TypeDescription: kind.Resource}).RunWithContext(ctx)
}

var definitions = []schema.GroupVersionResource{
	{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"},
}
