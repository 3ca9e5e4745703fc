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

// JoinOwnership returns the managed fields of an object in which what the manager has just written is among the
// fields that it applies. It returns nil where the manager does not apply on the server, or updated the object
// before: then nothing needs to change.
func JoinOwnership(before, live []any, m Manager) (out []any) {
	updates := Manager{Name: m.Name}
	if !m.Applies || findEntry(before, updates) != nil {
		return nil
	}
	written, applied := findEntry(live, updates), findEntry(live, m)
	if written == nil || applied == nil || written["apiVersion"] != applied["apiVersion"] {
		return nil
	}
	for _, e := range live {
		entry, _ := e.(map[string]any)
		switch {
		case isEntryOf(entry, updates):
			continue
		case isEntryOf(entry, m):
			entry = maps.Clone(entry)
			a, _ := entry["fieldsV1"].(map[string]any)
			b, _ := written["fieldsV1"].(map[string]any)
			entry["fieldsV1"] = uniteFieldSets(a, b)
		}
		out = append(out, entry)
	}
	return out
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
