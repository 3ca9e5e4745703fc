package inventory

import (
	"context"
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"atoll.dev/atoll/internal/agent/crash"
	"atoll.dev/atoll/internal/wakeup"
)

// Properties that the agent finds out itself. No object of the member replaces them.
const (
	propertyVersion  = "version.atoll.dev"
	propertyNodes    = "nodes.atoll.dev"
	propertyProvider = "provider.atoll.dev"
	propertyRegion   = "region.atoll.dev"

	ownProperties = ".atoll.dev"
)

// currentProperties returns the properties as they are now; the caller holds the lock. Provider and region
// are those of most nodes.
func (i *Inventory) currentProperties() map[string]string {
	out := make(map[string]string, len(i.stated)+4)
	maps.Copy(out, i.stated)
	i.addLabelProperties(out)
	if i.version != "" {
		out[propertyVersion] = i.version
	}
	if len(i.nodes) == 0 {
		return out
	}
	out[propertyNodes] = strconv.Itoa(len(i.nodes))
	providers, regions := map[string]int{}, map[string]int{}
	for _, n := range i.nodes {
		providers[n.provider]++
		regions[n.region]++
	}
	for name, counts := range map[string]map[string]int{propertyProvider: providers, propertyRegion: regions} {
		if most := mostFrequentValue(counts); most != "" {
			out[name] = most
		}
	}
	return out
}

// mostFrequentValue returns the most frequent value that is not empty; of several the first by the alphabet.
func mostFrequentValue(counts map[string]int) (mostFrequentValue string) {
	for v, n := range counts {
		if v != "" && (mostFrequentValue == "" || n > counts[mostFrequentValue] || n == counts[mostFrequentValue] && v < mostFrequentValue) {
			mostFrequentValue = v
		}
	}
	return mostFrequentValue
}

// providerOf returns the provider of a node: the scheme of its provider ID, as in
// aws:///eu-west-1a/i-0123.
func providerOf(n *corev1.Node) string {
	provider, _, ok := strings.Cut(n.Spec.ProviderID, "://")
	if !ok {
		return ""
	}
	return provider
}

var clusterProperty = schema.GroupVersionKind{Group: "about.k8s.io", Version: "v1alpha1", Kind: "ClusterProperty"}

// watchPropertiesWhileServed watches the member's ClusterProperty objects while it serves them.
func (i *Inventory) watchPropertiesWhileServed(ctx context.Context) {
	end := func() {}
	defer func() { end() }()
	for watched := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-i.served:
		}
		apis := i.o.Client.APIs()
		if apis == nil {
			continue
		}
		resource, there := apis.LookupKind(clusterProperty)
		switch {
		case there && !watched:
			end, watched = i.beginPropertyWatch(ctx, resource.GroupVersionResource), true
		case there, apis.IsGroupSilent(clusterProperty.Group):
		case watched:
			end()
			end, watched = func() {}, false
			i.mu.Lock()
			clear(i.stated)
			delete(i.excess, countProperties)
			i.mu.Unlock()
			wakeup.WakeReader(i.wake)
		default:
			i.mu.Lock()
			i.read[countProperties] = true // there are none
			i.mu.Unlock()
			wakeup.WakeReader(i.wake)
		}
	}
}

// beginPropertyWatch starts to watch; end returns when nothing is noted any more.
func (i *Inventory) beginPropertyWatch(ctx context.Context, resource schema.GroupVersionResource) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer crash.RecoverContained(ctx)
		i.watchStatedProperties(ctx, resource)
	}()
	return func() {
		cancel()
		<-ended
	}
}

func (i *Inventory) watchStatedProperties(ctx context.Context, resource schema.GroupVersionResource) {
	at := i.o.Client.DynamicClient().Resource(resource)
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			out, err := at.List(ctx, o)
			i.recordListRefusal(countProperties, err)
			return out, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := at.Watch(ctx, o)
			i.recordListRefusal(countProperties, err)
			return w, err
		},
	}
	into := &reflectorCallbackStore{
		Inventory: i, what: countProperties, put: i.recordProperty,
		drop:  func(name string) { delete(i.stated, name) },
		clear: func() { clear(i.stated) },
	}
	cache.NewReflectorWithOptions(source, &unstructured.Unstructured{}, into,
		cache.ReflectorOptions{Name: "atoll", TypeDescription: resource.Resource}).RunWithContext(ctx)
}

// isOwnProperty reports whether the agent finds out the property of this name itself.
func isOwnProperty(name string) bool {
	return strings.HasSuffix(name, ownProperties) || strings.Contains(name, ownProperties+"/")
}

// recordProperty notes a ClusterProperty; the caller holds the lock.
func (i *Inventory) recordProperty(obj any) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok || isOwnProperty(u.GetName()) {
		return
	}
	value, _, err := unstructured.NestedString(u.Object, "spec", "value")
	if err != nil {
		return // of another shape than KEP-2149's
	}
	delete(i.stated, u.GetName())
	if i.mayKeepObject(countProperties, len(i.stated), maxProperties, len(u.GetName())+len(value), maxPropertyText) {
		i.stated[u.GetName()] = value
	}
}
