package apiserver

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/apiserver/nodes"
)

// clusterNodeOptions returns how Clusters are served as Nodes.
func (s *Server) clusterNodeOptions() nodes.Options {
	clusters, prefix := s.direct.Clusters.StorageReader()
	return nodes.Options{Clusters: clusters, Prefix: prefix, Patch: s.patchClusterAsRequestUser, Own: s.identities.isProcessUser}
}

// patchClusterAsRequestUser patches the Cluster by a request of its own, in the name of whose request ctx is of: so it is
// authorized, admitted, audited and answered with warnings like any other.
func (s *Server) patchClusterAsRequestUser(ctx context.Context, name string, patch []byte, o metav1.PatchOptions) (*v1alpha1.Cluster, error) {
	config, err := s.configAsRequester(ctx)
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of clusters: %w", err)
	}
	u, err := client.Resource(v1alpha1.GroupVersion.WithResource(clusters)).Patch(ctx, name, types.MergePatchType, patch, o)
	if err != nil {
		return nil, err
	}
	c := &v1alpha1.Cluster{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, c); err != nil {
		return nil, fmt.Errorf("read cluster %s: %w", name, err)
	}
	return c, nil
}

// configAsRequester returns a client configuration in the name of the request's user. Warnings go
// to that user.
func (s *Server) configAsRequester(ctx context.Context) (*rest.Config, error) {
	who, ok := request.UserFrom(ctx)
	if !ok {
		return nil, fmt.Errorf("the request has no user")
	}
	config := s.inProcessClientConfig(HubUser)
	config.ContentType, config.AcceptContentTypes = "", ""
	config.Impersonate = rest.ImpersonationConfig{UserName: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups(), Extra: who.GetExtra()}
	config.WarningHandlerWithContext = requestWarningForwarder{}
	return config, nil
}

// requestWarningForwarder are the warnings of one request, which go on to the one that made it.
type requestWarningForwarder struct{}

// HandleWarningHeaderWithContext passes the text on to the request's user.
func (requestWarningForwarder) HandleWarningHeaderWithContext(ctx context.Context, code int, agent, text string) {
	if code == 299 && text != "" {
		warning.AddWarning(ctx, agent, text)
	}
}
