package state

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karmada "atoll.dev/atoll/api/karmada/config/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/pause"
)

const (
	// catchUpConcurrency is how many kinds CatchUp checks at a time.
	catchUpConcurrency = 8
	// catchUpTries is how often a kind that must be read is checked.
	catchUpTries = 3
	// catchUpTimeout bounds one question.
	catchUpTimeout = 5 * time.Second
	// progressPollInterval is how often the progress of a table's watch is read.
	progressPollInterval = 20 * time.Millisecond
	// cacheDeliveryDelay is how long what the API server's cache has may take to a table.
	cacheDeliveryDelay = 250 * time.Millisecond
	// catchUpFieldName has this name.
	catchUpFieldName = "atoll-hub-catches-up"
)

// kindsToCatchUp must be read before a hub decides. Settings that are late would let changes start in a freeze, strategies would let
// them start out of their stages, and Notifications would be sent twice.
var kindsToCatchUp = []schema.GroupVersionKind{
	v1alpha1.GroupVersion.WithKind("ClusterBundle"), v1alpha1.GroupVersion.WithKind("HubSettings"),
	v1alpha1.GroupVersion.WithKind("PropagationPolicy"), v1alpha1.GroupVersion.WithKind("ClusterPropagationPolicy"),
	v1alpha1.GroupVersion.WithKind("OverridePolicy"), v1alpha1.GroupVersion.WithKind("ClusterOverridePolicy"),
	v1alpha1.GroupVersion.WithKind("ResourceInterpreter"), karmada.GroupVersion.WithKind(karmada.CustomizationKind),
	v1alpha1.GroupVersion.WithKind("Placement"), v1alpha1.GroupVersion.WithKind("ClusterPlacement"),
	v1alpha1.GroupVersion.WithKind(v1alpha1.KindRolloutStrategy), v1alpha1.GroupVersion.WithKind(v1alpha1.KindClusterRolloutStrategy),
	v1alpha1.GroupVersion.WithKind("PlacementDecision"), v1alpha1.GroupVersion.WithKind("ClusterPlacementDecision"),
	v1alpha1.GroupVersion.WithKind("Notification"),
	corev1.SchemeGroupVersion.WithKind("Namespace"), apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"),
}

var errInitialEventsIncomplete = errors.New("the watch ended before the present state was complete")

// CatchUp returns when the tables that decisions are made from are as new as the store
// was when it was called, so that a hub may decide over tables that it has had for
// long. Tables of Clusters and of the engine's objects are left out: no cache of the
// API server is between them and the store, and what is written is fenced by their
// resource versions. A kind of
// templates that cannot be read does not hold others up.
func (s *HubTables) CatchUp(ctx context.Context) error {
	group, looking := errgroup.WithContext(ctx)
	group.SetLimit(catchUpConcurrency)
	for _, gvk := range kindsToCatchUp {
		group.Go(func() error {
			mapping, err := s.Client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
			if err != nil {
				return fmt.Errorf("state: catch up with %s: %w", gvk.Kind, err)
			}
			for range catchUpTries {
				if err = s.Templates.waitForCurrentWatchCache(looking, mapping.Resource); err == nil || looking.Err() != nil {
					return looking.Err()
				}
			}
			return fmt.Errorf("state: catch up with %s: %w", gvk.Kind, err)
		})
	}
	group.Go(func() error { return s.waitForBundleTable(looking) })
	for _, resource := range s.Templates.readableResources() {
		group.Go(func() error {
			_ = s.Templates.waitForCurrentWatchCache(looking, resource) // the table reports what it cannot read
			return looking.Err()
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if !pause.WaitFor(ctx, cacheDeliveryDelay) {
		return ctx.Err()
	}
	return nil
}

// waitForBundleTable waits until the table of Bundles, which no cache of the API server feeds, has
// received all that the store has now. A watch of the API reports no progress; only the
// delivery of events is between it and the store.
func (s *HubTables) waitForBundleTable(ctx context.Context) error {
	informer := s.bundleInformer.Load()
	if informer == nil {
		return errors.New("state: catch up with Bundle: nothing feeds the table")
	}
	var list v1alpha1.BundleList
	if err := s.Client.List(ctx, &list, client.Limit(1)); err != nil {
		return fmt.Errorf("state: catch up with Bundle: %w", err)
	}
	now, most := parseVersion(list.ResourceVersion), time.Now().Add(catchUpTries*catchUpTimeout)
	for parseVersion((*informer).LastSyncResourceVersion()) < now && s.tableSource.RequestBundleProgress(ctx) {
		if time.Now().After(most) {
			return fmt.Errorf("state: catch up with Bundle: the table's watch is at %s, and the store at %d", (*informer).LastSyncResourceVersion(), now)
		}
		if !pause.WaitFor(ctx, progressPollInterval) {
			return ctx.Err()
		}
	}
	return nil
}

// readableResources returns the resources that the table reads.
func (t *TemplateTable) readableResources() (out []schema.GroupVersionResource) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, k := range t.kinds {
		if k.watchError == nil {
			out = append(out, k.resource)
		}
	}
	return out
}

// waitForCurrentWatchCache compares the store's present revision with the API server's cache of a resource: a
// watch that begins with the present state reports its end. The state is empty here, because no
// object has the name.
func (t *TemplateTable) waitForCurrentWatchCache(ctx context.Context, resource schema.GroupVersionResource) error {
	ctx, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	yes := true
	w, err := t.dynamic.Resource(resource).Watch(ctx, metav1.ListOptions{
		SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		FieldSelector: "metadata.name=" + catchUpFieldName,
	})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			break
		}
		if o, err := meta.Accessor(e.Object); e.Type == watch.Bookmark && err == nil && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
			return nil
		}
	}
	return errInitialEventsIncomplete
}
