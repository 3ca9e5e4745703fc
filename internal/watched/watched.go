// Package watched lets informers follow some of the objects of a kind, and no others.
//
// Contract: the API server chooses, so that what is not asked for is never sent; lists and
// watches ask for the same. Which objects are meant does not change.
package watched

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Client of a kind, with lists of type L.
type Client[L runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// Fields are the objects of a kind that a field selector selects.
func Fields[L runtime.Object](c Client[L], selector string) cache.ListerWatcher {
	return some(c, func(o *metav1.ListOptions) { o.FieldSelector = selector })
}

// Labels are the objects of a kind that a label selector selects.
func Labels[L runtime.Object](c Client[L], selector string) cache.ListerWatcher {
	return some(c, func(o *metav1.ListOptions) { o.LabelSelector = selector })
}

func some[L runtime.Object](c Client[L], choose func(*metav1.ListOptions)) cache.ListerWatcher {
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
