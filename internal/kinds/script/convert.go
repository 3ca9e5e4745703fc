package script

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// ConvertFile converts a file that CompileFile accepts to ResourceInterpreters, in the order of
// the file. kind is the kind of a health script that stands alone, and must be nil for other
// files.
func ConvertFile(name string, text []byte, kind *schema.GroupVersionKind) ([]*v1alpha1.ResourceInterpreter, error) {
	docs, isYAML := splitDocuments(name, text)
	if !isYAML {
		if _, err := newLuaRule(name, qHealth, string(text)); err != nil {
			return nil, err
		}
		if kind == nil {
			return nil, fmt.Errorf("%s: name the kind that the script is about", name)
		}
		target := v1alpha1.InterpreterTarget{APIVersion: kind.GroupVersion().String(), Kinds: []string{kind.Kind}}
		return []*v1alpha1.ResourceInterpreter{newHealthInterpreter(target, string(text))}, nil
	}
	_, converted, err := readDocuments(name, docs)
	if err == nil && kind != nil {
		return nil, fmt.Errorf("%s: the file states the kinds itself, so --kind does not apply", name)
	}
	return converted, err
}

func newInterpreterObject(name string, target v1alpha1.InterpreterTarget) *v1alpha1.ResourceInterpreter {
	return &v1alpha1.ResourceInterpreter{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: Kind},
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ResourceInterpreterSpec{Target: target},
	}
}

func newHealthInterpreter(target v1alpha1.InterpreterTarget, source string) *v1alpha1.ResourceInterpreter {
	group := target.Group
	if gv, err := schema.ParseGroupVersion(target.APIVersion); err == nil && group == "" {
		group = gv.Group
	}
	out := newInterpreterObject(healthInterpreterName(target.Kinds[0], group), target)
	out.Spec.Health = &v1alpha1.InterpreterRule{Lua: source}
	return out
}

var notInNames = regexp.MustCompile(`[^a-z0-9.-]+`)

// healthInterpreterName returns the name of an interpreter for a kind and a group. Both may have
// wildcards, and any other characters. The name is valid.
func healthInterpreterName(kind, group string) string {
	name := strings.ToLower(strings.ReplaceAll(kind+"."+group, "*", "any"))
	name = "health-" + strings.Trim(notInNames.ReplaceAllString(name, "-"), ".-")
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return "health-" + atoll.HashParts([]byte(kind), []byte(group))[:16]
	}
	return name
}

// forEachArgoScript calls fn with the key, group, kind and source of each health script of Argo
// CD's settings, in the order of their keys.
func forEachArgoScript(data map[string]string, fn func(key, group, kind, source string)) error {
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if kind, ok := strings.CutPrefix(key, argoHealthPrefix); ok {
			group, kind, two := strings.Cut(kind, "_")
			if !two {
				group, kind = "", group
			}
			fn(key, group, kind, data[key])
		}
	}
	var all map[string]map[string]any
	if err := yaml.Unmarshal([]byte(data[argoAllKey]), &all); err != nil {
		return errors.New(argoAllKey + ": " + strings.ReplaceAll(err.Error(), "\n", " "))
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		source, ok := all[key]["health.lua"].(string)
		if !ok {
			continue
		}
		group, kind, two := strings.Cut(key, "/")
		if !two {
			group, kind = "", group
		}
		fn(argoAllKey+": "+key, group, kind, source)
	}
	return nil
}
