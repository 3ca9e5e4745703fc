package sources

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/sources/fetch"
)

// awaitsListing reports whether others than Sources wait for a check of a Repository.
func (r *Reconciler) awaitsListing(key types.NamespacedName) bool {
	return r.Listings != nil && r.Listings.IsAwaited(key)
}

// failListings reports to others than Sources that a Repository cannot be read.
func (r *Reconciler) failListings(key types.NamespacedName, why fetch.Failure, failures int) {
	if r.Listings != nil {
		r.Listings.FailListings(key, why, failures)
	}
}

// fetchContents fetches the contents of Sources. The first fetch of a check also reads what others list of the Repository.
func (r *Reconciler) fetchContents(ctx context.Context, check repositoryCheck, sources []*v1alpha1.Source, out *readOutcome) ([]fetch.Content, error) {
	check.request.Wants = wantsOf(check, sources)
	request := check.request
	listing := ListingCheck{Repository: check.repo, TrustedKeys: check.trustedKeys, Descends: func(ctx context.Context, old, now string) (bool, error) {
		return r.readDescent(ctx, request, old, now)
	}}
	own := len(check.request.Wants)
	if r.Listings != nil && !out.isListed {
		check.request.Wants = append(check.request.Wants, r.Listings.ListWants(listing)...)
	}
	answer, err := r.Fetcher.Fetch(ctx, check.request)
	if err != nil {
		return nil, err
	}
	if len(answer.Contents) != len(check.request.Wants) {
		return nil, fmt.Errorf("the fetch answers with %d contents for %d requests", len(answer.Contents), len(check.request.Wants))
	}
	if r.Listings != nil && !out.isListed && r.Listings.TakeListings(ctx, listing, answer.Contents[own:]) {
		out.retry = true
	}
	out.isListed = true
	return answer.Contents[:own], nil
}
