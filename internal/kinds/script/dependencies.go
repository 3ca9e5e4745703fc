package script

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
)

// resolveDependencies splits the dependencies of an object in the namespace into names and
// selections, each sorted and without duplicates. The writer of the object controls what a
// script names, so a dependency that must not be placed this way is an error.
func resolveDependencies(list []Dependency, namespace string) (names []atoll.ItemKey, selections []atoll.Selection, err error) {
	for _, d := range list {
		gv, err := schema.ParseGroupVersion(d.APIVersion)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", d, err)
		}
		if why := kinds.DependencyRefusal(schema.GroupKind{Group: gv.Group, Kind: d.Kind}); why != "" {
			return nil, nil, fmt.Errorf("%s goes along with no object of a script: it %s; let the script leave it out", d, why)
		}
		if d.Namespace != namespace {
			return nil, nil, fmt.Errorf("%s is in namespace %q, and the object in %q: only what is in the object's own namespace goes with it, and what is in none with what is in none; a policy can place it", d, d.Namespace, namespace)
		}
		if d.Name != "" {
			names = append(names, atoll.ItemKey{Group: gv.Group, Kind: d.Kind, Namespace: d.Namespace, Name: d.Name})
			continue
		}
		text, err := selectorText(d.LabelSelector)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", d, err)
		}
		selections = append(selections, atoll.Selection{Group: gv.Group, Kind: d.Kind, Namespace: d.Namespace, Labels: text})
	}
	slices.SortFunc(names, atoll.ItemKey.Compare)
	slices.SortFunc(selections, atoll.Selection.Compare)
	return slices.Compact(names), slices.Compact(selections), nil
}

// String names the dependency for errors.
func (d Dependency) String() string {
	if d.Name == "" {
		return d.Kind + " by labels"
	}
	return d.Kind + " " + d.Name
}

// selectorText returns the canonical text of a metav1.LabelSelector.
func selectorText(selector map[string]any) (string, error) {
	b, err := json.Marshal(selector)
	if err != nil {
		return "", fmt.Errorf("labelSelector has no JSON: %w", err)
	}
	read := json.NewDecoder(strings.NewReader(string(b)))
	read.DisallowUnknownFields()
	var typed metav1.LabelSelector
	if err := read.Decode(&typed); err != nil {
		return "", fmt.Errorf("labelSelector is none: %w", err)
	}
	s, err := metav1.LabelSelectorAsSelector(&typed)
	if err != nil {
		return "", fmt.Errorf("labelSelector: %w", err)
	}
	requirements, _ := s.Requirements()
	for _, r := range requirements {
		// Members get no labels of atoll.dev, so what they were sent cannot be matched by them.
		if atoll.IsOwnMetadataKey(r.Key()) {
			return "", fmt.Errorf("labelSelector selects %s: labels of atoll.dev are the hub's own, and select no dependencies", r.Key())
		}
	}
	text := s.String()
	if _, err := labels.Parse(text); err != nil {
		return "", fmt.Errorf("labelSelector: %w", err)
	}
	return text, nil
}
