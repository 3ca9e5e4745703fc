package nodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
	api "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/registry/core/node"

	"atoll.dev/atoll/internal/clusternode"
)

const (
	// attempts at an edit that states no version, where others edit the Cluster meanwhile.
	attempts = 5
	// manager of the fields that are edited, where who edits names none.
	manager = "atoll-node"
)

// edit of a Node, as an API server hands it to its storage.
type edit struct {
	name     string
	info     rest.UpdatedObjectInfo
	validate rest.ValidateObjectUpdateFunc
	options  *metav1.UpdateOptions
}

// Update a Node, which is an edit of its Cluster.
func (r *REST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, forceCreate bool, o *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	if r.hub(ctx) {
		return r.stored.Update(ctx, name, info, create, update, forceCreate, o)
	}
	e := edit{name: name, info: info, validate: update, options: o}
	for attempt := 1; ; attempt++ {
		obj, again, err := r.update(ctx, e)
		if err == nil || !again || attempt == attempts {
			return obj, false, err
		}
	}
}

// update once; again: it failed because the Cluster has changed, and may be tried again.
func (r *REST) update(ctx context.Context, e edit) (_ runtime.Object, again bool, err error) {
	key, err := r.key(ctx, e.name)
	if err != nil {
		return nil, false, err
	}
	cluster, err := r.reader.cluster(ctx, key, storage.GetOptions{})
	if err != nil {
		return nil, false, storeerr.InterpretGetError(err, api.Resource("nodes"), e.name)
	}
	old := &api.Node{}
	if err := fill(cluster, old); err != nil {
		return nil, false, err
	}
	obj, err := e.info.UpdatedObject(ctx, old.DeepCopy())
	if err != nil {
		return nil, false, err
	}
	now, ok := obj.(*api.Node)
	if !ok {
		return nil, false, fmt.Errorf("update node %s to a %T", e.name, obj)
	}
	latest := now.ResourceVersion == ""
	if latest {
		now.ResourceVersion = old.ResourceVersion
	}
	if now.ResourceVersion != old.ResourceVersion {
		return nil, false, apierrors.NewConflict(api.Resource("nodes"), e.name, errors.New(genericregistry.OptimisticLockErrorMsg))
	}
	if applied(now) {
		return nil, false, refused("node %s is a cluster: nobody owns fields of it, so it is not applied; apply Cluster/%s, or use kubectl cordon, taint, label or annotate", e.name, e.name)
	}
	if err := rest.BeforeUpdate(node.Strategy, ctx, now, old); err != nil {
		return nil, false, err
	}
	if e.validate != nil {
		if err := e.validate(ctx, now.DeepCopy(), old.DeepCopy()); err != nil {
			return nil, false, err
		}
	}
	v1, err := versioned(now)
	if err != nil {
		return nil, false, err
	}
	patch, errs := clusternode.Change(cluster, v1)
	if len(errs) > 0 {
		return nil, false, apierrors.NewInvalid(api.Kind("Node"), e.name, errs)
	}
	if patch != nil {
		o := metav1.PatchOptions{DryRun: e.options.DryRun, FieldManager: cmp.Or(e.options.FieldManager, manager)}
		if cluster, err = r.patch(ctx, e.name, patch, o); err != nil {
			return nil, latest && apierrors.IsConflict(err), err
		}
	}
	out := &api.Node{}
	return out, false, fill(cluster, out)
}

// applied tells whether fields of the Node were applied by server-side apply.
func applied(n *api.Node) bool {
	return slices.ContainsFunc(n.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
		return e.Operation == metav1.ManagedFieldsOperationApply
	})
}
