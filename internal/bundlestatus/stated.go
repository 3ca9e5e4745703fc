package bundlestatus

import (
	"bytes"
	"encoding/json"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/userfields"
)

// NewItemMatcher answers Intent in the way in which the binder cuts Revisions: while no user
// wrote, the item stands; otherwise the template is pruned again and compared. fingerprint is
// userfields.FingerprintUserFields, or a cache of it.
func NewItemMatcher(defaults userfields.Defaulter, fingerprint func(*unstructured.Unstructured) string) ItemMatcher {
	return itemMatcher{defaults, fingerprint}
}

type itemMatcher struct {
	defaults    userfields.Defaulter
	fingerprint func(*unstructured.Unstructured) string
}

func (s itemMatcher) StatesItem(t *unstructured.Unstructured, item *atoll.Item) bool {
	if string(t.GetUID()) != item.UID {
		return false
	}
	if s.fingerprint(t) == item.SourceFingerprint {
		return true
	}
	pruned, err := userfields.ExtractUserFields(t, s.defaults)
	return err == nil && sameJSON(pruned, item.Object)
}

func sameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}
