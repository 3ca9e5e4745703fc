package bundlestatus

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf8"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/userfields"
)

// served is a table of templates whose kinds are served under a resource.
type served struct {
	memTemplates
	resources map[string]schema.GroupVersionResource // by kind
}

func (s served) ResourceOfKey(key atoll.ItemKey) (schema.GroupVersionResource, bool) {
	r, ok := s.resources[key.Kind]
	return r, ok
}

func newWriter(t *testing.T, objects ...client.Object) (*APIWriter, served) {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(state.NewScheme()).WithObjects(objects...).
		WithStatusSubresource(&appsv1.Deployment{}, &v1alpha1.Bundle{}).Build()
	m := newMemory()
	templates := served{memTemplates{m}, map[string]schema.GroupVersionResource{
		"Deployment": {Group: "apps", Version: "v1", Resource: "deployments"},
		"Toy":        {Group: "example.com", Version: "v1", Resource: "toys"},
	}}
	return &APIWriter{Client: c, Bundles: memBundles{m}, Templates: templates}, templates
}

func read(t *testing.T, c client.Client, key client.ObjectKey) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"})
	if err := c.Get(t.Context(), key, u); err != nil {
		t.Fatal(err)
	}
	return u
}

func TestTemplateStatusIsFenced(t *testing.T) {
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}}
	w, _ := newWriter(t, web)
	key := client.ObjectKeyFromObject(web)
	first := read(t, w.Client, key)
	stored, err := w.WriteTemplateStatus(t.Context(), first, map[string]any{"readyReplicas": int64(2)})
	if err != nil {
		t.Fatal(err)
	}
	if n, _, _ := unstructured.NestedInt64(stored.Object, "status", "readyReplicas"); n != 2 {
		t.Errorf("stored %v", stored.Object["status"])
	}
	if _, err := w.WriteTemplateStatus(t.Context(), first, map[string]any{"readyReplicas": int64(1)}); !apierrors.IsConflict(err) {
		t.Errorf("a write over a changed object: %v", err)
	}
}

func TestKindsWithoutStatus(t *testing.T) {
	w, templates := newWriter(t)
	bear := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Toy", "metadata": map[string]any{"name": "bear"}}}
	definition := func(subresources map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "toys.example.com"},
			"spec": map[string]any{"versions": []any{map[string]any{"name": "v1", "subresources": subresources}}},
		}}
	}
	templates.setTemplate(definition(map[string]any{}))
	if _, err := w.WriteTemplateStatus(t.Context(), bear, map[string]any{}); !errors.Is(err, ErrNoStatus) {
		t.Errorf("without the subresource: %v", err)
	}
	templates.setTemplate(definition(map[string]any{"status": map[string]any{}}))
	if !w.hasStatusSubresource(bear) {
		t.Error("the subresource is not found")
	}
	ghost := bear.DeepCopy()
	ghost.SetKind("Ghost")
	if _, err := w.WriteTemplateStatus(t.Context(), ghost, map[string]any{}); !errors.Is(err, ErrNoStatus) {
		t.Errorf("of a kind that is not served: %v", err)
	}
}

func TestReleaseTakesOneFinalizer(t *testing.T) {
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", Finalizers: []string{"theirs", atoll.Finalizer}}}
	alone := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "alone", Namespace: "shop", Finalizers: []string{atoll.Finalizer}}}
	w, _ := newWriter(t, web, alone)
	for _, d := range []*appsv1.Deployment{web, alone} {
		before := read(t, w.Client, client.ObjectKeyFromObject(d))
		if err := w.RemoveFinalizer(t.Context(), before, atoll.Finalizer); err != nil {
			t.Fatal(err)
		}
		want := slices.DeleteFunc(slices.Clone(d.Finalizers), func(f string) bool { return f == atoll.Finalizer })
		if got := read(t, w.Client, client.ObjectKeyFromObject(d)).GetFinalizers(); !slices.Equal(got, want) {
			t.Errorf("%s keeps %q, want %q", d.Name, got, want)
		}
	}
	gone := read(t, w.Client, client.ObjectKeyFromObject(web))
	gone.SetName("gone")
	if err := w.RemoveFinalizer(t.Context(), gone, "theirs"); err != nil {
		t.Errorf("of what is gone: %v", err)
	}
}

