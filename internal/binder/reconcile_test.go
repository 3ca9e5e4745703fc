package binder

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// writtenBundles is the table of Bundles, which follows what the Binder writes.
type writtenBundles struct{ fakeBundles }

func (x writtenBundles) Put(o client.Object) {
	b, _ := state.BundleOf(o)
	x.bundles[policymatch.BundleID{Namespace: b.Ref.Namespace, Name: b.Ref.Name}] = b
}

// writtenRevisions is the table of Revisions, which follows what the Binder writes.
type writtenRevisions struct {
	fakeRevisions
	writes *[]string
}

func (x writtenRevisions) CreateRevision(_ context.Context, ref enginev1.BundleRef, content *atoll.Content) (string, error) {
	text := "revision of " + ref.UID + ":"
	for _, item := range content.Items {
		text += " " + item.Key.Name
	}
	*x.writes = append(*x.writes, text)
	x.contents[ref.UID] = content
	return ref.UID + "-1-0", nil
}

// newWritingBinder returns a Binder that has written nothing, and the list of what it writes from now on.
func newWritingBinder(t *testing.T) (*fakeTables, *Binder, *[]string) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	l, b := newShopTables(t)
	clear(l.bundles)
	clear(l.contents)
	b.ownership.dropBundleContent(policymatch.BundleID{Namespace: "shop", Name: "web"}, "b")
	writes := &[]string{}
	b.Bundles, b.Revisions = writtenBundles{fakeBundles{nil, l}}, writtenRevisions{fakeRevisions{nil, l}, writes}
	b.Client = fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			*writes = append(*writes, "create bundle "+o.GetName())
			o.SetUID("new")
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			*writes = append(*writes, "update bundle "+o.GetName())
			return c.Update(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			*writes = append(*writes, "delete bundle "+o.GetName())
			return c.Delete(ctx, o, opts...)
		},
	}).Build()
	b.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	b.OnRevision = func(bundle, revision string, _ time.Time) {
		*writes = append(*writes, "OnRevision "+revision)
	}
	b.policyStatus = newPolicyStatusWriter(b)
	return l, b, writes
}

// A Bundle and its Revision are written once the templates have their finalizer. A later plan writes what
// differs, and no more.
func TestWhatAReconcileWrites(t *testing.T) {
	l, b, writes := newWritingBinder(t)
	id, web := policymatch.BundleID{Namespace: "shop", Name: "web"}, atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	l.templates[web].SetFinalizers(nil)
	down := true
	b.PutFinalizer = func(_ context.Context, o *unstructured.Unstructured, finalizer string) (bool, error) {
		if down {
			return false, errors.New("no connection")
		}
		*writes = append(*writes, "finalizer of "+o.GetName())
		o.SetFinalizers([]string{finalizer})
		return true, nil
	}
	for _, step := range []struct {
		what   string
		change func()
		fails  bool
		want   []string
	}{
		{"the finalizer cannot be added", func() {}, true, nil},
		{"the first plan", func() { down = false }, false, []string{"finalizer of web", "create bundle web", "revision of new: api web", "OnRevision new-1-0"}},
		{"nothing changed", func() {}, false, nil},
		{"another placement", func() { l.policies[0].Spec.Placement = placementInClusters("tokyo") }, false, []string{"update bundle web"}},
		{"another image", func() { l.templates[web] = newDeployment("shop", "web", "web:2", 2) }, false, []string{"revision of new: api web", "OnRevision new-1-0"}},
	} {
		step.change()
		*writes = nil
		if _, err := b.reconcileBundle(t.Context(), id); (err != nil) != step.fails {
			t.Errorf("%s: %v", step.what, err)
		}
		if !slices.Equal(*writes, step.want) {
			t.Errorf("%s: writes %q, want %q", step.what, *writes, step.want)
		}
	}
	var stored v1alpha1.Bundle
	if err := b.Client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, &stored); err != nil {
		t.Fatal(err)
	}
	if placementText(stored.Spec.Placement) != "tokyo" || !slices.Equal(stored.Finalizers, []string{atoll.FinalizerBundle}) {
		t.Errorf("the Bundle is placed in %q, with finalizers %v", placementText(stored.Spec.Placement), stored.Finalizers)
	}
}

// unsyncedKind is a table of templates that has not read one kind yet.
type unsyncedKind struct {
	fakeTemplates
	kind string
}

func (x unsyncedKind) IsSynced(_, kind string) bool      { return kind != x.kind }
func (x unsyncedKind) UnreadReason(string, string) error { return nil }

// An empty table is no instruction: while a kind is not read that a plan depends on, nothing is written.
func TestNothingIsWrittenBeforeAllKindsOfAPlanAreRead(t *testing.T) {
	web := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	edit := func(l *fakeTables, _ *Binder) { l.templates[web] = newDeployment("shop", "web", "web:2", 2) }
	const written = "revision of new: api web"
	for what, tc := range map[string]struct {
		unread string
		change func(*fakeTables, *Binder)
		want   string
	}{
		"all kinds are read":                          {"", edit, written},
		"a kind of no object":                         {"Job", edit, written},
		"the definitions":                             {"CustomResourceDefinition", edit, ""},
		"the kind of objects that the policy selects": {"Deployment", edit, ""},
		"the kind of objects that the policy selects, and there are none": {"ConfigMap", func(l *fakeTables, b *Binder) {
			edit(l, b)
			l.policies[0].Spec.ResourceSelectors = append(l.policies[0].Spec.ResourceSelectors, v1alpha1.ResourceSelector{APIVersion: "v1", Kind: "ConfigMap"})
		}, ""},
		"a kind of dependencies": {"Secret", func(l *fakeTables, b *Binder) {
			edit(l, b)
			l.policies[0].Spec.PropagateDeps = true
		}, ""},
		"the kind of objects that the last Revision has, and nothing selects": {"Deployment", func(l *fakeTables, b *Binder) {
			for key := range l.templates {
				b.ownership.unassignTemplate(key)
			}
			clear(l.templates)
			l.policies[0].Spec.ResourceSelectors = []v1alpha1.ResourceSelector{{APIVersion: "v1", Kind: "ConfigMap"}}
		}, ""},
	} {
		l, b, writes := newWritingBinder(t)
		id := policymatch.BundleID{Namespace: "shop", Name: "web"}
		if _, err := b.reconcileBundle(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		tc.change(l, b)
		b.Kinds = unsyncedKind{fakeTemplates{nil, nil, l}, tc.unread}
		*writes = nil
		again, err := b.reconcileBundle(t.Context(), id)
		if err != nil || (again > 0) != (tc.want == "") {
			t.Errorf("%s: reconciled again after %v, %v", what, again, err)
		}
		if got := strings.Join(*writes, ", "); (got == "") != (tc.want == "") || !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s: writes %q, want %q", what, got, tc.want)
		}
	}
}
