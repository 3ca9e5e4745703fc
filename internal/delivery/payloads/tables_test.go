package payloads

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/quarantine"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/state/statetest"
)

// newHubTables returns the tables of a hub whose store has these objects. refuse is the answer to reads of
// namespace refused.
func newHubTables(t *testing.T, refuse error, objects ...client.Object) *state.HubTables {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(state.NewScheme()).WithStatusSubresource(&enginev1.TargetSlice{}).WithObjects(objects...).
		WithInterceptorFuncs(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if key.Name == "refused" {
				return refuse
			}
			return c.Get(ctx, key, o, opts...)
		}}).Build()
	return statetest.NewTables(t, c)
}

// A namespace is deleted where the store states it. One that only the table lacks is not.
func TestTheStoreConfirmsADeletedNamespace(t *testing.T) {
	deleting := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "deleting", Finalizers: []string{"example.com/a"}, DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)}}}
	st := newHubTables(t, errors.New("no answer"), deleting, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	for name, want := range map[string]string{
		"gone": "<nil>", "deleting": "<nil>",
		"shop":    "namespace shop exists, and this hub's table does not show it yet",
		"refused": "confirm that namespace refused was deleted: no answer",
	} {
		if got := fmt.Sprint(hubTables{st}.confirmNamespaceDeleted(t.Context(), name)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		if !(hubTables{st}).IsNamespaceDeleted(name) {
			t.Errorf("%s: the table has it", name)
		}
	}
}

// A manifest of the hub's tables has the content of the row's Revision, and its namespace.
func TestARowIsRenderedFromTheHubsTables(t *testing.T) {
	st := newHubTables(t, nil)
	ref := enginev1.BundleRef{UID: "b", Namespace: "", Name: "web"}
	item := atoll.ItemKey{Kind: "Namespace", Name: "shop"}
	content := &atoll.Content{Tombstones: []atoll.Tombstone{{Key: item, UID: "t", MovedTo: []string{"stays", "goes", "none"}}}}
	revision, err := st.Revisions.CreateRevision(t.Context(), ref, content)
	if err != nil {
		t.Fatal(err)
	}
	for uid, phase := range map[string]atoll.RowPhase{"stays": atoll.RowLeaving, "goes": atoll.RowRemoving} {
		st.Bundles.Put(&v1alpha1.ClusterBundle{ObjectMeta: metav1.ObjectMeta{Name: uid, UID: "uid"}})
		specs := map[string]*atoll.RowSpec{"tokyo": {UID: "u-tokyo", Phase: phase}}
		if err := st.Rows.WriteSpecs(t.Context(), enginev1.BundleRef{UID: uid, Name: uid}, nil, specs); err != nil {
			t.Fatal(err)
		}
	}
	r := NewHubRenderer(st, []byte("key"), quarantine.NewAccounts())
	row := state.Row{Bundle: ref, Cluster: "tokyo", Spec: atoll.RowSpec{UID: "u-tokyo", Revision: revision, Phase: atoll.RowActive}}
	in, err := r.ReadManifestInput(t.Context(), row)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(in.PresentBundles, []string{"stays"}) || len(in.HeldBack) > 0 || in.ClusterLeaves || in.NamespaceDeleted {
		t.Errorf("%+v", in)
	}
	if _, err := r.RenderManifest(t.Context(), in); err == nil || err.Error() != "cluster tokyo is gone" {
		t.Errorf("%v", err)
	}
	row.Spec.Phase = atoll.RowRemoving
	if in, err = r.ReadManifestInput(t.Context(), row); err != nil {
		t.Fatal(err)
	}
	if _, err := r.RenderManifest(t.Context(), in); err != nil {
		t.Errorf("a row that is removed: %v", err)
	}
	row.Spec.Revision = "nosuch"
	if _, err := r.ReadManifestInput(t.Context(), row); err == nil {
		t.Error("a Revision that is not there has a content")
	}
	if held := (hubTables{st}).ListRecalledDeletions(content); held != nil {
		t.Errorf("held back: %v", held)
	}
	if (hubTables{st}).HasStayingRow("none", "tokyo") || (hubTables{st}).HasStayingRow("stays", "oslo") {
		t.Error("a row that is not there stays")
	}
}
