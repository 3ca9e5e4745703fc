package interpret

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/interpret"
	"atoll.dev/atoll/internal/interpret/script"
	"atoll.dev/atoll/internal/schedule"
)

// question is all that is asked of an object.
type question struct {
	object   *unstructured.Unstructured
	observed *unstructured.Unstructured
	known    script.Interpreters
	// told of the template by interpreters; nil: nothing.
	told     *atoll.Interpreted
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
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

func (q *question) answer() (*answer, error) {
	a := &answer{}
	for _, step := range []func(*answer) error{q.template, q.pods, q.fields, q.state, q.aggregate, q.references} {
		if err := step(a); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// template asks what a hub asks of a template when it reads it, all at once: where a script
// fails the hub sends nothing new of the object.
func (q *question) template(*answer) (err error) {
	if q.asked["replicas"] || q.asked["requirements"] || q.asked["components"] || q.asked["dependencies"] {
		q.told, err = q.known.Interpret(q.object)
	}
	return err
}

func (q *question) pods(a *answer) error {
	item := &atoll.Item{Interpreted: q.told}
	n, stated := schedule.ReplicasOf(item, q.object)
	times, each := schedule.PodsOf(item, q.object)
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
		a.Requirements = q.requirements(&each[0])
	}
	for i := range each {
		if s := &each[i]; !alike && q.asked["components"] {
			a.Components = append(a.Components, component{Name: s.Name, Replicas: atoll.Times(times, s.Count), Requirements: q.requirements(s)})
		}
	}
	return nil
}

// requirements of each pod of the set. Which taints it tolerates is said where interpreters told
// it, since the object does not show that.
func (q *question) requirements(set *atoll.PodSet) map[string]any {
	out := make(map[string]any, len(set.Requests))
	for name, n := range set.Requests {
		out[string(name)] = schedule.Measure{Name: string(name)}.Text(n)
	}
	if q.told != nil && q.told.Pods != nil && len(set.Tolerations) > 0 {
		out["nodeClaim"] = map[string]any{"tolerations": set.Tolerations}
	}
	return out
}

// fields that are set, kept, or cannot be changed.
func (q *question) fields(a *answer) error {
	if q.replicas != nil && q.asked["revised"] {
		revised, err := q.known.Revise(q.object, *q.replicas)
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
	wanted := q.object
	if q.known.Retains(q.kind()) {
		var err error
		if wanted, err = q.known.Retain(q.object, q.observed); err != nil {
			return err
		}
	}
	var left [][]string
	if q.scaled {
		left = append(left, q.scaledAt())
	}
	a.Retained = interpret.Retain(wanted, q.observed, left...).Object
	return nil
}

// scaledAt is the field that an autoscaler of the object sets.
func (q *question) scaledAt() []string {
	if path, ok := q.known.ReplicasAt(q.object); ok {
		return path
	}
	if _, path, ok := interpret.Replicas(q.object); ok {
		return path
	}
	return []string{"spec", "replicas"}
}

func (q *question) kind() schema.GroupVersionKind { return q.object.GroupVersionKind() }

// state of the object as the member has it, or as the file does.
func (q *question) state(a *answer) error {
	obj := q.object
	if q.observed != nil {
		obj = q.observed
	}
	_, has := obj.Object["status"]
	j := q.known.Judge(obj)
	if q.asked["health"] && (has || q.one || q.observed != nil || q.known.Judges(obj.GroupVersionKind())) {
		a.Health = &health{Status: string(j.Health), Reason: j.Reason, Message: j.Message}
	}
	if q.asked["finished"] && has && interpret.RunsOnce(obj.GroupVersionKind().GroupKind()) && !interpret.NeverEnds(obj) {
		done := interpret.Finished(obj)
		a.Finished = &done
	}
	if !q.asked["status"] || !has {
		return nil
	}
	if _, err := q.known.Reflect(obj); err != nil && q.one {
		return err // else it is told as the object's health
	}
	if a.Status = script.Whole(j.Reflected); a.Status != nil {
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
	st, _, err := q.known.Aggregate(template, q.divided, rows, observed)
	if err != nil {
		return err
	}
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
	for _, c := range interpret.Conditions(st) {
		drop(c)
	}
	return st
}

func (q *question) references(a *answer) error {
	if !q.asked["dependencies"] {
		return nil
	}
	for _, k := range claim.Needs(q.told, q.object) {
		a.Dependencies = append(a.Dependencies, dependency{Group: k.Group, Kind: k.Kind, Namespace: k.Namespace, Name: k.Name})
	}
	if q.told == nil {
		return nil
	}
	for _, s := range q.told.Selections {
		selector, err := metav1.ParseToLabelSelector(s.Labels)
		if err != nil {
			return fmt.Errorf("dependencies by labels %q: %w", s.Labels, err)
		}
		a.Dependencies = append(a.Dependencies, dependency{Group: s.Group, Kind: s.Kind, Namespace: s.Namespace, LabelSelector: selector})
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
			name = "*" + labelled(d.LabelSelector)
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

// labelled says in a few words what a selector asks for; nothing where it asks for nothing.
func labelled(selector *metav1.LabelSelector) string {
	if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		return ""
	}
	return " labelled " + metav1.FormatLabelSelector(selector)
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
