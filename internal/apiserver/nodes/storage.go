package nodes

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	api "k8s.io/kubernetes/pkg/apis/core"
	apiv1 "k8s.io/kubernetes/pkg/apis/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/clusternode"
)

// readOnlyNodeStorage shows a store of Clusters as a store of Nodes that cannot be written. Selection is
// the store's own, over the labels and fields of Nodes, so that pages are as long as the request
// states, and a Cluster that comes to match, or matches no more, comes and goes in watches.
type readOnlyNodeStorage struct{ storage.Interface }

var errReadOnly = errors.New("nodes are not stored")

func (readOnlyNodeStorage) Create(context.Context, string, runtime.Object, runtime.Object, uint64) error {
	return errReadOnly
}

func (readOnlyNodeStorage) Delete(context.Context, string, runtime.Object, *storage.Preconditions, storage.ValidateObjectFunc, runtime.Object, storage.DeleteOptions) error {
	return errReadOnly
}

func (readOnlyNodeStorage) GuaranteedUpdate(context.Context, string, runtime.Object, bool, *storage.Preconditions, storage.UpdateFunc, runtime.Object) error {
	return errReadOnly
}

// clusterShownAsNode returns the Cluster that is shown as the Node of a key; not found where none is.
func (r readOnlyNodeStorage) clusterShownAsNode(ctx context.Context, key string, o storage.GetOptions) (*v1alpha1.Cluster, error) {
	c := &v1alpha1.Cluster{}
	if err := r.Interface.Get(ctx, key, o, c); err != nil {
		return nil, err
	}
	if c.Name != "" && !clusternode.IsShownAsNode(c) {
		version, _ := strconv.ParseInt(c.ResourceVersion, 10, 64)
		return nil, storage.NewKeyNotFoundError(key, version)
	}
	return c, nil
}

// Get returns the Node of a Cluster.
func (r readOnlyNodeStorage) Get(ctx context.Context, key string, o storage.GetOptions, into runtime.Object) error {
	c, err := r.clusterShownAsNode(ctx, key, o)
	if err != nil {
		if o.IgnoreNotFound && storage.IsNotFound(err) {
			return nil
		}
		return err
	}
	return fillNode(c, into)
}

// atOnce is the number of Clusters that are read at once for an unbounded list: all of a large
// fleet, in stored form and as Clusters, would take more memory than as Nodes.
const atOnce = 1000

// GetList lists of the Nodes, or a page of them. A list that is not bounded is of one resource
// version too.
func (r readOnlyNodeStorage) GetList(ctx context.Context, key string, o storage.ListOptions, into runtime.Object) error {
	list, ok := into.(*api.NodeList)
	if !ok {
		return fmt.Errorf("list nodes into a %T", into)
	}
	o.Predicate = clusterPredicate(o.Predicate)
	whole := o.Recursive && o.Predicate.Limit == 0
	if whole {
		o.Predicate.Limit = atOnce
	}
	for {
		var page v1alpha1.ClusterList
		if err := r.Interface.GetList(ctx, key, o, &page); err != nil {
			return err
		}
		list.ListMeta = page.ListMeta
		from := len(list.Items)
		list.Items = append(list.Items, make([]api.Node, len(page.Items))...)
		for i := range page.Items {
			if err := fillNode(&page.Items[i], &list.Items[from+i]); err != nil {
				return err
			}
		}
		if !whole || page.Continue == "" {
			return nil
		}
		// Which returns the version.
		o.Predicate.Continue, o.ResourceVersion, o.ResourceVersionMatch = page.Continue, "", ""
	}
}

// Watch watches Clusters as Nodes.
func (r readOnlyNodeStorage) Watch(ctx context.Context, key string, o storage.ListOptions) (watch.Interface, error) {
	o.Predicate = clusterPredicate(o.Predicate)
	w, err := r.Interface.Watch(ctx, key, o)
	if err != nil {
		return nil, err
	}
	return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
		c, ok := e.Object.(*v1alpha1.Cluster)
		if !ok { // an error
			return e, true
		}
		node := &api.Node{}
		if e.Type == watch.Bookmark {
			node.ResourceVersion, node.Annotations = c.ResourceVersion, c.Annotations
		} else if err := fillNode(c, node); err != nil {
			return e, false
		}
		e.Object = node
		return e, true
	}), nil
}

// shown is a field that only selects.
const shown = "atoll.dev/shown"

// clusterPredicate selects the Clusters whose Nodes the predicate selects.
func clusterPredicate(p storage.SelectionPredicate) storage.SelectionPredicate {
	p.Field = fields.AndSelectors(p.Field, fields.OneTermEqualSelector(shown, "true"))
	p.GetAttrs = func(obj runtime.Object) (labels.Set, fields.Set, error) {
		c, ok := obj.(*v1alpha1.Cluster)
		if !ok {
			return nil, nil, fmt.Errorf("select a cluster by a %T", obj)
		}
		return clusternode.NodeLabels(c), fields.Set{
			metav1.ObjectNameField: c.Name,
			"spec.unschedulable":   strconv.FormatBool(clusternode.IsUnschedulable(c)),
			shown:                  strconv.FormatBool(clusternode.IsShownAsNode(c)),
		}, nil
	}
	return p
}

// fillNode fills the object, a Node in the version that the API server works in.
func fillNode(c *v1alpha1.Cluster, into runtime.Object) error {
	node, ok := into.(*api.Node)
	if !ok {
		return fmt.Errorf("read a node into a %T", into)
	}
	if c.Name == "" { // nothing was found, which is not an error
		return nil
	}
	if err := apiv1.Convert_v1_Node_To_core_Node(clusternode.NodeOf(c), node, nil); err != nil {
		return fmt.Errorf("convert the node of cluster %s: %w", c.Name, err)
	}
	return nil
}

// toVersioned returns the Node in the version of clients.
func toVersioned(node *api.Node) (*corev1.Node, error) {
	out := &corev1.Node{}
	if err := apiv1.Convert_core_Node_To_v1_Node(node, out, nil); err != nil {
		return nil, fmt.Errorf("convert node %s: %w", node.Name, err)
	}
	return out, nil
}
