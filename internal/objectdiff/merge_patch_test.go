package objectdiff

import (
	"encoding/json"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

func TestMergePatch(t *testing.T) {
	for name, c := range map[string]struct{ from, to, want string }{
		"equal objects":                    {`{"a":{"b":[1,2]},"c":"x"}`, `{"a":{"b":[1,2]},"c":"x"}`, `{}`},
		"a field more, and one less":       {`{"a":1}`, `{"b":2}`, `{"a":null,"b":2}`},
		"a change below":                   {`{"a":{"b":1,"c":1}}`, `{"a":{"b":2,"c":1}}`, `{"a":{"b":2}}`},
		"a list is replaced":               {`{"a":[{"b":1},{"c":1}]}`, `{"a":[{"b":1},{"c":2}]}`, `{"a":[{"b":1},{"c":2}]}`},
		"a map in place of a text":         {`{"a":"x"}`, `{"a":{"b":1}}`, `{"a":{"b":1}}`},
		"a whole number that floats round": {`{"a":9007199254740992}`, `{"a":9007199254740993}`, `{"a":9007199254740993}`},
		"an empty map":                     {`{"a":{"b":1}}`, `{"a":{}}`, `{"a":{"b":null}}`},
	} {
		var from, to map[string]any
		if err := utiljson.Unmarshal([]byte(c.from), &from); err != nil {
			t.Fatal(err)
		}
		if err := utiljson.Unmarshal([]byte(c.to), &to); err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(MergePatch(from, to)); err != nil || string(got) != c.want {
			t.Errorf("%s: %s, want %s (%v)", name, got, c.want, err)
		}
	}
}
