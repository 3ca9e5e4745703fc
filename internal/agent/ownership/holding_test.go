package ownership

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// A holding is stored with each rule once, for what is kept, too, and is read as it was.
func TestAHoldingIsStoredWithEachRuleOnce(t *testing.T) {
	expression := strings.Repeat("x", 500)
	item := func(name, completion string) atoll.RenderedItem {
		return atoll.RenderedItem{Key: atoll.ItemKey{Kind: "ConfigMap", Name: name}, Object: json.RawMessage(`{}`), Hash: "h", Error: atoll.UnknownAssessment, Assessment: &atoll.Assessment{Completion: completion}}
	}
	h := BundleHolding{
		Manifest: atoll.Manifest{Bundle: "b", Items: []atoll.RenderedItem{item("a", expression), item("b", expression)}},
		Kept:     []atoll.RenderedItem{item("c", expression), item("d", "other"), {Key: atoll.ItemKey{Kind: "ConfigMap", Name: "e"}, Object: json.RawMessage(`{}`)}},
	}
	text, err := json.Marshal(struct{ Holding BundleHolding }{h})
	if err != nil || strings.Count(string(text), expression) != 1 {
		t.Fatalf("%s, %v", text, err)
	}
	var read struct{ Holding BundleHolding }
	if err := json.Unmarshal(text, &read); err != nil || !reflect.DeepEqual(read.Holding, h) {
		t.Errorf("another holding is read: %+v, %v", read.Holding, err)
	}
	if read.Holding.HasLostFields() || read.Holding.Manifest.Items[0].Failed() {
		t.Error("the items have lost their assessments")
	}
}

// A holding in which each item has its rules is read, as agents stored it before they listed them. A reference to nothing
// is not.
func TestAHoldingWithRulesOfEachItemIsRead(t *testing.T) {
	const stored = `{"manifest":{"bundle":"b","items":[{"key":"/ConfigMap//a","object":{},"error":"e","assessment":{"completion":"object.done"}}]},"kept":[{"key":"/ConfigMap//b","object":{},"assessment":{"completion":"object.kept"}}]}`
	var h BundleHolding
	if err := json.Unmarshal([]byte(stored), &h); err != nil {
		t.Fatal(err)
	}
	if h.Manifest.Items[0].Assessment.Completion != "object.done" || h.Kept[0].Assessment.Completion != "object.kept" {
		t.Errorf("%+v", h)
	}
	if err := json.Unmarshal([]byte(`{"manifest":{},"kept":[{"key":"/A//a","assessed":[0]}]}`), &h); err == nil {
		t.Error("a reference to nothing is read")
	}
}