func TestBundleStatusIsFencedAndSlicesGoOnce(t *testing.T) {
	b := &v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}}
	slice := &enginev1.TargetSlice{ObjectMeta: metav1.ObjectMeta{Name: "b-0"}}
	w, _ := newWriter(t, b, slice)
	if err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(b), b); err != nil {
		t.Fatal(err)
	}
	of, _ := state.BundleOf(b)
	if err := w.WriteBundleStatus(t.Context(), of, v1alpha1.BundleStatus{WaitsFor: "rain"}); err != nil {
		t.Fatal(err)
	}
	if err := w.WriteBundleStatus(t.Context(), of, v1alpha1.BundleStatus{WaitsFor: "sun"}); !apierrors.IsConflict(err) {
		t.Errorf("a write over a changed object: %v", err)
	}
	if err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(slice), slice); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.DeleteSlice(t.Context(), slice); err != nil {
			t.Errorf("delete a slice: %v", err)
		}
	}
}

func TestRecorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.setTemplate(webTemplate())
		m.cutRevision("b", &atoll.Content{
			Items:      []atoll.Item{{Key: webKey, UID: "u1"}, {Key: configKey, UID: "u2", Dependency: true}},
			Tombstones: []atoll.Tombstone{{Key: atoll.ItemKey{Kind: "Service", Namespace: "shop", Name: "gone"}, Cause: atoll.CauseDeleted}},
		})
		c := fake.NewClientBuilder().WithScheme(state.NewScheme()).Build()
		rec := NewEventRecorder(c, memRevisions{m}, memTemplates{m}, slog.New(slog.NewTextHandler(io.Discard, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- rec.Run(ctx) }()
		for range 3 {
			rec.RecordRefusal(webKey, "Conflict", "cluster a: "+strings.Repeat("é", 2000))
		}
		rec.RecordRefusal(configKey, "Conflict", "of what does not exist")
		rec.Warn(enginev1.BundleRef{UID: "b", Namespace: "shop", Name: "web"}, "RemovalHeld", "2 removals wait")
		rec.RecordEvent(corev1.ObjectReference{APIVersion: "example.com/v1", Kind: "Thing", Name: "all", UID: "t"}, "NameTaken", "by another")
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		var events eventsv1.EventList
		if err := c.List(t.Context(), &events); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range events.Items {
			count := int32(1)
			if e.Series != nil {
				count = e.Series.Count
			}
			got = append(got, strings.Join([]string{e.Namespace, e.Regarding.Kind, e.Regarding.Name, e.Reason, string(rune('0' + count))}, " "))
			if len(e.Note) > mostNote || !utf8.ValidString(e.Note) {
				t.Errorf("a note of %d bytes: %q", len(e.Note), e.Note)
			}
		}
		slices.Sort(got)
		want := []string{"default Thing all NameTaken 1", "shop Bundle web RemovalHeld 1", "shop Deployment web Conflict 3", "shop Deployment web RemovalHeld 1"}
		if !slices.Equal(got, want) {
			t.Errorf("events %q\nwant   %q", got, want)
		}
	})
}

// A Recorder that does not run, or that cannot keep up, never blocks its caller.
func TestRecorderNeverBlocks(t *testing.T) {
	rec := NewEventRecorder(nil, nil, nil, slog.New(slog.NewTextHandler(io.Discard, nil)))
	for range 2 * mostNotices {
		rec.RecordRefusal(webKey, "Conflict", "again")
	}
}

// stateless has no defaults to fill in.
type stateless struct{}

func (stateless) Default(obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return obj, nil
}

func TestStated(t *testing.T) {
	intent := NewItemMatcher(stateless{}, userfields.FingerprintUserFields)
	object := func(value string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{
				"name": "web", "namespace": "shop", "uid": "u1",
				"managedFields": []any{map[string]any{
					"manager": "kubectl", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
					"fieldsV1": map[string]any{"f:data": map[string]any{"f:a": map[string]any{}}},
				}},
			},
			"data": map[string]any{"a": value},
		}}
	}
	item := itemOf(t, object("x"))
	if !intent.StatesItem(object("x"), &item) {
		t.Error("the template does not state its own content")
	}
	if intent.StatesItem(object("y"), &item) {
		t.Error("another value is taken for the same content")
	}
	item.SourceFingerprint = "of an older write"
	if !intent.StatesItem(object("x"), &item) {
		t.Error("a write that states the same is taken for another content")
	}
	item.UID = "u0"
	if intent.StatesItem(object("x"), &item) {
		t.Error("a namesake is taken for the template")
	}
}
