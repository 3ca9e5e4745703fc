package binder

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

const recallNote = atoll.RecalledDeleted + ", says member oslo"

// newHeldDeletions returns a Bundle of a restored hub, whose content holds back the deletion of web.
func newHeldDeletions(t *testing.T, web *unstructured.Unstructured) (l *fakeTables, b *Binder, bundle state.Bundle, content *atoll.Content, plan string) {
	t.Helper()
	l, b = newShopTables(t)
	b.Log = slog.New(slog.DiscardHandler)
	key := policymatch.ItemKeyOf(web)
	web.SetUID("u")
	web.SetAnnotations(map[string]string{atoll.AnnotationRecalled: recallNote})
	l.templates[key] = web
	content = &atoll.Content{Items: []atoll.Item{
		{Key: newKey("ConfigMap", "a"), UID: "a"},
		{Key: key, UID: "u", State: atoll.ItemRemovalHeld, RecallNote: recallNote},
	}}
	bundle = l.bundles[policymatch.BundleID{Namespace: "shop", Name: "web"}]
	plan, _ = atoll.PlanDeletionsRememberedByMembers(bundle.Ref.UID, content)
	return l, b, bundle, content, plan
}

// A decision counts for exactly the plan that it names: it deletes the confirmed object of that UID, or notes that
// the object is kept. An object that changed since is left alone.
func TestADecisionAboutHeldDeletionsIsCarriedOut(t *testing.T) {
	const object = "apps/v1, Kind=Deployment shop/web"
	deleted := []recordedCall{{"delete", object, "u"}}
	kept := []recordedCall{{"patch", object, `{"metadata":{"annotations":{"` + atoll.AnnotationRecalled + `":"kept since 2000-01-01T00:00:00Z, though deleted, says member oslo"},"uid":"u"}}`}}
	away, gone := errors.New("the store is away"), apierrors.NewNotFound(schema.GroupResource{Resource: "deployments"}, "web")
	for what, tc := range map[string]struct {
		confirm, keep string // PLAN stands for the plan
		change        func(l *fakeTables, web *unstructured.Unstructured, content *atoll.Content)
		answer        error
		want          []recordedCall
		fails         string
	}{
		"no decision":             {},
		"confirmed":               {confirm: "PLAN", want: deleted},
		"kept":                    {keep: "PLAN", want: kept},
		"confirmed, another plan": {confirm: "other"},
		"kept, another plan":      {keep: "other"},
		"kept, confirmed another": {confirm: "other", keep: "PLAN", want: kept},
		"confirmed and kept":      {confirm: "PLAN", keep: "PLAN", want: deleted},
		"nothing is held":         {confirm: "PLAN", change: func(_ *fakeTables, _ *unstructured.Unstructured, c *atoll.Content) { c.Items = c.Items[:1] }},
		"it is gone": {confirm: "PLAN", change: func(l *fakeTables, web *unstructured.Unstructured, _ *atoll.Content) {
			delete(l.templates, policymatch.ItemKeyOf(web))
		}},
		"another has its name": {confirm: "PLAN", change: func(_ *fakeTables, web *unstructured.Unstructured, _ *atoll.Content) { web.SetUID(types.UID("v")) }},
		"it is being deleted": {confirm: "PLAN", change: func(_ *fakeTables, web *unstructured.Unstructured, _ *atoll.Content) {
			web.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
		}},
		"another note": {confirm: "PLAN", change: func(_ *fakeTables, web *unstructured.Unstructured, _ *atoll.Content) {
			web.SetAnnotations(map[string]string{atoll.AnnotationRecalled: "deleted, says rome"})
		}},
		"it was kept already": {keep: "PLAN", change: func(_ *fakeTables, web *unstructured.Unstructured, _ *atoll.Content) {
			web.SetAnnotations(map[string]string{atoll.AnnotationRecalled: "kept " + recallNote})
		}},
		"the deletion fails":     {confirm: "PLAN", answer: away, want: deleted, fails: "delete apps/Deployment/shop/web: the store is away"},
		"the note cannot be put": {keep: "PLAN", answer: away, want: kept, fails: "keep apps/Deployment/shop/web: the store is away"},
		"it is gone since":       {confirm: "PLAN", answer: gone, want: deleted},
		"it is gone since, kept": {keep: "PLAN", answer: gone, want: kept},
	} {
		synctest.Test(t, func(t *testing.T) {
			web := newDeployment("shop", "web", "web:1", 1)
			l, b, bundle, content, plan := newHeldDeletions(t, web)
			if tc.change != nil {
				tc.change(l, web, content)
			}
			named := func(s string) string { return strings.Replace(s, "PLAN", plan, 1) }
			bundle.Meta.Annotations = map[string]string{atoll.AnnotationConfirm: named(tc.confirm), atoll.AnnotationKeep: named(tc.keep)}
			var calls []recordedCall
			b.Client = recordObjectCalls(&calls, &tc.answer)
			err := b.decideHeldBackDeletions(t.Context(), bundle, content)
			if want := "carry out the decision on plan " + plan + " about deletions before the restore: " + tc.fails; (err == nil) != (tc.fails == "") || err != nil && err.Error() != want {
				t.Errorf("%s: error %v, want %q", what, err, tc.fails)
			}
			if !slices.Equal(calls, tc.want) {
				t.Errorf("%s: writes %v, want %v", what, calls, tc.want)
			}
		})
	}
}

// The leader carries a decision out before it plans. Another hub, or an error of the write, plans nothing.
func TestADecisionIsCarriedOutByTheLeader(t *testing.T) {
	id := policymatch.BundleID{Namespace: "shop", Name: "web"}
	for what, tc := range map[string]struct {
		readOnly bool
		answer   error
		writes   int
	}{
		"the leader":            {writes: 1},
		"another hub":           {readOnly: true},
		"the deletion does not": {answer: errors.New("the store is away"), writes: 1},
	} {
		l, b, _ := newWritingBinder(t)
		web := newDeployment("shop", "web", "web:1", 1)
		_, _, bundle, content, plan := newHeldDeletions(t, web)
		bundle.Meta.Annotations = map[string]string{atoll.AnnotationConfirm: plan}
		l.templates[policymatch.ItemKeyOf(web)], l.bundles[id], l.contents[bundle.Ref.UID] = web, bundle, content
		b.ReadOnly = tc.readOnly
		var calls []recordedCall
		b.Client = recordObjectCalls(&calls, &tc.answer)
		p, err := b.preparePlan(t.Context(), id, bundle, true)
		if err != nil {
			t.Fatal(err)
		}
		again, err := b.planBundle(t.Context(), id, bundle, true, p)
		if tc.answer != nil && (!errors.Is(err, tc.answer) || again != 0) {
			t.Errorf("%s: reconciled again after %v, %v", what, again, err)
		}
		deletions := slices.DeleteFunc(calls, func(c recordedCall) bool { return c.verb != "delete" })
		if len(deletions) != tc.writes {
			t.Errorf("%s: %v", what, calls)
		}
	}
}
