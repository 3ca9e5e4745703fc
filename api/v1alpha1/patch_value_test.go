package v1alpha1

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// A value of null stays, in every way in which policies are decoded; no value stays none.
func TestNullIsAValue(t *testing.T) {
	for text, want := range map[string]string{
		`{"path":"/a","operator":"add","value":null}`:                             "null",
		`{"path":"/a","operator":"replace","value":null}`:                         "null",
		`{"path":"/a","operator":"test","value":null}`:                            "null",
		`{"path":"/a","operator":"move","from":"/b","value":null}`:                "",
		`{"path":"/a","operator":"add","value":{"b":null}}`:                       `{"b":null}`,
		`{"path":"/a","operator":"add"}`:                                          "",
		`{"path":"/a","operator":"remove","value":null}`:                          "",
		`{"path":"/a","operator":"add","value":null,"valueFrom":{"cel":"\"x\""}}`: "",
	} {
		var p PlaintextOverrider
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Fatal(err)
		}
		var object map[string]any
		if err := json.Unmarshal([]byte(`{"plaintext":[`+text+`],"fieldOverrider":[{"fieldPath":"/d","json":[`+text+`]}]}`), &object); err != nil {
			t.Fatal(err)
		}
		var o Overriders
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &o); err != nil {
			t.Fatal(err)
		}
		back, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&o)
		if err != nil {
			t.Fatal(err)
		}
		var again Overriders
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(back, &again); err != nil {
			t.Fatal(err)
		}
		for way, v := range map[string]*PlaintextOverrider{"JSON": &p, "unstructured": &o.Plaintext[0], "and back": &again.Plaintext[0]} {
			if got := rawValue(v); got != want {
				t.Errorf("%s by %s: value %q, want %q", text, way, got, want)
			}
		}
		if d := again.FieldOverrider[0].JSON[0]; rawValue(&PlaintextOverrider{Value: d.Value}) != want {
			t.Errorf("%s in a document: %v", text, d.Value)
		}
		raw, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var read PlaintextOverrider
		if err := json.Unmarshal(raw, &read); err != nil || rawValue(&read) != want {
			t.Errorf("%s became %s, value %q (%v)", text, raw, rawValue(&read), err)
		}
	}
}

func rawValue(p *PlaintextOverrider) string {
	if p.Value == nil {
		return ""
	}
	return string(p.Value.Raw)
}
