package ownership

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// An object that was left behind is adopted for its own template; only a definition means the same
// under another one.
func TestTakesUp(t *testing.T) {
	claim := atoll.ItemKey{Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "data"}
	crd := atoll.ItemKey{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "widgets.x.dev"}
	for name, c := range map[string]struct {
		key                  atoll.ItemKey
		leftBehind, template string
		want                 bool
	}{
		"its own template":              {claim, "u1", "u1", true},
		"another template":              {claim, "u1", "u2", false},
		"it was not left behind":        {claim, "", "", false},
		"a definition of another":       {crd, "u1", "u2", true},
		"a definition, not left behind": {crd, "", "u2", false},
	} {
		if got := CanReadoptLeftBehind(c.key, c.leftBehind, c.template); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
