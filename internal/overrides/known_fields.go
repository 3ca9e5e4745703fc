package overrides

import (
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/jsonpointer"
)

// DefinitionFinder returns the CustomResourceDefinition of a kind; nil: it has none.
type DefinitionFinder func(schema.GroupKind) *unstructured.Unstructured

// UnknownFields returns the fields that the overriders of a rule name and that objects of a selected
// kind do not have in any version. It has the kinds of Kubernetes, and a custom kind by its
// definition, where that does not keep unknown fields. Under onMissing Skip, which leaves out what
// does not apply, a field that one of the kinds has is known. Stored rules are rendered all the same.
func UnknownFields(r *v1alpha1.RuleWithCluster, selected []schema.GroupKind, definitionOf DefinitionFinder) (out []OverriderProblem) {
	kindsWithout := map[string]int{}
	for _, gk := range selected {
		for _, p := range unknownFieldsOfKind(&r.Overriders, gk, definitionOf) {
			if kindsWithout[p.Path]++; kindsWithout[p.Path] == 1 {
				out = append(out, p)
			}
		}
	}
	if r.OnMissing != v1alpha1.OnMissingSkip {
		return out
	}
	return slices.DeleteFunc(out, func(p OverriderProblem) bool { return kindsWithout[p.Path] < len(selected) })
}

// unknownFieldsOfKind returns one problem for each path below overriders.
func unknownFieldsOfKind(o *v1alpha1.Overriders, gk schema.GroupKind, definitionOf DefinitionFinder) (out []OverriderProblem) {
	root, known := schemaOfKind(gk, definitionOf)
	if !known {
		return nil
	}
	for _, s := range listSteps(o) {
		if s.kind == nil {
			continue
		}
		for _, f := range s.kind.listNamedFields(&s.overrider) {
			if path := findUnknownField(root, f); path != nil {
				out = append(out, OverriderProblem{s.name + f.below, fmt.Sprintf("objects of the kind %s have no field %s", gk, jsonpointer.FormatPointer(path...))})
			}
		}
	}
	return out
}

// namedField is a field of objects that an overrider names, and the value that it sets there.
type namedField struct {
	// below is where the overrider names it.
	below string
	path  []string
	// value is nil where the overrider sets none.
	value any
}

// findUnknownField returns the path of the first part of a field that the schema does not have; nil:
// there is none.
func findUnknownField(n schemaNode, f namedField) []string {
	for i, part := range f.path {
		if n == nil {
			return nil
		}
		below, known := n.lookupChild(part)
		if !known {
			return f.path[:i+1]
		}
		n = below
	}
	return findUnknownValue(n, f.path, f.value)
}

// findUnknownValue returns the path of the first part of the value at a path that the schema does not
// have. Keys with a $ are directives of a strategic merge patch.
func findUnknownValue(n schemaNode, path []string, value any) []string {
	if n == nil {
		return nil
	}
	path = path[:len(path):len(path)]
	switch v := value.(type) {
	case map[string]any:
		for _, name := range sortedKeys(v) {
			if strings.HasPrefix(name, "$") {
				continue
			}
			below, known := n.lookupChild(name)
			if !known {
				return append(path, name)
			}
			if at := findUnknownValue(below, append(path, name), v[name]); at != nil {
				return at
			}
		}
	case []any:
		below, known := n.lookupChild("0")
		if !known {
			return nil // it is no list, and another error
		}
		for i := range v {
			if at := findUnknownValue(below, append(path, fmt.Sprint(i)), v[i]); at != nil {
				return at
			}
		}
	}
	return nil
}

// namedPath returns the field at a JSON Pointer; none for a malformed one, which other checks report.
func namedPath(below, path string, value any) []namedField {
	parts, err := jsonpointer.ParsePointer(path)
	if err != nil {
		return nil
	}
	return []namedField{{below, parts, value}}
}

func listFieldsNamedByImage(im *v1alpha1.ImageOverrider) []namedField {
	if im.Predicate == nil {
		return nil
	}
	return namedPath(".predicate.path", im.Predicate.Path, nil)
}

func listFieldsNamedByPlaintext(p *v1alpha1.PlaintextOverrider) []namedField {
	if usesFromPath(p.Operator) {
		return append(namedPath(".from", p.From, nil), namedPath(".path", p.Path, nil)...)
	}
	value, err := decodePatchValue(*p)
	if err != nil {
		value = nil
	}
	return namedPath(".path", p.Path, value)
}

func listFieldsNamedByMerge(raw *apiextensionsv1.JSON) []namedField {
	p, err := parseAllowedMergePatch(raw.Raw)
	if err != nil {
		return nil
	}
	return []namedField{{value: p}}
}
