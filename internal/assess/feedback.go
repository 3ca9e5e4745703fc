package assess

import (
	"encoding/json"
	"errors"
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
	*compiledPath
}

// compiledPath is a path, or why it does not compile.
type compiledPath struct {
	path *objectPath
	err  error
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
	limit := atoll.MaxFeedbackText
	switch {
	case !isOfType(v, t):
		return "", fmt.Errorf("it is %s, and no %s", describeKind(v), t)
	case t == v1alpha1.FeedbackString:
		text, _ = v.(string)
	case t == v1alpha1.FeedbackQuantity:
		text, err = formatQuantity(v)
	default:
		if t == v1alpha1.FeedbackJSON {
			limit = atoll.MaxFeedbackJSON
		}
		text, err = encodeValue(v)
	}
	switch {
	case err != nil:
		return "", err
	case len(text) > limit:
		return "", fmt.Errorf("it has %d bytes, and at most %d are reported", len(text), limit)
	case !utf8.ValidString(text):
		return "", errors.New("it is no UTF-8")
	}
	return text, nil
}

// isOfType reports whether a value is of the type. The text of a quantity is not read.
func isOfType(v any, t v1alpha1.FeedbackType) bool {
	_, isText := v.(string)
	switch t {
	case v1alpha1.FeedbackString:
		return isText
	case v1alpha1.FeedbackBoolean:
		_, ok := v.(bool)
		return ok
	case v1alpha1.FeedbackInteger:
		_, ok := v.(int64)
		return ok
	case v1alpha1.FeedbackNumber:
		return isNumber(v)
	case v1alpha1.FeedbackQuantity:
		return isText || isNumber(v)
	}
	return t == v1alpha1.FeedbackJSON
}

// formatQuantity returns a quantity, which may be a string or a number, in its canonical form.
func formatQuantity(v any) (string, error) {
	text, isText := v.(string)
	if !isText {
		var err error
		if text, err = encodeValue(v); err != nil {
			return "", err
		}
	}
	q, err := quantity.Parse(text)
	if err != nil {
		return "", fmt.Errorf("it is no quantity: %w", err)
	}
	return q.String(), nil
}

// encodeValue returns a value as JSON. A value that is certainly too large is not encoded.
func encodeValue(v any) (string, error) {
	if room := atoll.MaxFeedbackJSON; !fitsIn(v, &room) {
		return "", fmt.Errorf("it has more than %d bytes, which are not reported", atoll.MaxFeedbackJSON)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("it has no JSON: %w", err)
	}
	return string(text), nil
}

// fitsIn reports whether a value may have at most so many bytes as JSON, and takes them. It stops at the first that does not fit.
func fitsIn(v any, room *int) bool {
	*room--
	switch v := v.(type) {
	case string:
		*room -= len(v)
	case map[string]any:
		for key, e := range v {
			if *room -= len(key); *room < 0 || !fitsIn(e, room) {
				return false
			}
		}
	case []any:
		for _, e := range v {
			if !fitsIn(e, room) {
				return false
			}
		}
	}
	return *room >= 0
}

func isNumber(v any) bool {
	switch v.(type) {
	case int64, float64:
		return true
	}
	return false
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
// Values are left out under names that no rule has, since names are printed as they are. The feedback of another process is limited before it is used.
func LimitFeedback(key atoll.ItemKey, values []atoll.FeedbackValue) []atoll.FeedbackValue {
	if len(values) == 0 || key.IsSecret() {
		return nil
	}
	out := make([]atoll.FeedbackValue, 0, min(len(values), atoll.MaxFeedbackValues))
	for _, v := range values[:min(len(values), atoll.MaxFeedbackValues)] {
		if !atoll.IsFeedbackName(v.Name) {
			continue
		}
		out = append(out, atoll.FeedbackValue{
			Name: v.Name, Value: phrase.CutText(v.Value, atoll.MaxFeedbackJSON),
			Problem: phrase.CutText(v.Problem, atoll.MaxFeedbackProblem),
		})
	}
	return out
}
