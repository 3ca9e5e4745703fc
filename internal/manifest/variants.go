package manifest

import (
	"encoding/binary"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/overrides"
	"atoll.dev/atoll/internal/schedule"
)

// MatchRules returns the indexes of the content's rules that target the cluster, and the variant
// that names them. Clusters of equal variant get equal items from one content, apart from assigned
// replicas. The variant is empty when no rule targets the cluster, and the cluster serves the API
// versions of all items.
func MatchRules(content *atoll.Content, c atoll.ClusterView) (matching []int, variant string) {
	var texts []string
	c.Properties = nil // rules do not read what agents report
	var applied appliedRules
	for i := range content.Rules {
		r := &content.Rules[i]
		if schedule.CompileTarget(r.Target).MatchesCluster(&c) && applied.admitRule(r) {
			matching = append(matching, i)
			texts = append(texts, overrides.ListExpressions(&r.Overriders)...)
		}
	}
	return matching, chooseVersions(content, c.Versions).nameVariant(hashVariant(matching, texts, &c))
}

// appliedRules is the rule with First that a cluster has of the policy before. Rules of a policy stand together,
// several times where it selects some items more specifically than others.
type appliedRules struct {
	policy string
	index  int
}

// admitRule reports whether a rule that targets the cluster applies there. Rules are passed in their order.
func (a *appliedRules) admitRule(r *atoll.Rule) bool {
	if r.First && a.policy == r.Policy && a.index != r.Index {
		return false
	}
	a.policy, a.index = r.Policy, r.Index
	return true
}

// VariantCache holds the rules of a content, prepared for many clusters. It parses selectors once,
// and names a variant once for all its clusters. Not for concurrent use.
type VariantCache struct {
	renderer *Renderer
	variants map[string]string           // by the rules that match
	replicas map[string]map[string]int64 // by variant
	excluded map[string][]atoll.ItemKey  // by variant
	key      []byte
}

// NewVariantCache returns the cache of a content.
func NewVariantCache(content *atoll.Content) *VariantCache {
	return &VariantCache{renderer: NewRenderer(content), variants: map[string]string{}, replicas: map[string]map[string]int64{}, excluded: map[string][]atoll.ItemKey{}}
}

// VariantOf returns the variant that MatchRules returns for the cluster.
func (t *VariantCache) VariantOf(c atoll.ClusterView) string {
	return t.renderer.versionsOf(c.Versions).nameVariant(t.variantOfRules(c))
}

// variantOfRules returns the part of the variant that follows from the rules.
func (t *VariantCache) variantOfRules(c atoll.ClusterView) string {
	c.Properties = nil // as in MatchRules
	key := t.key[:0]
	var texts []string
	var applied appliedRules
	for i := range t.renderer.rules {
		if rule := &t.renderer.rules[i]; rule.MatchesCluster(&c) && applied.admitRule(rule.Rule) {
			key = binary.AppendUvarint(key, uint64(i))
			texts = append(texts, rule.Expressions()...)
		}
	}
	if t.key = key; len(key) == 0 {
		return ""
	}
	if len(texts) > 0 {
		return hashVariant(decodeRuleKey(key), texts, &c)
	}
	variant, ok := t.variants[string(key)]
	if !ok {
		variant = hashVariant(decodeRuleKey(key), nil, &c)
		t.variants[string(key)] = variant
	}
	return variant
}

// encodeRuleKey encodes indexes of rules for decodeRuleKey.
func encodeRuleKey(rules []int) []byte {
	var key []byte
	for _, i := range rules {
		key = binary.AppendUvarint(key, uint64(i))
	}
	return key
}

func decodeRuleKey(key []byte) (matching []int) {
	for len(key) > 0 {
		i, n := binary.Uvarint(key)
		matching, key = append(matching, int(i)), key[n:]
	}
	return matching
}

// hashVariant returns the name of a variant: a hash of the rules that match a cluster, and of the
// values of their expressions there.
func hashVariant(matching []int, texts []string, c *atoll.ClusterView) string {
	if len(matching) == 0 {
		return ""
	}
	if len(texts) == 0 {
		return atoll.HashJSON(matching)[:16]
	}
	v, known := overrides.EvaluateValues(texts, c)
	return atoll.HashJSON([]any{matching, v.ValuesForVariantHash(known)})[:16]
}
