package apiserver

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/tools/cache"
)

// rightsPatience is how long a request waits at most until the roles and bindings are read.
const rightsPatience = 30 * time.Second

// followRights returns a channel that closes when the roles and bindings are read, by which RBAC decides.
func followRights(ctx context.Context, rbac v1.Interface) <-chan struct{} {
	read := make(chan struct{})
	informers := []cache.InformerSynced{
		rbac.Roles().Informer().HasSynced, rbac.RoleBindings().Informer().HasSynced,
		rbac.ClusterRoles().Informer().HasSynced, rbac.ClusterRoleBindings().Informer().HasSynced,
	}
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), informers...) {
			close(read)
		}
	}()
	return read
}

// patientAuthorizer refuses nothing before the roles and bindings are read: an authorizer without them
// refuses each user. It allows at once what needs no binding, as for administrators and probes.
type patientAuthorizer struct {
	authorizer.Authorizer
	read <-chan struct{}
}

// Authorize calls the wrapped authorizer, and calls it again once the roles and bindings are read.
func (p patientAuthorizer) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	select {
	case <-p.read:
		return p.Authorizer.Authorize(ctx, a)
	default:
	}
	if decision, reason, err := p.Authorizer.Authorize(ctx, a); decision == authorizer.DecisionAllow {
		return decision, reason, err
	}
	ctx, cancel := context.WithTimeout(ctx, rightsPatience)
	defer cancel()
	select {
	case <-p.read:
		return p.Authorizer.Authorize(ctx, a)
	case <-ctx.Done():
		return authorizer.DecisionNoOpinion, "", fmt.Errorf("the hub starts, and has not read the rights of its users yet; try again: %w", ctx.Err())
	}
}
