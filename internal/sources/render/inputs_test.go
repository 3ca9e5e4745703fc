package render

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

func TestDigestOfInputs(t *testing.T) {
	if (Inputs{}).Digest() != "" || Inputs(nil).Digest() != "" {
		t.Error("no inputs have a digest")
	}
	seen := map[string]int{}
	for i, in := range []Inputs{
		{"ConfigMap/a/k": nil}, {"ConfigMap/a/k": []byte("a")}, {"Secret/a/k": []byte("a")}, {"ConfigMap/b/k": []byte("a")}, {"ConfigMap/a/k": []byte("a"), "ConfigMap/b/k": nil},
		{"ConfigMap/a/k": []byte("aConfigMap/b/k 0\n")},
	} {
		d := in.Digest()
		if before, has := seen[d]; has || len(d) != 32 {
			t.Errorf("%d and %d: %s", before, i, d)
		}
		seen[d] = i
	}
}

// The digest of a selection has the inputs, and nothing of them where there are none, as before there were any.
func TestDigestOfASelectionHasInputs(t *testing.T) {
	s := &Selection{}
	before := s.Digest()
	s.inputs = Inputs{}
	none := s.Digest()
	s.inputs = Inputs{"ConfigMap/a/k": nil}
	if before != none || s.Digest() == before {
		t.Error("the digest")
	}
}

// randomValue returns a value of a random form, whose texts contain "secret" and whose numbers are large.
func randomValue(r *rand.Rand, depth int) any {
	switch n := r.IntN(7); {
	case n < 2 && depth > 0:
		out := map[string]any{}
		for range r.IntN(4) {
			out[string(rune('a'+r.IntN(26)))] = randomValue(r, depth-1)
		}
		return out
	case n < 3 && depth > 0:
		out := []any{}
		for range r.IntN(4) {
			out = append(out, randomValue(r, depth-1))
		}
		return out
	case n < 4:
		return float64(4711 + r.IntN(1000))
	case n < 5:
		return r.IntN(2) == 0
	case n < 6:
		return nil
	}
	return "secret" + string(rune('a'+r.IntN(26)))
}

// shapeOf returns a value with its types alone.
func shapeOf(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, one := range v {
			out[key] = shapeOf(one)
		}
		return out
	case []any:
		out := []any{}
		for _, one := range v {
			out = append(out, shapeOf(one))
		}
		return out
	case nil:
		return nil
	}
	return reflect.TypeOf(v).String()
}

// Masked values have the shape of the values, none of the texts, and the same result for other values of the shape.
func TestMaskedSecretsKeepTheShapeAlone(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		values := map[string]any{"v": randomValue(r, 4)}
		raw, err := json.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		in := Inputs{"Secret/a/k": raw, "ConfigMap/a/k": []byte("stays")}
		masked, problem := in.MaskSecrets()
		if problem != nil {
			t.Fatal(problem)
		}
		var got map[string]any
		if err := json.Unmarshal(masked["Secret/a/k"], &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(shapeOf(got), shapeOf(values)) || strings.Contains(string(masked["Secret/a/k"]), "secret") || string(masked["ConfigMap/a/k"]) != "stays" || string(in["Secret/a/k"]) != string(raw) {
			t.Fatalf("%s became %s", raw, masked["Secret/a/k"])
		}
		again, _ := masked.MaskSecrets()
		if string(again["Secret/a/k"]) != string(masked["Secret/a/k"]) {
			t.Fatalf("%s became %s", masked["Secret/a/k"], again["Secret/a/k"])
		}
	}
}
