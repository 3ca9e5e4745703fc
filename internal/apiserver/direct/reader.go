package direct

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/storage/feature"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	toolscache "k8s.io/client-go/tools/cache"
)

// progressEvery is the interval of progress events on a watch without other events. It is well
// below a minute, the shortest history that a store keeps, so that an ended watch can resume.
const progressEvery = 20 * time.Second

// ListerWatcherFor lists and watches the objects of the example's kind for an informer: directly
// where there is a store of them, and by api where there is none, or where one of them
// cannot be read directly.
func (s Stores) ListerWatcherFor(example runtime.Object, api toolscache.ListerWatcher) toolscache.ListerWatcher {
	store := s.storeFor(example)
	if store == nil {
		return api
	}
	byAPI := toolscache.ToListerWatcherWithContext(api)
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			if !store.byAPI.Load() {
				list, err := store.List(ctx, options)
				if !store.byAPI.Load() {
					return list, err
				}
			}
			return byAPI.ListWithContext(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if store.byAPI.Load() {
				return byAPI.WatchWithContext(ctx, options)
			}
			return store.Watch(ctx, options)
		},
	}
}

// RequestBundleProgress requests a progress event on the watches of Bundles, for callers that must have
// seen everything; false where these watches do not have it.
func (s Stores) RequestBundleProgress(ctx context.Context) bool {
	return !s.Bundles.byAPI.Load() && s.Bundles.requestWatchProgress(ctx)
}

// switchReadersToAPI turns the kind's readers to the API for the rest of this process. A watch
// that met the object ends with an error, so that its reader lists again.
func (s *Store) switchReadersToAPI(err error) {
	if !s.byAPI.Swap(true) {
		s.log.Warn("an object in the store is not as this hub writes it: it reads all of that kind by the API from now on, which costs more", "err", err)
	}
}

// List objects, or a page of them, as the API does: consistently, and at least as new as the
// options require.
func (s *Store) List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	o, err := s.storageOptions(options)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	list := s.kind.NewList()
	if err := s.storage.GetList(ctx, s.prefix, o, list); err != nil {
		return nil, storeerr.InterpretListError(err, s.resource)
	}
	return list, nil
}

// Watch watches as the API does, and with bookmarks, which that sends only from a cache. A
// watch ends with its time, like the API's.
func (s *Store) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	o, err := s.storageOptions(options)
	if err != nil {
		return nil, err
	}
	ctx, cancel := withRequestTimeout(ctx, options.TimeoutSeconds)
	w, err := s.storage.Watch(ctx, s.prefix, o)
	if err != nil {
		cancel()
		return nil, storeerr.InterpretWatchError(err, s.resource, "")
	}
	if o.ProgressNotify {
		go s.requestProgressPeriodically(ctx)
	}
	return cancelingWatch{w, cancel}, nil
}

// StorageReader returns the storage of the kind, and its prefix, for callers with other selectors
// than Watch and List have. Its watches can have progress events, as those of Watch, until their
// context ends. Callers do not write by it.
func (s *Store) StorageReader() (from storage.Interface, prefix string) {
	return bookmarkingStorage{s.storage, s}, s.prefix
}

type bookmarkingStorage struct {
	storage.Interface
	store *Store
}

// Watch starts a watch and requests the store's progress.
func (t bookmarkingStorage) Watch(ctx context.Context, key string, o storage.ListOptions) (watch.Interface, error) {
	o.ProgressNotify = o.Predicate.AllowWatchBookmarks
	w, err := t.Interface.Watch(ctx, key, o)
	if err == nil && o.ProgressNotify {
		go t.store.requestProgressPeriodically(ctx)
	}
	return w, err
}

// withRequestTimeout limits a context to the time that a request has; nil: no end.
func withRequestTimeout(ctx context.Context, seconds *int64) (context.Context, context.CancelFunc) {
	if seconds == nil {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Duration(*seconds)*time.Second)
}

// cancelingWatch ends everything that belongs to a watch with it.
type cancelingWatch struct {
	watch.Interface
	cancel context.CancelFunc
}

// Stop ends the watch.
func (w cancelingWatch) Stop() {
	w.Interface.Stop()
	w.cancel()
}

// requestProgressPeriodically sends the revision of the store to the watches of ctx, until ctx ends.
func (s *Store) requestProgressPeriodically(ctx context.Context) {
	tick := time.NewTicker(s.progress)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.requestWatchProgress(ctx)
		}
	}
}

// requestWatchProgress sends the store's progress to the watches. An etcd version that may report
// progress before older events is not used for that.
func (s *Store) requestWatchProgress(ctx context.Context) bool {
	if !feature.DefaultFeatureSupportChecker.Supports(storage.RequestWatchProgress) {
		return false
	}
	_ = s.storage.RequestWatchProgress(ctx) // a watch that ended is begun again
	return true
}

// storageOptions converts a request's ListOptions to the store's, with the defaults and checks of
// the API's handlers.
func (s *Store) storageOptions(options metav1.ListOptions) (storage.ListOptions, error) {
	var o internalversion.ListOptions
	if err := internalversion.Convert_v1_ListOptions_To_internalversion_ListOptions(&options, &o, nil); err != nil {
		return storage.ListOptions{}, apierrors.NewBadRequest(err.Error())
	}
	streams := utilfeature.DefaultFeatureGate.Enabled(features.WatchList)
	internalversion.SetListOptionsDefaults(&o, streams)
	if errs := validation.ValidateListOptions(&o, streams); len(errs) > 0 {
		return storage.ListOptions{}, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	which := storage.SelectionPredicate{
		Label: o.LabelSelector, Field: o.FieldSelector, GetAttrs: storage.DefaultClusterScopedAttr,
		Limit: o.Limit, Continue: o.Continue, AllowWatchBookmarks: o.AllowWatchBookmarks,
	}
	if s.kind.Namespaced {
		which.GetAttrs = storage.DefaultNamespaceScopedAttr
	}
	if which.Label == nil {
		which.Label = labels.Everything()
	}
	if which.Field == nil {
		which.Field = fields.Everything()
	}
	for _, r := range which.Field.Requirements() {
		if r.Field != metav1.ObjectNameField && !(s.kind.Namespaced && r.Field == "metadata.namespace") {
			return storage.ListOptions{}, apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s", r.Field))
		}
	}
	return storage.ListOptions{
		ResourceVersion: o.ResourceVersion, ResourceVersionMatch: o.ResourceVersionMatch, Predicate: which, Recursive: true,
		SendInitialEvents: o.SendInitialEvents, ProgressNotify: o.Watch && o.AllowWatchBookmarks,
	}, nil
}
