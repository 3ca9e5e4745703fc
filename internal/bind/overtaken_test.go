package bind

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/interpret/script"
	"atoll.dev/atoll/internal/state"
)

// An override policy or an interpreter that comes while the first Revision of a Bundle is
// being written finds nothing that the Bundle has: the plan that was made without it is
// looked at again.
func TestWhatComesWhileARevisionIsWritten(t *testing.T) {
	for name, comes := range map[string]func(*lagoon){
		"an override": func(l *lagoon) {
			l.overrides = append(l.overrides, &v1alpha1.OverridePolicy{ObjectMeta: metav1.ObjectMeta{Name: "late"}})
		},
		"an edit of one": func(l *lagoon) {
			l.overrides = []*v1alpha1.OverridePolicy{{ObjectMeta: metav1.ObjectMeta{Name: "early"}}}
		},
		"an interpreter": func(l *lagoon) { l.interpreters = script.NewLibrary(nil) },
		"nothing at all": func(*lagoon) {},
	} {
		l, b := shop(t)
		l.overrides = []*v1alpha1.OverridePolicy{{ObjectMeta: metav1.ObjectMeta{Name: "early"}}}
		id := claim.BundleID{Namespace: "shop", Name: "web"}
		p, err := b.prepare(t.Context(), id, state.Bundle{}, false)
		if err != nil {
			t.Fatal(err)
		}
		comes(l)
		if got, want := b.overtaken(id, p.in), name == "an override" || name == "an edit of one" || name == "an interpreter"; got != want {
			t.Errorf("%s: overtaken %t, want %t", name, got, want)
		}
	}
}
