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
	// attempts at an edit without a version, while others edit the Cluster.
	attempts = 5
	// manager of the edited fields, where the editor names none.
	manager = "atoll-node"
)

// nodeEdit is an edit of a Node, as an API server hands it to its storage.
type nodeEdit struct {
	name     string
	info     rest.UpdatedObjectInfo
	validate rest.ValidateObjectUpdateFunc
	options  *metav1.UpdateOptions
}

// Update updates a Node, which is an edit of its Cluster.
func (r *NodeREST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, forceCreate bool, o *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	if r.isHubRequest(ctx) {
		return r.stored.Update(ctx, name, info, create, update, forceCreate, o)
	}
	e := nodeEdit{name: name, info: info, validate: update, options: o}
	for attempt := 1; ; attempt++ {
		obj, again, err := r.updateOnce(ctx, e)
		if err == nil || !again || attempt == attempts {
			return obj, false, err
		}
	}
}

// updateOnce updates once; again: it failed because the Cluster has changed, and may be tried again.
func (r *NodeREST) updateOnce(ctx context.Context, e nodeEdit) (_ runtime.Object, again bool, err error) {
	key, err := r.clusterStorageKey(ctx, e.name)
	if err != nil {
		return nil, false, err
	}
	cluster, err := r.reader.clusterShownAsNode(ctx, key, storage.GetOptions{})
	if err != nil {
		return nil, false, storeerr.InterpretGetError(err, api.Resource("nodes"), e.name)
	}
	old := &api.Node{}
	if err := fillNode(cluster, old); err != nil {
		return nil, false, err
	}
	now, latest, err := e.editedNode(ctx, old)
	if err != nil {
		return nil, false, err
	}
	v1, err := toVersioned(now)
	if err != nil {
		return nil, false, err
	}
	patch, errs := clusternode.PatchFromNodeEdit(cluster, v1)
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
	return out, false, fillNode(cluster, out)
}

// editedNode returns the validated Node after the edit. latest is true if the edit named no
// resource version. latest: the edit names no version.
func (e nodeEdit) editedNode(ctx context.Context, old *api.Node) (now *api.Node, latest bool, err error) {
	obj, err := e.info.UpdatedObject(ctx, old.DeepCopy())
	if err != nil {
		return nil, false, err
	}
	now, ok := obj.(*api.Node)
	if !ok {
		return nil, false, fmt.Errorf("update node %s to a %T", e.name, obj)
	}
	if latest = now.ResourceVersion == ""; latest {
		now.ResourceVersion = old.ResourceVersion
	}
	if now.ResourceVersion != old.ResourceVersion {
		return nil, false, apierrors.NewConflict(api.Resource("nodes"), e.name, errors.New(genericregistry.OptimisticLockErrorMsg))
	}
	if isServerSideApplied(now) {
		return nil, false, methodNotAllowedError("node %s is a cluster: its fields have no managers, so it is not applied; apply Cluster/%s, or use kubectl cordon, taint, label or annotate", e.name, e.name)
	}
	if err := rest.BeforeUpdate(node.Strategy, ctx, now, old); err != nil {
		return nil, false, err
	}
	if e.validate != nil {
		err = e.validate(ctx, now.DeepCopy(), old.DeepCopy())
	}
	return now, latest, err
}

// isServerSideApplied reports whether fields of the Node were applied by server-side apply.
func isServerSideApplied(n *api.Node) bool {
	return slices.ContainsFunc(n.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
		return e.Operation == metav1.ManagedFieldsOperationApply
	})
}
