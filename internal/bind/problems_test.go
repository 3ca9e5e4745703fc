package bind

import (
	"errors"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

func TestAProblemNamesNoSecret(t *testing.T) {
	for kind, named := range map[string]bool{"Secret": false, "ConfigMap": true} {
		p := Problem{Key: atoll.ItemKey{Kind: kind, Namespace: "shop", Name: "tls-of-bank"}, Err: errors.New(kind + " tls-of-bank is too large")}
		if got := p.openly(); strings.Contains(got, "tls-of-bank") != named {
			t.Errorf("a %s: %q", kind, got)
		}
	}
}
