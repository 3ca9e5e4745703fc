package answerweight

import (
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

const plenty = 1 << 30

// Weights are sums of the constants: 400 an object, 100 a further field, 256 or 1200 an element,
// and 1 for each other byte.
func TestJSONHasAWeight(t *testing.T) {
	for _, c := range []struct {
		text         string
		plain, typed int
		values       int
	}{
		{`{}`, 400 + 1, 400 + 1, 1},
		{`{"a":1,"b":2}`, 400 + 5 + 100 + 5 + 1, 400 + 5 + 100 + 5 + 1, 1},
		{`[null,null]`, 256 + 4 + 256 + 4 + 1, 1200 + 4 + 1200 + 4 + 1, 1},
		{`{"a,{[":""}`, 400 + 9 + 1, 400 + 9 + 1, 1},
		{`{"\",{":0}`, 400 + 8 + 1, 400 + 8 + 1, 1},
		{"{}\n{}", 2*401 + 1, 2*401 + 1, 2},
		{`"open`, 5, 5, 0},
	} {
		for typed, want := range map[bool]int{false: c.plain, true: c.typed} {
			s := NewJSONScanner(typed)
			got := 0
			for i := range len(c.text) { // in pieces of a byte
				n, err := s.Scan([]byte{c.text[i]}, plenty, plenty)
				if err != nil {
					t.Fatalf("%s: %v", c.text, err)
				}
				got += n
			}
			if got != want || s.CompletedValues() != c.values {
				t.Errorf("%s, typed %t: weight %d, want %d; %d values, want %d", c.text, typed, got, want, s.CompletedValues(), c.values)
			}
		}
	}
}

// The bounds hold for each value at the top; what never ends is one value, whatever it is.
func TestJSONIsBoundedByValue(t *testing.T) {
	const most = 1000
	for _, c := range []struct {
		what, text string
		want       error
	}{
		{"many values", strings.Repeat(`{"a":1}`, 5000), nil},
		{"a long string", `{"a":"` + strings.Repeat("x", most), ErrTooHeavy},
		{"a string at the top", `"` + strings.Repeat("x", most), ErrTooHeavy},
		{"white space", "{}" + strings.Repeat("\n", most+1), ErrTooHeavy},
		{"nothing, often", "[" + strings.Repeat("{},", 3), ErrTooHeavy},
		{"closed too often", strings.Repeat("}", 5000), nil},
	} {
		if _, err := NewJSONScanner(false).Scan([]byte(c.text), most, most); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
	}
	if _, err := NewJSONScanner(false).Scan([]byte(strings.Repeat("[", maxDepth+1)), plenty, plenty); !errors.Is(err, ErrTooDeep) {
		t.Errorf("nested: %v", err)
	}
	if _, err := NewJSONScanner(false).Scan([]byte(strings.Repeat("[", maxDepth)), plenty, plenty); err != nil {
		t.Errorf("nested as deep as it may be: %v", err)
	}
}

// A decoder takes no more than a few times the weight: slices grow by doubling.
func TestDecodersTakeAsMuchAsTheWeight(t *testing.T) {
	repeat := func(head, each, tail string) []byte {
		return []byte(head + strings.Repeat(each+",", 20_000) + each + tail)
	}
	for _, c := range []struct {
		what string
		text []byte
		into any
	}{
		{"typed objects", repeat(`{"items":[`, "{}", "]}"), &corev1.PodList{}},
		{"typed nulls", repeat(`{"items":[`, "null", "]}"), &corev1.PodList{}},
		{"typed containers", repeat(`{"spec":{"containers":[`, "{}", "]}}"), &corev1.Pod{}},
		{"objects", repeat(`{"items":[`, `{"a":0}`, "]}"), &map[string]any{}},
		{"numbers", repeat(`{"items":[`, "1", "]}"), &map[string]any{}},
		{"arrays", repeat(`{"items":[`, "[0]", "]}"), &map[string]any{}},
	} {
		_, typed := c.into.(*map[string]any)
		weight, err := NewJSONScanner(!typed).Scan(c.text, plenty, plenty)
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := json.Unmarshal(c.text, c.into); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if took := int(after.TotalAlloc - before.TotalAlloc); took > 6*weight {
			t.Errorf("%s: %d bytes are taken of a weight of %d", c.what, took, weight)
		}
		if len(c.text) > weight {
			t.Errorf("%s: a weight of %d for %d bytes", c.what, weight, len(c.text))
		}
	}
}
