package tables

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/binder"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// fakeBinder knows no Bundle of any object.
type fakeBinder struct{ loaded bool }

func (b fakeBinder) IsLoaded() bool { return b.loaded }

func (fakeBinder) BundlesInvolving(atoll.ItemKey) []policymatch.BundleID { return nil }

func (fakeBinder) BundlesHolding(atoll.ItemKey) []policymatch.BundleID { return nil }

func (fakeBinder) ExplainTemplate(atoll.ItemKey) (binder.Explanation, bool) {
	return binder.Explanation{}, false
}

// Before the Bundles are loaded, nothing is known of an object's Bundle: clients must repeat the
// request.
func TestStatedNeedsTheBundles(t *testing.T) {
	key := atoll.ItemKey{Kind: "ConfigMap", Namespace: "a", Name: "b"}
	if _, _, err := (Tables{&state.State{}, fakeBinder{}}).Stated(t.Context(), key, "uid"); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("%v", err)
	}
	stated, next, err := Tables{&state.State{}, fakeBinder{loaded: true}}.Stated(t.Context(), key, "uid")
	if len(stated) != 0 || next != 0 || err != nil {
		t.Errorf("%v, %d, %v", stated, next, err)
	}
}
