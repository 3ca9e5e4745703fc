package kinds

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

// parentsField describes the field of a kind's status in which gateways report about the objects
// attached to them. refKey is the key of the gateway in each entry. maxEntries is the limit of
// the API server.
type parentsField struct {
	field, refKey string
	maxEntries    int
}

func (t parentsField) buildTraits() kindTraits {
	return kindTraits{health: gatewayParentsHealth(t.field), reflect: t.reflectParents, aggregate: t.aggregateParents}
}

// maxParents of one object that fit into a row.
const maxParents = 8

// parentStatus is the report of one controller about one gateway.
type parentStatus struct {
	// Ref is the reference to the gateway, without the defaults of the API server.
	Ref        map[string]any `json:"r"`
	Controller string         `json:"b,omitempty"`
	// C holds the conditions, packed as in a reflected status.
	C []string `json:"c,omitempty"`
}

// defaultRef holds the API server's defaults for a reference.
var defaultRef = map[string]string{"group": "gateway.networking.k8s.io", "kind": "Gateway"}

func (p parentStatus) sortKey() string {
	b, err := json.Marshal(p.Ref)
	if err != nil {
		panic("kinds: a reference is made of plain values: " + err.Error())
	}
	return string(b) + " " + p.Controller
}

// decodeParent decodes an entry of a status; ok is false where it references nothing.
func (t parentsField) decodeParent(entry any) (p parentStatus, ok bool) {
	m, _ := entry.(map[string]any)
	ref := nestedMap(m, t.refKey)
	p = parentStatus{Ref: maps.Clone(ref), Controller: stringField(m, "controllerName")}
	for key, v := range defaultRef {
		if p.Ref[key] == v {
			delete(p.Ref, key)
		}
	}
	return p, len(ref) > 0
}

func (t parentsField) reflectParents(obj *unstructured.Unstructured) (reflectedStatus, bool) {
	var r reflectedStatus
	late := false
	for _, entry := range listField(statusOf(obj), t.field) {
		p, ok := t.decodeParent(entry)
		if !ok {
			continue
		}
		m, _ := entry.(map[string]any)
		cs := conditionsOf(m)
		for _, c := range cs {
			late = late || c.hasObserved && c.observedGeneration < obj.GetGeneration()
		}
		p.C = packConditions(cs)
		r.A = append(r.A, p)
	}
	slices.SortFunc(r.A, func(x, y parentStatus) int { return cmp.Compare(x.sortKey(), y.sortKey()) })
	r.A = r.A[:min(len(r.A), maxParents)]
	r.setFlag(late, flagOutdated)
	return r, len(r.A) > 0
}

// aggregateParents joins the reports of the gateways of all connected clusters, by gateway and
// controller. The worst of each condition counts. A cluster without a report has not accepted
// the object.
func (t parentsField) aggregateParents(a *statusAggregation) (map[string]any, bool) {
	if a.hasNothingToWrite() {
		return nil, false
	}
	parents, worst := t.worstConditions(a)
	// A row without space for its report is healthy and has nothing to add.
	keys := slices.DeleteFunc(sortedKeys(parents), func(key string) bool { return len(worst[key]) == 0 })
	if len(keys) == 0 {
		return nil, false
	}
	out := make([]any, 0, len(keys))
	for _, key := range keys[:min(len(keys), t.maxEntries)] {
		out = append(out, t.buildParentEntry(a, parents[key], worst[key]))
	}
	st := a.copyTemplateStatus()
	st[t.field] = out
	return st, true
}

