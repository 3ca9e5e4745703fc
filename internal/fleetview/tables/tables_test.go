package tables

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/binder"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
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

// apiTables is a state.TableSource that no table of this test reads.
type apiTables struct{}

func (apiTables) ListerWatcherFor(_ runtime.Object, api cache.ListerWatcher) cache.ListerWatcher {
	return api
}

func (apiTables) RequestBundleProgress(context.Context) bool { return true }

// kindsOfState is an API server that answers which kinds there are.
type kindsOfState struct{}

func (kindsOfState) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := map[string]string{
		"/api":                            `{"kind":"APIVersions"}`,
		"/apis":                           `{"kind":"APIGroupList","groups":[{"name":"atoll.dev","versions":[{"groupVersion":"atoll.dev/v1alpha1","version":"v1alpha1"}]},{"name":"engine.atoll.dev","versions":[{"groupVersion":"engine.atoll.dev/v1alpha1","version":"v1alpha1"}]}]}`,
		"/apis/atoll.dev/v1alpha1":        `{"kind":"APIResourceList","groupVersion":"atoll.dev/v1alpha1","resources":[{"name":"clusters","kind":"Cluster"}]}`,
		"/apis/engine.atoll.dev/v1alpha1": `{"kind":"APIResourceList","groupVersion":"engine.atoll.dev/v1alpha1","resources":[{"name":"revisions","kind":"Revision","namespaced":true}]}`,
	}[r.URL.Path]
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	if answer == "" {
		w.WriteHeader(http.StatusNotFound)
	}
	_, _ = w.WriteString(answer) // it gives no error
	return w.Result(), nil
}

// The rows of Bundles with a fitting template say where a pod of a name is likely.
func TestLikelyHolders(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(state.NewScheme()).WithStatusSubresource(&enginev1.TargetSlice{}).Build()
	st, err := state.New(c, &rest.Config{Transport: kindsOfState{}}, apiTables{}, make([]byte, 32), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
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
