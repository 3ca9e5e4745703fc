package nodes

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	api "k8s.io/kubernetes/pkg/apis/core"
)

// methodNotAllowedError is the reason why no user at all may do something.
func methodNotAllowedError(format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed,
		Message: fmt.Sprintf(format, args...),
	}}
}

// Create creates no Node: they come with their Clusters.
func (r *NodeREST) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, o *metav1.CreateOptions) (runtime.Object, error) {
	if r.isHubRequest(ctx) {
		return r.stored.Create(ctx, obj, validate, o)
	}
	return nil, methodNotAllowedError("nodes of the hub are its clusters, and cannot be created: `atoll token create` prints how a cluster joins, and its node is there once it is accepted")
}

// Delete deletes no Node: they go with their Clusters.
func (r *NodeREST) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, o *metav1.DeleteOptions) (runtime.Object, bool, error) {
	if r.isHubRequest(ctx) {
		return r.stored.Delete(ctx, name, validate, o)
	}
	if _, err := r.live.Get(ctx, name, &metav1.GetOptions{}); err != nil {
		return nil, false, err
	}
	return nil, false, methodNotAllowedError("node %s is a cluster, and cannot be deleted: `atoll remove %s` takes the cluster out of the fleet, `kubectl cordon %s` keeps new work away from it", name, name, name)
}

// DeleteCollection deletes collections of no Nodes.
func (r *NodeREST) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, o *metav1.DeleteOptions, which *internalversion.ListOptions) (runtime.Object, error) {
	if r.isHubRequest(ctx) {
		return r.stored.DeleteCollection(ctx, validate, o, which)
	}
	return nil, methodNotAllowedError("nodes are clusters, and cannot be deleted: `atoll remove NAME` takes one cluster out of the fleet")
}

// nodeStatusREST serves the status of Nodes, which is what agents report of their clusters.
type nodeStatusREST struct{ nodes *NodeREST }

var _ rest.Patcher = nodeStatusREST{}

func (nodeStatusREST) New() runtime.Object { return &api.Node{} }

// Destroy destroys nothing: the storage is that of nodes.
func (nodeStatusREST) Destroy() {}

func (s nodeStatusREST) Get(ctx context.Context, name string, o *metav1.GetOptions) (runtime.Object, error) {
	return s.nodes.Get(ctx, name, o)
}

func (s nodeStatusREST) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return s.nodes.ConvertToTable(ctx, obj, options)
}

func (nodeStatusREST) Update(_ context.Context, name string, _ rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc,
	_ rest.ValidateObjectUpdateFunc, _ bool, _ *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return nil, false, methodNotAllowedError("the status of node %s is what the agent of cluster %s reports, and cannot be written", name, name)
}

// refusedProxy refuses a proxy to nodes: what runs on a Node of the hub is a whole cluster.
type refusedProxy struct{}

var _ rest.Connecter = refusedProxy{}

func (refusedProxy) New() runtime.Object { return &api.NodeProxyOptions{} }

// Destroy destroys nothing.
func (refusedProxy) Destroy() {}

func (refusedProxy) NewConnectOptions() (runtime.Object, bool, string) {
	return &api.NodeProxyOptions{}, true, "path"
}

func (refusedProxy) ConnectMethods() []string {
	return []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}
}

func (refusedProxy) Connect(_ context.Context, name string, _ runtime.Object, _ rest.Responder) (http.Handler, error) {
	return nil, methodNotAllowedError("node %s is a cluster, and no kubelet: `atoll kubeconfig --cluster %s` gives a way to its API, and to its nodes", name, name)
}
