package interpret

import (
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/interpret/script"
)

// ReadInterpreters compiles the file that --with names: ResourceInterpreters,
// ResourceInterpreterCustomizations of Karmada's, a ConfigMap of Argo CD's, or a health.lua.
// They answer as on a hub that has all of them.
func ReadInterpreters(path string) (script.Interpreters, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return script.Interpreters{}, err
	}
	list, err := script.Read(path, text)
	return script.Together(list), err
}

// Evaluate what the interpreters' scripts answer, in their own words. That none means the
// object's kind is an error, since whoever named them expects them to say something.
func Evaluate(known script.Interpreters, a script.Asking) (map[string]any, error) {
	if err := meant(known, &unstructured.Unstructured{Object: a.Object}); err != nil {
		return nil, err
	}
	return known.Outcome(a)
}

// meant is an error where no interpreter means the object's kind.
func meant(known script.Interpreters, obj *unstructured.Unstructured) error {
	gvk := obj.GroupVersionKind()
	if !known.Means(gvk) {
		return fmt.Errorf("no interpreter is for %s of %s", gvk.Kind, gvk.GroupVersion())
	}
	return nil
}

// interpreters of the file that --with names, which answer about the object. Secrets are passed
// over, as on a hub.
func interpreters(path string, obj *unstructured.Unstructured) (script.Interpreters, error) {
	known, err := ReadInterpreters(path)
	if err != nil {
		return known, err
	}
	if !script.Sees(obj.GroupVersionKind().GroupKind()) {
		return known, nil
	}
	return known, meant(known, obj)
}
