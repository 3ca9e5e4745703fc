package ownership

import (
	"cmp"
	"slices"
	"strconv"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// A removal keeps the hooks that it runs from the content that the member has. The claims on their objects stay until all
// hooks have run, so that no record of a run goes before. Then the holding loses the hooks, and their objects leave as others.

// keepRemovalHooks keeps, in the holding of a removal, the hooks that the removal runs, with what they need. prev is what is
// held of the Bundle; nil: nothing. A removal that orphans its objects runs none.
func (h *BundleHolding) keepRemovalHooks(prev *BundleHolding) {
	m := &h.Manifest
	m.HookRun, m.Namespaces = "", nil
	if prev == nil || m.Removal == v1alpha1.RemoveOrphan || m.RemovalHooks == atoll.RemovalHooksSkip {
		return
	}
	hooks, run := prev.Kept, prev.Manifest.HookRun
	if !prev.Manifest.Remove {
		hooks, run = prev.listRemovalHooks(), nameRemovalRun(m)
	}
	if h.Kept = withoutDeletedHooks(hooks, m.Tombstones); len(h.Kept) > 0 {
		m.HookRun, m.Namespaces, m.Interpreters = run, prev.Manifest.Namespaces, prev.Manifest.Interpreters
	}
}

// nameRemovalRun returns the name under which hooks run once for the removal that a manifest begins. Later manifests of the
// same removal keep it.
func nameRemovalRun(m *atoll.Manifest) string {
	return atoll.HashParts([]byte("removal"), []byte(m.Bundle), strconv.AppendInt(nil, m.Generation, 10))
}

// listRemovalHooks returns the hooks that a removal of the Bundle runs, with the last good content of those that could not be
// rendered.
func (h *BundleHolding) listRemovalHooks() (out []atoll.RenderedItem) {
	for i := range h.Manifest.Items {
		it := &h.Manifest.Items[i]
		if it.Failed() {
			at := slices.IndexFunc(h.Kept, func(kept atoll.RenderedItem) bool { return kept.Key == it.Key && kept.UID == it.UID })
			if at < 0 {
				continue
			}
			it = &h.Kept[at]
		}
		if it.Hook != nil && it.IsWritten() && len(it.Hook.RemovalPhases()) > 0 {
			hook := *it
			hook.ConflictResolution = cmp.Or(it.ConflictResolution, h.Manifest.ConflictResolution)
			out = append(out, hook)
		}
	}
	return out
}

// withoutDeletedHooks returns the hooks without those whose templates were taken out before the removal.
func withoutDeletedHooks(hooks []atoll.RenderedItem, tombstones []atoll.Tombstone) []atoll.RenderedItem {
	taken := map[string]bool{}
	for _, t := range tombstones {
		taken[TombstoneID(t)] = t.Cause != atoll.CauseExcluded // which tombstones of the removal itself have
	}
	return slices.DeleteFunc(slices.Clone(hooks), func(it atoll.RenderedItem) bool {
		return taken[TombstoneID(atoll.Tombstone{Key: it.Key, UID: it.UID})]
	})
}

// WithoutRemovalHooks returns the holding of a removal whose hooks have run.
func (h *BundleHolding) WithoutRemovalHooks() BundleHolding {
	out := *h
	out.Kept, out.Manifest.HookRun, out.Manifest.Namespaces, out.Manifest.Interpreters = nil, "", nil, nil
	return out
}

// HasRemovalHooks reports whether the holding is that of a removal whose hooks have not all run.
func (h *BundleHolding) HasRemovalHooks() bool {
	return h != nil && h.Manifest.Remove && len(h.Kept) > 0
}

// Hooks returns the hooks that run for the holding. Read-only.
func (h *BundleHolding) Hooks() (out []*atoll.RenderedItem) {
	items := h.Manifest.Items
	if h.Manifest.Remove {
		items = h.Kept
	}
	for i := range items {
		if items[i].Hook != nil {
			out = append(out, &items[i])
		}
	}
	return out
}

// listRemovalHooks lists the hooks that a removal runs as its items. A removal without hooks has no content and no namespace.
func (nb *indexedHolding) listRemovalHooks() {
	h := &nb.holding
	isOther := func(it atoll.RenderedItem) bool { return it.Hook == nil }
	if h.Kept = slices.DeleteFunc(slices.Clone(h.Kept), isOther); len(h.Kept) == 0 {
		h.Kept, h.Manifest.Namespaces = nil, nil
	}
	for i := range h.Kept {
		nb.listed[h.Kept[i].Key] = &h.Kept[i]
	}
}

// phasesOf returns the phases in which a hook of the holding runs.
func (h *BundleHolding) phasesOf(hook *atoll.Hook) []atoll.HookPhase {
	if h.Manifest.Remove {
		return hook.RemovalPhases()
	}
	return hook.PhasesOf(h.Install)
}

// removedObjects stands for all objects of a removal that are no hooks, in its gate.
var removedObjects atoll.RenderedItem

// NewRemovalGate returns the gate of a removal: hooks before it, the removal of all other objects, and hooks after it. Nil where
// no hooks are to run. It keeps the hooks.
func NewRemovalGate(h *BundleHolding) *WaveGate {
	if !h.HasRemovalHooks() {
		return nil
	}
	g := &WaveGate{hasHooks: true, removes: true, entries: []GateEntry{{&removedObjects, GateStep{Phase: atoll.PhaseRemoval}}}}
	for _, it := range h.Hooks() {
		for _, phase := range it.Hook.RemovalPhases() {
			g.entries = append(g.entries, GateEntry{it, GateStep{phase, it.Wave}})
		}
	}
	g.sortEntries()
	g.openNext()
	return g
}

// IsRemoval reports whether the steps are those of a removal.
func (g *WaveGate) IsRemoval() bool { return g != nil && g.removes }

// IsRemovalOfOthers reports whether the entry stands for all objects of a removal that are no hooks.
func (e GateEntry) IsRemovalOfOthers() bool { return e.Item == &removedObjects }

// AreObjectsRemoved reports whether a Bundle has no leaving object that others wait for.
func (b *OwnershipRecords) AreObjectsRemoved(bundle string) bool {
	l := b.leaving[bundle]
	return l == nil || !l.hasFront
}

// RecordOverdueHook records that the run of the object with the UID failed by its deadline, and reports whether that is new.
func (b *OwnershipRecords) RecordOverdueHook(key atoll.ItemKey, uid string) bool {
	if !b.RecordHookOutcome(key, uid, HookFailed) {
		return false
	}
	b.records[key].Hook.Overdue = true
	return true
}
