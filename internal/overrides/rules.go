package overrides

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
	"atoll.dev/atoll/internal/jsonpointer"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/refusal"
	"atoll.dev/atoll/internal/userfields"
)

// Provenance is the rule that set a field of an item.
type Provenance struct {
	Item atoll.ItemKey
	// Path of the field, a JSON Pointer; after a #, the path in the document in the field.
	Path string
	// Policy that states the rule, as in atoll.Rule, or "placement" for assigned
	// replicas.
	Policy string
	// Rule is the index in the policy's overrideRules.
	Rule int
	// Description of the rule as its policy states it.
	Description string
	// Overrider of the rule, such as imageOverrider[0] or ordered[2].plaintext; empty
	// for assigned replicas.
	Overrider string
	// Value that the rule set, nil where it removed the field. Never set for Secrets.
	Value any
	// Skipped is why the overrider was left out; it sets nothing then. SkippedReason is the
	// enumerated reason.
	Skipped       string
	SkippedReason atoll.Reason
}

// ObjectPatcher applies rules to one object, and notes what they set.
type ObjectPatcher struct {
	Item   *atoll.Item
	Object map[string]any
	Notes  []Provenance
	rule   *atoll.Rule
	// Values of the cluster.
	Values ClusterValues
	// overrider of the rule that is applied.
	overrider string
	// EmptiedMaps are labels and annotations whose last key an overrider removed.
	EmptiedMaps []string
	// ScriptedPath is the field in which a script sets replicas; nil: no script does.
	ScriptedPath []string

	// steps and patchBytes are the cost of the overriders so far.
	steps, patchBytes int
}

func (o *ObjectPatcher) noteChange(value any, path ...string) {
	o.noteChangeAt(jsonpointer.FormatPointer(path...), value)
}

func (o *ObjectPatcher) noteChangeAt(path string, value any) {
	if o.Item.Key.IsSecret() {
		value = nil
	}
	switch value.(type) {
	case map[string]any, []any: // later overriders change it
		value = runtime.DeepCopyJSONValue(value)
	}
	o.Notes = append(o.Notes, Provenance{
		Item: o.Item.Key, Path: path, Policy: o.rule.Policy, Rule: o.rule.Index, Description: o.rule.Description, Overrider: o.overrider, Value: value,
	})
}

// ApplyRules applies the rules in order, up to one that does not apply. It returns that rule with
// its error.
func (o *ObjectPatcher) ApplyRules(rules []*CompiledRule) (failed *atoll.Rule, err error) {
	for _, r := range rules {
		if err := o.applyRule(r); err != nil {
			return r.Rule, err
		}
	}
	return nil, nil
}

// applyRule applies one rule. The error names the part that does not apply, and why.
func (o *ObjectPatcher) applyRule(r *CompiledRule) error {
	o.rule = r.Rule
	if r.Semantics > atoll.FirstRuleSemantics {
		return fmt.Errorf("%s rule %d: %w", r.Policy, r.Index, newerHubError("this rule"))
	}
	if err := o.checkRulePermitted(); err != nil {
		return fmt.Errorf("%s rule %d: %w", r.Policy, r.Index, err)
	}
	if n := r.Overriders.NotHere; o.hasPlacementReplicas() && n != nil && *n {
		return fmt.Errorf("%s rule %d notHere: %w", r.Policy, r.Index, errReplicasDivided)
	}
	before := o.captureProtected()
	does, _ := r.parseStepsAndExpressions()
	for _, s := range does {
		err := o.applyStep(s)
		if err == nil && r.Semantics > 0 {
			err = o.checkProtected(before)
		}
		if err != nil {
			return fmt.Errorf("%s rule %d %s: %w", r.Policy, r.Index, s, err)
		}
	}
	return nil
}