// worstConditions returns the gateways, and the worst of each of their conditions, by the sort
// keys of the gateways.
func (t parentsField) worstConditions(a *statusAggregation) (map[string]parentStatus, map[string]map[string]condition) {
	parents, worst := map[string]parentStatus{}, map[string]map[string]condition{}
	rows := slices.SortedFunc(slices.Values(a.rows), func(x, y clusterRow) int { return cmp.Compare(x.Cluster, y.Cluster) })
	for _, r := range rows {
		for _, p := range r.A {
			key := p.sortKey()
			if parents[key] = p; worst[key] == nil {
				worst[key] = map[string]condition{}
			}
			for _, c := range r.conditionsNamingCluster(unpackConditions(p.C)) {
				recordWorstCondition(worst[key], c)
			}
		}
	}
	if len(parents) == 0 { // no gateway reports any more
		for _, entry := range listField(a.templateStatus, t.field) {
			if p, ok := t.decodeParent(entry); ok {
				parents[p.sortKey()], worst[p.sortKey()] = p, map[string]condition{}
			}
		}
	}
	for _, r := range rows {
		if len(r.A) > 0 || r.Health == atoll.Healthy {
			continue
		}
		for key := range parents {
			recordWorstCondition(worst[key], condition{conditionType: "Accepted", status: "Unknown", reason: "Pending", hasObserved: true,
				message: "cluster " + r.Cluster + ": no gateway has reported yet whether it accepts the object"})
		}
	}
	return parents, worst
}

// buildParentEntry builds the entry of a gateway, with the times of the template's own.
func (t parentsField) buildParentEntry(a *statusAggregation, p parentStatus, worst map[string]condition) map[string]any {
	ref := map[string]any{}
	for key, v := range defaultRef {
		ref[key] = v
	}
	maps.Copy(ref, p.Ref)
	of := *a
	of.templateStatus = nil
	for _, entry := range listField(a.templateStatus, t.field) {
		if old, ok := t.decodeParent(entry); ok && old.sortKey() == p.sortKey() {
			of.templateStatus, _ = entry.(map[string]any)
		}
	}
	m := map[string]any{t.refKey: ref}
	if p.Controller != "" {
		m["controllerName"] = p.Controller
	}
	cs := make([]condition, 0, len(worst))
	for _, kind := range sortedKeys(worst) {
		cs = append(cs, worst[kind])
	}
	m["conditions"] = of.buildStandardConditions(cs[:min(len(cs), maxConditions)])
	return m
}

// conditionsNamingCluster adds the cluster to the messages of conditions that are not positive.
func (r clusterRow) conditionsNamingCluster(cs []condition) []condition {
	for i := range cs {
		c := &cs[i]
		switch {
		case conditionRank(*c) == 2:
		case r.Message != "" && r.Reason == c.reason:
			c.message = "cluster " + r.Cluster + ": " + r.Message
		default:
			c.message = "reported by cluster " + r.Cluster
		}
	}
	return cs
}

func recordWorstCondition(worst map[string]condition, c condition) {
	if old, ok := worst[c.conditionType]; !ok || conditionRank(c) < conditionRank(old) {
		worst[c.conditionType] = c
	}
}

// negativeConditions are condition types whose True means trouble.
var negativeConditions = map[string]bool{
	"Stalled": true, "Degraded": true, "Failed": true, "PartiallyInvalid": true, "Conflicted": true,
}

// conditionRank is 0 for trouble, 1 for unknown, 2 for none.
func conditionRank(c condition) int {
	switch {
	case !c.hasStatus("True") && !c.hasStatus("False"):
		return 1
	case c.hasStatus("True") == negativeConditions[c.conditionType]:
		return 0
	}
	return 2
}

// StatusAndParentConditions returns the conditions of a status, and those of each gateway in it. The maps
// are shared with the status.
func StatusAndParentConditions(status map[string]any) (out []map[string]any) {
	holders := []any{status}
	for _, field := range []string{"parents", "ancestors"} {
		holders = append(holders, listField(status, field)...)
	}
	for _, holder := range holders {
		m, _ := holder.(map[string]any)
		for _, c := range listField(m, "conditions") {
			if cm, ok := c.(map[string]any); ok {
				out = append(out, cm)
			}
		}
	}
	return out
}
