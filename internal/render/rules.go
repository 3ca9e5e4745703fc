package render

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret"
	"atoll.dev/atoll/internal/schedule"
)

// Rules gives the indexes of the content's rules that target the cluster, and the
// variant that names them: clusters of equal variant get equal items from one
// content, but for assigned replicas. It is empty when no rule targets the cluster.
func Rules(content *atoll.Content, c atoll.ClusterView) (matching []int, variant string) {
	var texts []string
	c.Properties = nil // what agents report is for placements
	for i := range content.Rules {
		r := &content.Rules[i]
		if schedule.CompileTarget(r.Target).Matches(&c) {
			matching = append(matching, i)
			texts = append(texts, expressions(&r.Overriders)...)
		}
	}
	return matching, variantOf(matching, texts, &c)
}

// Provenance says which rule set a field of an item.
type Provenance struct {
	Item atoll.ItemKey
	// Path of the field, a JSON Pointer; behind a #, the path in the document that it
	// holds.
	Path string
	// Policy that states the rule, as in atoll.Rule, or "placement" for assigned
	// replicas.
	Policy string
	// Rule is the index in the policy's overrideRules.
	Rule int
	// Overrider of the rule, such as imageOverrider[0] or ordered[2].plaintext; empty
	// for assigned replicas.
	Overrider string
	// Value that the rule set, nil where it took the field away. Never set for
	// Secrets.
	Value any
	// Skipped says why the overrider, which sets nothing then, was left out.
	Skipped string
}

// overriding applies rules to one object and notes what they set.
type overriding struct {
	item  *atoll.Item
	obj   map[string]any
	notes []Provenance
	rule  *atoll.Rule
	// values of the cluster.
	values valueSet
	// overrider of the rule that is applied.
	overrider string
	// scripted is the field that a script sets replicas in; nil: no script does.
	scripted []string
}

func (o *overriding) note(value any, path ...string) { o.noteAt(pointerTo(path...), value) }

func (o *overriding) noteAt(path string, value any) {
	if o.item.Key.IsSecret() {
		value = nil
	}
	switch value.(type) {
	case map[string]any, []any: // which later overriders change
		value = runtime.DeepCopyJSONValue(value)
	}
	o.notes = append(o.notes, Provenance{
		Item: o.item.Key, Path: path, Policy: o.rule.Policy, Rule: o.rule.Index, Overrider: o.overrider, Value: value,
	})
}

// applyAll rules in order, up to one that does not apply.
func (o *overriding) applyAll(rules []*ready) (failed *atoll.Rule, err error) {
	for _, r := range rules {
		if err := o.apply(r); err != nil {
			return r.Rule, err
		}
	}
	return nil, nil
}

// apply one rule; the error says which of its parts does not apply and why.
func (o *overriding) apply(r *ready) error {
	o.rule = r.Rule
	if err := o.permitted(); err != nil {
		return fmt.Errorf("%s rule %d: %w", r.Policy, r.Index, err)
	}
	if n := r.Overriders.NotHere; o.shared() && n != nil && *n {
		return fmt.Errorf("%s rule %d notHere: %w", r.Policy, r.Index, errDivided)
	}
	before := o.stand()
	does, _ := r.parts()
	for _, s := range does {
		err := o.step(s)
		if err == nil && r.Meaning > 0 {
			err = o.kept(before)
		}
		if err != nil {
			return fmt.Errorf("%s rule %d %s: %w", r.Policy, r.Index, s, err)
		}
	}
	return nil
}

// step carries out one overrider. One that does not apply leaves no trace where the rule
// says that it is skipped, but for a note.
func (o *overriding) step(s step) error {
	o.overrider = s.name
	skips := o.rule.OnMissing == v1alpha1.OnMissingSkip
	obj, notes := o.obj, len(o.notes)
	if skips {
		o.obj = copied(obj)
	}
	do, err := s.do, error(nil)
	if s.asks {
		do, err = o.values.resolve(s.do)
	}
	if err == nil {
		err = o.one(do)
	}
	if err == nil || !skips {
		return err
	}
	o.obj, o.notes = obj, append(o.notes[:notes], Provenance{
		Item: o.item.Key, Policy: o.rule.Policy, Rule: o.rule.Index, Overrider: s.name, Skipped: err.Error(),
	})
	return nil
}

// step is one overrider, and how its rule names it.
type step struct {
	name string
	do   v1alpha1.OrderedOverrider
	// asks the cluster for values.
	asks bool
}

// String names the step in an error.
func (s step) String() string {
	if p := s.do.Plaintext; p != nil {
		return fmt.Sprintf("%s %s %s", s.name, p.Operator, p.Path)
	}
	return s.name
}

