package hub

import (
	"context"
	"net"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/admission"
	"atoll.dev/atoll/internal/apiserver/respond"
	"atoll.dev/atoll/internal/memberproxy"
)

// serveMemberProxy leads a request to a member's API.
func (l *apiHooks) serveMemberProxy(w http.ResponseWriter, r *http.Request) {
	if _, ready := l.components.Get(); !ready {
		respond.WriteError(w, respond.StillStarting("it has not read its clusters yet"))
		return
	}
	l.memberProxy.ServeHTTP(w, r)
}

// wrapAuthorizer lets users reach a cluster by a right on one of its sets, and protects the
// ServiceAccounts of system namespaces.
func (l *apiHooks) wrapAuthorizer(a authorizer.Authorizer) authorizer.Authorizer {
	l.authorizer = memberproxy.AuthorizeByClusterSet(admission.ProtectSystemAccounts(a), l.sets.Wait)
	return l.authorizer
}

// mayProxy calls the API's authorizer.
func (l *apiHooks) mayProxy(ctx context.Context, u user.Info, verb, cluster string) bool {
	decision, _, err := l.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: u, Verb: verb, APIGroup: v1alpha1.GroupVersion.Group, APIVersion: v1alpha1.GroupVersion.Version,
		Resource: "clusters", Subresource: "proxy", Name: cluster, ResourceRequest: true,
	})
	return err == nil && decision == authorizer.DecisionAllow
}

// Get returns a Cluster.
func (l *apiHooks) Get(name string) (*v1alpha1.Cluster, bool) {
	p, ok := l.components.Get()
	if !ok {
		return nil, false
	}
	return p.state.Clusters.Get(name)
}

// dialAgent dials the agent of a cluster, here or by way of the hub that holds its stream.
func (l *apiHooks) dialAgent(ctx context.Context, uid string) (net.Conn, error) {
	p, ok := l.components.Get()
	if !ok {
		return nil, status.Error(codes.NotFound, "the hub starts")
	}
	conn, err := p.gateway.DialCluster(ctx, uid)
	if status.Code(err) == codes.NotFound && p.peers != nil {
		return p.peers.DialCluster(ctx, uid)
	}
	return conn, err
}
