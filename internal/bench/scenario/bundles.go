package scenario

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"atoll.dev/atoll/api/v1alpha1"
)

// bundles is what a user sees of all Bundles, as it comes.
type bundles struct {
	mu      sync.Mutex
	by      map[string]seen
	changed chan struct{}
	// removing is the most clusters that any Bundle was leaving at a time.
	removing int32
	cancel   context.CancelFunc
	done     sync.WaitGroup
}

// seen is a Bundle, its last status, and since when it is what it is.
type seen struct {
	uid    string
	status v1alpha1.BundleStatus
	// ready is when the Bundle was first seen with all clusters ready at this
	// revision; zero while it is not.
	ready time.Time
	// updated is when all clusters were first seen to have applied this revision.
	updated time.Time
	// first is when the Bundle was first seen.
	first time.Time
}

// watchBundles of all namespaces until stop.
func (s *stage) watchBundles(ctx context.Context) (*bundles, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("watch Bundles: %w", err)
	}
	metav1.AddToGroupVersion(scheme, v1alpha1.GroupVersion)
	config := rest.CopyConfig(s.config)
	config.GroupVersion, config.APIPath = &v1alpha1.GroupVersion, "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("watch Bundles: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	b := &bundles{by: map[string]seen{}, changed: make(chan struct{}), cancel: cancel}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client, "bundles", metav1.NamespaceAll, fields.Everything()),
		ObjectType:    &v1alpha1.Bundle{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { b.set(o.(*v1alpha1.Bundle)) },
			UpdateFunc: func(_, o any) { b.set(o.(*v1alpha1.Bundle)) },
		},
		Transform: slim,
	})
	b.done.Go(func() { informer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		b.stop()
		return nil, fmt.Errorf("watch Bundles: %w", context.Cause(ctx))
	}
	return b, nil
}

// slim drops what nobody here asks for.
func slim(o any) (any, error) {
	if b, ok := o.(*v1alpha1.Bundle); ok {
		b.ManagedFields, b.Spec = nil, v1alpha1.BundleSpec{}
	}
	return o, nil
}

func (b *bundles) stop() {
	b.cancel()
	b.done.Wait()
}

func (b *bundles) set(o *v1alpha1.Bundle) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.by[o.Namespace+"/"+o.Name]
	next := seen{uid: string(o.UID), status: o.Status, first: before.first}
	if next.first.IsZero() {
		next.first = now
	}
	same := before.status.Revision == o.Status.Revision
	since := func(holds bool, was time.Time) time.Time {
		switch {
		case !holds:
			return time.Time{}
		case same && !was.IsZero():
			return was
		}
		return now
	}
	c := o.Status.Clusters
	next.updated = since(c.Desired > 0 && c.Updated == c.Desired, before.updated)
	next.ready = since(complete(o.Status), before.ready)
	b.by[o.Namespace+"/"+o.Name] = next
	b.removing = max(b.removing, o.Status.Clusters.Removing)
	close(b.changed)
	b.changed = make(chan struct{})
}

// complete tells whether every cluster of the Bundle is ready at its revision.
func complete(s v1alpha1.BundleStatus) bool {
	c := s.Clusters
	return c.Desired > 0 && c.Ready == c.Desired && c.Updated == c.Desired && meta.IsStatusConditionTrue(s.Conditions, v1alpha1.BundleReady)
}

// get what is known of a Bundle.
func (b *bundles) get(key string) seen {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.by[key]
}

// await until holds of all that is known. It is asked under the lock, after a change or
// after several: asking takes a tenth of the time at most, and what changes last is always
// asked about.
func (b *bundles) await(ctx context.Context, what string, patience time.Duration, holds func(by map[string]seen) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not within %s", patience))
	defer cancel()
	for {
		b.mu.Lock()
		began := time.Now()
		ok, changed := holds(b.by), b.changed
		took := time.Since(began)
		b.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-time.After(9 * took):
		case <-ctx.Done():
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
	}
}

// isReady tells whether the application is ready at a revision other than old, in so
// many clusters.
func (b seen) isReady(clusters int, old string) bool {
	return !b.ready.IsZero() && b.status.Revision != old && int(b.status.Clusters.Desired) == clusters
}

// awaitReady waits until all applications are ready in as many clusters as their
// groups have, at revisions other than those in old.
func (s *stage) awaitReady(ctx context.Context, b *bundles, apps []app, patience time.Duration, old map[string]string) error {
	s.Progress.Step(fmt.Sprintf("%d applications become ready", len(apps)), len(apps))
	// Counting all of them after each change would be quadratic: those that are
	// ready are not looked at again.
	open := make(map[string]app, len(apps))
	for _, a := range apps {
		open[a.key()] = a
	}
	var example string
	err := b.await(ctx, fmt.Sprintf("%d applications become ready", len(apps)), patience, func(by map[string]seen) bool {
		for key, a := range open {
			if by[key].isReady(s.clustersOf(a), old[key]) {
				delete(open, key)
				continue
			}
			example = fmt.Sprintf("%s has %s of %d clusters and waits for %q", key, by[key].status.Clusters.Summary, s.clustersOf(a), by[key].status.WaitsFor)
		}
		s.Progress.Reach(len(apps) - len(open))
		return len(open) == 0
	})
	if err != nil {
		return fmt.Errorf("%w: %d are not, for instance %s", err, len(open), example)
	}
	return nil
}

// clustersOf gives how many clusters the application is placed onto: all, or those of a
// group of the first simulator.
func (s *stage) clustersOf(a app) int {
	if a.group < 0 {
		n := 0
		for _, f := range s.simulators() {
			n += f.count
		}
		return n
	}
	n := s.fleets[0].count / s.fleets[0].groups
	if a.group < s.fleets[0].count%s.fleets[0].groups {
		n++
	}
	return n
}

// revisions that the applications are at.
func (b *bundles) revisions(apps []app) map[string]string {
	at := make(map[string]string, len(apps))
	for _, a := range apps {
		at[a.key()] = b.get(a.key()).status.Revision
	}
	return at
}