// steps are the overriders in the order of their application.
func steps(o *v1alpha1.Overriders) (out []step) {
	each(o, func(list string, i int, do *v1alpha1.OrderedOverrider) {
		name := list
		if i >= 0 {
			name = fmt.Sprintf("%s[%d]", list, i)
		}
		if list == "ordered" {
			name += "." + nameOf(do)
		}
		out = append(out, step{name: name, do: *do, asks: len(sources(do)) > 0})
	})
	return out
}

// each overrider in the order of their application: the list that it is in and where, or
// its name and -1.
func each(o *v1alpha1.Overriders, add func(list string, i int, do *v1alpha1.OrderedOverrider)) {
	for i := range o.ImageOverrider {
		add("imageOverrider", i, &v1alpha1.OrderedOverrider{ImageOverrider: &o.ImageOverrider[i]})
	}
	for i := range o.CommandOverrider {
		add("commandOverrider", i, &v1alpha1.OrderedOverrider{CommandOverrider: &o.CommandOverrider[i]})
	}
	for i := range o.ArgsOverrider {
		add("argsOverrider", i, &v1alpha1.OrderedOverrider{ArgsOverrider: &o.ArgsOverrider[i]})
	}
	for i := range o.LabelsOverrider {
		add("labelsOverrider", i, &v1alpha1.OrderedOverrider{LabelsOverrider: &o.LabelsOverrider[i]})
	}
	for i := range o.AnnotationsOverrider {
		add("annotationsOverrider", i, &v1alpha1.OrderedOverrider{AnnotationsOverrider: &o.AnnotationsOverrider[i]})
	}
	for i := range o.FieldOverrider {
		add("fieldOverrider", i, &v1alpha1.OrderedOverrider{FieldOverrider: &o.FieldOverrider[i]})
	}
	for i := range o.EnvOverrider {
		add("envOverrider", i, &v1alpha1.OrderedOverrider{EnvOverrider: &o.EnvOverrider[i]})
	}
	for i := range o.ResourcesOverrider {
		add("resourcesOverrider", i, &v1alpha1.OrderedOverrider{ResourcesOverrider: &o.ResourcesOverrider[i]})
	}
	if o.Replicas != nil {
		add("replicas", -1, &v1alpha1.OrderedOverrider{Replicas: o.Replicas})
	}
	if o.MergePatch != nil {
		add("mergePatch", -1, &v1alpha1.OrderedOverrider{MergePatch: o.MergePatch})
	}
	if o.StrategicMerge != nil {
		add("strategicMerge", -1, &v1alpha1.OrderedOverrider{StrategicMerge: o.StrategicMerge})
	}
	for i := range o.Plaintext {
		add("plaintext", i, &v1alpha1.OrderedOverrider{Plaintext: &o.Plaintext[i]})
	}
	for i := range o.Ordered {
		add("ordered", i, &o.Ordered[i])
	}
}

// nameOf the overrider that is set.
func nameOf(o *v1alpha1.OrderedOverrider) string {
	switch {
	case o.ImageOverrider != nil:
		return "imageOverrider"
	case o.CommandOverrider != nil:
		return "commandOverrider"
	case o.ArgsOverrider != nil:
		return "argsOverrider"
	case o.LabelsOverrider != nil:
		return "labelsOverrider"
	case o.AnnotationsOverrider != nil:
		return "annotationsOverrider"
	case o.FieldOverrider != nil:
		return "fieldOverrider"
	case o.EnvOverrider != nil:
		return "envOverrider"
	case o.ResourcesOverrider != nil:
		return "resourcesOverrider"
	case o.Replicas != nil:
		return "replicas"
	case o.MergePatch != nil:
		return "mergePatch"
	case o.StrategicMerge != nil:
		return "strategicMerge"
	case o.Plaintext != nil:
		return "plaintext"
	}
	return "nothing"
}

// one overrider, whichever is set.
func (o *overriding) one(do v1alpha1.OrderedOverrider) error {
	switch {
	case do.ImageOverrider != nil:
		return o.image(*do.ImageOverrider)
	case do.CommandOverrider != nil:
		return o.words("command", *do.CommandOverrider)
	case do.ArgsOverrider != nil:
		return o.words("args", *do.ArgsOverrider)
	case do.LabelsOverrider != nil:
		return o.keys("labels", *do.LabelsOverrider)
	case do.AnnotationsOverrider != nil:
		return o.keys("annotations", *do.AnnotationsOverrider)
	case do.FieldOverrider != nil:
		return o.document(*do.FieldOverrider)
	case do.EnvOverrider != nil:
		return o.env(*do.EnvOverrider)
	case do.ResourcesOverrider != nil:
		return o.resources(*do.ResourcesOverrider)
	case do.Replicas != nil:
		return o.replicas(int64(*do.Replicas))
	case do.MergePatch != nil:
		return o.mergePatch(do.MergePatch.Raw)
	case do.StrategicMerge != nil:
		return o.strategicMerge(do.StrategicMerge.Raw)
	case do.Plaintext != nil:
		return o.plaintext(*do.Plaintext)
	}
	return errors.New("a newer hub wrote this overrider, which this one does not know")
}

