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
	"atoll.dev/atoll/internal/bundlecontent"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/kinds/script"
	"atoll.dev/atoll/internal/quantity"
	"atoll.dev/atoll/internal/schedule"
)

// objectQuery holds the inputs of all questions about an object.
type objectQuery struct {
	object       *unstructured.Unstructured
	observed     *unstructured.Unstructured
	interpreters script.Interpreters
	// templateAnswers of interpreters about the template; nil: none.
	templateAnswers *atoll.InterpreterAnswers
	items           []clusterItem
	replicas        *int64
	// autoscaled: an autoscaler sets the replicas. divided: clusters share them.
	autoscaled, divided bool
	// askedKeys are the keys of the answers. singleQuestion: --op selects one.
	askedKeys      map[string]bool
	singleQuestion bool
}

// objectAnswers is the output.
type objectAnswers struct {
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
	// LabelSelector replaces Name for several objects. Only scripts return one.
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

func (q *objectQuery) answerAll() (*objectAnswers, error) {
	a := &objectAnswers{}
	for _, step := range []func(*objectAnswers) error{q.interpretTemplate, q.answerPods, q.answerFields, q.answerState, q.answerAggregate, q.answerDependencies} {
		if err := step(a); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// interpretTemplate runs the operations that a hub runs for a new template. The hub distributes no change of the
// object while a script fails.
func (q *objectQuery) interpretTemplate(*objectAnswers) (err error) {
	if q.askedKeys["replicas"] || q.askedKeys["requirements"] || q.askedKeys["components"] || q.askedKeys["dependencies"] {
		q.templateAnswers, err = q.interpreters.InterpretTemplate(q.object)
	}
	return err
}

func (q *objectQuery) answerPods(a *objectAnswers) error {
	item := &atoll.Item{Interpreted: q.templateAnswers}
	n, stated := schedule.ReplicasOf(item, q.object)
	times, each := schedule.PodsOf(item, q.object)
	alike := len(each) == 1 && each[0].Name == ""
	switch {
	case !q.askedKeys["replicas"]:
	case stated:
		a.Replicas = &n
	case alike:
		total := quantity.MultiplyCapped(times, each[0].Count)
		a.Replicas = &total
	}
	if alike && q.askedKeys["requirements"] {
		a.Requirements = q.requirementsOf(&each[0])
	}
	for i := range each {
		if s := &each[i]; !alike && q.askedKeys["components"] {
			a.Components = append(a.Components, component{Name: s.Name, Replicas: quantity.MultiplyCapped(times, s.Count), Requirements: q.requirementsOf(s)})
		}
	}
	return nil
}

// requirementsOf returns the requests of each pod of the set. Tolerations are included where an
// interpreter returns them, since the object does not show them.
func (q *objectQuery) requirementsOf(set *atoll.PodSet) map[string]any {
	out := make(map[string]any, len(set.Requests))
	for name, n := range set.Requests {
		out[string(name)] = schedule.UsageMeasure{Name: string(name)}.FormatQuantity(n)
	}
	if q.templateAnswers != nil && q.templateAnswers.Pods != nil && len(set.Tolerations) > 0 {
		out["nodeClaim"] = map[string]any{"tolerations": set.Tolerations}
	}
	return out
}

// answerFields answers revised, retained and immutable.
func (q *objectQuery) answerFields(a *objectAnswers) error {
	if q.replicas != nil && q.askedKeys["revised"] {
		revised, err := q.interpreters.ReviseReplicas(q.object, *q.replicas)
		if err != nil {
			return fmt.Errorf("--replicas: %w", err)
		}
		a.Revised = revised.Object
	}
	if q.observed == nil {
		return nil
	}
	if q.askedKeys["immutable"] {
		a.Immutable = kinds.ChangedImmutableFields(q.object, q.observed)
	}
	if !q.askedKeys["retained"] {
		return nil
	}
	wanted := q.object
	if q.interpreters.RetainsFields(q.groupVersionKind()) {
		var err error
		if wanted, err = q.interpreters.RetainFields(q.object, q.observed); err != nil {
			return err
		}
	}
	var left [][]string
	if q.autoscaled {
		left = append(left, q.autoscaledPath())
	}
	a.Retained = kinds.RetainMemberFields(wanted, q.observed, left...).Object
	return nil
}

// autoscaledPath returns the field that an autoscaler of the object sets.
func (q *objectQuery) autoscaledPath() []string {
	if path, ok := q.interpreters.ScriptedReplicasPath(q.object); ok {
		return path
	}
	if _, path, ok := kinds.ReplicasOf(q.object); ok {
		return path
	}
	return []string{"spec", "replicas"}
}

func (q *objectQuery) groupVersionKind() schema.GroupVersionKind { return q.object.GroupVersionKind() }

// answerState answers health, finished and status, of the observed object where there is one.
func (q *objectQuery) answerState(a *objectAnswers) error {
	obj := q.object
	if q.observed != nil {
		obj = q.observed
	}
	_, has := obj.Object["status"]
	j := q.interpreters.ReportState(obj)
	q.answerHealth(a, obj, j)
	if !q.askedKeys["status"] || !has {
		return nil
	}
	if _, err := q.interpreters.ReflectStatus(obj); err != nil && q.singleQuestion {
		return err // otherwise the health shows the error
	}
	var err error
	a.Status, err = q.reportedStatus(obj, j)
	return err
}

func (q *objectQuery) answerHealth(a *objectAnswers, obj *unstructured.Unstructured, j script.ReportedState) {
	_, has := obj.Object["status"]
	if q.askedKeys["health"] && (has || q.singleQuestion || q.observed != nil || q.interpreters.AssessesHealth(obj.GroupVersionKind())) {
		a.Health = &health{Status: string(j.Health), Reason: j.Reason, Message: j.Message}
	}
	if q.askedKeys["finished"] && has && kinds.RunsOnce(obj.GroupVersionKind().GroupKind()) && !kinds.NeverEnds(obj) {
		done := kinds.HasFinished(obj)
		a.Finished = &done
	}
}

// reportedStatus returns the status that the hub gets of this member. The compact form of a row
// is shown as the status of a template that runs in this member alone.
func (q *objectQuery) reportedStatus(obj *unstructured.Unstructured, state script.ReportedState) (map[string]any, error) {
	if whole := script.DecodeWholeStatus(state.Reflected); whole != nil {
		return whole, nil
	}
	row, err := q.buildRow(obj, clusterItem{cluster: "member", status: statusOf(obj)})
	if err != nil {
		return nil, err
	}
	template := obj.DeepCopy()
	delete(template.Object, "status")
	st, _ := kinds.AggregateStatus(template, false, []kinds.RowItem{row}, obj.GetGeneration(), 0)
	return withoutPlaceholderTimes(st), nil
}

func statusOf(obj *unstructured.Unstructured) map[string]any {
	st, _ := obj.Object["status"].(map[string]any)
	return st
}

func (q *objectQuery) answerAggregate(a *objectAnswers) error {
	if q.items == nil || !q.askedKeys["aggregated"] {
		return nil
	}
	template := q.object.DeepCopy()
	if template.GetGeneration() == 0 {
		template.SetGeneration(1) // as in a new object
	}
	observed := template.GetGeneration()
	rows := make([]kinds.RowItem, 0, len(q.items))
	for _, it := range q.items {
		row, err := q.buildRow(q.object, it)
		if err != nil {
			return fmt.Errorf("cluster %s: %w", it.cluster, err)
		}
		if it.stale && !it.disconnected {
			observed = template.GetGeneration() - 1
		}
		rows = append(rows, row)
	}
	st, _, err := q.interpreters.AggregateStatus(template, q.divided, rows, observed, 0)
	if err != nil {
		return err
	}
	a.Aggregated = withoutPlaceholderTimes(st)
	return nil
}

// withoutPlaceholderTimes removes the times that are set when the status is written.
func withoutPlaceholderTimes(st map[string]any) map[string]any {
	drop := func(m map[string]any) {
		maps.DeleteFunc(m, func(key string, v any) bool {
			return v == kinds.TimePlaceholder && (strings.HasSuffix(key, "Time"))
		})
	}
	drop(st)
	for _, c := range kinds.StatusAndParentConditions(st) {
		drop(c)
	}
	return st
}

func (q *objectQuery) answerDependencies(a *objectAnswers) error {
	if !q.askedKeys["dependencies"] {
		return nil
	}
	for _, k := range bundlecontent.NamedDependencies(q.templateAnswers, q.object) {
		a.Dependencies = append(a.Dependencies, dependency{Group: k.Group, Kind: k.Kind, Namespace: k.Namespace, Name: k.Name})
	}
	if q.templateAnswers == nil {
		return nil
	}
	for _, s := range q.templateAnswers.Selections {
		selector, err := metav1.ParseToLabelSelector(s.Labels)
		if err != nil {
			return fmt.Errorf("dependencies by labels %q: %w", s.Labels, err)
		}
		a.Dependencies = append(a.Dependencies, dependency{Group: s.Group, Kind: s.Kind, Namespace: s.Namespace, LabelSelector: selector})
	}
	return nil
}

// write prints the answer as text.
func (a *objectAnswers) write(out io.Writer, obj *unstructured.Unstructured) error {
	b := &strings.Builder{}
	line := func(key, format string, args ...any) {
		fmt.Fprintf(b, "  %-13s %s\n", key, fmt.Sprintf(format, args...))
	}
	b.WriteString(describeObject(obj) + "\n")
	if a.Replicas != nil {
		line("replicas", "%d", *a.Replicas)
	}
	if len(a.Requirements) > 0 {
		line("requirements", "%s", formatAmounts(a.Requirements))
	}
	for _, c := range a.Components {
		line("component", "%s: %d of %s", c.Name, c.Replicas, formatAmounts(c.Requirements))
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
			name = "*" + selectorSuffix(d.LabelSelector)
		}
		line("dependency", "%s %s", d.Kind, strings.TrimPrefix(d.Namespace+"/"+name, "/"))
	}
	for _, field := range a.Immutable {
		line("immutable", "%s differs, and a member would refuse the change", field)
	}
	if err := a.writeObjects(b); err != nil {
		return err
	}
	if strings.Count(b.String(), "\n") == 1 {
		b.WriteString("  nothing to show\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// describeObject returns the kind, the namespace and the name. A name that the file does not state is
// left out.
func describeObject(obj *unstructured.Unstructured) string {
	switch name := strings.TrimPrefix(obj.GetNamespace()+"/"+obj.GetName(), "/"); {
	case name == "":
		return obj.GetKind()
	case obj.GetName() == "":
		return obj.GetKind() + " in " + obj.GetNamespace()
	default:
		return obj.GetKind() + " " + name
	}
}

// writeObjects prints the answers that are objects, as YAML.
func (a *objectAnswers) writeObjects(b *strings.Builder) error {
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
	return nil
}

// selectorSuffix describes a selector; empty where it selects everything.
func selectorSuffix(selector *metav1.LabelSelector) string {
	if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		return ""
	}
	return " labelled " + metav1.FormatLabelSelector(selector)
}

func formatAmounts(of map[string]any) string {
	if len(of) == 0 {
		return "nothing stated"
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		out = append(out, fmt.Sprintf("%s %v", name, of[name]))
	}
	return strings.Join(out, ", ")
}
