// Package filteredwatch makes informers that follow the selected objects of a kind only.
//
// Contract: the API server filters, so that other objects are never sent. Lists and watches use
// the same selector, which does not change.
package filteredwatch

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Client lists and watches a kind, with lists of type L.
type Client[L runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// FieldSelectedSource returns a source of the objects of a kind that a field selector selects.
func FieldSelectedSource[L runtime.Object](c Client[L], selector string) cache.ListerWatcher {
	return listerWatcherWithOptions(c, func(o *metav1.ListOptions) { o.FieldSelector = selector })
}

// LabelSelectedSource returns a source of the objects of a kind that a label selector selects.
func LabelSelectedSource[L runtime.Object](c Client[L], selector string) cache.ListerWatcher {
	return listerWatcherWithOptions(c, func(o *metav1.ListOptions) { o.LabelSelector = selector })
}

func listerWatcherWithOptions[L runtime.Object](c Client[L], choose func(*metav1.ListOptions)) cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			choose(&o)
			return c.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			choose(&o)
			return c.Watch(ctx, o)
		},
	}, c)
}
