package interpret

import (
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/interpret/script"
)

// ReadInterpreters compiles the file that --with names: a ResourceInterpreter, a
// ResourceInterpreterCustomization of Karmada's, a ConfigMap of Argo CD's, or a health.lua.
func ReadInterpreters(path string) ([]*script.Customization, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return script.Read(path, text)
}

// Evaluate what the interpreter for the object's kind answers, by the keys of the JSON that
// the command prints. An interpreter for other kinds alone is an error, since whoever named
// it expects it to say something.
func Evaluate(interpreters []*script.Customization, a script.Asking) (map[string]any, error) {
	gvk := (&unstructured.Unstructured{Object: a.Object}).GroupVersionKind()
	c := script.Find(interpreters, gvk)
	if c == nil {
		return nil, fmt.Errorf("no interpreter is for %s of %s", gvk.Kind, gvk.GroupVersion())
	}
	return c.Outcome(a)
}
