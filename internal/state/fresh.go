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
)

const (
	// looksAtOnce is how many kinds CatchUp asks about at a time.
	looksAtOnce = 8
	// triesToLook is how often it is asked about a kind that must be read.
	triesToLook = 3
	// lookTimeout bounds one question.
	lookTimeout = 5 * time.Second
	// followEvery is how often it is asked how far a table's watch is.
	followEvery = 20 * time.Millisecond
	// delivery is how long what the API server's cache has may take to a table.
	delivery = 250 * time.Millisecond
	// nobody has this name.
	nobody = "atoll-hub-catches-up"
)

var errNoEnd = errors.New("the watch ended before the present state was told")

// CatchUp returns when the tables that decisions are made from are as new as the store
// was when it was called, so that a hub may decide over tables that it has had for
// long. Tables of Clusters and of the engine's objects are left out: no cache of the
// API server is between them and the store, and what is written is fenced by their
// resource versions. A kind of
// templates that cannot be read does not hold others up.
func (s *State) CatchUp(ctx context.Context) error {
	group, looking := errgroup.WithContext(ctx)
	group.SetLimit(looksAtOnce)
	for _, gvk := range []schema.GroupVersionKind{
		v1alpha1.GroupVersion.WithKind("ClusterBundle"),
		v1alpha1.GroupVersion.WithKind("PropagationPolicy"), v1alpha1.GroupVersion.WithKind("ClusterPropagationPolicy"),
		v1alpha1.GroupVersion.WithKind("OverridePolicy"), v1alpha1.GroupVersion.WithKind("ClusterOverridePolicy"),
		v1alpha1.GroupVersion.WithKind("ResourceInterpreter"), karmada.GroupVersion.WithKind(karmada.CustomizationKind),
		v1alpha1.GroupVersion.WithKind("Placement"), v1alpha1.GroupVersion.WithKind("ClusterPlacement"),
		v1alpha1.GroupVersion.WithKind("PlacementDecision"), v1alpha1.GroupVersion.WithKind("ClusterPlacementDecision"),
		corev1.SchemeGroupVersion.WithKind("Namespace"), apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"),
	} {
		group.Go(func() error {
			mapping, err := s.Client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
			if err != nil {
				return fmt.Errorf("state: catch up with %s: %w", gvk.Kind, err)
			}
			for range triesToLook {
				if err = s.Templates.reach(looking, mapping.Resource); err == nil || looking.Err() != nil {
					return looking.Err()
				}
			}
			return fmt.Errorf("state: catch up with %s: %w", gvk.Kind, err)
		})
	}
	group.Go(func() error { return s.followBundles(looking) })
	for _, resource := range s.Templates.resources() {
		group.Go(func() error {
			_ = s.Templates.reach(looking, resource) // the table says by itself what it cannot read
			return looking.Err()
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(delivery):
		return nil
	}
}

// followBundles waits until the table of Bundles, which no cache of the API server feeds,
// has been told all that the store has now. Where nobody tells how far the watch is, since
// it is the API's, nothing but the way of an event lies between it and the store.
func (s *State) followBundles(ctx context.Context) error {
	informer := s.bundles.Load()
	if informer == nil {
		return errors.New("state: catch up with Bundle: nothing feeds the table")
	}
	var list v1alpha1.BundleList
	if err := s.Client.List(ctx, &list, client.Limit(1)); err != nil {
		return fmt.Errorf("state: catch up with Bundle: %w", err)
	}
	now, most := number(list.ResourceVersion), time.Now().Add(triesToLook*lookTimeout)
	for number((*informer).LastSyncResourceVersion()) < now && s.source.AskProgress(ctx) {
		if time.Now().After(most) {
			return fmt.Errorf("state: catch up with Bundle: the table's watch is at %s, and the store at %d", (*informer).LastSyncResourceVersion(), now)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(followEvery):
		}
	}
	return nil
}

// resources that the table reads.
func (t *Templates) resources() (out []schema.GroupVersionResource) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, k := range t.kinds {
		if k.failure == nil {
			out = append(out, k.resource)
		}
	}
	return out
}

// reach the store's present revision with the API server's cache of a resource: a
// watch that begins with the present state tells when that has been told, which is
// nothing here, since nobody has the name.
func (t *Templates) reach(ctx context.Context, resource schema.GroupVersionResource) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	yes := true
	w, err := t.dynamic.Resource(resource).Watch(ctx, metav1.ListOptions{
		SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		FieldSelector: "metadata.name=" + nobody,
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
	return errNoEnd
}
