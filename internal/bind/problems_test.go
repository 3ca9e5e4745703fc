package bind

import (
	"errors"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/claim"
)

func TestAProblemNamesNoSecret(t *testing.T) {
	for kind, named := range map[string]bool{"Secret": false, "ConfigMap": true} {
		p := claim.Problem{Key: atoll.ItemKey{Kind: kind, Namespace: "shop", Name: "tls-of-bank"}, Err: errors.New(kind + " tls-of-bank is too large")}
		if got := openly(p); strings.Contains(got, "tls-of-bank") != named {
			t.Errorf("a %s: %q", kind, got)
		}
	}
}
