package generate

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/template"
)

// scalarFunction ends each pipeline that writes, and comparedFunction counts the arguments of comparisons. They are not listed for people.
const (
	scalarFunction   = "atollScalar"
	comparedFunction = "atollCompared"
)

// builtins are the functions of Go's templates that texts may use: none of them makes a text.
var builtins = slices.Concat(comparisons, []string{"and", "len", "not", "or"})

// functionNames are the functions of templates that are listed for people.
var functionNames = listFunctionNames()

// newFunctions returns the functions of templates. None reads anything but its arguments, each text that one returns has a bound, and the meter
// counts what they read.
func newFunctions(m *meter) template.FuncMap {
	return template.FuncMap{
		scalarFunction:   m.readScalar,
		comparedFunction: m.meterCompared,
		"default":        chooseDefault,
		"hasKey":         hasKey,
		"hash":           m.hashText,
		"index":          indexStrictly,
		"join":           m.joinTexts,
		"lower":          m.changeText(strings.ToLower),
		"normalize":      m.changeText(normalizeName),
		"print":          func(values ...any) (string, error) { return m.joinTexts("", values) },
		"replace":        m.replaceText,
		"split":          m.splitText,
		"trim":           m.changeText(strings.TrimSpace),
		"trimPrefix":     m.cutText(strings.TrimPrefix),
		"trimSuffix":     m.cutText(strings.TrimSuffix),
		"upper":          m.changeText(strings.ToUpper),
	}
}

// FunctionNames lists the functions that a text may use.
func FunctionNames() []string { return slices.Clone(functionNames) }

func listFunctionNames() []string {
	names := slices.Concat(builtins, slices.Collect(maps.Keys(newFunctions(&meter{}))))
	names = slices.DeleteFunc(names, func(name string) bool { return name == scalarFunction || name == comparedFunction })
	slices.Sort(names)
	return names
}

// changeText returns a function of one text, whose result has the bound of texts.
func (m *meter) changeText(change func(string) string) func(string) (string, error) {
	return func(s string) (string, error) {
		if err := m.spendTexts(s); err != nil {
			return "", err
		}
		return boundText(change(s))
	}
}

// cutText returns a function that cuts a part off a text.
func (m *meter) cutText(cut func(s, part string) string) func(part, s string) (string, error) {
	return func(part, s string) (string, error) { return cut(s, part), m.spendTexts(part) }
}

// boundText returns a text that is within its bound.
func boundText(s string) (string, error) {
	if len(s) > MaxTextBytes {
		return "", errTextTooLong
	}
	return s, nil
}

// formatScalar returns a text, a number or a boolean as text.
func formatScalar(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return boundText(v)
	case bool:
		return strconv.FormatBool(v), nil
	case int:
		return strconv.Itoa(v), nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	case nil:
		return "", errors.New("the parameter has no value")
	case map[string]any:
		return "", errors.New("the parameter is a map; name a field of it")
	case []any, []string:
		return "", errors.New("the parameter is a list; use index or join")
	}
	return "", fmt.Errorf("the parameter is a %T, which is no text", v)
}

// readScalar returns a text, a number or a boolean as text, and counts it.
func (m *meter) readScalar(v any) (string, error) {
	text, err := formatScalar(v)
	if err != nil {
		return "", err
	}
	return text, m.spendTexts(text)
}

// formatCount returns a number as text.
func formatCount(n int) string { return strconv.Itoa(n) }

// chooseDefault returns a value, or another one in place of an empty text, nothing or false.
func chooseDefault(other, v any) any {
	if v == nil || v == "" || v == false {
		return other
	}
	return v
}

// hasKey reports whether a map has a key.
func hasKey(of any, key string) (bool, error) {
	m, ok := of.(map[string]any)
	if !ok && of != nil {
		return false, errors.New("hasKey needs a map")
	}
	_, has := m[key]
	return has, nil
}

// hashText returns the first 8 digits of a SHA-256, to make names unique.
func (m *meter) hashText(v any) (string, error) {
	text, err := m.readScalar(v)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:4]), nil
}

// indexStrictly returns an item of a list, or the value of a key. A missing one is an error.
func indexStrictly(of any, keys ...any) (any, error) {
	for _, key := range keys {
		switch at := of.(type) {
		case map[string]any:
			name, ok := key.(string)
			if !ok {
				return nil, errors.New("index needs a text as the key of a map")
			}
			value, has := at[name]
			if !has {
				return nil, fmt.Errorf("map has no entry for key %q", name)
			}
			of = value
		case []any:
			value, err := itemAt(at, key)
			if err != nil {
				return nil, err
			}
			of = value
		default:
			return nil, errors.New("index needs a map or a list")
		}
	}
	return of, nil
}

// itemAt returns an item of a list; a negative index counts from its end.
func itemAt(list []any, key any) (any, error) {
	var i int
	switch key := key.(type) {
	case int:
		i = key
	case int64:
		i = int(key)
	default:
		return nil, errors.New("index needs a number for a list")
	}
	if i < 0 {
		i += len(list)
	}
	if i < 0 || i >= len(list) {
		return nil, fmt.Errorf("the list has %d items, and none at %v", len(list), key)
	}
	return list[i], nil
}

// joinTexts joins the items of a list.
func (m *meter) joinTexts(separator string, list []any) (string, error) {
	var out boundedText
	for i, v := range list {
		text, err := m.readScalar(v)
		if err != nil {
			return "", err
		}
		if i > 0 { // the bound of a text bounds the separators
			text = separator + text
		}
		if _, err := out.Write([]byte(text)); err != nil {
			return "", err
		}
	}
	return out.String(), nil
}

// normalizeName returns a text as a part of a name of Kubernetes: small letters, digits and hyphens, of 63 characters at most.
func normalizeName(s string) string {
	mapped := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, s)
	mapped = strings.TrimLeft(mapped, "-")
	return strings.TrimRight(mapped[:min(63, len(mapped))], "-")
}

// replaceText replaces each occurrence of a text. The size is checked before.
func (m *meter) replaceText(old, by, s string) (string, error) {
	if old == "" {
		return "", errors.New("replace needs a text to replace")
	}
	if err := m.spendTexts(old, by, s); err != nil {
		return "", err
	}
	if len(s)+strings.Count(s, old)*len(by) > MaxTextBytes {
		return "", errTextTooLong
	}
	return strings.ReplaceAll(s, old, by), nil
}

// splitText returns the parts of a text between separators. They are counted before.
func (m *meter) splitText(separator, s string) ([]any, error) {
	if separator == "" {
		return nil, errors.New("split needs a separator")
	}
	if err := m.spendTexts(separator, s); err != nil {
		return nil, err
	}
	if n := strings.Count(s, separator); n >= MaxParts {
		return nil, fmt.Errorf("split gives %d parts, and at most %d are allowed", n+1, MaxParts)
	}
	var out []any
	for part := range strings.SplitSeq(s, separator) {
		out = append(out, part)
	}
	return out, nil
}
