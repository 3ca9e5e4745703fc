package interpret

import (
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/kinds/script"
)

// ReadInterpreters compiles the file of --with: ResourceInterpreters,
// ResourceInterpreterCustomizations of Karmada, a ConfigMap of Argo CD, or a health.lua. The
// interpreters answer as on a hub that has all of them.
func ReadInterpreters(path string) (script.Interpreters, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return script.Interpreters{}, err
	}
	list, err := script.CompileFile(path, text)
	return script.MergeByNameLastWins(list), err
}

// EvaluateScripts returns the answers of scripts; see script.AnswerRequest. It returns an error
// where no interpreter covers the kind of the object.
func EvaluateScripts(known script.Interpreters, a script.EvaluationRequest) (map[string]any, error) {
	if err := requireInterpreterFor(known, &unstructured.Unstructured{Object: a.Object}); err != nil {
		return nil, err
	}
	return known.AnswerRequest(a)
}

// requireInterpreterFor returns an error where no interpreter covers the kind of the object.
func requireInterpreterFor(known script.Interpreters, obj *unstructured.Unstructured) error {
	gvk := obj.GroupVersionKind()
	if !known.AnswersKind(gvk) {
		return fmt.Errorf("no interpreter is for %s of %s", gvk.Kind, gvk.GroupVersion())
	}
	return nil
}

// readInterpretersFor reads interpreters that must cover the kind of the object. They never see
// Secrets, as on a hub.
func readInterpretersFor(path string, obj *unstructured.Unstructured) (script.Interpreters, error) {
	known, err := ReadInterpreters(path)
	if err != nil {
		return known, err
	}
	if !script.MayScriptsSee(obj.GroupVersionKind().GroupKind()) {
		return known, nil
	}
	return known, requireInterpreterFor(known, obj)
}
