package tables

import (
	"maps"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/binder"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/state/statetest"
)

// fakeBinder knows only the items of Bundles in a namespace.
type fakeBinder struct {
	loaded bool
	items  map[policymatch.BundleID]atoll.ItemKey
}

func (b fakeBinder) IsLoaded() bool { return b.loaded }

func (fakeBinder) BundlesInvolving(atoll.ItemKey) []policymatch.BundleID { return nil }

func (fakeBinder) BundlesHolding(atoll.ItemKey) []policymatch.BundleID { return nil }

func (b fakeBinder) BundlesHoldingAny(namespace string, matches func(atoll.ItemKey) bool) (out []policymatch.BundleID) {
	for id, key := range b.items {
		if id.Namespace == namespace && matches(key) {
			out = append(out, id)
		}
	}
	return out
}

func (fakeBinder) ExplainTemplate(atoll.ItemKey) (binder.Explanation, bool) {
	return binder.Explanation{}, false
}

// Before the Bundles are loaded, nothing is known of an object's Bundle: clients must repeat the
// request.
func TestStatedNeedsTheBundles(t *testing.T) {
	key := atoll.ItemKey{Kind: "ConfigMap", Namespace: "a", Name: "b"}
	if _, _, err := (Tables{&state.HubTables{}, fakeBinder{}}).RevisionTemplates(t.Context(), key, "uid"); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("%v", err)
	}
	stated, next, err := Tables{&state.HubTables{}, fakeBinder{loaded: true}}.RevisionTemplates(t.Context(), key, "uid")
	if len(stated) != 0 || next != 0 || err != nil {
		t.Errorf("%v, %d, %v", stated, next, err)
	}
}

// The rows of Bundles with a fitting template say where a pod of a name is likely.
func TestLikelyHolders(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(state.NewScheme()).WithStatusSubresource(&enginev1.TargetSlice{}).Build()
	st := statetest.NewTables(t, c)
	named := func(name string) atoll.ItemKey {
		return atoll.ItemKey{Group: "apps", Kind: "StatefulSet", Namespace: "shop", Name: name}
	}
	b := fakeBinder{items: map[policymatch.BundleID]atoll.ItemKey{{Namespace: "shop", Name: "deleted"}: named("db")}}
	for name, clusters := range map[string][]string{"db": {"oslo", "lima"}, "web": {"oslo", "tokyo"}} {
		id, uid := policymatch.BundleID{Namespace: "shop", Name: name}, "uid-"+name
		b.items[id] = named(name)
		st.Bundles.Put(&v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Namespace: id.Namespace, Name: id.Name, UID: types.UID(uid)}})
		specs := map[string]*atoll.RowSpec{}
		for _, cluster := range clusters {
			specs[cluster] = &atoll.RowSpec{UID: "uid-" + cluster, Phase: atoll.RowActive}
		}
		if err := st.Rows.WriteSpecs(t.Context(), enginev1.BundleRef{UID: uid, Namespace: id.Namespace, Name: id.Name}, nil, specs); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		namespace, name string
		want            map[string]bool
	}{
		{"shop", "db", map[string]bool{"oslo": true, "lima": true}},
		{"shop", "web", map[string]bool{"oslo": true, "tokyo": true}},
		{"shop", "api", map[string]bool{}},
		{"mail", "db", map[string]bool{}},
	} {
		if got := (Tables{st, b}).ClustersLikelyHolding(tc.namespace, func(template string) bool { return template == tc.name }); !maps.Equal(got, tc.want) {
			t.Errorf("%s/%s: %v, want %v", tc.namespace, tc.name, got, tc.want)
		}
	}
}
