package interpret

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// interpreted is what the interpreter of that file answers of what is asked, in the words of
// the command; that is not asked any more then. An op that no interpreter knows is left to
// what is built in.
func (q *question) interpreted(path, op string) (map[string]any, error) {
	interpreters, err := ReadInterpreters(path)
	if err != nil {
		return nil, err
	}
	if op != "" {
		if _, err := script.Question(op); err != nil {
			return nil, nil
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
	maps.DeleteFunc(outcome, func(key string, _ any) bool { return !q.asked[key] })
	for key := range outcome {
		delete(q.asked, key)
	}
	reword(outcome)
	return outcome, nil
}

// reword what scripts answer in Karmada's words: what a pod requests stands beside where it
// may run, and a kind's group without its version.
func reword(outcome map[string]any) {
	if requires, ok := outcome["requirements"].(map[string]any); ok {
		outcome["requirements"] = requests(requires)
	}
	for _, v := range list(outcome["components"]) {
		if requires, ok := v["requirements"].(map[string]any); ok {
			v["requirements"] = requests(requires)
		}
	}
	for _, v := range list(outcome["dependencies"]) {
		version, _ := v["apiVersion"].(string)
		delete(v, "apiVersion")
		if gv, err := schema.ParseGroupVersion(version); err == nil && gv.Group != "" {
			v["group"] = gv.Group
		}
	}
}

func requests(requires map[string]any) map[string]any {
	out := maps.Clone(requires)
	if r, ok := requires["resourceRequest"].(map[string]any); ok {
		delete(out, "resourceRequest")
		maps.Copy(out, r)
	}
	return out
}

// list of objects; nil where it is none.
func list(v any) (out []map[string]any) {
	all, _ := v.([]any)
	for _, e := range all {
		if m, ok := e.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// under an outcome, whose values stand in place of the answer's.
func (a *answer) under(outcome map[string]any) (*answer, error) {
	if len(outcome) == 0 {
		return a, nil
	}
	data, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	all := map[string]any{}
	if err := casesensitive.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	maps.Copy(all, outcome)
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
