package render

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret"
)

// Rules gives the indexes of the content's rules that target the cluster, and the
// variant that names them: clusters of equal variant get equal items from one
// content, but for assigned replicas. It is empty when no rule targets the cluster.
func Rules(content *atoll.Content, c atoll.ClusterView) (matching []int, variant string) {
	for i, r := range content.Rules {
		if ok, _ := atoll.MatchAffinity(r.Target, c); ok {
			matching = append(matching, i)
		}
	}
	return matching, variantOf(matching)
}

// Provenance says which rule set a field of an item.
type Provenance struct {
	Item atoll.ItemKey
	// Path of the field, a JSON Pointer.
	Path string
	// Policy that states the rule, as in atoll.Rule, or "placement" for assigned
	// replicas.
	Policy string
	// Rule is the index in the policy's overrideRules.
	Rule int
	// Value that the rule set, nil where it took the field away. Never set for
	// Secrets.
	Value any
}

// overriding applies rules to one object and notes what they set.
type overriding struct {
	item  *atoll.Item
	obj   map[string]any
	notes []Provenance
	rule  *atoll.Rule
}

func (o *overriding) note(value any, path ...string) {
	if o.item.Key.Group == "" && o.item.Key.Kind == "Secret" {
		value = nil
	}
	o.notes = append(o.notes, Provenance{
		Item: o.item.Key, Path: pointerTo(path...), Policy: o.rule.Policy, Rule: o.rule.Index, Value: value,
	})
}

// apply one rule; the error says which of its parts does not apply and why.
func (o *overriding) apply(r *atoll.Rule) error {
	o.rule = r
	if err := o.permitted(); err != nil {
		return fmt.Errorf("%s rule %d: %w", r.Policy, r.Index, err)
	}
	for i, im := range r.Overriders.ImageOverrider {
		if err := o.image(im); err != nil {
			return fmt.Errorf("%s rule %d imageOverrider[%d]: %w", r.Policy, r.Index, i, err)
		}
	}
	for i, l := range r.Overriders.LabelsOverrider {
		if err := o.keys("labels", l); err != nil {
			return fmt.Errorf("%s rule %d labelsOverrider[%d]: %w", r.Policy, r.Index, i, err)
		}
	}
	for i, l := range r.Overriders.AnnotationsOverrider {
		if err := o.keys("annotations", l); err != nil {
			return fmt.Errorf("%s rule %d annotationsOverrider[%d]: %w", r.Policy, r.Index, i, err)
		}
	}
	if r.Overriders.Replicas != nil {
		if err := o.replicas(int64(*r.Overriders.Replicas)); err != nil {
			return fmt.Errorf("%s rule %d replicas: %w", r.Policy, r.Index, err)
		}
	}
	for i, p := range r.Overriders.Plaintext {
		if err := o.plaintext(p); err != nil {
			return fmt.Errorf("%s rule %d plaintext[%d] %s %s: %w", r.Policy, r.Index, i, p.Operator, p.Path, err)
		}
	}
	return nil
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
	if key.Group == "" && key.Kind == "Secret" && TouchesData(o.rule.Overriders) {
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
	for _, pod := range interpret.PodTemplates(&unstructured.Unstructured{Object: o.obj}) {
		for _, list := range []string{"containers", "initContainers"} {
			at := append(slices.Clone(pod), list)
			v, _ := interpret.Lookup(o.obj, at)
			all, _ := v.([]any)
			for i, c := range all {
				if m, ok := c.(map[string]any); !ok || m["image"] == nil {
					continue
				}
				if err := o.imageAt(im, append(slices.Clone(at), fmt.Sprint(i), "image")); err != nil {
					return err
				}
			}
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
		case l.Operator == v1alpha1.OverrideAdd && !there, l.Operator == v1alpha1.OverrideReplace && there:
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
	if o.item.Divided {
		return errDivided
	}
	path := replicasPath(o.obj)
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
	if o.item.Divided && slices.Equal(path, replicasPath(o.obj)) {
		return errDivided
	}
	if _, err := patch(o.obj, p.Operator, path, value); err != nil {
		return err
	}
	o.note(value, path...)
	return nil
}
