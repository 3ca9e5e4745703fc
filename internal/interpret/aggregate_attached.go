package interpret

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

// attachment is how a kind's status tells what each gateway that it hangs on says of it: in
// which field, under which key of each entry it names the gateway, and how many entries an API
// server takes.
type attachment struct {
	field, ref string
	most       int
}

func (t attachment) kind() kind {
	return kind{health: attachedBy(t.field), reflect: t.reflect, aggregate: t.aggregate}
}

// maxParents that a row has room for, of one object.
const maxParents = 8

// parent is what one controller says of what hangs on one gateway.
type parent struct {
	// Ref names the gateway, without what the API server fills in; By is the controller.
	Ref map[string]any `json:"r"`
	By  string         `json:"b,omitempty"`
	// C are its conditions, as of a reflected status.
	C []string `json:"c,omitempty"`
}

// defaultRef is what the API server fills in where a reference does not state it.
var defaultRef = map[string]string{"group": "gateway.networking.k8s.io", "kind": "Gateway"}

func (p parent) key() string {
	b, err := json.Marshal(p.Ref)
	if err != nil {
		panic("interpret: a reference is made of plain values: " + err.Error())
	}
	return string(b) + " " + p.By
}

// parentOf an entry of a status; ok is false where it names nothing.
func (t attachment) parentOf(entry any) (p parent, ok bool) {
	m, _ := entry.(map[string]any)
	ref := child(m, t.ref)
	p = parent{Ref: maps.Clone(ref), By: text(m, "controllerName")}
	for key, v := range defaultRef {
		if p.Ref[key] == v {
			delete(p.Ref, key)
		}
	}
	return p, len(ref) > 0
}

func (t attachment) reflect(obj *unstructured.Unstructured) (reflected, bool) {
	var r reflected
	late := false
	for _, entry := range list(status(obj), t.field) {
		p, ok := t.parentOf(entry)
		if !ok {
			continue
		}
		m, _ := entry.(map[string]any)
		cs := conditionsOf(m)
		for _, c := range cs {
			late = late || c.hasObserved && c.observed < obj.GetGeneration()
		}
		p.C = packConditions(cs)
		r.A = append(r.A, p)
	}
	slices.SortFunc(r.A, func(x, y parent) int { return cmp.Compare(x.key(), y.key()) })
	r.A = r.A[:min(len(r.A), maxParents)]
	r.mark(late, flagLate)
	return r, len(r.A) > 0
}

// aggregate joins what the gateways of all reachable clusters say, by gateway and controller:
// of each condition, what is the worst. A cluster that says nothing yet has not accepted it.
func (t attachment) aggregate(a *aggregation) (map[string]any, bool) {
	if a.quiet() {
		return nil, false
	}
	parents, worst := map[string]parent{}, map[string]map[string]condition{}
	rows := slices.SortedFunc(slices.Values(a.rows), func(x, y row) int { return cmp.Compare(x.Cluster, y.Cluster) })
	for _, r := range rows {
		for _, p := range r.A {
			key := p.key()
			if parents[key] = p; worst[key] == nil {
				worst[key] = map[string]condition{}
			}
			for _, c := range r.named(unpackConditions(p.C)) {
				worsen(worst[key], c)
			}
		}
	}
	if len(parents) == 0 { // nobody says anything any more
		for _, entry := range list(a.old, t.field) {
			if p, ok := t.parentOf(entry); ok {
				parents[p.key()], worst[p.key()] = p, map[string]condition{}
			}
		}
	}
	for _, r := range rows {
		for key := range parents {
			if len(r.A) == 0 && r.Health != atoll.Healthy {
				worsen(worst[key], condition{kind: "Accepted", status: "Unknown", reason: "Pending", hasObserved: true,
					message: "cluster " + r.Cluster + ": no gateway has said yet whether it accepts it"})
			}
		}
	}
	// Where there was no room to report it, the clusters are healthy and nothing is to be said.
	keys := slices.DeleteFunc(sortedKeys(parents), func(key string) bool { return len(worst[key]) == 0 })
	if len(keys) == 0 {
		return nil, false
	}
	out := make([]any, 0, len(keys))
	for _, key := range keys[:min(len(keys), t.most)] {
		out = append(out, t.entry(a, parents[key], worst[key]))
	}
	st := a.copied()
	st[t.field] = out
	return st, true
}

// entry of the status for a gateway, with the times of the template's own.
func (t attachment) entry(a *aggregation, p parent, worst map[string]condition) map[string]any {
	ref := map[string]any{}
	for key, v := range defaultRef {
		ref[key] = v
	}
	maps.Copy(ref, p.Ref)
	of := *a
	of.old = nil
	for _, entry := range list(a.old, t.field) {
		if old, ok := t.parentOf(entry); ok && old.key() == p.key() {
			of.old, _ = entry.(map[string]any)
		}
	}
	m := map[string]any{t.ref: ref}
	if p.By != "" {
		m["controllerName"] = p.By
	}
	cs := make([]condition, 0, len(worst))
	for _, kind := range sortedKeys(worst) {
		cs = append(cs, worst[kind])
	}
	m["conditions"] = of.standard(cs[:min(len(cs), maxConditions)])
	return m
}

// named says in the conditions that tell of trouble, or of nothing yet, of which cluster they are.
func (r row) named(cs []condition) []condition {
	for i := range cs {
		c := &cs[i]
		switch {
		case bearing(*c) == 2:
		case r.Message != "" && r.Reason == c.reason:
			c.message = "cluster " + r.Cluster + ": " + r.Message
		default:
			c.message = "cluster " + r.Cluster + " says so"
		}
	}
	return cs
}

// worsen what is the worst of each condition by this one.
func worsen(worst map[string]condition, c condition) {
	if old, ok := worst[c.kind]; !ok || bearing(c) < bearing(old) {
		worst[c.kind] = c
	}
}

// adverse are conditions whose True tells of trouble.
var adverse = map[string]bool{
	"Stalled": true, "Degraded": true, "Failed": true, "PartiallyInvalid": true, "Conflicted": true,
}

// bearing of a condition: 0 for trouble, 1 where it is not known, 2 for none.
func bearing(c condition) int {
	switch {
	case !c.is("True") && !c.is("False"):
		return 1
	case c.is("True") == adverse[c.kind]:
		return 0
	}
	return 2
}

// Conditions of a status: its own, and those that it has for each gateway that the object hangs
// on. They are shared with it.
func Conditions(status map[string]any) (out []map[string]any) {
	holders := []any{status}
	for _, field := range []string{"parents", "ancestors"} {
		holders = append(holders, list(status, field)...)
	}
	for _, holder := range holders {
		m, _ := holder.(map[string]any)
		for _, c := range list(m, "conditions") {
			if cm, ok := c.(map[string]any); ok {
				out = append(out, cm)
			}
		}
	}
	return out
}
