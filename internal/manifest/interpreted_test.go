package manifest

import (
	"encoding/json"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/overrides"
)

func TestScriptsSetReplicas(t *testing.T) {
	key := atoll.ItemKey{Group: "ai.example", Kind: "Trainer", Namespace: "shop", Name: "cats"}
	content := &atoll.Content{Items: []atoll.Item{{
		Key: key, APIVersion: "ai.example/v1", Divided: true,
		Object: json.RawMessage(`{"apiVersion":"ai.example/v1","kind":"Trainer","metadata":{"name":"cats","namespace":"shop"},"spec":{"workers":6}}`),
	}}}
	in := RenderInput{Assigned: map[string]int64{key.String(): 4}}
	items, _ := RenderItems(content, in)
	if !strings.Contains(items[0].Error, "ResourceInterpreter with revise") {
		t.Errorf("without a script: %q", items[0].Error)
	}
	content.Interpreters = []atoll.Interpreter{{Name: "a", Hash: "1", Spec: json.RawMessage(
		`{"target":{"apiVersion":"ai.example/v1","kinds":["Trainer"]},"revise":{"cel":"{'spec': {'workers': replicas}}"},"health":{"cel":"'Healthy'"}}`)}}
	items, notes := RenderItems(content, in)
	if items[0].Error != "" || !strings.Contains(string(items[0].Object), `"workers":4`) {
		t.Errorf("%s %s", items[0].Object, items[0].Error)
	}
	if len(notes) != 1 || notes[0].Policy != overrides.PolicyPlacement || notes[0].Value != int64(4) || notes[0].Path != "/spec/workers" {
		t.Errorf("provenance: %+v", notes)
	}
	m := BuildManifest(ManifestInput{Content: content, Items: items, Row: atoll.RowSpec{Phase: atoll.RowActive}})
	if len(m.Interpreters) != 1 || strings.Contains(string(m.Interpreters[0].Spec), "revise") {
		t.Errorf("the agent gets %+v", m.Interpreters)
	}
	content.Interpreters = nil
	if other := BuildManifest(ManifestInput{Content: content, Items: items, Row: atoll.RowSpec{Phase: atoll.RowActive}}); other.Content == m.Content {
		t.Error("an interpreter is no part of the manifest's content")
	}
	content.Interpreters = []atoll.Interpreter{{Name: "a", Hash: "2", Spec: json.RawMessage(
		`{"target":{"apiVersion":"ai.example/v1","kinds":["Trainer"]},"revise":{"cel":"object.no.such"}}`)}}
	if items, _ := RenderItems(content, in); !strings.Contains(items[0].Error, "ResourceInterpreter a") {
		t.Errorf("a script that fails: %q", items[0].Error)
	}
}

// An override of the field that a script sets is one of replicas, and an autoscaler's.
func TestScriptedReplicasAreProtectedAndLeftToMembers(t *testing.T) {
	key := atoll.ItemKey{Group: "ai.example", Kind: "Trainer", Namespace: "shop", Name: "cats"}
	content := func(divided bool) *atoll.Content {
		return &atoll.Content{
			Items: []atoll.Item{
				{
					Key: key, APIVersion: "ai.example/v1", Divided: divided,
					Object: json.RawMessage(`{"apiVersion":"ai.example/v1","kind":"Trainer","metadata":{"name":"cats","namespace":"shop"},"spec":{"workers":6}}`),
				},
				{
					Key: atoll.ItemKey{Group: "autoscaling", Kind: "HorizontalPodAutoscaler", Namespace: "shop", Name: "cats"}, APIVersion: "autoscaling/v2",
					Object: json.RawMessage(`{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"cats","namespace":"shop"},"spec":{"scaleTargetRef":{"apiVersion":"ai.example/v1","kind":"Trainer","name":"cats"},"maxReplicas":9}}`),
				},
			},
			Interpreters: []atoll.Interpreter{{Name: "a", Hash: "3", Spec: json.RawMessage(
				`{"target":{"apiVersion":"ai.example/v1","kinds":["Trainer"]},"revise":{"lua":"function ReviseReplica(obj, n) obj.spec.workers = n return obj end"}}`)}},
		}
	}
	items, _ := RenderItems(content(false), RenderInput{})
	if len(items[0].MemberOwned) != 1 || items[0].MemberOwned[0] != "/spec/workers" {
		t.Errorf("left to the member: %v %s", items[0].MemberOwned, items[0].Error)
	}
	c := content(true)
	c.Rules = []atoll.Rule{{
		Policy: "OverridePolicy/shop/more", Items: []atoll.ItemKey{key}, Semantics: atoll.CurrentRuleSemantics,
		Overriders: v1alpha1.Overriders{MergePatch: &apiextensionsv1.JSON{Raw: []byte(`{"spec":{"workers":9}}`)}},
	}}
	items, _ = RenderItems(c, RenderInput{Rules: []int{0}, Assigned: map[string]int64{key.String(): 4}})
	if !strings.Contains(items[0].Error, "divides this object's replicas") {
		t.Errorf("an override of them is taken: %s %s", items[0].Object, items[0].Error)
	}
}
