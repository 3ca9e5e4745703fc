package render

import (
	"encoding/json"
	"slices"
	"strconv"
)

// encode gives the JSON of an object, to the byte what encoding/json gives: maps, lists,
// plain texts and whole numbers, which objects are made of, without its allocations, and
// all else by it. It comes to about so many bytes.
func encode(obj map[string]any, about int) ([]byte, error) {
	return appendValue(make([]byte, 0, about), obj)
}

func appendValue(out []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case map[string]any:
		if v == nil {
			return append(out, "null"...), nil
		}
		return appendMap(out, v)
	case []any:
		if v == nil {
			return append(out, "null"...), nil
		}
		out = append(out, '[')
		for i, e := range v {
			if i > 0 {
				out = append(out, ',')
			}
			var err error
			if out, err = appendValue(out, e); err != nil {
				return nil, err
			}
		}
		return append(out, ']'), nil
	case string:
		return appendText(out, v)
	case int64:
		return strconv.AppendInt(out, v, 10), nil
	case bool:
		return strconv.AppendBool(out, v), nil
	case nil:
		return append(out, "null"...), nil
	}
	return appendAny(out, v)
}

func appendMap(out []byte, m map[string]any) ([]byte, error) {
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
		if out, err = appendText(out, k); err != nil {
			return nil, err
		}
		if out, err = appendValue(append(out, ':'), m[k]); err != nil {
			return nil, err
		}
	}
	return append(out, '}'), nil
}

// appendText appends a text as it is where no byte of it is written otherwise.
func appendText(out []byte, s string) ([]byte, error) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return appendAny(out, s)
		}
	}
	return append(append(append(out, '"'), s...), '"'), nil
}

func appendAny(out []byte, v any) ([]byte, error) {
	text, err := json.Marshal(v)
	return append(out, text...), err
}