// permitted holds what admission holds, for content that came past it.
func (o *overriding) permitted() error {
	if strings.HasPrefix(o.rule.Policy, "ClusterOverridePolicy/") {
		return nil
	}
	key := o.item.Key
	if ClusterOnly(schema.GroupKind{Group: key.Group, Kind: key.Kind}) {
		return fmt.Errorf("only a ClusterOverridePolicy may change a %s", key.Kind)
	}
	if key.IsSecret() && TouchesData(o.rule.Overriders) {
		return errors.New("only a ClusterOverridePolicy may change the data of a Secret")
	}
	return nil
}

func (o *overriding) image(im v1alpha1.ImageOverrider) error {
	if im.Predicate != nil {
		path, err := allowed(im.Predicate.Path, nil)
		if err != nil {
			return err
		}
		return o.imageAt(im, path)
	}
	for _, c := range o.containers("", true) {
		if c.fields["image"] == nil {
			continue
		}
		if err := o.imageAt(im, c.path("image")); err != nil {
			return err
		}
	}
	return nil
}

func (o *overriding) imageAt(im v1alpha1.ImageOverrider, path []string) error {
	v, ok := interpret.Lookup(o.obj, path)
	ref, isText := v.(string)
	if !ok || !isText {
		return fmt.Errorf("there is no image at %s", pointerTo(path...))
	}
	changed, err := overrideImage(ref, im)
	if err != nil && o.item.Key.IsSecret() {
		return fmt.Errorf("there is no image at %s", pointerTo(path...)) // the other error quotes it
	}
	if err != nil {
		return fmt.Errorf("image at %s: %w", pointerTo(path...), err)
	}
	if changed == ref {
		return nil
	}
	if _, err := patch(o.obj, v1alpha1.OverrideReplace, path, changed); err != nil {
		return err
	}
	o.note(changed, path...)
	return nil
}

// keys changes labels or annotations of the object itself.
func (o *overriding) keys(field string, l v1alpha1.LabelAnnotationOverrider) error {
	meta := child(o.obj, "metadata")
	m := child(meta, field)
	if m == nil {
		m = map[string]any{}
	}
	for _, key := range slices.Sorted(maps.Keys(l.Value)) {
		if own(key) {
			return fmt.Errorf("%s is Atoll's own", key)
		}
		_, there := m[key]
		switch {
		case l.Operator == v1alpha1.OverrideRemove && there:
			delete(m, key)
			o.note(nil, "metadata", field, key)
		case l.Operator == v1alpha1.OverrideAdd && (!there || o.rule.Meaning > 0), l.Operator == v1alpha1.OverrideReplace && there:
			m[key] = l.Value[key]
			o.note(l.Value[key], "metadata", field, key)
		}
	}
	if meta[field] = m; len(m) == 0 {
		delete(meta, field)
	}
	return nil
}

var errDivided = errors.New("the placement divides this object's replicas, so that no override can set them")

func (o *overriding) replicas(n int64) error {
	if o.shared() {
		return errDivided
	}
	path := replicasPath(o.obj)
	if !o.item.Divided && interpret.Custom(kindOf(o.obj).GroupKind()) {
		// Such rules were there before any of these kinds was known: they set what is stated.
		path = nil
	}
	if path == nil && o.rule.Meaning > 0 {
		path = customReplicas(o.obj)
	}
	if path == nil {
		return nil
	}
	return o.set(n, path)
}

// replicasPath is where the object states how many pods it makes; nil for kinds
// that do not.
func replicasPath(obj map[string]any) []string {
	u := &unstructured.Unstructured{Object: obj}
	if _, path, ok := interpret.Replicas(u); ok {
		return path
	}
	if u.GroupVersionKind().GroupKind() == (schema.GroupKind{Group: "batch", Kind: "Job"}) {
		return []string{"spec", "parallelism"}
	}
	return nil
}

// customReplicas is where an object of a custom kind states its replicas as a number.
func customReplicas(obj map[string]any) []string {
	switch child(obj, "spec")["replicas"].(type) {
	case int64, float64:
	default:
		return nil
	}
	if builtIn(obj) {
		return nil
	}
	return []string{"spec", "replicas"}
}

func (o *overriding) set(value any, path []string) error {
	if _, err := patch(o.obj, v1alpha1.OverrideAdd, path, value); err != nil {
		return err
	}
	o.note(value, path...)
	return nil
}

func (o *overriding) plaintext(p v1alpha1.PlaintextOverrider) error {
	value, err := patchValue(p)
	if err != nil {
		return err
	}
	path, err := allowed(p.Path, value)
	if err != nil {
		return err
	}
	if o.shared() && slices.Equal(path, o.dividedReplicas()) {
		return errDivided
	}
	if _, err := patch(o.obj, p.Operator, path, value); err != nil {
		return err
	}
	o.note(value, path...)
	return nil
}
