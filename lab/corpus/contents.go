package corpus

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/lab/corpus/compare"
)

// maxListed bounds the objects of one kind that are listed.
const maxListed = 5000

// storedObject names an object that a cluster stores.
type storedObject struct {
	resource        schema.GroupVersionResource
	kind            string
	namespace, name string
}

// displayName is the name in differences. Volumes have names that each cluster makes up.
func (o storedObject) displayName() string {
	name := o.name
	if o.kind == "PersistentVolume" && strings.HasPrefix(name, "pvc-") {
		name = "pvc-*"
	}
	return compare.ObjectName(o.kind, o.namespace, name)
}

// transientKinds come and go by themselves. The hub keeps an APISet for a while after the last member
// that served its kinds.
var transientKinds = []string{"Event", "Lease", "ComponentStatus", "APISet"}

// contents are the objects that a cluster stores.
type contents map[storedObject]bool

// listStoredObjects returns all objects that the cluster stores, except for those of transient kinds and of
// Atoll's own namespace.
func (c *cluster) listStoredObjects(ctx context.Context) (contents, error) {
	lists, err := c.discovery.ServerPreferredResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, fmt.Errorf("%s: the kinds: %w", c.name, err)
	}
	out := make(chan storedObject)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	done := make(chan contents)
	go func() {
		all := contents{}
		for o := range out {
			all[o] = true
		}
		done <- all
	}()
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "delete") || slices.Contains(transientKinds, r.Kind) {
				continue
			}
			group.Go(func() error { return c.listObjectsOfKind(ctx, gv.WithResource(r.Name), r.Kind, out) })
		}
	}
	err = group.Wait()
	close(out)
	return <-done, err
}

func (c *cluster) listObjectsOfKind(ctx context.Context, r schema.GroupVersionResource, kind string, out chan<- storedObject) error {
	list, err := c.metadata.Resource(r).List(ctx, metav1.ListOptions{Limit: maxListed})
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return nil // the kind is gone
	}
	if err != nil {
		return fmt.Errorf("%s: list %s: %w", c.name, r.Resource, err)
	}
	for i := range list.Items {
		item := &list.Items[i]
		if item.Namespace == atoll.SystemNamespace {
			continue
		}
		select {
		case out <- storedObject{resource: r, kind: kind, namespace: item.Namespace, name: item.Name}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// deleteObject deletes an object, and everything that it owns. A missing object is removed already.
func (c *cluster) deleteObject(ctx context.Context, o storedObject) error {
	background := metav1.DeletePropagationBackground
	err := c.metadata.Resource(o.resource).Namespace(o.namespace).Delete(ctx, o.name, metav1.DeleteOptions{PropagationPolicy: &background})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("%s: remove %s: %w", c.name, o.displayName(), err)
	}
	return nil
}
