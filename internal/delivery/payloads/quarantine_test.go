package payloads

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/quarantine"
	"atoll.dev/atoll/internal/reconcile"
)

// A row that panics again and again is set aside: it is not rendered, and its removal and other
// Revisions are. A payload in the cache is served.
func TestARevisionThatCostsTooMuchIsSetAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newTestCache(t, newTestTables())
		r := cache.source.(*Renderer)
		cached := testRow("paris")
		cached.Spec.Orphan = true // another input than that of tokyo
		if _, err := cache.GetOrRender(cached); err != nil {
			t.Fatal(err)
		}
		row := testRow("tokyo")
		in, err := r.ReadManifestInput(t.Context(), row)
		if err != nil {
			t.Fatal(err)
		}
		r.compiled.Add("r", &compiledRevision{}) // its nil Renderer panics
		var aside *quarantine.Error
		for range 120 { // half a second each: a minute is the budget
			if _, err := r.RenderManifest(t.Context(), in); err == nil || errors.As(err, &aside) {
				t.Fatalf("before the budget is spent: %v", err)
			}
		}
		if _, err := cache.GetOrRender(row); !errors.As(err, &aside) || aside.Revision != "r" || !aside.Until.Equal(time.Now().Add(time.Minute)) {
			t.Fatalf("after 120 panics: %v", err)
		}
		if _, err := cache.GetOrRender(cached); err != nil {
			t.Errorf("what is rendered already is not served: %v", err)
		}
		removed := row
		removed.Spec.Phase = atoll.RowRemoving
		if _, err := cache.GetOrRender(removed); err != nil {
			t.Errorf("a removal waits for the quarantine: %v", err)
		}
		next := row
		next.Spec.Revision = "r2"
		if _, err := cache.GetOrRender(next); err != nil {
			t.Errorf("another content is not rendered: %v", err)
		}
		time.Sleep(time.Minute)
		r.compiled.Remove("r")
		if _, err := cache.GetOrRender(row); err != nil {
			t.Errorf("after the quarantine: %v", err)
		}
	})
}

// An object that fails costs what its rendering takes above the free time, as all objects do: 200
// renderings with an object over its bound take less, and cost nothing.
func TestItemsThatFailHaveNoCostOfTheirOwn(t *testing.T) {
	tables := newTestTables()
	key := atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "conf"}
	object := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"conf","namespace":"shop"},"data":{"a":"1"}}`
	tooMany := make([]v1alpha1.PlaintextOverrider, 2001) // 2,000 are the bound
	for i := range tooMany {
		tooMany[i] = v1alpha1.PlaintextOverrider{Path: "/data/a", Operator: v1alpha1.OverrideReplace, Value: &apiextensionsv1.JSON{Raw: []byte(`"2"`)}}
	}
	tables.content = &atoll.Content{
		Items: []atoll.Item{{Key: key, APIVersion: "v1", UID: "u", Object: []byte(object), Hash: "h"}},
		Rules: []atoll.Rule{{
			Policy: "OverridePolicy/shop/p", Items: []atoll.ItemKey{key}, Semantics: atoll.CurrentRuleSemantics,
			Overriders: v1alpha1.Overriders{Plaintext: tooMany},
		}},
	}
	r := newTestRenderer(tables)
	row := testRow("tokyo")
	in, err := r.ReadManifestInput(t.Context(), row)
	if err != nil {
		t.Fatal(err)
	}
	compiled := r.compiledRevision(row.Spec.Revision, tables.content)
	_, in.Row.Variant = compiled.renderer.MatchRules(in.view)
	for range 200 { // at half a second each the budget of a minute would be spent
		items, _, err := r.renderItems(in)
		if err != nil {
			t.Fatal(err)
		}
		if items[0].ErrorReason != atoll.ReasonRuleTooCostly {
			t.Fatalf("the object is not over its bound: %+v", items[0])
		}
	}
}

// A panic while the input is read is the row's error, and the cache goes on.
func TestAPanicOutsideOfTheRendererIsTheRowsError(t *testing.T) {
	tables := newTestTables()
	cache := newTestCache(t, tables)
	tables.afterRead["Content"] = func() { panic("defect") }
	if _, err := cache.GetOrRender(testRow("tokyo")); reconcile.AsPanic(err) == nil {
		t.Errorf("%v", err)
	}
	if _, err := cache.GetOrRender(testRow("tokyo")); err != nil {
		t.Errorf("the next try: %v", err)
	}
}

func TestQuarantinesAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	accounts := NewAccounts(registry, slog.New(slog.DiscardHandler))
	for range 120 { // half a second each
		accounts.ChargeRender(testRow("tokyo").Bundle, "r", quarantine.RenderWork{HasPanicked: true})
	}
	got, err := registry.Gather()
	if err != nil || len(got) != 2 {
		t.Fatalf("%v, %v", got, err)
	}
	for _, family := range got { // a counter and a gauge
		if m := family.GetMetric()[0]; m.GetCounter().GetValue()+m.GetGauge().GetValue() != 1 {
			t.Errorf("%s: %v", family.GetName(), m)
		}
	}
}
