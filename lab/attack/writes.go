package attack

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// writeCounter counts the writes of objects that one agent can cause: its Cluster, and the Bundles,
// rows and Events of the attacker's namespace. Writes for other agents do not count.
type writeCounter struct {
	written atomic.Int64
	stop    context.CancelFunc
	running sync.WaitGroup
}

// startCountingWrites begins to count. The caller ends it by stopCounting.
func (t *Target) startCountingWrites(ctx context.Context) (*writeCounter, error) {
	_, cluster, err := t.ensureAgentIdentity(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	c := &writeCounter{stop: cancel}
	for _, w := range []struct {
		resource  schema.GroupVersionResource
		namespace string
		name      string
	}{
		{schema.GroupVersionResource{Group: "atoll.dev", Version: "v1alpha1", Resource: "clusters"}, "", cluster},
		{schema.GroupVersionResource{Group: "atoll.dev", Version: "v1alpha1", Resource: "bundles"}, t.name, ""},
		{schema.GroupVersionResource{Group: "engine.atoll.dev", Version: "v1alpha1", Resource: "targetslices"}, "", ""},
		{schema.GroupVersionResource{Version: "v1", Resource: "events"}, t.name, ""},
	} {
		var options metav1.ListOptions
		if w.name != "" {
			options.FieldSelector = "metadata.name=" + w.name
		}
		api := t.dynamic.Resource(w.resource).Namespace(w.namespace)
		list, err := api.List(ctx, metav1.ListOptions{FieldSelector: options.FieldSelector, Limit: 1})
		if err == nil {
			options.ResourceVersion = list.GetResourceVersion()
			var events watch.Interface
			if events, err = api.Watch(ctx, options); err == nil {
				c.running.Go(func() { c.countEvents(events, t.name) })
				continue
			}
		}
		c.stopCounting()
		return nil, fmt.Errorf("watch %s: %w", w.resource.Resource, err)
	}
	return c, nil
}

// countEvents counts the events of a watch until it ends. A row belongs to the namespace of its
// Bundle.
func (c *writeCounter) countEvents(events watch.Interface, namespace string) {
	defer events.Stop()
	for e := range events.ResultChan() {
		u, ok := e.Object.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		if of, found, _ := unstructured.NestedString(u.Object, "spec", "bundle", "namespace"); !found || of == namespace {
			c.written.Add(1)
		}
	}
}

// stopCounting ends the watches, and returns how many writes came.
func (c *writeCounter) stopCounting() float64 {
	c.stop()
	c.running.Wait()
	return float64(c.written.Load())
}
