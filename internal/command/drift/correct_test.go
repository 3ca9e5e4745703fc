package drift

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/clienttest"
	"atoll.dev/atoll/internal/preview"
)

var correctKinds = []metav1.APIResourceList{
	{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "configmaps", SingularName: "configmap", ShortNames: []string{"cm"}, Kind: "ConfigMap", Namespaced: true}}},
	{GroupVersion: "atoll.dev/v1alpha1", APIResources: []metav1.APIResource{
		{Name: "bundles", SingularName: "bundle", Kind: "Bundle", Namespaced: true}, {Name: "clusterbundles", SingularName: "clusterbundle", Kind: "ClusterBundle"},
	}},
}

const webBundle = "atoll.dev/namespaces/shop/bundles/web"

// runCorrect runs atoll drift correct against a hub that reports the drift. It returns the order that the command wrote.
func runCorrect(t *testing.T, objects []preview.DriftedObject, args ...string) (out, order string, err error) {
	t.Helper()
	hub := clienttest.NewFakeHub(t, map[string]string{webBundle: "{metadata: {uid: b-web}}"})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == atoll.DriftPath:
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(preview.Drifts{Objects: objects})
		case !clienttest.ServeDiscovery(w, r, correctKinds...):
			hub.ServeHTTP(w, r)
		}
	})
	out, err = clienttest.RunForOutput(t, handler, NewCommand, append([]string{"correct"}, args...)...)
	if len(hub.Writes()) > 0 {
		annotations, _ := hub.Object(webBundle)["metadata"].(map[string]any)["annotations"].(map[string]any)
		order, _ = annotations[atoll.AnnotationCorrectDrift].(string)
	}
	return out, order, err
}

func TestCorrect(t *testing.T) {
	at := time.Unix(1_790_000_000, 0)
	in := func(cluster, id string) preview.DriftedObject {
		return preview.DriftedObject{Kind: "ConfigMap", Namespace: "shop", Name: "conf", Cluster: cluster, Bundle: "shop/web", Missing: true, ID: id}
	}
	const a, b = "0123456789abcdef", "fedcba9876543210"
	approved := in("oslo", a)
	approved.Approval = &atoll.ApprovalOrigin{By: "alice", At: &at}
	both := []preview.DriftedObject{in("oslo", a), in("tokyo", b)}
	for name, c := range map[string]struct {
		objects      []preview.DriftedObject
		args         string
		order, fails string
	}{
		"one cluster":              {both, "cm/conf --cluster tokyo", b, ""},
		"two clusters":             {both, "cm/conf --cluster tokyo,oslo", a + "," + b, ""},
		"all clusters":             {both, "cm/conf --all-clusters", a + "," + b, ""},
		"one ID":                   {both, "cm/conf --all-clusters --id " + a, a, ""},
		"the other is approved":    {[]preview.DriftedObject{approved, in("tokyo", b)}, "cm/conf --all-clusters", b, ""},
		"the other is reported":    {[]preview.DriftedObject{in("oslo", ""), in("tokyo", b)}, "cm/conf --all-clusters", b, ""},
		"approved already":         {[]preview.DriftedObject{approved}, "cm/conf --cluster oslo", "", "approved already in oslo"},
		"an ID that is gone":       {both, "cm/conf --all-clusters --id 00000000000000aa", "", "under the ID 00000000000000aa now"},
		"an ID of another cluster": {both, "cm/conf --cluster oslo --id " + b, "", "under the ID " + b},
		"only reported":            {[]preview.DriftedObject{in("oslo", "")}, "cm/conf --all-clusters", "", "set drift: Approve"},
		"another cluster":          {both, "cm/conf --cluster nowhere", "", "in nowhere"},
		"one of two clusters":      {both, "cm/conf --cluster oslo --cluster nowhere", "", "in nowhere"},
		"no drift":                 {nil, "cm/conf --all-clusters", "", "nothing to correct"},
		"no cluster is named":      {both, "cm/conf", "", "--all-clusters"},
		"both flags":               {both, "cm/conf --cluster oslo --all-clusters", "", "none of the others can be"},
		"no object":                {both, "--all-clusters", "", "accepts 1 arg"},
		"a name alone":             {both, "conf --all-clusters", "", "KIND/NAME"},
		"another kind":             {both, "gadget/conf --all-clusters", "", "gadget"},
	} {
		t.Run(name, func(t *testing.T) {
			out, order, err := runCorrect(t, c.objects, strings.Fields(c.args)...)
			if order != c.order || (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Errorf("ordered %q, want %q; %v\n%s", order, c.order, err, out)
			}
			if err == nil && (!strings.Contains(out, "approved, to be corrected once:\nConfigMap shop/conf\n") || !strings.HasSuffix(out, "follow it with: atoll drift cm/conf -n shop\n")) {
				t.Errorf("prints\n%s", out)
			}
		})
	}
}

// One command orders as much as the hub takes.
func TestCorrectManyClusters(t *testing.T) {
	var objects []preview.DriftedObject
	for i := range atoll.MaxOrderedDrifts + 7 {
		objects = append(objects, preview.DriftedObject{Kind: "ConfigMap", Namespace: "shop", Name: "conf", Cluster: fmt.Sprintf("c%04d", i), Bundle: "shop/web", Missing: true, ID: fmt.Sprintf("%016x", i)})
	}
	out, order, err := runCorrect(t, objects, "cm/conf", "--all-clusters")
	orders, parsed := atoll.ParseDriftOrders(order)
	if err != nil || parsed != nil || len(orders) != 1 || len(orders[0].IDs) != atoll.MaxOrderedDrifts || !strings.Contains(out, "7 more clusters with drift: run the command again") {
		t.Errorf("%v, %v, %.300s", err, parsed, out)
	}
}
