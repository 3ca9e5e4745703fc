package changes

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/sources/render"
)

// KeepGenerated returns an object with the values that the hub has in the fields that each rendering makes by itself. A field that the
// hub does not have, or has with another type, is as rendered. No argument is changed.
func KeepGenerated(form, existing *unstructured.Unstructured, generated []string) *unstructured.Unstructured {
	if existing == nil || len(generated) == 0 {
		return form
	}
	out := form.DeepCopy()
	for _, path := range generated {
		above, key, rendered, ok := render.GeneratedField(out.Object, path)
		if !ok {
			continue
		}
		_, _, kept, has := render.GeneratedField(existing.Object, path)
		if text, isOfSecret := strings.CutPrefix(path, "/stringData/"); isOfSecret && isSecret(form.Object) {
			kept, has = readSecretText(existing, text)
		}
		if has && isSameType(kept, rendered) {
			above[key] = runtime.DeepCopyJSONValue(kept)
		}
	}
	return out
}

// readSecretText returns a value of a Secret as stringData states it; false for one that is no text. path is the pointer below stringData.
func readSecretText(existing *unstructured.Unstructured, path string) (any, bool) {
	_, _, encoded, has := render.GeneratedField(existing.Object, "/data/"+path)
	text, isText := encoded.(string)
	if !has || !isText {
		return nil, false
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	return string(raw), err == nil && utf8.Valid(raw)
}

// isSameType reports whether two values have one type of JSON.
func isSameType(a, b any) bool {
	isNumber := func(v any) bool {
		switch v.(type) {
		case int64, float64:
			return true
		}
		return false
	}
	return isNumber(a) && isNumber(b) || reflect.TypeOf(a) == reflect.TypeOf(b)
}

// withoutGenerated returns a copy of fields without those that each rendering makes by itself.
func withoutGenerated(fields map[string]any, generated []string) map[string]any {
	if len(generated) == 0 {
		return fields
	}
	out := runtime.DeepCopyJSON(fields)
	for _, path := range generated {
		if above, key, _, ok := render.GeneratedField(out, path); ok {
			delete(above, key)
		}
	}
	return out
}

// DescribeGenerated names the fields that each rendering makes by itself, without their values; empty when there are none.
func (t *Templates) DescribeGenerated() string {
	var names []string
	for i, paths := range t.Generated {
		if len(paths) > 0 {
			names = append(names, fmt.Sprintf("%s %s at %s", t.Keys[i].Kind, t.Keys[i].Name, phrase.JoinFirst(paths, 5, len(paths))))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "each rendering of the chart makes other values by itself; the hub keeps those that it has in " + phrase.JoinFirst(names, 10, len(names)) +
		". Give the values in build.helm to state them"
}
