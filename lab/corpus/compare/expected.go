package compare

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// maxExpected bounds the list of expected differences.
const maxExpected = 1000

// ExpectedDifference is an entry of the list of expected differences. In Manifest, Object and Path, * stands for
// any text.
type ExpectedDifference struct {
	Manifest string `json:"manifest"`
	// Object is empty for any object, and for answers about several objects.
	Object string `json:"object,omitempty"`
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// ParseExpectedDifferences reads a list of expected differences. An unknown field is an error.
func ParseExpectedDifferences(data []byte) ([]ExpectedDifference, error) {
	var list []ExpectedDifference
	if err := yaml.UnmarshalStrict(data, &list); err != nil {
		return nil, err
	}
	if len(list) > maxExpected {
		return nil, fmt.Errorf("it has %d entries; at most %d are allowed", len(list), maxExpected)
	}
	var errs []error
	for i, e := range list {
		if e.Manifest == "" || e.Path == "" || strings.TrimSpace(e.Reason) == "" {
			errs = append(errs, fmt.Errorf("entry %d (%s %s) lacks a manifest, a path or a reason", i+1, e.Manifest, e.Path))
		}
	}
	return list, errors.Join(errs...)
}

// IsForManifest reports whether the entry is about a manifest.
func (e ExpectedDifference) IsForManifest(manifest string) bool {
	return matchPattern(e.Manifest, manifest)
}

// NamesOneManifest reports whether the entry names one manifest alone.
func (e ExpectedDifference) NamesOneManifest() bool { return !strings.Contains(e.Manifest, anyKey) }

func (e ExpectedDifference) matchesDifference(manifest string, d Difference) bool {
	return matchPattern(e.Manifest, manifest) && (e.Object == "" || matchPattern(e.Object, d.Object)) && matchPattern(e.Path, d.Path)
}

func matchPattern(pattern, text string) bool {
	if !strings.Contains(pattern, anyKey) {
		return pattern == text
	}
	quoted := strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, `.*`)
	return regexp.MustCompile(`(?s)^` + quoted + `$`).MatchString(text)
}

// SetReasons sets the reasons of the differences of a manifest. used has an entry for each entry of the
// list, which is true if the entry explains a difference.
func SetReasons(manifest string, found []Difference, list []ExpectedDifference) (annotated []Difference, used []bool) {
	used = make([]bool, len(list))
	for _, d := range found {
		d.Reason = ""
		for i, e := range list {
			if !e.matchesDifference(manifest, d) {
				continue
			}
			if used[i] = true; d.Reason == "" {
				d.Reason = e.Reason
			}
		}
		annotated = append(annotated, d)
	}
	return annotated, used
}

// HasUnexpected reports whether a difference has no reason.
func HasUnexpected(list []Difference) bool {
	for _, d := range list {
		if d.Reason == "" {
			return true
		}
	}
	return false
}
