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
	"atoll.dev/atoll/internal/hub/reach"
)

// serveProxy leads a request to a member's API.
func (l *lateParts) serveProxy(w http.ResponseWriter, r *http.Request) {
	if _, ready := l.parts.Get(); !ready {
		refuse(w, starting("it does not know its clusters yet"))
		return
	}
	l.reach.ServeHTTP(w, r)
}

// authorize lets those reach a cluster who may reach one of its sets.
func (l *lateParts) authorize(a authorizer.Authorizer) authorizer.Authorizer {
	l.authorizer = reach.BySet(a, func() (reach.Sets, bool) {
		p, ok := l.parts.Get()
		if !ok {
			return nil, false
		}
		return p.state.Sets, true
	})
	return l.authorizer
}

// mayProxy asks the API's authorizer.
func (l *lateParts) mayProxy(ctx context.Context, u user.Info, verb, cluster string) bool {
	decision, _, err := l.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: u, Verb: verb, APIGroup: v1alpha1.GroupVersion.Group, APIVersion: v1alpha1.GroupVersion.Version,
		Resource: "clusters", Subresource: "proxy", Name: cluster, ResourceRequest: true,
	})
	return err == nil && decision == authorizer.DecisionAllow
}

// Get a Cluster.
func (l *lateParts) Get(name string) (*v1alpha1.Cluster, bool) {
	p, ok := l.parts.Get()
	if !ok {
		return nil, false
	}
	return p.state.Clusters.Get(name)
}

// dial the agent of a cluster, here or by way of the hub that holds its stream.
func (l *lateParts) dial(ctx context.Context, uid string) (net.Conn, error) {
	p, ok := l.parts.Get()
	if !ok {
		return nil, status.Error(codes.NotFound, "the hub starts")
	}
	conn, err := p.gateway.Dial(ctx, uid)
	if status.Code(err) == codes.NotFound && p.peers != nil {
		return p.peers.Dial(ctx, uid)
	}
	return conn, err
}
