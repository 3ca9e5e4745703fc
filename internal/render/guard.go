package render

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/api/v1alpha1"
)

// Problem is what is wrong with one field.
type Problem struct {
	// Path of the field below what was checked, such as plaintext[0].path.
	Path   string
	Reason string
}

// CheckOverriders finds overriders that can never apply: patches and images that
// cannot be parsed, and fields that overrides never touch. It is what admission
// refuses; Render refuses the same.
func CheckOverriders(o v1alpha1.Overriders) []Problem {
	var out []Problem
	say := func(reason, path string, args ...any) {
		out = append(out, Problem{Path: fmt.Sprintf(path, args...), Reason: reason})
	}
	for i, im := range o.ImageOverrider {
		if im.Predicate != nil {
			if _, err := allowed(im.Predicate.Path, nil); err != nil {
				say(err.Error(), "imageOverrider[%d].predicate.path", i)
			}
		}
		if reason := checkImageValue(im); reason != "" {
			say(reason, "imageOverrider[%d].value", i)
		}
	}
	for name, list := range map[string][]v1alpha1.LabelAnnotationOverrider{"labelsOverrider": o.LabelsOverrider, "annotationsOverrider": o.AnnotationsOverrider} {
		for i, l := range list {
			for key := range l.Value {
				if own(key) {
					say("overrides never touch what is Atoll's own", "%s[%d].value[%s]", name, i, key)
				}
			}
		}
	}
	for i, p := range o.Plaintext {
		value, err := patchValue(p)
		if err != nil {
			say(err.Error(), "plaintext[%d].value", i)
		}
		if _, err := allowed(p.Path, value); err != nil {
			say(err.Error(), "plaintext[%d].path", i)
		}
	}
	slices.SortFunc(out, func(a, b Problem) int { return strings.Compare(a.Path, b.Path) })
	return out
}

func checkImageValue(o v1alpha1.ImageOverrider) string {
	if o.Operator == v1alpha1.OverrideRemove {
		if o.Component == v1alpha1.ImageRepository {
			return "an image without a repository is none: replace it instead"
		}
		return ""
	}
	if o.Value == "" {
		return fmt.Sprintf("operator %s needs a value", o.Operator)
	}
	if o.Operator == v1alpha1.OverrideAdd {
		return ""
	}
	switch o.Component {
	case v1alpha1.ImageRegistry:
		host, path, _ := strings.Cut(o.Value, "/")
		if !registryForm.MatchString(host) || !isRegistry(host) || path != "" && !repositoryForm.MatchString(path) {
			return fmt.Sprintf("%q is not a registry: it needs a host with a dot or a port, such as registry.example.com", o.Value)
		}
	case v1alpha1.ImageRepository:
		if !repositoryForm.MatchString(o.Value) {
			return fmt.Sprintf("%q is not a repository", o.Value)
		}
	case v1alpha1.ImageTag:
		if !tagForm.MatchString(o.Value) && !digestForm.MatchString(o.Value) {
			return fmt.Sprintf("%q is neither a tag nor a digest", o.Value)
		}
	}
	return ""
}

// allowed parses the path of a field and refuses the fields that overrides never
// touch. value is what will stand there.
func allowed(path string, value any) ([]string, error) {
	parts, err := parsePointer(path)
	if err != nil {
		return nil, err
	}
	switch parts[0] {
	case "apiVersion", "kind", "status", "":
		return nil, fmt.Errorf("overrides never touch %s", path)
	case "metadata":
		if len(parts) == 1 || parts[1] != "labels" && parts[1] != "annotations" {
			return nil, fmt.Errorf("overrides never touch %s: of metadata they change labels and annotations only", path)
		}
		keys := parts[2:]
		if m, ok := value.(map[string]any); ok && len(parts) == 2 {
			for k := range m {
				keys = append(keys, k)
			}
		}
		if slices.ContainsFunc(keys, own) {
			return nil, fmt.Errorf("overrides never touch what is Atoll's own in %s", path)
		}
	}
	return parts, nil
}

func patchValue(p v1alpha1.PlaintextOverrider) (any, error) {
	if p.Operator == v1alpha1.OverrideRemove {
		if p.Value != nil {
			return nil, fmt.Errorf("operator remove takes no value")
		}
		return nil, nil
	}
	if p.Value == nil || len(p.Value.Raw) == 0 {
		return nil, fmt.Errorf("operator %s needs a value", p.Operator)
	}
	var v any
	if err := json.Unmarshal(p.Value.Raw, &v); err != nil {
		return nil, fmt.Errorf("value is not JSON: %w", err)
	}
	return v, nil
}

// ClusterOnly tells of kinds that only a ClusterOverridePolicy may touch: RBAC,
// webhook configurations and admission policies, CRDs.
func ClusterOnly(gk schema.GroupKind) bool {
	switch gk.Group {
	case "rbac.authorization.k8s.io", "admissionregistration.k8s.io":
		return true
	case "apiextensions.k8s.io":
		return gk.Kind == "CustomResourceDefinition"
	}
	return false
}

// TouchesData tells whether the overriders change the data of Secrets, which only
// a ClusterOverridePolicy may.
func TouchesData(o v1alpha1.Overriders) bool {
	touches := func(path string) bool {
		parts, err := parsePointer(path)
		return err == nil && (parts[0] == "data" || parts[0] == "stringData")
	}
	return slices.ContainsFunc(o.Plaintext, func(p v1alpha1.PlaintextOverrider) bool { return touches(p.Path) }) ||
		slices.ContainsFunc(o.ImageOverrider, func(i v1alpha1.ImageOverrider) bool {
			return i.Predicate != nil && touches(i.Predicate.Path)
		})
}
