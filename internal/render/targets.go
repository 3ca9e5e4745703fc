package render

import (
	"encoding/binary"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Targets are the clusters that a content's rules are about, made ready to be asked of
// many clusters: selectors are read once, and a variant is named once for all clusters
// that it is of. Not for concurrent use.
type Targets struct {
	rules    []target
	texts    [][]string                  // of their expressions
	variants map[string]string           // by the rules that match
	handed   map[string]map[string]int64 // by variant
	key      []byte
}

type target struct {
	all            bool
	names, exclude map[string]bool
	labels         labels.Selector
	fields         *v1alpha1.ClusterAffinity
}

// TargetsOf a content.
func TargetsOf(content *atoll.Content) *Targets {
	t := &Targets{rules: make([]target, 0, len(content.Rules)), variants: map[string]string{}, handed: map[string]map[string]int64{}}
	for i := range content.Rules {
		t.rules = append(t.rules, targetOf(content.Rules[i].Target))
		t.texts = append(t.texts, expressions(&content.Rules[i].Overriders))
	}
	return t
}

func targetOf(a *v1alpha1.ClusterAffinity) target {
	if a == nil {
		return target{all: true}
	}
	out := target{names: set(a.ClusterNames), exclude: set(a.ExcludeClusters)}
	if a.LabelSelector != nil {
		sel, err := metav1.LabelSelectorAsSelector(a.LabelSelector)
		if out.labels = sel; err != nil {
			out.labels = labels.Nothing()
		}
	}
	if a.FieldSelector != nil {
		out.fields = &v1alpha1.ClusterAffinity{FieldSelector: a.FieldSelector}
	}
	return out
}

func set(names []string) map[string]bool {
	if len(names) == 0 {
		return nil
	}
	out := make(map[string]bool, len(names))
	for _, n := range names {
		out[n] = true
	}
	return out
}

func (t *target) match(c atoll.ClusterView) bool {
	if t.all {
		return true
	}
	if t.exclude[c.Name] || t.names != nil && !t.names[c.Name] || t.labels != nil && !t.labels.Matches(labels.Set(c.Labels)) {
		return false
	}
	ok, _ := atoll.MatchAffinity(t.fields, c)
	return ok
}

// Variant of a cluster, as Rules gives it.
func (t *Targets) Variant(c atoll.ClusterView) string {
	key := t.key[:0]
	var texts []string
	for i := range t.rules {
		if t.rules[i].match(c) {
			key = binary.AppendUvarint(key, uint64(i))
			texts = append(texts, t.texts[i]...)
		}
	}
	if t.key = key; len(key) == 0 {
		return ""
	}
	if len(texts) > 0 {
		return variantOf(matchingOf(key), texts, &c)
	}
	variant, ok := t.variants[string(key)]
	if !ok {
		variant = variantOf(matchingOf(key), nil, &c)
		t.variants[string(key)] = variant
	}
	return variant
}

func matchingOf(key []byte) (matching []int) {
	for len(key) > 0 {
		i, n := binary.Uvarint(key)
		matching, key = append(matching, int(i)), key[n:]
	}
	return matching
}

// variantOf rules that match a cluster, and of what their expressions give there: their
// name.
func variantOf(matching []int, texts []string, c *atoll.ClusterView) string {
	if len(matching) == 0 {
		return ""
	}
	if len(texts) == 0 {
		return atoll.HashJSON(matching)[:16]
	}
	v, known := valuesOf(texts, c)
	return atoll.HashJSON([]any{matching, v.print(known)})[:16]
}
