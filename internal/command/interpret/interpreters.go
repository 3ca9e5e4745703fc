package interpret

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/kinds/script"
)

// ReadInterpreters compiles the interpreters of --with. A file holds ResourceInterpreters,
// ResourceInterpreterCustomizations of Karmada, a ConfigMap of Argo CD, or one health.lua. A directory
// and an OCI artifact hold such files. The interpreters answer as on a hub that has all of them.
func ReadInterpreters(ctx context.Context, name string) (script.Interpreters, error) {
	tree, err := convertTree(ctx, name)
	if err != nil {
		return script.Interpreters{}, err
	}
	if tree != nil {
		return tree.CompiledInterpreters(), invalidError(tree)
	}
	text, err := readContent(name, nil)
	if err != nil {
		return script.Interpreters{}, err
	}
	list, err := script.CompileFile(name, text)
	return script.MergeByNameLastWins(list), err
}

// convertTree converts the interpreters of a directory or of an OCI artifact; nil where the name is
// that of a file. The tree can have invalid ones.
func convertTree(ctx context.Context, name string) (*script.ConvertedTree, error) {
	var tree *script.ConvertedTree
	var err error
	switch {
	case strings.HasPrefix(name, artifactScheme):
		tree, err = convertArtifact(ctx, name)
	case isDirectory(name):
		tree, err = convertDirectory(name)
	default:
		return nil, nil
	}
	if err == nil && len(tree.Interpreters)+len(tree.Invalid) == 0 {
		err = fmt.Errorf("%s: there are no interpreters%s", name, strings.Join(append([]string{""}, tree.Skipped...), "\n"))
	}
	return tree, err
}

// interpreterReader is ReadInterpreters with a cache.
type interpreterReader func(name string) (script.Interpreters, error)

// newInterpreterReader returns a reader that reads each name once. It is not safe for concurrent use.
func newInterpreterReader(ctx context.Context) interpreterReader {
	type answer struct {
		known script.Interpreters
		err   error
	}
	answers := map[string]answer{}
	return func(name string) (script.Interpreters, error) {
		a, ok := answers[name]
		if !ok {
			a.known, a.err = ReadInterpreters(ctx, name)
			answers[name] = a
		}
		return a.known, a.err
	}
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
func readInterpretersFor(ctx context.Context, name string, obj *unstructured.Unstructured) (script.Interpreters, error) {
	known, err := ReadInterpreters(ctx, name)
	if err != nil {
		return known, err
	}
	if !script.MayScriptsSee(obj.GroupVersionKind().GroupKind()) {
		return known, nil
	}
	return known, requireInterpreterFor(known, obj)
}
