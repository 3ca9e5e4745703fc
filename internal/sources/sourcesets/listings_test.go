package sourcesets

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/fetch"
	"atoll.dev/atoll/internal/sources/render"
)

// The answer to a former request, perhaps of another Repository, is not the one of the present request.
func TestAnAnswerToAFormerRequestIsDropped(t *testing.T) {
	r := newHub(t, appDirs).r
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

// Requests of a SourceSet that is gone, and failures of a Repository that is gone, are not noted.
func TestNothingIsNotedOfWhatIsGone(t *testing.T) {
	h := newHub(t, appDirs)
	gone := types.NamespacedName{Namespace: "shop", Name: "gone"}
	h.r.noteRequest(request{listingKey{gone, "generators[0].directories"}, "a"}, &fetch.Want{}, "keys")
	if len(h.r.listings[gone]) > 0 {
		t.Error("a request is noted after its SourceSet is gone")
	}
	repo := &v1alpha1.Repository{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "other", UID: "o", Generation: 1, ResourceVersion: "1"}}
	key := types.NamespacedName{Namespace: "shop", Name: "other"}
	h.r.failures[key] = repositoryFailure{uid: "o", generation: 1}
	if h.r.repositoryChanged(key); len(h.r.failures) > 0 {
		t.Error("a failure outlives its Repository")
	}
	why := *render.NewFailure(atoll.ReasonRepositoryUnreachable, "away")
	if h.r.FailListings(key, why, 1); len(h.r.failures) > 0 {
		t.Error("a failure of a Repository that is gone is noted")
	}
	h.tables.Repositories.Put(repo)
	if h.r.FailListings(key, why, 1); len(h.r.failures) != 1 {
		t.Error("a failure is not noted")
	}
}
