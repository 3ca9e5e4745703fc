package manifest

import (
	"bytes"
	"encoding/json"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Renderings are frozen to the byte: encodeObject writes what encoding/json writes.
func FuzzEncode(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `{"a":null,"b":[],"c":{},"d":[null,{"x":[1,-2,3.5,1e30,-0.0,9223372036854775807,9223372036854775808]}]}`,
		`{"text":"plain","html":"<a href=\"x\">&amp;</a>","line":"a\nb\tc\u0000\u007f","uni":"ä€😀\u2028\u2029","back":"\\ / \b"}`,
		`{"ä":1,"z":2,"A":3,"":4,"<":5,"a/b":6}`, "{\"bad\":\"\xff\xfe\"}", `{"t":true,"f":false}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var obj map[string]any
		if utiljson.Unmarshal(text, &obj) != nil {
			return
		}
		want, err := json.Marshal(obj)
		if err != nil {
			t.Skip()
		}
		if got, err := encodeObject(obj, len(text)); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s (%v), want %s", got, err, want)
		}
	})
}

// A value that has no JSON is an error, as it is by encoding/json.
func TestEncodeObjectReportsValuesWithoutJSON(t *testing.T) {
	if got, err := encodeObject(map[string]any{"a": []any{map[string]any{"f": func() {}}}}, 0); err == nil {
		t.Errorf("%s", got)
	}
}
