package summarise

import (
	"bytes"
	"encoding/json"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/render"
)

// Stated answers Intent the way in which bind cuts Revisions: while no user wrote,
// the item stands; otherwise the template is pruned anew and compared. fingerprint is
// render.Fingerprint, or what remembers it.
func Stated(defaults render.Defaulter, fingerprint func(*unstructured.Unstructured) string) Intent {
	return stated{defaults, fingerprint}
}

type stated struct {
	defaults    render.Defaulter
	fingerprint func(*unstructured.Unstructured) string
}

func (s stated) States(t *unstructured.Unstructured, item *atoll.Item) bool {
	if string(t.GetUID()) != item.UID {
		return false
	}
	if s.fingerprint(t) == item.Source {
		return true
	}
	pruned, err := render.Prune(t, s.defaults)
	return err == nil && sameJSON(pruned, item.Object)
}

func sameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}
