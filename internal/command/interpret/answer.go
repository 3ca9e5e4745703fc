package interpret

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret"
	"atoll.dev/atoll/internal/schedule"
)

// question is all that is asked of an object.
type question struct {
	object   *unstructured.Unstructured
	observed *unstructured.Unstructured
	items    []item
	replicas *int64
	// scaled: an autoscaler sets its replicas. divided: clusters share them.
	scaled, divided bool
	// asked, by key; one: by --op.
	asked map[string]bool
	one   bool
}

// answer as it is printed.
type answer struct {
	Replicas     *int64         `json:"replicas,omitempty"`
	Requirements map[string]any `json:"requirements,omitempty"`
	Components   []component    `json:"components,omitempty"`
	Revised      map[string]any `json:"revised,omitempty"`
	Retained     map[string]any `json:"retained,omitempty"`
	Health       *health        `json:"health,omitempty"`
	Finished     *bool          `json:"finished,omitempty"`
	Status       map[string]any `json:"status,omitempty"`
	Aggregated   map[string]any `json:"aggregated,omitempty"`
	Dependencies []dependency   `json:"dependencies,omitempty"`
	Immutable    []string       `json:"immutable,omitempty"`
}

type component struct {
	Name         string         `json:"name"`
	Replicas     int64          `json:"replicas"`
	Requirements map[string]any `json:"requirements,omitempty"`
}

type health struct {
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

type dependency struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// LabelSelector of several, in place of Name; scripts alone give any.
	LabelSelector map[string]any `json:"labelSelector,omitempty"`
}

