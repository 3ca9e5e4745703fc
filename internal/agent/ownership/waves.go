package ownership

import (
	"cmp"
	"math"
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// GateStep is the turn of an item in its manifest: its phase, and its wave in the phase.
type GateStep struct {
	Phase atoll.HookPhase
	Wave  int32
}

// CompareSteps returns a negative number for a step before the other.
func (s GateStep) CompareSteps(o GateStep) int {
	return cmp.Or(cmp.Compare(s.Phase, o.Phase), cmp.Compare(s.Wave, o.Wave))
}

// groundStep is before all hooks. Definitions and namespaces have it in a manifest with hooks, as hooks may need them.
var groundStep = GateStep{atoll.PhasePreSync, math.MinInt32}

// GateEntry is an item in one of its steps. A hook has one entry for each phase in which it runs.
type GateEntry struct {
	// Item is read-only.
	Item *atoll.RenderedItem
	Step GateStep
}

// WaveGate holds back items of one manifest until their step opens. A nil WaveGate holds no item.
type WaveGate struct {
	// entries of the manifest, by step.
	entries   []GateEntry
	hooks     []GateEntry // those of entries that are hooks
	firstWave int32
	// hasHooks: some of the items are hooks. install: the manifest is the first of its Bundle. removes: the steps are
	// those of a removal.
	hasHooks, install, removes bool
	// The entries from begin to end are those of the last open step. Those from end on are held.
	begin, end int
	// awaited is the entry from which on the step is looked through: the first that was not ready.
	awaited int
	// finished: the last step was ready. Only gates with hooks note it.
	finished bool
}

// NewWaveGate returns a gate whose first step is open; nil where there are no hooks, and all items are of one wave. It keeps
// the items. install: the manifest is the first of its Bundle in the member.
func NewWaveGate(m *atoll.Manifest, install bool) *WaveGate {
	g := &WaveGate{firstWave: firstWaveOf(m.Items), install: install}
	g.hasHooks = slices.ContainsFunc(m.Items, func(it atoll.RenderedItem) bool { return it.Hook != nil })
	for i := range m.Items {
		for _, step := range g.StepsOf(&m.Items[i]) {
			if step.Phase != atoll.PhaseSyncFail { // which others do not wait for
				g.entries = append(g.entries, GateEntry{&m.Items[i], step})
			}
		}
	}
	g.sortEntries()
	if !g.hasHooks && (len(g.entries) == 0 || g.entries[0].Step == g.entries[len(g.entries)-1].Step) {
		return nil
	}
	if len(g.entries) > 0 {
		g.openNext()
	}
	return g
}

// sortEntries sorts the entries by their steps, and lists the hooks among them.
func (g *WaveGate) sortEntries() {
	slices.SortStableFunc(g.entries, func(x, y GateEntry) int { return x.Step.CompareSteps(y.Step) })
	for _, entry := range g.entries {
		if entry.Item.Hook != nil {
			g.hooks = append(g.hooks, entry)
		}
	}
}

// StepsOf returns the steps of an item, in their order: those of its phases for a hook, and one for others.
func (g *WaveGate) StepsOf(it *atoll.RenderedItem) (steps []GateStep) {
	wave := waveOf(it, g.firstWave)
	switch {
	case it.Hook != nil:
		for _, phase := range it.Hook.PhasesOf(g.install) {
			steps = append(steps, GateStep{phase, wave})
		}
		return steps
	case g.hasHooks && it.Wave == 0 && (it.Key.IsNamespace() || IsCRD(it.Key)):
		return []GateStep{groundStep}
	}
	return []GateStep{{atoll.PhaseSync, wave}}
}

// firstWaveOf returns the lowest wave of items, which is 0 or below.
func firstWaveOf(items []atoll.RenderedItem) (first int32) {
	for i := range items {
		if items[i].Hook == nil {
			first = min(first, items[i].Wave)
		}
	}
	return first
}

// waveOf returns the wave of an item. A dependency without a wave of its own is of the first wave, as objects of any
// wave may need it.
func waveOf(it *atoll.RenderedItem, first int32) int32 {
	if it.Dependency && it.Wave == 0 && it.Hook == nil {
		return first
	}
	return it.Wave
}

// openNext opens the next step.
func (g *WaveGate) openNext() {
	g.begin, g.awaited = g.end, g.end
	for g.end < len(g.entries) && g.entries[g.end].Step == g.entries[g.begin].Step {
		g.end++
	}
}

// Advance opens steps as long as all entries of the last open one are ready, and returns the keys that it opened. A call
// that finds the same entry not ready as the one before looks at no other.
func (g *WaveGate) Advance(isReady func(GateEntry) bool) (opened []atoll.ItemKey) {
	for g != nil && g.end < len(g.entries) && g.isStepReady(isReady) {
		g.openNext()
		for _, entry := range g.entries[g.begin:g.end] {
			opened = append(opened, entry.Item.Key)
		}
	}
	if g != nil && g.hasHooks && !g.finished && g.end == len(g.entries) {
		g.finished = len(g.entries) == 0 || g.isStepReady(isReady)
	}
	return opened
}

// isStepReady reports whether all entries of the last open step are ready, and otherwise notes the first that is not.
func (g *WaveGate) isStepReady(isReady func(GateEntry) bool) bool {
	from := g.awaited
	for i := range g.end - g.begin {
		at := from + i
		if at >= g.end {
			at -= g.end - g.begin
		}
		if !isReady(g.entries[at]) {
			g.awaited = at
			return false
		}
	}
	return true
}

// IsOpen reports whether the items of a step may be applied.
func (g *WaveGate) IsOpen(step GateStep) bool {
	return g == nil || g.end == len(g.entries) || step.CompareSteps(g.OpenStep()) <= 0
}

// IsPhaseOver reports whether all entries of a phase were ready.
func (g *WaveGate) IsPhaseOver(phase atoll.HookPhase) bool {
	return g == nil || g.finished || len(g.entries) > 0 && g.OpenStep().Phase > phase
}

// OpenStep returns the last step that is open.
func (g *WaveGate) OpenStep() GateStep { return g.entries[g.begin].Step }

// Awaited returns an entry of the last open step that was not ready.
func (g *WaveGate) Awaited() GateEntry { return g.entries[g.awaited] }

// HasHooks reports whether some items of the manifest are hooks.
func (g *WaveGate) HasHooks() bool { return g.hasHooks }

// IsFinished reports whether the last step was ready. Only gates with hooks report it.
func (g *WaveGate) IsFinished() bool { return g.finished }

// Hooks returns the hooks of the manifest with their phases, in their order; none for a nil gate. Read-only.
func (g *WaveGate) Hooks() []GateEntry {
	if g == nil {
		return nil
	}
	return g.hooks
}
