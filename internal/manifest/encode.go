package manifest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"atoll.dev/atoll/internal/overrides"
)

// encodeObject returns the JSON of an object, with the same bytes as encoding/json. It writes maps,
// lists, plain strings and whole numbers without the allocations of encoding/json. about is the
// expected number of bytes. An object over overrides.MaxObjectBytes or overrides.MaxObjectDepth is
// an error, found before more memory than that is taken.
func encodeObject(obj map[string]any, about int) ([]byte, error) {
	out, err := appendJSONValue(make([]byte, 0, about), obj, 0)
	if err == nil && len(out) > overrides.MaxObjectBytes {
		return nil, overrides.ErrObjectTooLarge
	}
	return out, err
}

func appendJSONValue(out []byte, v any, depth int) ([]byte, error) {
	if len(out) > overrides.MaxObjectBytes {
		return nil, overrides.ErrObjectTooLarge
	}
	if depth > overrides.MaxObjectDepth {
		return nil, fmt.Errorf("it is nested more than %d deep", overrides.MaxObjectDepth)
	}
	switch v := v.(type) {
	case map[string]any:
		if v == nil {
			return append(out, "null"...), nil
		}
		return appendJSONMap(out, v, depth)
	case []any:
		if v == nil {
			return append(out, "null"...), nil
		}
		return appendJSONList(out, v, depth)
	case string:
		return appendJSONString(out, v)
	case int64:
		return strconv.AppendInt(out, v, 10), nil
	case bool:
		return strconv.AppendBool(out, v), nil
	case nil:
		return append(out, "null"...), nil
	}
	return appendMarshaledJSON(out, v)
}

func appendJSONList(out []byte, list []any, depth int) ([]byte, error) {
	out = append(out, '[')
	for i, e := range list {
		if i > 0 {
			out = append(out, ',')
		}
		var err error
		if out, err = appendJSONValue(out, e, depth+1); err != nil {
			return nil, err
		}
	}
	return append(out, ']'), nil
}

func appendJSONMap(out []byte, m map[string]any, depth int) ([]byte, error) {
	var some [16]string
	keys := some[:0]
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	out = append(out, '{')
	for i, k := range keys {
		if i > 0 {
			out = append(out, ',')
		}
		var err error
		if out, err = appendJSONString(out, k); err != nil {
			return nil, err
		}
		if out, err = appendJSONValue(append(out, ':'), m[k], depth+1); err != nil {
			return nil, err
		}
	}
	return append(out, '}'), nil
}

// appendJSONString appends a string directly when encoding/json would not escape any byte of it.
func appendJSONString(out []byte, s string) ([]byte, error) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return appendMarshaledJSON(out, s)
		}
	}
	return append(append(append(out, '"'), s...), '"'), nil
}

func appendMarshaledJSON(out []byte, v any) ([]byte, error) {
	text, err := json.Marshal(v)
	return append(out, text...), err
}
