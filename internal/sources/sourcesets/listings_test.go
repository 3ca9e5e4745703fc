package sourcesets

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/internal/sources/fetch"
	"atoll.dev/atoll/internal/sources/render"
)

// The answer to a former request, perhaps of another Repository, is not the one of the present request.
func TestAnAnswerToAFormerRequestIsDropped(t *testing.T) {
	r := &Reconciler{listings: map[types.NamespacedName]map[string]*listing{}}
	key := listingKey{types.NamespacedName{Namespace: "shop", Name: "apps"}, "generators[0].directories"}
	former, present := request{key, "a"}, request{key, "b"}
	var asked fetch.Want
	r.noteRequest(former, &asked, "keys")
	r.noteRequest(present, &asked, "keys")
	if changed, retry := r.takeListing(former, fetch.Content{Commit: "c1", Listing: &render.Listing{}, Digest: "d1"}); changed || retry || r.listings[key.set][key.path].commit != "" {
		t.Errorf("the former answer is taken: changed %t, retry %t, %+v", changed, retry, r.listings[key.set][key.path])
	}
	if changed, _ := r.takeListing(present, fetch.Content{Commit: "c2", Listing: &render.Listing{}, Digest: "d2"}); !changed || !r.listings[key.set][key.path].isRead("b") {
		t.Errorf("the answer is not taken: %+v", r.listings[key.set][key.path])
	}
	for _, q := range []request{former, present} {
		if got, ok := parseID("shop", q.formatID()); !ok || got != q {
			t.Errorf("%s is parsed as %+v (%t)", q.formatID(), got, ok)
		}
	}
	for _, id := range []string{"web", "source-set/apps", "source-set/apps/a"} {
		if got, ok := parseID("shop", id); ok {
			t.Errorf("%s is parsed as %+v", id, got)
		}
	}
}
