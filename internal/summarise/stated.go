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
// the item stands; otherwise the template is pruned anew and compared.
func Stated(defaults render.Defaulter) Intent { return stated{defaults} }

type stated struct{ defaults render.Defaulter }

func (s stated) States(t *unstructured.Unstructured, item *atoll.Item) bool {
	if string(t.GetUID()) != item.UID {
		return false
	}
	if render.Fingerprint(t) == item.Source {
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
