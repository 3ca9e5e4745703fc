package render

import (
	"encoding/binary"

	"atoll.dev/atoll/internal/atoll"
)

// Targets are the clusters that a content's rules are about, made ready to be asked of
// many clusters: selectors are read once, and a variant is named once for all clusters
// that it is of. Not for concurrent use.
type Targets struct {
	renderer *Renderer
	variants map[string]string           // by the rules that match
	handed   map[string]map[string]int64 // by variant
	unwanted map[string][]atoll.ItemKey  // by variant
	key      []byte
}

// TargetsOf a content.
func TargetsOf(content *atoll.Content) *Targets {
	return &Targets{renderer: Compile(content), variants: map[string]string{}, handed: map[string]map[string]int64{}, unwanted: map[string][]atoll.ItemKey{}}
}

// Variant of a cluster, as Rules gives it.
func (t *Targets) Variant(c atoll.ClusterView) string {
	c.Properties = nil // as there
	key := t.key[:0]
	var texts []string
	for i := range t.renderer.rules {
		if rule := &t.renderer.rules[i]; rule.matches(&c) {
			key = binary.AppendUvarint(key, uint64(i))
			texts = append(texts, rule.texts()...)
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

// keyOf numbers of rules is what matchingOf takes apart.
func keyOf(rules []int) []byte {
	var key []byte
	for _, i := range rules {
		key = binary.AppendUvarint(key, uint64(i))
	}
	return key
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
