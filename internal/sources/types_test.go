package sources

import (
	"context"
	"errors"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/changes"
	"atoll.dev/atoll/internal/sources/fetch"
)

// Each type of Repositories that the API has is one that is fetched.
func TestEveryTypeOfARepositoryIsFetched(t *testing.T) {
	for _, spec := range []v1alpha1.RepositorySpec{{Git: &v1alpha1.GitRepository{}}, {Helm: &v1alpha1.HelmRepository{}}, {OCI: &v1alpha1.OCIRepository{}}} {
		place := changes.PlaceOf(&spec)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := (&fetch.Fetcher{}).Fetch(ctx, fetch.Request{Type: place.Type, URL: "https://" + place.Type + " example", Wants: []fetch.Want{{Ref: "a", SeenCommit: "b"}}})
		var failure *fetch.Failure
		if !errors.As(err, &failure) || failure.Reason != atoll.ReasonInvalidField || failure.Message == "the Repository is of no type that this hub reads" {
			t.Errorf("%s: %v", place.Type, err)
		}
	}
}
