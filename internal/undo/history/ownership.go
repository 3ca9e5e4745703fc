package history

import "maps"

// lastAppliedManager is the field manager of kubectl apply, which writes the annotation of what was last applied.
const lastAppliedManager = "kubectl-client-side-apply"

// Manager is a field manager of an object.
type Manager struct {
	Name string
	// Applies: it owns its fields by server-side apply.
	Applies bool
}

// UsualManager returns the field manager with which a user writes an object, by its managed fields: kubectl
// apply, or else one that applies on the server, or else the first one; empty: there is none. The
// managers in not are passed over.
func UsualManager(managed []any, not ...string) (found Manager) {
	passed := map[string]bool{"": true}
	for _, name := range not {
		passed[name] = true
	}
	for _, e := range managed {
		entry, _ := e.(map[string]any)
		name, _ := entry["manager"].(string)
		if passed[name] || hasText(entry, "subresource") {
			continue
		}
		m := Manager{Name: name, Applies: entry["operation"] == "Apply"}
		switch {
		case name == lastAppliedManager:
			return m
		case found.Name == "" || m.Applies && !found.Applies:
			found = m
		}
	}
	return found
}

func hasText(entry map[string]any, field string) bool {
	text, _ := entry[field].(string)
	return text != ""
}

func isEntryOf(entry map[string]any, m Manager) bool {
	return entry["manager"] == m.Name && (entry["operation"] == "Apply") == m.Applies && !hasText(entry, "subresource")
}

// RestoreOwnership returns the managed fields of an object that was created again: those of the former one,
// except of its status, in place of what the creation by the manager gave it.
func RestoreOwnership(live, former []any, creator string) (out []any) {
	for _, e := range former {
		if entry, ok := e.(map[string]any); ok && entry["subresource"] != "status" {
			out = append(out, entry)
		}
	}
	for _, e := range live {
		entry, _ := e.(map[string]any)
		if entry["subresource"] == "status" || !isEntryOf(entry, Manager{Name: creator}) && !hasEntryLike(out, entry) {
			out = append(out, entry)
		}
	}
	return out
}

func hasEntryLike(list []any, entry map[string]any) bool {
	for _, e := range list {
		other, _ := e.(map[string]any)
		if other["manager"] == entry["manager"] && other["operation"] == entry["operation"] && other["subresource"] == entry["subresource"] {
			return true
		}
	}
	return false
}

// JoinOwnership returns the managed fields of an object in which the manager applies again the fields that it has
// just written and applied in the former object. Other written fields stay what it updated: a field that it applies
// and that its next apply lacks would be removed. It returns nil where nothing needs to change: the manager does not
// apply on the server, or updated the object before.
func JoinOwnership(former, before, live []any, m Manager) (out []any) {
	updates := Manager{Name: m.Name}
	if !m.Applies || findEntry(before, updates) != nil {
		return nil
	}
	written, applied, had := findEntry(live, updates), findEntry(live, m), findEntry(former, m)
	if !isOfOneVersion(written, applied, had) {
		return nil
	}
	joined, rest := splitFieldSet(fieldSetOf(written), fieldSetOf(had))
	if len(joined) == 0 {
		return nil
	}
	for _, e := range live {
		entry, _ := e.(map[string]any)
		switch {
		case isEntryOf(entry, updates) && len(rest) == 0:
			continue
		case isEntryOf(entry, updates):
			entry = withFieldSet(entry, rest)
		case isEntryOf(entry, m):
			entry = withFieldSet(entry, uniteFieldSets(fieldSetOf(entry), joined))
		}
		out = append(out, entry)
	}
	return out
}

// isOfOneVersion reports whether all entries are there and name their fields in the same version of the API.
func isOfOneVersion(entries ...map[string]any) bool {
	for _, e := range entries {
		if e == nil || e["apiVersion"] != entries[0]["apiVersion"] {
			return false
		}
	}
	return true
}

func fieldSetOf(entry map[string]any) map[string]any {
	set, _ := entry["fieldsV1"].(map[string]any)
	return set
}

func withFieldSet(entry, set map[string]any) map[string]any {
	entry = maps.Clone(entry)
	entry["fieldsV1"] = set
	return entry
}

// splitFieldSet splits a set into what is in another one and the rest.
func splitFieldSet(set, other map[string]any) (in, rest map[string]any) {
	in, rest = map[string]any{}, map[string]any{}
	for name, v := range set {
		o, has := other[name]
		sub, _ := v.(map[string]any)
		below, _ := o.(map[string]any)
		switch {
		case !has:
			rest[name] = v
		case len(sub) == 0 || len(below) == 0:
			in[name] = v
		default:
			subIn, subRest := splitFieldSet(sub, below)
			if len(subIn) > 0 {
				in[name] = subIn
			}
			if len(subRest) > 0 {
				rest[name] = subRest
			}
		}
	}
	return in, rest
}

func findEntry(list []any, m Manager) map[string]any {
	for _, e := range list {
		if entry, _ := e.(map[string]any); isEntryOf(entry, m) {
			return entry
		}
	}
	return nil
}

// uniteFieldSets returns the fields of two sets in the format of managed fields.
func uniteFieldSets(a, b map[string]any) map[string]any {
	out := maps.Clone(a)
	if out == nil {
		out = map[string]any{}
	}
	for name, v := range b {
		if old, has := out[name]; has {
			x, _ := old.(map[string]any)
			y, _ := v.(map[string]any)
			v = uniteFieldSets(x, y)
		}
		out[name] = v
	}
	return out
}
