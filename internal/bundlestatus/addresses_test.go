package bundlestatus

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

var lbKey = atoll.ItemKey{Kind: "Service", Namespace: "shop", Name: "lb"}

// Clusters that say the same are looked at as one; of a load balancer each is named
// nevertheless, whose addresses may be equal.
func TestEqualAddressesOfClustersAreBothTold(t *testing.T) {
	m := newMemory()
	m.addCluster("oslo")
	m.addCluster("tokyo")
	run(t, m, func(step func(time.Duration)) {
		m.setTemplate(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Service",
			"metadata": map[string]any{"name": "lb", "namespace": "shop", "uid": "u9", "labels": map[string]any{"content": "h1"}, "finalizers": []any{atoll.Finalizer}},
			"spec":     map[string]any{"type": "LoadBalancer"},
		}})
		m.setBundle("b", nil)
		rev := m.cutRevision("b", &atoll.Content{Items: []atoll.Item{{Key: lbKey, UID: "u9", Hash: "h1"}}})
		for _, c := range []string{"oslo", "tokyo"} {
			m.setRow("b", c, func(r *state.Row) {
				r.Spec.Revision = rev
				r.Status = &atoll.RowStatus{UID: r.Spec.UID, Generation: r.Spec.Generation, Applied: true, State: atoll.RowReady, Total: 1,
					Items: []atoll.ItemStatus{{Key: lbKey, Health: atoll.Healthy, ReflectedStatus: json.RawMessage(`{"l":["ip 192.0.2.1"]}`)}}}
			})
		}
		step(time.Minute)
		got, _ := memTemplates{m}.Get(lbKey)
		want := map[string]any{"loadBalancer": map[string]any{"ingress": []any{
			map[string]any{"ip": "192.0.2.1", "ipMode": "VIP", "hostname": "oslo"},
			map[string]any{"ip": "192.0.2.1", "ipMode": "VIP", "hostname": "tokyo"},
		}}}
		if !reflect.DeepEqual(got.Object["status"], want) {
			t.Errorf("the status is %v\nwant %v", got.Object["status"], want)
		}
	})
}