// applyStep carries out one overrider. Under OnMissing Skip, an overrider that does not apply
// changes nothing and leaves a note.
func (o *ObjectPatcher) applyStep(s overrideStep) error {
	o.overrider = s.name
	skips := o.rule.OnMissing == v1alpha1.OnMissingSkip
	obj, notes := o.Object, len(o.Notes)
	err := o.countStep()
	if err == nil && skips {
		err = o.countBytes(len(o.Item.Object))
		o.Object = deepCopyMap(obj)
	}
	if err == nil {
		err = o.applyOverrider(s)
	}
	if err == nil || !skips || errors.Is(err, errOverBound) {
		return err
	}
	o.Object, o.Notes = obj, append(o.Notes[:notes], Provenance{
		Item: o.Item.Key, Policy: o.rule.Policy, Rule: o.rule.Index, Description: o.rule.Description, Overrider: s.name,
		Skipped: err.Error(), SkippedReason: refusal.ReasonOf(err, atoll.ReasonRuleNotApplicable),
	})
	return nil
}

// applyOverrider carries out the overrider of a step, with the cluster's values.
func (o *ObjectPatcher) applyOverrider(s overrideStep) error {
	if s.kind == nil {
		return newerHubError("this overrider")
	}
	if part := s.kind.unknownPart(&s.overrider); part != "" {
		return newerHubError(part)
	}
	do := s.overrider
	if s.usesValues {
		if err := s.kind.resolveValues(o.Values, &do); err != nil {
			return err
		}
	}
	return s.kind.applyTo(o, &do)
}

// newerHubError is the refusal to guess the meaning of what this hub does not support.
func newerHubError(part string) error {
	return refusal.WithReason(atoll.ReasonRuleUnknown, fmt.Errorf("a newer hub wrote %s, which this one does not support", part))
}

// checkRulePermitted applies the checks of admission to content that was stored without them.
func (o *ObjectPatcher) checkRulePermitted() error {
	if strings.HasPrefix(o.rule.Policy, "ClusterOverridePolicy/") {
		return nil
	}
	key := o.Item.Key
	if RequiresClusterOverridePolicy(schema.GroupKind{Group: key.Group, Kind: key.Kind}) {
		return refusal.WithReason(atoll.ReasonRuleForbidden, fmt.Errorf("only a ClusterOverridePolicy may change a %s", key.Kind))
	}
	if key.IsSecret() && ChangesSecretData(o.rule.Overriders) {
		return refusal.WithReason(atoll.ReasonRuleForbidden, errors.New("only a ClusterOverridePolicy may change the data of a Secret"))
	}
	return nil
}

func (o *ObjectPatcher) overrideImages(im *v1alpha1.ImageOverrider) error {
	if im.Predicate != nil && im.ContainerName != "" {
		return errImageTwice
	}
	if im.Predicate != nil {
		path, err := parseAllowedPath(im.Predicate.Path, nil)
		if err != nil {
			return err
		}
		return o.overrideImageAt(im, path)
	}
	for _, c := range o.findContainers(im.ContainerName, true) {
		if c.fields["image"] == nil {
			continue
		}
		if err := o.overrideImageAt(im, c.fieldPath("image")); err != nil {
			return err
		}
	}
	return nil
}

func (o *ObjectPatcher) overrideImageAt(im *v1alpha1.ImageOverrider, path []string) error {
	v, ok := kinds.LookupPath(o.Object, path)
	ref, isText := v.(string)
	if !ok || !isText {
		return fmt.Errorf("there is no image at %s", jsonpointer.FormatPointer(path...))
	}
	changed, err := overrideImageReference(ref, *im)
	if err != nil && o.Item.Key.IsSecret() {
		return fmt.Errorf("there is no image at %s", jsonpointer.FormatPointer(path...)) // the other error quotes it
	}
	if err != nil {
		return fmt.Errorf("image at %s: %w", jsonpointer.FormatPointer(path...), err)
	}
	if changed == ref {
		return nil
	}
	if _, err := patchJSONValue(o.Object, v1alpha1.OverrideReplace, path, changed); err != nil {
		return err
	}
	o.noteChange(changed, path...)
	return nil
}

