package quantity

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// The longest quantity that is read, and its longest exponent, in characters.
const (
	maxQuantity = 64
	maxExponent = 3
	// maxDigits of a number that apimachinery is given; a million take it seconds.
	maxDigits = 1000
)

// Parse reads a Kubernetes quantity that costs little to read. Apimachinery's own
// takes a second over 1e-10000000, and for ever over smaller ones: it is not for what users
// or members wrote.
func Parse(text string) (resource.Quantity, error) {
	at := strings.IndexAny(text, "eE")
	if len(text) > maxQuantity || at >= 0 && len(text)-at-1 > maxExponent {
		return resource.Quantity{}, resource.ErrFormatWrong
	}
	return resource.ParseQuantity(text)
}

// FindSlowToParseQuantity finds in a JSON value a text that, if it is read as a quantity, as a
// conversion to typed Kubernetes objects may, would take for ever; empty: there is none.
func FindSlowToParseQuantity(v any) string {
	switch v := v.(type) {
	case string:
		if hugeExponent.MatchString(v) || countLeadingDigits(v) > maxDigits {
			return v[:min(len(v), maxQuantity)]
		}
	case map[string]any:
		for _, e := range v {
			if found := FindSlowToParseQuantity(e); found != "" {
				return found
			}
		}
	case []any:
		for _, e := range v {
			if found := FindSlowToParseQuantity(e); found != "" {
				return found
			}
		}
	}
	return ""
}

// countLeadingDigits returns the digits that a text begins with.
func countLeadingDigits(text string) int {
	if len(text) <= maxDigits {
		return 0
	}
	text = strings.TrimLeft(strings.TrimSpace(text), "+-")
	return len(text) - len(strings.TrimLeft(text, "0123456789."))
}

var hugeExponent = regexp.MustCompile(`^\s*[+-]?[0-9.]+[eE][+-]?[0-9]{3,}\s*$`)
