package state

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// zipText packs a text as parts of Revisions are packed.
func zipText(t *testing.T, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// assessedItems returns items of one policy, each with an assessment of its own and an object of so many bytes.
func assessedItems(n, object int) (items []atoll.Item) {
	feedback := []v1alpha1.FeedbackRule{{Name: "phase", JSONPath: "." + strings.Repeat("p", 500), Type: v1alpha1.FeedbackString}}
	for i := range n {
		items = append(items, atoll.Item{
			Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: fmt.Sprintf("c%04d", i)}, Object: fmt.Appendf(nil, `{"a":"%0*d"}`, object, i),
			Treatment: &atoll.Treatment{Drift: v1alpha1.DriftReport, Assessment: &atoll.Assessment{Feedback: feedback, Completion: "object.done"}},
		})
	}
	return items
}

// The rules of a policy lie once in a Revision, and items in all parts refer to them.
func TestRulesLieOnceInARevision(t *testing.T) {
	for name, content := range map[string]*atoll.Content{
		"in the Revision": {Items: assessedItems(100, 100)},
		"in parts":        {Items: assessedItems(500, 4000)},
	} {
		inline, parts, err := encodeContent(content)
		if err != nil {
			t.Fatal(err)
		}
		var raw [][]byte
		times := 0
		for _, packed := range append([][]byte{inline}, partData(parts)...) {
			var text bytes.Buffer
			r, err := gzip.NewReader(bytes.NewReader(packed))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := text.ReadFrom(r); err != nil {
				t.Fatal(err)
			}
			times += strings.Count(text.String(), strings.Repeat("p", 500))
		}
		if raw = partData(parts); times != 1 || (name == "in parts") != (len(raw) > 1) {
			t.Errorf("%s: the rules lie %d times in a Revision of %d parts", name, times, len(raw))
		}
		read, err := decodeContent(inline, raw)
		if err != nil || !reflect.DeepEqual(read, content) {
			t.Errorf("%s: another content is read: %v", name, err)
		}
	}
}

func partData(parts []contentPart) (out [][]byte) {
	for _, p := range parts {
		out = append(out, p.data)
	}
	return out
}

// A Revision in which each item has its rules is read, as hubs wrote it before they listed them.
func TestRevisionsWithRulesOfEachItemAreRead(t *testing.T) {
	const first = `{"items":[{"key":"/ConfigMap/shop/a","apiVersion":"v1","uid":"u","object":{},"hash":"h","treatment":{"drift":"Report","assessment":{"feedback":[{"name":"n","jsonPath":".a","type":"String"}],"completion":"object.done"}}}],"conflictResolution":"Abort","removal":"Delete"}`
	const second = `[{"key":"/ConfigMap/shop/b","apiVersion":"v1","uid":"v","object":{},"hash":"h","treatment":{"assessment":{"health":[{"expression":"object.ok"}]}}}]`
	c, err := decodeContent(zipText(t, first), [][]byte{zipText(t, second)})
	if err != nil || len(c.Items) != 2 {
		t.Fatal(c, err)
	}
	want := []*atoll.Assessment{{Feedback: []v1alpha1.FeedbackRule{{Name: "n", JSONPath: ".a", Type: "String"}}, Completion: "object.done"}, {Health: []v1alpha1.HealthRule{{Expression: "object.ok"}}}}
	for i := range c.Items {
		if got := c.Items[i].Treatment.StatedAssessment(); !reflect.DeepEqual(got, want[i]) {
			t.Errorf("item %d: %+v", i, got)
		}
	}
	if _, err := decodeContent(zipText(t, `{"items":[{"key":"/ConfigMap/shop/a","treatment":{"assessed":[3]}}]}`), nil); err == nil {
		t.Error("a reference to nothing is read")
	}
}

// The rules of a policy count once for what a Revision may have beside its items.
func TestRulesCountOnceForTheSizeOfARevision(t *testing.T) {
	content := &atoll.Content{Items: assessedItems(5000, 1)}
	if err := CheckSizeWithoutItems(content); err != nil {
		t.Errorf("5,000 items of one policy: %v", err)
	}
}
