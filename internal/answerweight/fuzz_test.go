package answerweight

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// FuzzJSONScanner: the weight of a text does not depend on its pieces, is at least its length, and of
// JSON every value is counted.
func FuzzJSONScanner(f *testing.F) {
	for _, s := range []string{`{"a":[1,{"b":"\"}"}]}`, `[[],[{}]]{}`, `"a\\",`, "]]}", ` {"a" : null } x`} {
		f.Add(s, 3, true)
	}
	f.Fuzz(func(t *testing.T, text string, at int, typed bool) {
		const most = 1 << 20
		whole, pieces := NewJSONScanner(typed), NewJSONScanner(typed)
		weight, err := whole.Scan([]byte(text), most, most)
		at = min(max(at, 0), len(text))
		first, firstErr := pieces.Scan([]byte(text[:at]), most, most)
		rest := 0
		if firstErr == nil {
			rest, firstErr = pieces.Scan([]byte(text[at:]), most, most)
		}
		if !errors.Is(firstErr, err) || first+rest != weight || pieces.CompletedValues() != whole.CompletedValues() {
			t.Fatalf("in one piece %d, %v; in two %d and %d, %v", weight, err, first, rest, firstErr)
		}
		if err == nil && weight < len(text) {
			t.Errorf("the weight %d is less than the length %d", weight, len(text))
		}
		if err == nil && json.Valid([]byte(text)) && len(whole.arrays) > 0 {
			t.Errorf("JSON leaves %d containers open", len(whole.arrays))
		}
	})
}

// FuzzWeighMessage: no bytes make the scales panic, and the budget only becomes smaller. A
// list that decodes has at least the weight of its pods.
func FuzzWeighMessage(f *testing.F) {
	pod := corev1.PodList{Items: []corev1.Pod{{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Env: []corev1.EnvVar{{Name: "b"}}}}, NodeSelector: map[string]string{"c": "d"}}}}}
	wire, err := pod.Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(wire, 1<<20)
	f.Add(wire, 100)
	f.Fuzz(func(t *testing.T, wire []byte, budget int) {
		budget = min(max(budget, 0), 1<<24)
		left := budget
		err := WeighMessage(reflect.TypeOf(corev1.PodList{}), wire, &left)
		if left > budget || err == nil && left < 0 {
			t.Fatalf("of %d, %d are left: %v", budget, left, err)
		}
		var list corev1.PodList
		if list.Unmarshal(wire) != nil || err != nil { // what has no weight is not decoded
			return
		}
		if n := len(list.Items); budget-left < n*int(reflect.TypeOf(corev1.Pod{}).Size()) {
			t.Errorf("%d pods weigh %d", n, budget-left)
		}
	})
}
