package apply

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/internal/atoll"
)

// Fields are copied from the element that the API merges with the item's, wherever it stands in the
// member's list.
func TestCopyMemberFields(t *testing.T) {
	const ports = `"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{},"f:targetPort":{}},"k:{\"port\":53,\"protocol\":\"TCP\"}":{},"k:{\"port\":53,\"protocol\":\"UDP\"}":{}},"f:tolerations":{}}`
	for name, c := range map[string]struct {
		paths        []string
		sent, live   string
		want, failed string
	}{
		"a field": {
			paths: []string{"/spec/replicas"}, sent: `{"spec":{"replicas":1}}`, live: `{"spec":{"replicas":7,"paused":true}}`,
			want: `{"spec":{"replicas":7}}`,
		},
		"a key with a slash": {
			paths: []string{"/metadata/labels/a~1b"}, sent: `{"metadata":{"labels":{"a/b":"c"}}}`, live: `{"metadata":{"labels":{"a/b":"d","e":"f"}}}`,
			want: `{"metadata":{"labels":{"a/b":"d"}}}`,
		},
		"absent in the member": {paths: []string{"/spec/replicas", "/data/a"}, sent: `{}`, live: `{"spec":{}}`, want: `{}`},
		"behind an element of the member's": {
			paths: []string{"/spec/ports/0/targetPort"}, sent: `{"spec":{"ports":[{"port":80,"targetPort":1}]}}`,
			live: `{"spec":{"ports":[{"port":8080,"protocol":"TCP","targetPort":3},{"port":80,"protocol":"TCP","targetPort":2}]}}`,
			want: `{"spec":{"ports":[{"port":80,"protocol":"TCP","targetPort":2}]}}`,
		},
		"two fields of an element, and the whole list": {
			paths: []string{"/spec/ports", "/spec/ports/0/name", "/spec/ports/0/targetPort"}, sent: `{"spec":{"ports":[{"port":80}]}}`,
			live: `{"spec":{"ports":[{"port":80,"protocol":"TCP","targetPort":2,"name":"x"}]}}`,
			want: `{"spec":{"ports":[{"port":80,"protocol":"TCP","targetPort":2,"name":"x"}]}}`,
		},
		"a key that fits twice": {
			paths: []string{"/spec/ports/0/targetPort"}, sent: `{"spec":{"ports":[{"port":53}]}}`, live: `{"spec":{"ports":[{"port":53,"protocol":"TCP"}]}}`,
			failed: "does not merge",
		},
		"the whole key stated": {
			paths: []string{"/spec/ports/0/targetPort"}, sent: `{"spec":{"ports":[{"port":53,"protocol":"UDP"}]}}`,
			live: `{"spec":{"ports":[{"port":53,"protocol":"TCP","targetPort":1},{"port":53,"protocol":"UDP","targetPort":2}]}}`,
			want: `{"spec":{"ports":[{"port":53,"protocol":"UDP","targetPort":2}]}}`,
		},
		"an item that is no JSON": {paths: []string{"/spec/replicas"}, sent: `{"spec":`, live: `{"spec":{"replicas":7}}`, failed: "unexpected"},
		"a list without keys": {
			paths: []string{"/spec/tolerations/0/key"}, sent: `{"spec":{"tolerations":[{"key":"a"}]}}`, live: `{"spec":{"tolerations":[{"key":"a"}]}}`,
			failed: `does not merge the list "tolerations"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			live, want := &unstructured.Unstructured{Object: decodeJSON(t, c.live)}, decodeJSON(t, cmp.Or(c.want, "{}"))
			live.SetManagedFields([]metav1.ManagedFieldsEntry{{
				Manager: atoll.FieldManager, Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1("{" + ports + "}"),
			}})
			to := map[string]any{}
			found, failure := copyMemberFields(to, &atoll.RenderedItem{Object: json.RawMessage(c.sent)}, live, c.paths)
			if c.failed != "" {
				if failure == nil || failure.Reason != atoll.ReasonInvalid || !strings.Contains(failure.Message, c.failed) {
					t.Errorf("failure %+v, want %q", failure, c.failed)
				}
				return
			}
			if failure != nil || found != (c.want != "{}") || !reflect.DeepEqual(to, want) {
				t.Errorf("%v %v, failure %+v, want %v", found, to, failure, want)
			}
		})
	}
}

// decodeJSON decodes an object as clients of Kubernetes do, with integers.
func decodeJSON(t *testing.T, text string) (out map[string]any) {
	t.Helper()
	if err := utiljson.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// handedOver waits until the fields that the member owns have another manager.
func (w *world) handedOver(key atoll.ItemKey) {
	w.t.Helper()
	w.waitUntil("the member owns its fields", func() (bool, string) {
		managers := w.expectExists(key).GetManagedFields()
		return slices.ContainsFunc(managers, func(f metav1.ManagedFieldsEntry) bool { return f.Manager == atoll.HandoverManager }), ""
	})
}

// An object whose every field belongs to the member is made as its template states it. No edit reaches
// it until it is applied again.
func TestAnObjectThatIsOnlyCreated(t *testing.T) {
	w := newWorld(t)
	only := func(item atoll.RenderedItem) atoll.RenderedItem {
		item.MemberOwned = []string{"/spec", "/metadata/labels/app"}
		item.Hash += "-only"
		return item
	}
	web := only(w.webWith(2, 1))
	w.storeManifest(newManifest("b1", 1, web))
	w.waitForApplied("b1", 1)
	w.hasReplicas(web.Key, 2)
	w.handedOver(web.Key)
	w.patchObject(web.Key, `{"spec":{"replicas":9}}`)
	w.storeManifest(newManifest("b1", 2, only(w.webWith(3, 2))))
	w.waitForApplied("b1", 2)
	w.hasReplicas(web.Key, 9)
	w.expectImage(web.Key, "nginx:1")
	w.storeManifest(newManifest("b1", 3, w.webWith(3, 2)))
	w.waitForApplied("b1", 3)
	w.hasReplicas(web.Key, 3)
	w.expectImage(web.Key, "nginx:2")
	if labels := w.expectExists(web.Key).GetLabels(); labels[atoll.LabelBundleUID] != "b1" {
		t.Errorf("labels %v", labels)
	}
}

// A field of a list's element belongs to the member, and other fields of the element do not.
func TestAFieldOfAnElementThatTheMemberOwns(t *testing.T) {
	w := newWorld(t)
	service := func(target string) atoll.RenderedItem {
		item := w.newItem("t-svc", `
apiVersion: v1
kind: Service
metadata: {name: svc}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: `+target+`}, {name: https, port: 443, targetPort: 8443}]}`)
		item.MemberOwned = []string{"/spec/ports/1/targetPort"}
		item.Hash += "-owned"
		return item
	}
	svc := service("8080")
	w.storeManifest(newManifest("b1", 1, svc))
	w.waitForApplied("b1", 1)
	w.handedOver(svc.Key)
	w.patchObject(svc.Key, `{"spec":{"ports":[{"name":"metrics","port":9090,"targetPort":9090},{"name":"http","port":80,"targetPort":8080},{"name":"https","port":443,"targetPort":9443}]}}`)
	w.storeManifest(newManifest("b1", 2, service("8081")))
	w.waitForApplied("b1", 2)
	targets := map[int64]int64{}
	ports, _, err := unstructured.NestedSlice(w.expectExists(svc.Key).Object, "spec", "ports")
	for _, p := range ports {
		port := p.(map[string]any)
		targets[port["port"].(int64)], _ = port["targetPort"].(int64)
	}
	if want := map[int64]int64{80: 8081, 443: 9443, 9090: 9090}; err != nil || !reflect.DeepEqual(targets, want) {
		t.Errorf("ports %v, %v, want %v", targets, err, want)
	}
}
