package binder

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/kinds/script"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// An override policy or an interpreter that comes while the first Revision of a Bundle is
// being written finds nothing that the Bundle has: the plan that was made without it is
// looked at again.
func TestWhatComesWhileARevisionIsWritten(t *testing.T) {
	for name, comes := range map[string]func(*fakeTables){
		"an override": func(l *fakeTables) {
			l.overrides = append(l.overrides, &v1alpha1.OverridePolicy{ObjectMeta: metav1.ObjectMeta{Name: "late"}})
		},
		"an edit of one": func(l *fakeTables) {
			l.overrides = []*v1alpha1.OverridePolicy{{ObjectMeta: metav1.ObjectMeta{Name: "early"}}}
		},
		"an interpreter": func(l *fakeTables) { l.interpreters = script.NewLibrary(nil) },
		"nothing at all": func(*fakeTables) {},
	} {
		l, b := newShopTables(t)
		l.overrides = []*v1alpha1.OverridePolicy{{ObjectMeta: metav1.ObjectMeta{Name: "early"}}}
		id := policymatch.BundleID{Namespace: "shop", Name: "web"}
		p, err := b.preparePlan(t.Context(), id, state.Bundle{}, false)
		if err != nil {
			t.Fatal(err)
		}
		comes(l)
		if got, want := b.overridesOrInterpretersChangedSince(id, p.input), name == "an override" || name == "an edit of one" || name == "an interpreter"; got != want {
			t.Errorf("%s: overtaken %t, want %t", name, got, want)
		}
	}
}
