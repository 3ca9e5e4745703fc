package apply

import (
	"fmt"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
)

// A record that the store lost comes back once, from the labels of the object. A stored record stays as it is, and an
// object that only has the labels gets none.
func TestLostRecordsComeBackFromTheObjects(t *testing.T) {
	object := func(name, manager string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: shop, uid: u-%s, labels: {%s: b1, %s: t}, managedFields: [{manager: %s, operation: Apply, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {}}]}",
			name, name, atoll.LabelBundleUID, ownership.LabelTemplateUID, manager)
	}
	api := httptest.NewServer(newMemoryMember(t, object("conf", atoll.FieldManager), object("lost", atoll.FieldManager), object("copied", "kubectl")))
	t.Cleanup(api.Close)
	client, err := member.New(&rest.Config{Host: api.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.DiscoverAPIs(t.Context()); err != nil {
		t.Fatal(err)
	}
	lost := confItem("x")
	lost.Key.Name = "lost"
	stored := store.StoredContents{
		Records: []ownership.Record{{Key: confKey, UID: "u-conf", Applied: "hx"}},
		Bundles: []store.Bundle{{Holding: ownership.BundleHolding{Manifest: newManifest("b1", 1, confItem("x"), lost)}}},
	}
	if err := RecoverRecords(t.Context(), client, &stored); err != nil {
		t.Fatal(err)
	}
	if len(stored.Records) != 2 {
		t.Fatalf("the records are %+v, want two", stored.Records)
	}
	if r := stored.Records[0]; r.Key != confKey || r.Applied != "hx" {
		t.Errorf("the stored record is %+v", r)
	}
	r := stored.Records[1]
	if r.Key != lost.Key || r.UID != "u-lost" || r.Owner != "b1" || r.Template != "t" || r.Label != "b1" || r.APIVersion != "v1" || r.Applied != "" {
		t.Errorf("the recovered record is %+v", r)
	}
	if c := r.Claims["b1"]; len(r.Claims) != 1 || c.State != ownership.Kept || c.Template != "t" {
		t.Errorf("the recovered claims are %+v", r.Claims)
	}
}