func (q *question) answer() (*answer, error) {
	a := &answer{}
	for _, step := range []func(*answer) error{q.pods, q.fields, q.state, q.aggregate, q.references} {
		if err := step(a); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (q *question) pods(a *answer) error {
	n, _, stated := interpret.Replicas(q.object)
	times, each := interpret.Pods(q.object)
	alike := len(each) == 1 && each[0].Name == ""
	switch {
	case !q.asked["replicas"]:
	case stated:
		a.Replicas = &n
	case alike:
		total := atoll.Times(times, each[0].Count)
		a.Replicas = &total
	}
	if alike && q.asked["requirements"] {
		a.Requirements = words(each[0].Requests)
	}
	for i := range each {
		if s := &each[i]; !alike && q.asked["components"] {
			a.Components = append(a.Components, component{Name: s.Name, Replicas: atoll.Times(times, s.Count), Requirements: words(s.Requests)})
		}
	}
	return nil
}

func words(requests map[corev1.ResourceName]int64) map[string]any {
	out := make(map[string]any, len(requests))
	for name, n := range requests {
		out[string(name)] = schedule.Measure{Name: string(name)}.Text(n)
	}
	return out
}

// fields that are set, kept, or cannot be changed.
func (q *question) fields(a *answer) error {
	if q.replicas != nil && q.asked["revised"] {
		revised, err := interpret.Revise(q.object, *q.replicas)
		if err != nil {
			return fmt.Errorf("--replicas: %w", err)
		}
		a.Revised = revised.Object
	}
	if q.observed == nil {
		return nil
	}
	if q.asked["immutable"] {
		a.Immutable = interpret.Changed(q.object, q.observed)
	}
	if !q.asked["retained"] {
		return nil
	}
	var left [][]string
	if _, path, ok := interpret.Replicas(q.object); q.scaled && ok {
		left = append(left, path)
	} else if q.scaled {
		left = append(left, []string{"spec", "replicas"})
	}
	a.Retained = interpret.Retain(q.object, q.observed, left...).Object
	return nil
}

// state of the object as the member has it, or as the file does.
func (q *question) state(a *answer) error {
	obj := q.object
	if q.observed != nil {
		obj = q.observed
	}
	_, has := obj.Object["status"]
	if q.asked["health"] && (has || q.one || q.observed != nil) {
		h, reason, message := interpret.Health(obj)
		a.Health = &health{Status: string(h), Reason: reason, Message: message}
	}
	if q.asked["finished"] && has && interpret.RunsOnce(obj.GroupVersionKind().GroupKind()) && !interpret.NeverEnds(obj) {
		done := interpret.Finished(obj)
		a.Finished = &done
	}
	if !q.asked["status"] || !has {
		return nil
	}
	row, err := q.row(obj, item{cluster: "member", status: statusOf(obj)})
	if err != nil {
		return err
	}
	// What is reported is a few letters for each row: told as the status that a template
	// gets of this member alone.
	template := obj.DeepCopy()
	delete(template.Object, "status")
	st, _ := interpret.Aggregate(template, false, []interpret.RowItem{row}, obj.GetGeneration())
	a.Status = timeless(st)
	return nil
}

func statusOf(obj *unstructured.Unstructured) map[string]any {
	st, _ := obj.Object["status"].(map[string]any)
	return st
}

func (q *question) aggregate(a *answer) error {
	if q.items == nil || !q.asked["aggregated"] {
		return nil
	}
	template := q.object.DeepCopy()
	if template.GetGeneration() == 0 {
		template.SetGeneration(1) // as of an object that was just made
	}
	observed := template.GetGeneration()
	rows := make([]interpret.RowItem, 0, len(q.items))
	for _, it := range q.items {
		row, err := q.row(q.object, it)
		if err != nil {
			return fmt.Errorf("cluster %s: %w", it.cluster, err)
		}
		if it.stale && !it.away {
			observed = template.GetGeneration() - 1
		}
		rows = append(rows, row)
	}
	st, _ := interpret.Aggregate(template, q.divided, rows, observed)
	a.Aggregated = timeless(st)
	return nil
}

// timeless is a status without the times that are filled in when it is written.
func timeless(st map[string]any) map[string]any {
	drop := func(m map[string]any) {
		maps.DeleteFunc(m, func(key string, v any) bool {
			return v == interpret.Now && (strings.HasSuffix(key, "Time"))
		})
	}
	drop(st)
	conditions, _ := st["conditions"].([]any)
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok {
			drop(m)
		}
	}
	return st
}

func (q *question) references(a *answer) error {
	if !q.asked["dependencies"] {
		return nil
	}
	for _, k := range interpret.Dependencies(q.object) {
		a.Dependencies = append(a.Dependencies, dependency{Group: k.Group, Kind: k.Kind, Namespace: k.Namespace, Name: k.Name})
	}
	return nil
}

// write the answer for people.
func (a *answer) write(out io.Writer, obj *unstructured.Unstructured) error {
	b := &strings.Builder{}
	line := func(key, format string, args ...any) {
		fmt.Fprintf(b, "  %-13s %s\n", key, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(b, "%s %s\n", obj.GetKind(), strings.TrimPrefix(obj.GetNamespace()+"/"+obj.GetName(), "/"))
	if a.Replicas != nil {
		line("replicas", "%d", *a.Replicas)
	}
	if len(a.Requirements) > 0 {
		line("requirements", "%s", amounts(a.Requirements))
	}
	for _, c := range a.Components {
		line("component", "%s: %d of %s", c.Name, c.Replicas, amounts(c.Requirements))
	}
	if h := a.Health; h != nil {
		line("health", "%s", strings.TrimSuffix(strings.Join(slices.DeleteFunc([]string{h.Status, h.Reason, h.Message}, func(s string) bool { return s == "" }), ", "), "."))
	}
	if a.Finished != nil {
		line("finished", "%s", map[bool]string{true: "yes", false: "no"}[*a.Finished])
	}
	for _, d := range a.Dependencies {
		name := d.Name
		if d.LabelSelector != nil {
			name = fmt.Sprint(d.LabelSelector)
		}
		line("dependency", "%s %s", d.Kind, strings.TrimPrefix(d.Namespace+"/"+name, "/"))
	}
	for _, field := range a.Immutable {
		line("immutable", "%s differs, and a member would refuse that", field)
	}
	for _, whole := range []struct {
		key   string
		value map[string]any
	}{{"revised", a.Revised}, {"retained", a.Retained}, {"status", a.Status}, {"aggregated", a.Aggregated}} {
		if len(whole.value) == 0 {
			continue
		}
		text, err := yaml.Marshal(whole.value)
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "%s:\n", whole.key)
		for l := range strings.Lines(string(text)) {
			b.WriteString("  " + l)
		}
	}
	if strings.Count(b.String(), "\n") == 1 {
		b.WriteString("  nothing to tell\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func amounts(of map[string]any) string {
	if len(of) == 0 {
		return "nothing stated"
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		out = append(out, fmt.Sprintf("%s %v", name, of[name]))
	}
	return strings.Join(out, ", ")
}
