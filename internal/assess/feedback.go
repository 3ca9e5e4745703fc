package assess

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/quantity"
)

// feedbackReader reads one value.
type feedbackReader struct {
	rule v1alpha1.FeedbackRule
	path *objectPath
	err  error // why the path does not compile
}

// readValue returns the value of the object; false where the object has none.
func (r *feedbackReader) readValue(object map[string]any) (atoll.FeedbackValue, bool) {
	out := atoll.FeedbackValue{Name: r.rule.Name}
	err := r.err
	if err == nil {
		v, there, findErr := r.path.findValue(object)
		if findErr == nil && !there {
			return out, false
		}
		if err = findErr; err == nil {
			out.Value, err = formatFeedback(v, r.rule.Type)
		}
	}
	if err != nil {
		out.Value, out.Problem = "", phrase.CutText(err.Error(), atoll.MaxFeedbackProblem)
	}
	return out, true
}

// formatFeedback returns a value as the text of the type, or why it is not of the type.
func formatFeedback(v any, t v1alpha1.FeedbackType) (text string, err error) {
	limit, ok := atoll.MaxFeedbackText, false
	switch t {
	case v1alpha1.FeedbackString:
		text, ok = v.(string)
	case v1alpha1.FeedbackBoolean:
		_, ok = v.(bool)
	case v1alpha1.FeedbackInteger:
		_, ok = v.(int64)
	case v1alpha1.FeedbackNumber:
		ok = isNumber(v)
	case v1alpha1.FeedbackQuantity:
		if text, ok = quantityText(v); ok {
			q, err := quantity.Parse(text)
			if err != nil {
				return "", fmt.Errorf("it is no quantity: %w", err)
			}
			text = q.String()
		}
	case v1alpha1.FeedbackJSON:
		limit, ok = atoll.MaxFeedbackJSON, true
	}
	if !ok {
		return "", fmt.Errorf("it is %s, and no %s", describeKind(v), t)
	}
	if text == "" && t != v1alpha1.FeedbackString {
		encoded, err := json.Marshal(v)
		if err != nil {
			return "", fmt.Errorf("it has no JSON: %w", err)
		}
		text = string(encoded)
	}
	if len(text) > limit {
		return "", fmt.Errorf("it has %d bytes, and at most %d are reported", len(text), limit)
	}
	if !utf8.ValidString(text) {
		return "", fmt.Errorf("it is no UTF-8")
	}
	return text, nil
}

func isNumber(v any) bool {
	switch v.(type) {
	case int64, float64:
		return true
	}
	return false
}

// quantityText returns the text of a quantity, which may be a string or a number.
func quantityText(v any) (string, bool) {
	if text, ok := v.(string); ok {
		return text, true
	}
	if !isNumber(v) {
		return "", false
	}
	text, err := json.Marshal(v)
	return string(text), err == nil
}

// describeKind names the kind of a JSON value.
func describeKind(v any) string {
	switch v.(type) {
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case int64, float64:
		return "a number"
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	}
	return "a value"
}

// LimitFeedback returns feedback of the key's object within the bounds of atoll.FeedbackValue, and none of a Secret.
// The feedback of another process is limited before it is used.
func LimitFeedback(key atoll.ItemKey, values []atoll.FeedbackValue) []atoll.FeedbackValue {
	if len(values) == 0 || key.IsSecret() {
		return nil
	}
	out := make([]atoll.FeedbackValue, 0, min(len(values), atoll.MaxFeedbackValues))
	for _, v := range values[:min(len(values), atoll.MaxFeedbackValues)] {
		out = append(out, atoll.FeedbackValue{
			Name: phrase.CutText(v.Name, atoll.MaxFeedbackName), Value: phrase.CutText(v.Value, atoll.MaxFeedbackJSON),
			Problem: phrase.CutText(v.Problem, atoll.MaxFeedbackProblem),
		})
	}
	return out
}
