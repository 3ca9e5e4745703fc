package sources

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/internal/sources/fetch"
	"atoll.dev/atoll/internal/sources/render"
)

// fakeListings list one thing of each Repository.
type fakeListings struct {
	calls   []string
	retry   bool
	descent error
	compare bool
}

func (f *fakeListings) IsAwaited(key types.NamespacedName) bool { return key == repoKey }

func (f *fakeListings) ListWants(c ListingCheck) []fetch.Want {
	return []fetch.Want{{ID: "set/" + c.Repository.Name, Ref: "refs/heads/main", Listing: &render.ListingWant{Paths: []string{"apps/*"}}}}
}

func (f *fakeListings) TakeListings(ctx context.Context, c ListingCheck, contents []fetch.Content) bool {
	for _, one := range contents {
		f.calls = append(f.calls, "take "+one.ID+" "+one.Commit)
	}
	if f.compare {
		descends, err := c.Descends(ctx, "old", "new")
		f.calls = append(f.calls, fmt.Sprint("descends ", descends))
		f.descent = err
	}
	return f.retry
}

func (f *fakeListings) FailListings(key types.NamespacedName, why fetch.Failure, failures int) {
	f.calls = append(f.calls, fmt.Sprint("fail ", key.Name, " ", why.Reason, " ", failures))
}

// One check of a Repository reads what Sources and others read of it, once. Failures reach the others, too.
func TestListingsAreReadInChecks(t *testing.T) {
	h := newHub(t, branch)
	f := &fakeListings{compare: true}
	h.r.Listings = f
	h.setCommit("c1", "a=1")
	h.expectCheck("the first commit", "apply a", good)
	if got := strings.Join(f.calls, ", "); got != "take set/repo c1, descends true" || f.descent != nil {
		t.Errorf("%s, %v", got, f.descent)
	}
	if n := len(h.requests); n != 2 || len(h.requests[0].Wants) != 2 || h.requests[0].Wants[1].Listing == nil || h.requests[1].Descends == nil || len(h.requests[1].Wants) != 0 || *h.requests[1].Descends != (fetch.Descent{Old: "old", New: "new"}) {
		t.Errorf("%d requests: %+v", n, h.requests)
	}
	if !h.r.awaitsListing(repoKey) || h.r.awaitsListing(sourceKey) {
		t.Error("a listing is awaited of another Repository")
	}
	f.calls, f.compare, f.retry = nil, false, true
	h.runCheck()
	if got := strings.Join(f.calls, ", "); got != "take set/repo c1" || h.r.tries[repoKey] != 1 {
		t.Errorf("%s; %d tries", got, h.r.tries[repoKey])
	}
	f.calls = nil
	h.fails = &fetch.Failure{Reason: "RepositoryUnreachable", Message: "away"}
	h.runCheck()
	h.runCheck()
	if got := strings.Join(f.calls, ", "); got != "fail repo RepositoryUnreachable 1, fail repo RepositoryUnreachable 2" {
		t.Error(got)
	}
	h.fails, h.descentFails, f.compare = nil, &fetch.Failure{Reason: "RepositoryUnreachable", Message: "away"}, true
	h.runCheck()
	var failure *fetch.Failure
	if !errors.As(f.descent, &failure) {
		t.Errorf("a comparison that fails: %v", f.descent)
	}
}
