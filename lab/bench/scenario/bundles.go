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

// bundleWatch watches all Bundles, as a user sees them.
type bundleWatch struct {
	mu      sync.Mutex
	byKey   map[string]observedBundle
	changed chan struct{}
	// maxRemoving is the most clusters that any Bundle was leaving at a time.
	maxRemoving int32
	cancel      context.CancelFunc
	watchDone   sync.WaitGroup
}

// observedBundle is a Bundle, its last status, and the times of its states.
type observedBundle struct {
	uid    string
	status v1alpha1.BundleStatus
	// readySince is when all clusters were first seen ready at this revision; zero before.
	readySince time.Time
	// updatedSince is when all clusters were first seen to have applied this revision.
	updatedSince time.Time
	// firstSeen is when the Bundle was first seen.
	firstSeen time.Time
}

// watchBundles watches the Bundles of all namespaces until stop.
func (s *testbed) watchBundles(ctx context.Context) (*bundleWatch, error) {
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
	b := &bundleWatch{byKey: map[string]observedBundle{}, changed: make(chan struct{}), cancel: cancel}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client, "bundles", metav1.NamespaceAll, fields.Everything()),
		ObjectType:    &v1alpha1.Bundle{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { b.recordBundle(o.(*v1alpha1.Bundle)) },
			UpdateFunc: func(_, o any) { b.recordBundle(o.(*v1alpha1.Bundle)) },
		},
		Transform: dropUnusedBundleFields,
	})
	b.watchDone.Go(func() { informer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		b.stop()
		return nil, fmt.Errorf("watch Bundles: %w", context.Cause(ctx))
	}
	return b, nil
}

// dropUnusedBundleFields drops the fields that no scenario reads.
func dropUnusedBundleFields(o any) (any, error) {
	if b, ok := o.(*v1alpha1.Bundle); ok {
		b.ManagedFields, b.Spec = nil, v1alpha1.BundleSpec{}
	}
	return o, nil
}

func (b *bundleWatch) stop() {
	b.cancel()
	b.watchDone.Wait()
}

func (b *bundleWatch) recordBundle(o *v1alpha1.Bundle) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.byKey[o.Namespace+"/"+o.Name]
	next := observedBundle{uid: string(o.UID), status: o.Status, firstSeen: before.firstSeen}
	if next.firstSeen.IsZero() {
		next.firstSeen = now
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
	next.updatedSince = since(c.Desired > 0 && c.Updated == c.Desired, before.updatedSince)
	next.readySince = since(isComplete(o.Status), before.readySince)
	b.byKey[o.Namespace+"/"+o.Name] = next
	b.maxRemoving = max(b.maxRemoving, o.Status.Clusters.Removing)
	close(b.changed)
	b.changed = make(chan struct{})
}

// isComplete reports whether every cluster of the Bundle is ready at its revision.
func isComplete(s v1alpha1.BundleStatus) bool {
	c := s.Clusters
	return c.Desired > 0 && c.Ready == c.Desired && c.Updated == c.Desired && meta.IsStatusConditionTrue(s.Conditions, v1alpha1.BundleReady)
}

// get returns the last observation of a Bundle.
func (b *bundleWatch) get(key string) observedBundle {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.byKey[key]
}

// waitUntil waits until holds is true. holds runs under the lock, after one change or
// several: it takes a tenth of the time at most, and it always sees the last change.
func (b *bundleWatch) waitUntil(ctx context.Context, what string, patience time.Duration, holds func(by map[string]observedBundle) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not within %s", patience))
	defer cancel()
	for {
		b.mu.Lock()
		began := time.Now()
		ok, changed := holds(b.byKey), b.changed
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

// isReadyAtNewRevision reports whether the application is ready at a revision other than old, in that
// many clusters.
func (b observedBundle) isReadyAtNewRevision(clusters int, old string) bool {
	return !b.readySince.IsZero() && b.status.Revision != old && int(b.status.Clusters.Desired) == clusters
}

// awaitReady waits until all applications are ready in all clusters of their groups, at
// revisions other than those in old.
func (s *testbed) awaitReady(ctx context.Context, b *bundleWatch, apps []application, patience time.Duration, old map[string]string) error {
	s.Progress.BeginStep(fmt.Sprintf("%d applications become ready", len(apps)), len(apps))
	// Counting all of them after each change would be quadratic: ready ones are not
	// checked again.
	open := make(map[string]application, len(apps))
	for _, a := range apps {
		open[a.bundleKey()] = a
	}
	var example string
	err := b.waitUntil(ctx, fmt.Sprintf("%d applications become ready", len(apps)), patience, func(by map[string]observedBundle) bool {
		for key, a := range open {
			if by[key].isReadyAtNewRevision(s.countClustersOf(a), old[key]) {
				delete(open, key)
				continue
			}
			example = fmt.Sprintf("%s has %s of %d clusters and waits for %q", key, by[key].status.Clusters.Summary, s.countClustersOf(a), by[key].status.WaitsFor)
		}
		s.Progress.SetDone(len(apps) - len(open))
		return len(open) == 0
	})
	if err != nil {
		return fmt.Errorf("%w: %d are not, for instance %s", err, len(open), example)
	}
	return nil
}

// countClustersOf returns the number of the application's clusters: all, or those of a group of
// the first simulator.
func (s *testbed) countClustersOf(a application) int {
	if a.group < 0 {
		n := 0
		for _, f := range s.agentFleets() {
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

// currentRevisions returns the present revisions of the applications.
func (b *bundleWatch) currentRevisions(apps []application) map[string]string {
	at := make(map[string]string, len(apps))
	for _, a := range apps {
		at[a.bundleKey()] = b.get(a.bundleKey()).status.Revision
	}
	return at
}
