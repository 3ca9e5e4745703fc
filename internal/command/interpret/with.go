package interpret

import (
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	casesensitive "k8s.io/apimachinery/pkg/util/json"

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

// interpreted is the answer where the interpreter of that file has its own: what it does not
// answer stays as it is. An op that no interpreter knows is answered without it.
func (q *question) interpreted(path, op string, a *answer) (*answer, error) {
	interpreters, err := ReadInterpreters(path)
	if err != nil {
		return nil, err
	}
	if op != "" {
		if _, err := script.Question(op); err != nil {
			return a, nil
		}
	}
	asking := script.Asking{Object: q.object.Object, Replicas: q.replicas, Op: op}
	if q.observed != nil {
		asking.Observed = q.observed.Object
	}
	for _, it := range q.items {
		asking.Items = append(asking.Items, it.told())
	}
	outcome, err := Evaluate(interpreters, asking)
	if err != nil {
		return nil, err
	}
	return a.under(outcome, q.asked)
}

// under what was asked of an outcome, whose values stand in place of the answer's.
func (a *answer) under(outcome map[string]any, asked map[string]bool) (*answer, error) {
	data, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	all := map[string]any{}
	if err := casesensitive.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	for key, v := range outcome {
		if asked[key] {
			all[key] = v
		}
	}
	if data, err = json.Marshal(all); err != nil {
		return nil, err
	}
	out := &answer{}
	if err := casesensitive.Unmarshal(data, out); err != nil {
		return nil, fmt.Errorf("what the interpreter answers cannot be read: %w", err)
	}
	return out, nil
}

// told is the item as interpreters get it, by Karmada's names.
func (it *item) told() map[string]any {
	out := map[string]any{"clusterName": it.cluster, "applied": true}
	if it.status != nil {
		out["status"] = it.status
	}
	if it.health != "" {
		out["health"] = string(it.health)
	}
	return out
}