// keepsEmptyMaps is the first meaning of rules in which labels and annotations stay as an empty map
// when their last key is removed.
const keepsEmptyMaps = 2

// overrideKeys changes labels or annotations of the object itself.
func (o *ObjectPatcher) overrideKeys(field string, l *v1alpha1.LabelAnnotationOverrider) error {
	meta := userfields.ChildMap(o.Object, "metadata")
	m := userfields.ChildMap(meta, field)
	if m == nil {
		m = map[string]any{}
	}
	removes := false
	for _, key := range slices.Sorted(maps.Keys(l.Value)) {
		if userfields.IsHubKey(key) {
			return fmt.Errorf("%s is Atoll's own", key)
		}
		removes = o.overrideKey(m, field, key, l) || removes
	}
	meta[field] = m
	if len(m) > 0 {
		return nil
	}
	if removes && o.rule.Semantics >= keepsEmptyMaps {
		o.EmptiedMaps = append(o.EmptiedMaps, field)
		return nil
	}
	delete(meta, field)
	return nil
}

// overrideKey changes one key of labels or annotations. It returns whether it removed the key.
func (o *ObjectPatcher) overrideKey(m map[string]any, field, key string, l *v1alpha1.LabelAnnotationOverrider) (removed bool) {
	_, there := m[key]
	switch {
	case l.Operator == v1alpha1.OverrideRemove && there:
		delete(m, key)
		o.noteChange(nil, "metadata", field, key)
		return true
	case l.Operator == v1alpha1.OverrideAdd && (!there || o.rule.Semantics > 0), l.Operator == v1alpha1.OverrideReplace && there:
		m[key] = l.Value[key]
		o.noteChange(l.Value[key], "metadata", field, key)
	}
	return false
}

// DropEmptiedMaps ends the rules of an object. The empty maps that removed keys left, into which later
// overriders may add, go: an API server stores none, and the rendered object is as if there were none.
func (o *ObjectPatcher) DropEmptiedMaps() {
	meta := userfields.ChildMap(o.Object, "metadata")
	for _, field := range o.EmptiedMaps {
		if m, ok := meta[field].(map[string]any); ok && len(m) == 0 {
			delete(meta, field)
		}
	}
}

var errReplicasDivided = refusal.WithReason(atoll.ReasonReplicasDivided, errors.New("the placement divides this object's replicas, so that no override can set them"))

func (o *ObjectPatcher) overrideReplicas(n *int32) error {
	if o.hasPlacementReplicas() {
		return errReplicasDivided
	}
	path := podCountPath(o.Object)
	if !o.Item.Divided && kinds.IsCustomKind(objectKind(o.Object).GroupKind()) {
		// Rules from before the kind was known keep their effect: they set replicas that are
		// stated.
		path = nil
	}
	if path == nil && o.rule.Semantics > 0 {
		path = customReplicasPath(o.Object)
	}
	if path == nil {
		return nil
	}
	return o.setField(int64(*n), path)
}

// podCountPath is where the object states its number of pods; nil for other kinds.
func podCountPath(obj map[string]any) []string {
	u := &unstructured.Unstructured{Object: obj}
	if _, path, ok := kinds.ReplicasOf(u); ok {
		return path
	}
	if u.GroupVersionKind().GroupKind() == (schema.GroupKind{Group: "batch", Kind: "Job"}) {
		return []string{"spec", "parallelism"}
	}
	return nil
}

// customReplicasPath is where an object of a custom kind states its replicas as a number; nil:
// nowhere.
func customReplicasPath(obj map[string]any) []string {
	switch userfields.ChildMap(obj, "spec")["replicas"].(type) {
	case int64, float64:
	default:
		return nil
	}
	if isBuiltInKind(obj) {
		return nil
	}
	return []string{"spec", "replicas"}
}

func (o *ObjectPatcher) setField(value any, path []string) error {
	if _, err := patchJSONValue(o.Object, v1alpha1.OverrideAdd, path, value); err != nil {
		return err
	}
	o.noteChange(value, path...)
	return nil
}
