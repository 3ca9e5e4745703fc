package history

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

func targetOf(t *testing.T, content, changed string, managed ...any) *Target {
	t.Helper()
	former := parse(t, content)
	return &Target{
		Change:  Change{UID: "u", Revision: "10", Operation: Edited, At: time.Unix(1, 0).UTC(), By: "ann"},
		Content: Content{Object: former, ManagedFields: managed, Changed: CompareFields(former, parse(t, changed))},
	}
}

func TestTheStepOfAnEdit(t *testing.T) {
	const former = `{"kind":"ConfigMap","metadata":{"name":"conf"},"data":{"a":"1","n":9007199254740993}}`
	for name, c := range map[string]struct{ changed, present, patch, fields string }{
		"an edit": {
			`{"kind":"ConfigMap","metadata":{"name":"conf"},"data":{"a":"2","b":"2","n":9007199254740993}}`,
			`{"kind":"ConfigMap","metadata":{"name":"conf","uid":"u","resourceVersion":"30","labels":{"later":"yes"}},"data":{"a":"2","b":"2","n":9007199254740993}}`,
			`{"data":{"a":"1","b":null},"metadata":{"resourceVersion":"30","uid":"u"}}`,
			`[{"path":"/data/a","before":"2","after":"1"},{"path":"/data/b","before":"2","after":null}]`,
		},
		"a whole number that no client has": {
			`{"kind":"ConfigMap","metadata":{"name":"conf"},"data":{"a":"1","n":1}}`,
			`{"kind":"ConfigMap","metadata":{"name":"conf","uid":"u","resourceVersion":"30"},"data":{"a":"1","n":1}}`,
			`{"data":{"n":9007199254740993},"metadata":{"resourceVersion":"30","uid":"u"}}`,
			`[{"path":"/data/n","before":1,"after":9007199254740993}]`,
		},
		"labels come back beside the version": {
			`{"kind":"ConfigMap","metadata":{"name":"conf","labels":{"x":"1"}},"data":{"a":"1","n":9007199254740993}}`,
			`{"kind":"ConfigMap","metadata":{"name":"conf","uid":"u","resourceVersion":"30","labels":{"x":"1","y":"2"}},"data":{"a":"1","n":9007199254740993}}`,
			`{"metadata":{"labels":{"x":null},"resourceVersion":"30","uid":"u"}}`,
			`[{"path":"/metadata/labels/x","before":"1","after":null}]`,
		},
		"already as it was": {
			`{"kind":"ConfigMap","metadata":{"name":"conf"},"data":{"a":"2","n":9007199254740993}}`,
			`{"kind":"ConfigMap","metadata":{"name":"conf","uid":"u","resourceVersion":"30"},"data":{"a":"1","n":9007199254740993}}`,
			``, `null`,
		},
	} {
		s, err := targetOf(t, former, c.changed, map[string]any{"manager": "kubectl", "operation": "Update"}).NewStep(parse(t, c.present), nil)
		if err != nil || s.Patch != c.patch || formatJSON(t, s.Fields) != c.fields || s.Manager != "kubectl" || s.Applies || s.Owners != "" {
			t.Errorf("%s: %v, %+v", name, err, s)
		}
	}
}

// After the write, a manager that applies on the server owns again what it applied.
func TestTheOwnersAfterAStep(t *testing.T) {
	entry := func(operation, fields string) map[string]any {
		return map[string]any{"manager": "argo", "operation": operation, "apiVersion": "v1", "fieldsV1": parse(t, fields)}
	}
	target := targetOf(t, `{"data":{"a":"1"}}`, `{"data":{"a":"2"}}`, entry("Apply", `{"f:data":{"f:a":{}}}`))
	live := map[string]any{"metadata": map[string]any{"resourceVersion": "31", "managedFields": []any{entry("Apply", `{"f:data":{}}`), entry("Update", `{"f:data":{"f:a":{}}}`)}}}
	s, err := target.NewStep(parse(t, `{"metadata":{"resourceVersion":"30"}}`), live)
	want := `{"metadata":{"managedFields":[{"apiVersion":"v1","fieldsV1":{"f:data":{"f:a":{}}},"manager":"argo","operation":"Apply"}],"resourceVersion":"31"}}`
	if err != nil || s.Owners != want || s.Patch != "" || !s.Applies || s.Manager != "argo" {
		t.Errorf("%v, %+v", err, s)
	}
	target.ManagedFields[0].(map[string]any)["operation"] = "Update"
	if s, err = target.NewStep(parse(t, `{}`), live); err != nil || s.Owners != "" || s.Applies {
		t.Errorf("a manager that does not apply on the server: %v, %+v", err, s)
	}
}

// A patch of deep documents costs what they hold: comparing each level with all below it would take minutes.
func TestAPatchOfDeepDocuments(t *testing.T) {
	const depth = 9_000
	nest := func(leaf string) map[string]any {
		wide := map[string]any{}
		for i := range 5_000 {
			wide[strconv.Itoa(i)] = "same"
		}
		document := map[string]any{"leaf": leaf, "wide": wide}
		for range depth {
			document = map[string]any{"a": document}
		}
		return document
	}
	raw, err := EncodePatch(nest("1"), nest("2"), nil)
	want := strings.Repeat(`{"a":`, depth) + `{"leaf":"2"}` + strings.Repeat("}", depth)
	if err != nil || string(raw) != want {
		t.Errorf("%v, %d bytes, want %d", err, len(raw), len(want))
	}
}
