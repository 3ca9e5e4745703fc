package render

import (
	"encoding/json"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

func TestReplicasAreSetByAScript(t *testing.T) {
	key := atoll.ItemKey{Group: "ai.example", Kind: "Trainer", Namespace: "shop", Name: "cats"}
	content := &atoll.Content{Items: []atoll.Item{{
		Key: key, APIVersion: "ai.example/v1", Divided: true,
		Object: json.RawMessage(`{"apiVersion":"ai.example/v1","kind":"Trainer","metadata":{"name":"cats","namespace":"shop"},"spec":{"workers":6}}`),
	}}}
	in := Input{Assigned: map[string]int64{key.String(): 4}}
	items, _ := Render(content, in)
	if !strings.Contains(items[0].Error, "ResourceInterpreter with revise") {
		t.Errorf("without a script: %q", items[0].Error)
	}
	content.Interpreters = []atoll.Interpreter{{Name: "a", Hash: "1", Spec: json.RawMessage(
		`{"target":{"apiVersion":"ai.example/v1","kinds":["Trainer"]},"revise":{"cel":"{'spec': {'workers': replicas}}"},"health":{"cel":"'Healthy'"}}`)}}
	items, notes := Render(content, in)
	if items[0].Error != "" || !strings.Contains(string(items[0].Object), `"workers":4`) {
		t.Errorf("%s %s", items[0].Object, items[0].Error)
	}
	if len(notes) != 1 || notes[0].Policy != PolicyPlacement || notes[0].Value != int64(4) {
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
		`{"target":{"apiVersion":"ai.example/v1","kinds":["Trainer"]},"revise":{"cel":"object.nobody.knows"}}`)}}
	if items, _ := Render(content, in); !strings.Contains(items[0].Error, "ResourceInterpreter a") {
		t.Errorf("a script that fails: %q", items[0].Error)
	}
}
