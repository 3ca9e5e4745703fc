// Package nodes serves the Clusters of the hub as its Nodes: one for each accepted Cluster.
//
// Contract: it replaces the built-in storage of nodes, so that authorization, admission, audit,
// tables, selectors, pages and watches are upstream's, with the resource versions of the Clusters.
// Nothing about nodes is stored. The hub itself, its API server and its controllers, uses the
// built-in storage, which is empty: Nodes are for people. An edit of a Node edits its Cluster, in
// the editor's name and with the editor's rights on both. An edit that a Cluster cannot represent
// is refused with the alternative, and so are creating and deleting. Safe for concurrent use.
package nodes

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	api "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/printers"
	printersinternal "k8s.io/kubernetes/pkg/printers/internalversion"
	printerstorage "k8s.io/kubernetes/pkg/printers/storage"
	"k8s.io/kubernetes/pkg/registry/core/node"

	"atoll.dev/atoll/api/v1alpha1"
)

// Patch a Cluster, by a JSON merge patch, in the name of whose request ctx is of.
type Patch func(ctx context.Context, name string, patch []byte, o metav1.PatchOptions) (*v1alpha1.Cluster, error)

// Options of the storage. All are required.
type Options struct {
	// Clusters are read from there, at Prefix.
	Clusters storage.Interface
	Prefix   string
	// Patch changes them.
	Patch Patch
	// Own reports whether the user is the hub itself.
	Own func(user.Info) bool
}

// InstallNodeStorage installs the storage in place of the built-in one, among the resources of the core group.
func InstallNodeStorage(resources map[string]rest.Storage, o Options) error {
	stored, ok := resources["nodes"].(rest.StandardStorage)
	if !ok {
		return fmt.Errorf("storage of nodes is a %T, not the one this was written for", resources["nodes"])
	}
	r := &NodeREST{reader: readOnlyNodeStorage{o.Clusters}, prefix: o.Prefix, stored: stored, patch: o.Patch, own: o.Own}
	r.live = &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &api.Node{} },
		NewListFunc:               func() runtime.Object { return &api.NodeList{} },
		PredicateFunc:             node.MatchNode,
		DefaultQualifiedResource:  api.Resource("nodes"),
		SingularQualifiedResource: api.Resource("node"),
		KeyRootFunc:               func(context.Context) string { return r.prefix },
		KeyFunc:                   r.clusterStorageKey,
		TableConvertor:            printerstorage.TableConvertor{TableGenerator: printers.NewTableGenerator().With(printersinternal.AddHandlers)},
		Storage:                   genericregistry.DryRunnableStorage{Storage: r.reader},
	}
	resources["nodes"] = r
	resources["nodes/status"] = nodeStatusREST{r}
	resources["nodes/proxy"] = refusedProxy{}
	return nil
}

// NodeREST serves nodes.
type NodeREST struct {
	reader readOnlyNodeStorage
	prefix string
	live   *genericregistry.Store // what people read
	stored rest.StandardStorage   // what the hub itself reads
	patch  Patch
	own    func(user.Info) bool
}

var (
	_ rest.StandardStorage      = &NodeREST{}
	_ rest.Scoper               = &NodeREST{}
	_ rest.ShortNamesProvider   = &NodeREST{}
	_ rest.SingularNameProvider = &NodeREST{}
)

// isHubRequest reports whether the request is the hub's own.
func (r *NodeREST) isHubRequest(ctx context.Context) bool {
	who, ok := request.UserFrom(ctx)
	return !ok || r.own(who)
}

func (r *NodeREST) clusterStorageKey(ctx context.Context, name string) (string, error) {
	return genericregistry.NoNamespaceKeyFunc(ctx, r.prefix, name)
}

// New returns an empty Node.
func (r *NodeREST) New() runtime.Object { return r.live.New() }

// NewList returns an empty NodeList.
func (r *NodeREST) NewList() runtime.Object { return r.live.NewList() }

// Destroy destroys the built-in storage. The storage of Clusters has another owner.
func (r *NodeREST) Destroy() { r.stored.Destroy() }

// NamespaceScoped is false: they are not.
func (r *NodeREST) NamespaceScoped() bool { return false }

// GetSingularName returns the singular name of the resource.
func (r *NodeREST) GetSingularName() string { return r.live.GetSingularName() }

// ShortNames returns the short names of the resource.
func (r *NodeREST) ShortNames() []string { return []string{"no"} }

// ConvertToTable converts as upstream prints Nodes.
func (r *NodeREST) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return r.live.ConvertToTable(ctx, obj, options)
}

// Get returns a Node.
func (r *NodeREST) Get(ctx context.Context, name string, o *metav1.GetOptions) (runtime.Object, error) {
	if r.isHubRequest(ctx) {
		return r.stored.Get(ctx, name, o)
	}
	return r.live.Get(ctx, name, o)
}

// List lists the Clusters as Nodes, or a page of them; the hub itself gets the stored Nodes.
func (r *NodeREST) List(ctx context.Context, o *internalversion.ListOptions) (runtime.Object, error) {
	if r.isHubRequest(ctx) {
		return r.stored.List(ctx, o)
	}
	return r.live.List(ctx, o)
}

// Watch watches the Clusters as Nodes; the hub itself watches the stored Nodes.
func (r *NodeREST) Watch(ctx context.Context, o *internalversion.ListOptions) (watch.Interface, error) {
	if r.isHubRequest(ctx) {
		return r.stored.Watch(ctx, o)
	}
	return r.live.Watch(ctx, o)
}
