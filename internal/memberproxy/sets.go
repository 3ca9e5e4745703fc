package memberproxy

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"atoll.dev/atoll/api/v1alpha1"
)

// Sets returns in which sets a cluster is.
type Sets interface {
	OfCluster(name string) []string
}

// AuthorizeByClusterSet wraps an authorizer so that a user with the right on one of a cluster's sets may also
// reach the cluster. sets returns the sets once they are read, or an error when its context ends.
func AuthorizeByClusterSet(next authorizer.Authorizer, sets func(context.Context) (Sets, error)) authorizer.Authorizer {
	return clusterSetProxyAuthorizer{next, sets}
}

// setsPatience is how long a request waits at most until the sets are read, so that a start refuses no right.
const setsPatience = 30 * time.Second

type clusterSetProxyAuthorizer struct {
	authorizer.Authorizer
	sets func(context.Context) (Sets, error)
}

// Authorize calls the authorizer beneath, for the cluster and then for its sets.
func (b clusterSetProxyAuthorizer) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	decision, reason, err := b.Authorizer.Authorize(ctx, a)
	if decision != authorizer.DecisionNoOpinion || a.GetAPIGroup() != v1alpha1.GroupVersion.Group || a.GetResource() != "clusters" || a.GetSubresource() != "proxy" || a.GetName() == "" {
		return decision, reason, err
	}
	bounded, cancel := context.WithTimeout(ctx, setsPatience)
	defer cancel()
	sets, failed := b.sets(bounded)
	if failed != nil {
		return decision, reason, fmt.Errorf("the hub starts, and has not read its ClusterSets yet; try again: %w", failed)
	}
	for _, set := range sets.OfCluster(a.GetName()) {
		ofSet, why, failed := b.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
			User: a.GetUser(), Verb: a.GetVerb(), APIGroup: a.GetAPIGroup(), APIVersion: a.GetAPIVersion(),
			Resource: "clustersets", Subresource: "proxy", Name: set, ResourceRequest: true, Path: a.GetPath(),
		})
		if failed == nil && ofSet == authorizer.DecisionAllow {
			return ofSet, why, nil
		}
	}
	return decision, reason, err
}
