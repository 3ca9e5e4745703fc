package ownership

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// hookItem returns an item of a Job that is a hook.
func hookItem(name, events, policies string, wave int32) atoll.RenderedItem {
	h, _ := atoll.ParseHook(events, policies)
	return atoll.RenderedItem{Key: atoll.ItemKey{Group: "batch", Kind: "Job", Namespace: "shop", Name: name}, UID: "t-" + name, Hash: "h", Wave: wave, Hook: h}
}

// hookManifest returns a manifest whose hooks run for a content.
func hookManifest(generation int64, run string, items ...atoll.RenderedItem) atoll.Manifest {
	return atoll.Manifest{Bundle: "b1", Generation: generation, HookRun: run, Items: items}
}

// foldHooks folds a manifest as the engine does.
func foldHooks(b *OwnershipRecords, m atoll.Manifest) *WaveGate {
	h := Merge(b.HoldingOf("b1"), m)
	h.Install = b.IsInstall(&m)
	b.FoldHolding(h)
	return NewWaveGate(&h.Manifest, h.Install)
}

// Phases follow each other, and waves in them. Definitions and namespaces come before all hooks.
func TestPhasesComeBeforeWaves(t *testing.T) {
	definition := atoll.RenderedItem{Key: atoll.ItemKey{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "crd"}, UID: "t"}
	g := NewWaveGate(&atoll.Manifest{Items: []atoll.RenderedItem{
		waveItem("app", 0), waveItem("base", -3), hookItem("post", "PostSync", "", 0), hookItem("pre2", "PreSync", "", 5), hookItem("pre1", "PreInstall,PostUpgrade", "", -1),
		hookItem("both", "PreSync,PostSync", "", 7), hookItem("never", "Skip", "", 0), hookItem("fails", "SyncFail", "", 0), hookItem("sync", "Sync", "", -3), definition,
	}}, true)
	want := "crd|pre1|pre2|both|base sync|app|post|both"
	var got []string
	for {
		var names []string
		for _, entry := range g.entries[g.begin:g.end] {
			names = append(names, entry.Item.Key.Name)
		}
		got = append(got, strings.Join(names, " "))
		if g.IsOpen(GateStep{atoll.PhasePostSync, 100}) {
			break
		}
		before := g.OpenStep()
		g.Advance(func(entry GateEntry) bool { return entry.Step == before })
	}
	if text := strings.Join(got, "|"); text != want {
		t.Errorf("the steps are %s, want %s", text, want)
	}
	if g.IsFinished() || g.IsPhaseOver(atoll.PhasePostSync) || !g.IsPhaseOver(atoll.PhaseSync) {
		t.Error("the last phase is over before it is ready")
	}
	g.Advance(func(GateEntry) bool { return true })
	if !g.IsFinished() || !g.IsPhaseOver(atoll.PhasePostSync) {
		t.Error("the last phase is not over")
	}
	if n := len(g.Hooks()); n != 6 {
		t.Errorf("%d hooks are in the gate", n)
	}
}

// A manifest of hooks that do not run has a gate that holds nothing.
func TestAGateWithoutEntries(t *testing.T) {
	g := NewWaveGate(&atoll.Manifest{Items: []atoll.RenderedItem{hookItem("a", "Skip", "", 0)}}, true)
	if opened := g.Advance(func(GateEntry) bool { return false }); opened != nil || !g.IsFinished() || !g.IsOpen(GateStep{Wave: 9}) || !g.IsPhaseOver(atoll.PhaseSync) {
		t.Errorf("it opens %v", opened)
	}
}

// A run is begun, made, ended, and not made again. A content change starts another one, which deletes the object first.
func TestAHookRunsOncePerContent(t *testing.T) {
	b, it := NewOwnershipRecords(), hookItem("a", "PreSync", "", 0)
	foldHooks(b, hookManifest(1, "c1", it))
	expect := func(verb Verb, begun bool) {
		t.Helper()
		if s := b.Next(it.Key); s.Verb != verb || s.Hook.Begun != begun {
			t.Fatalf("next is %s, begun %t, want %s, %t", s.Verb, s.Hook.Begun, verb, begun)
		}
	}
	apply := func(uid string) {
		r, _ := b.Record(it.Key)
		b.RecordApplied(it.Key, Fact{UID: uid, Template: it.UID, Hash: it.Hash, Label: "b1", HookRun: r.Hook.Label()})
	}
	expect(Apply, false)
	b.BeginHook(it.Key)
	expect(Apply, true)
	apply("u1")
	expect(Nothing, true)
	if b.RecordHookOutcome(it.Key, "other", HookSucceeded) || !b.RecordHookOutcome(it.Key, "u1", HookSucceeded) || b.RecordHookOutcome(it.Key, "u1", HookFailed) {
		t.Error("an outcome is recorded of another object, or twice")
	}
	expect(Nothing, false)
	b.RecordGone(it.Key, "u1", nil)
	expect(Nothing, false) // also where something deletes the object
	foldHooks(b, hookManifest(2, "c2", it))
	expect(Apply, false)
	b.BeginHook(it.Key)
	apply("u2")

	// A change of other items does not interrupt the run, an edit of the hook does.
	foldHooks(b, hookManifest(3, "c3", it))
	if s := b.Next(it.Key); s.Verb != Nothing || !s.Hook.Waits {
		t.Errorf("a run is interrupted by %s", s.Verb)
	}
	edited := it
	edited.Hash = "h2"
	foldHooks(b, hookManifest(4, "c4", edited))
	expect(Replace, false)
	b.RecordGone(it.Key, "u2", nil)
	expect(Apply, false)
	b.BeginHook(it.Key)
	apply("u3")
	b.RecordGone(it.Key, "u3", &atoll.ItemStatus{Message: "seen"}) // before it ended
	if s := b.Next(it.Key); s.Verb != Nothing || !s.Hook.Failed() {
		t.Errorf("a run whose object is gone: %s, %+v", s.Verb, s.Hook)
	}
	if r, _ := b.Record(it.Key); r.Last == nil || r.Last.Message != "seen" {
		t.Error("what was seen last is lost")
	}
}

// Delete policies delete the object of a run that ended so, and no object that takes others along or that Atoll did not make.
func TestDeletePoliciesOfHooks(t *testing.T) {
	for _, c := range []struct {
		policies  string
		outcome   HookOutcome
		kind      string
		adopted   bool
		verb      Verb // after the outcome
		nextVerb  Verb // for the next content
		nextBegun Verb // once the next run has begun
	}{
		{"", HookSucceeded, "Job", false, Nothing, Replace, Apply},
		{"", HookFailed, "Job", false, Nothing, Replace, Apply},
		{"HookSucceeded", HookSucceeded, "Job", false, Delete, Replace, Apply},
		{"HookSucceeded", HookFailed, "Job", false, Nothing, Replace, Apply},
		{"HookFailed", HookFailed, "Job", false, Delete, Replace, Apply},
		{"HookFailed", HookSucceeded, "Job", false, Nothing, Replace, Apply},
		{"HookFailed", HookSucceeded, "ConfigMap", false, Nothing, Apply, Apply},
		{"BeforeHookCreation,HookSucceeded", HookSucceeded, "Job", false, Delete, Replace, Apply},
		{"HookSucceeded,BeforeHookCreation", HookSucceeded, "PersistentVolumeClaim", false, Nothing, Apply, Apply},
		{"HookSucceeded,BeforeHookCreation", HookSucceeded, "Job", true, Nothing, Apply, Apply},
	} {
		b, it := NewOwnershipRecords(), hookItem("a", "Sync", c.policies, 0)
		if it.Key.Kind = c.kind; c.kind != "Job" {
			it.Key.Group = ""
		}
		foldHooks(b, hookManifest(1, "c1", it))
		b.BeginHook(it.Key)
		b.RecordApplied(it.Key, Fact{UID: "u1", Template: it.UID, Hash: it.Hash, Label: "b1", HookRun: "c1.Sync", Adopted: c.adopted})
		b.RecordHookOutcome(it.Key, "u1", c.outcome)
		got := []Verb{b.Next(it.Key).Verb}
		foldHooks(b, hookManifest(2, "c2", it))
		got = append(got, b.Next(it.Key).Verb)
		b.BeginHook(it.Key)
		got = append(got, b.Next(it.Key).Verb)
		if want := []Verb{c.verb, c.nextVerb, c.nextBegun}; !slices.Equal(got, want) {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// A Bundle is installed until all hooks of a content succeeded. Then contents are upgrades, until the Bundle was removed.
func TestInstallsAndUpgrades(t *testing.T) {
	b, it := NewOwnershipRecords(), hookItem("a", "PreInstall", "", 0)
	isInstall := func(want bool) {
		t.Helper()
		if got := b.HoldingOf("b1").Install; got != want {
			t.Errorf("it is an install: %t", got)
		}
	}
	foldHooks(b, hookManifest(1, "c1", it))
	isInstall(true)
	b.BeginHook(it.Key)
	b.RecordApplied(it.Key, Fact{UID: "u1", Template: it.UID, Hash: it.Hash, Label: "b1", HookRun: "c1.PreSync"})
	b.RecordHookOutcome(it.Key, "u1", HookFailed)
	foldHooks(b, hookManifest(2, "c2", it))
	isInstall(true)
	b.BeginHook(it.Key)
	b.RecordApplied(it.Key, Fact{UID: "u2", Template: it.UID, Hash: it.Hash, Label: "b1", HookRun: "c2.PreSync"})
	b.RecordHookOutcome(it.Key, "u2", HookSucceeded)
	foldHooks(b, hookManifest(3, "c2", it, waveItem("x", 0)))
	isInstall(true) // the same content for hooks
	foldHooks(b, hookManifest(4, "c3", it))
	isInstall(false)
	if s := b.HookStateOf("b1", &it); s.HasNext {
		t.Errorf("a hook of an install runs in %s of an upgrade", s.Phase)
	}
	foldHooks(b, atoll.Manifest{Bundle: "b1", Generation: 5, Remove: true})
	isInstall(false)
	foldHooks(b, hookManifest(6, "c4", it))
	isInstall(true)
}

// A hook that the manifest lacks without a tombstone, or could not render, does not run with its former content.
func TestAKeptHookDoesNotRun(t *testing.T) {
	it := hookItem("a", "Sync", "", 0)
	failed := it
	failed.Error, failed.Hash = "a rule does not apply", "e"
	for name, items := range map[string][]atoll.RenderedItem{"not listed": {waveItem("x", 0)}, "not rendered": {failed}} {
		b := NewOwnershipRecords()
		foldHooks(b, hookManifest(1, "c1", it))
		foldHooks(b, hookManifest(2, "c2", items...))
		if s := b.Next(it.Key); s.Verb != Nothing || s.Item == nil {
			t.Errorf("%s: %s of %v", name, s.Verb, s.Item)
		}
	}
}

// The label of an object names its run, for an agent that lost the record.
func TestLabelOfAHookRun(t *testing.T) {
	for phase := atoll.PhasePreSync; phase <= atoll.PhasePostDelete; phase++ {
		run := HookRun{Content: atoll.HashParts(), Template: "t", Phase: phase, UID: "u"}
		if got := ParseHookRun(run.Label(), "t", "u"); got == nil || *got != run || len(run.Label()) > 63 {
			t.Errorf("%s is %+v", run.Label(), got)
		}
	}
	for _, label := range []string{"", "c", "c.Never", ".PreSync.x"} {
		if got := ParseHookRun(label, "t", "u"); got != nil {
			t.Errorf("%q is %+v", label, got)
		}
	}
}

// hookSim is an agent that crashes at any moment while hooks and other objects of a Bundle change, fail and succeed.
type hookSim struct {
	t       *testing.T
	rng     *rand.Rand
	log     []string
	book    *OwnershipRecords
	gate    *WaveGate
	stored  []Record
	holding *BundleHolding
	objects map[atoll.ItemKey]*hookObject
	created map[string]int // by content, phase and key
	uids    int
}

// hookObject is an object in the member.
type hookObject struct {
	uid, label, hash string
	outcome          HookOutcome
}

func (s *hookSim) fail(format string, args ...any) {
	s.t.Helper()
	for _, line := range s.log {
		s.t.Log(line)
	}
	s.t.Fatalf(format, args...)
}

// storeRecords stores the records, as the shell does.
func (s *hookSim) storeRecords() {
	s.stored = nil
	for _, key := range s.book.RecordedKeys() {
		r, _ := s.book.Record(key)
		s.stored = append(s.stored, r)
	}
}

// restartAgent makes the agent lose all that it did not store.
func (s *hookSim) restartAgent() {
	s.log = append(s.log, "restart")
	s.book = NewOwnershipRecords()
	for _, r := range s.stored {
		s.book.RestoreRecord(r)
	}
	if s.holding != nil {
		s.book.FoldHolding(*s.holding)
		s.gate = NewWaveGate(&s.holding.Manifest, s.holding.Install)
	}
}

// publishContent sends another content.
func (s *hookSim) publishContent(generation int64) {
	m := hookManifest(generation, fmt.Sprint("c", generation))
	for i, events := range []string{"PreSync", "PreSync,PostSync", "Sync", "PostSync", "PreInstall", "PreUpgrade", "SyncFail"} {
		it := hookItem(fmt.Sprint("hook", i), events, []string{"", "HookSucceeded", "HookFailed", "BeforeHookCreation,HookSucceeded"}[i%4], int32(i%2))
		m.Items = append(m.Items, it)
	}
	for i := range 3 {
		it := waveItem(fmt.Sprint("plain", i), int32(i))
		it.Hash = fmt.Sprint("h", s.rng.IntN(3))
		m.Items = append(m.Items, it)
	}
	s.log = append(s.log, "content "+m.HookRun)
	h := Merge(s.book.HoldingOf("b1"), m)
	h.Install = s.book.IsInstall(&m)
	s.holding = &h
	s.book.FoldHolding(h)
	s.gate = NewWaveGate(&h.Manifest, h.Install)
}

// isReady reports whether the record of an entry is as the gate waits for it.
func (s *hookSim) isReady(entry GateEntry) bool {
	if entry.Item.Hook != nil {
		return s.book.HookStateOf("b1", entry.Item).Succeeded(entry.Step.Phase)
	}
	r, _ := s.book.Record(entry.Item.Key)
	return r.UID != "" && r.Applied == entry.Item.Hash
}

// checkOrder fails where an entry before the step is not complete in the member. Objects of hooks may be deleted since, so
// that their records count, too.
func (s *hookSim) checkOrder(key atoll.ItemKey, step GateStep) {
	for _, entry := range s.gate.entries {
		if entry.Step.CompareSteps(step) >= 0 {
			continue
		}
		o := s.objects[entry.Item.Key]
		if entry.Item.Hook == nil && (o == nil || o.hash != entry.Item.Hash) || entry.Item.Hook != nil && !s.isReady(entry) {
			s.fail("%s in step %+v is applied before %s of step %+v", key, step, entry.Item.Key, entry.Step)
		}
	}
}

// workOnItem does what is next about a key, and may crash after each part.
func (s *hookSim) workOnItem(it *atoll.RenderedItem) {
	next := s.book.Next(it.Key)
	steps := s.gate.StepsOf(it)
	switch {
	case next.Verb == Nothing:
	case next.Verb == Delete:
		if next.Hook.Failed() || s.gate.IsPhaseOver(next.Hook.Last.Phase) {
			s.removeObject(it.Key, next.Record.UID)
		}
	case next.Hook == nil:
		if step := steps[0]; s.gate.IsOpen(step) {
			s.checkOrder(it.Key, step)
			s.applyItem(it, "")
		}
	case next.Hook.Phase == atoll.PhaseSyncFail && !s.hasFailed(), next.Hook.Phase != atoll.PhaseSyncFail && !next.Hook.Begun && !s.gate.IsOpen(GateStep{next.Hook.Phase, it.Wave}):
	case next.Verb == Replace:
		s.removeObject(it.Key, next.Record.UID)
	default:
		s.runHook(it, next)
	}
}

// hasFailed reports whether a hook failed for the content.
func (s *hookSim) hasFailed() bool {
	return slices.ContainsFunc(s.gate.Hooks(), func(entry GateEntry) bool { return s.book.HookStateOf("b1", entry.Item).Failed() })
}

// runHook begins and applies a hook.
func (s *hookSim) runHook(it *atoll.RenderedItem, next Step) {
	if !next.Hook.Begun {
		if next.Hook.Phase != atoll.PhaseSyncFail {
			s.checkOrder(it.Key, GateStep{next.Hook.Phase, it.Wave})
		}
		s.book.BeginHook(it.Key)
		s.storeRecords()
		if s.rng.IntN(4) == 0 {
			s.restartAgent()
			return
		}
	}
	r, _ := s.book.Record(it.Key)
	s.applyItem(it, r.Hook.Label())
}

// applyItem creates or changes an object. The agent may crash before it records what it did.
func (s *hookSim) applyItem(it *atoll.RenderedItem, label string) {
	r, _ := s.book.Record(it.Key)
	o := s.objects[it.Key]
	switch {
	case o != nil && r.UID == "" && o.label == label: // an interrupted apply made it
		s.book.RecordFoundAfterInterruptedApply(it.Key, Fact{UID: o.uid, Label: "b1", Template: it.UID, HookRun: o.label})
		return
	case o == nil:
		s.uids++
		o = &hookObject{uid: fmt.Sprint("u", s.uids), hash: it.Hash, label: label}
		s.objects[it.Key] = o
		if label != "" {
			s.created[label+" "+it.Key.Name]++
			if s.created[label+" "+it.Key.Name] > 1 {
				s.fail("%s runs twice for %s", it.Key, label)
			}
		}
	default:
		o.hash, o.label = it.Hash, label
	}
	s.log = append(s.log, fmt.Sprintf("apply %s %s %s", it.Key.Name, it.Hash, label))
	if s.rng.IntN(4) == 0 {
		s.restartAgent()
		return
	}
	s.book.RecordApplied(it.Key, Fact{UID: o.uid, Template: it.UID, Hash: it.Hash, Label: "b1", HookRun: o.label})
	if s.rng.IntN(2) == 0 {
		s.storeRecords()
	}
}

// removeObject deletes an object after it stored how it ended.
func (s *hookSim) removeObject(key atoll.ItemKey, uid string) {
	s.storeRecords()
	if o := s.objects[key]; o != nil && o.uid == uid {
		s.log = append(s.log, "delete "+key.Name)
		delete(s.objects, key)
	}
	if s.rng.IntN(4) == 0 {
		s.restartAgent()
		return
	}
	s.book.RecordGone(key, uid, nil)
}

// observeItem ends an object, and lets the agent see how objects ended.
func (s *hookSim) observeItem(it *atoll.RenderedItem) {
	o := s.objects[it.Key]
	if o == nil || it.Hook == nil {
		return
	}
	if o.outcome == "" && o.label != "" {
		o.outcome = HookSucceeded
		if s.rng.IntN(12) == 0 {
			o.outcome = HookFailed
		}
		s.log = append(s.log, fmt.Sprintf("%s %s", it.Key.Name, o.outcome))
	}
	s.book.RecordHookOutcome(it.Key, o.uid, o.outcome)
}

// No object is applied before all earlier phases and waves are complete, and each hook runs once for a content, whenever the
// agent crashes. Without a failure everything ends.
func TestHooksRunInOrderAndOnceOverCrashes(t *testing.T) {
	finished := 0
	for seed := range uint64(40) {
		s := &hookSim{t: t, rng: rand.New(rand.NewPCG(seed, 7)), book: NewOwnershipRecords(), objects: map[atoll.ItemKey]*hookObject{}, created: map[string]int{}}
		s.log = append(s.log, fmt.Sprint("seed ", seed))
		for generation := int64(1); generation <= 4; generation++ {
			s.publishContent(generation)
			for range 30 + s.rng.IntN(400) {
				it := &s.holding.Manifest.Items[s.rng.IntN(len(s.holding.Manifest.Items))]
				s.workOnItem(it)
				s.observeItem(it)
				s.gate.Advance(s.isReady)
				if s.rng.IntN(60) == 0 {
					s.restartAgent()
				}
			}
		}
		for i := 0; i < 5000 && !s.gate.IsFinished() && !s.hasFailed(); i++ {
			it := &s.holding.Manifest.Items[i%len(s.holding.Manifest.Items)]
			s.workOnItem(it)
			s.observeItem(it)
			s.gate.Advance(s.isReady)
		}
		switch {
		case s.gate.IsFinished():
			finished++
		case !s.hasFailed():
			s.fail("it neither ends nor fails; it waits for %s", s.gate.Awaited().Item.Key)
		}
	}
	if finished == 0 || finished == 40 {
		t.Errorf("%d of 40 worlds end without a failure", finished)
	}
}

// An object that ran to completion cannot run again, so that the next run replaces it whatever the delete policies state: applied to
// it, the run would end at once, as the former one did. It stays where Atoll did not make it.
func TestAFinishedObjectIsReplacedForTheNextRun(t *testing.T) {
	for name, c := range map[string]struct {
		events, policies string
		outcome          HookOutcome
		adopted, endless bool
		content          string
		want             Verb
	}{
		"failed, deleted on success":      {"PreSync", "HookSucceeded", HookFailed, false, false, "c2", Replace},
		"succeeded, deleted on a failure": {"PreSync", "HookFailed", HookSucceeded, false, false, "c2", Replace},
		"its second phase":                {"PreSync,PostSync", "HookSucceeded", HookSucceeded, false, false, "c1", Replace},
		"not made by Atoll":               {"PreSync", "HookFailed", HookSucceeded, true, false, "c2", Apply},
		"it never ends":                   {"PreSync", "HookFailed", HookSucceeded, false, true, "c2", Apply},
	} {
		b, it := NewOwnershipRecords(), hookItem("a", c.events, c.policies, 0)
		foldHooks(b, hookManifest(1, "c1", it))
		b.BeginHook(it.Key)
		b.RecordApplied(it.Key, Fact{UID: "u1", Template: it.UID, Hash: it.Hash, Label: "b1", HookRun: "c1.PreSync", Adopted: c.adopted, Endless: c.endless})
		b.RecordHookOutcome(it.Key, "u1", c.outcome)
		foldHooks(b, hookManifest(2, c.content, it))
		if got := b.Next(it.Key).Verb; got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// A Bundle that an older agent held without applying any of it is installed, and so is one whose hook could not be rendered at first.
func TestWhatIsStillAnInstall(t *testing.T) {
	it := hookItem("a", "PreInstall", "", 0)
	lost := it
	lost.Hook, lost.Error = nil, atoll.UnknownHook
	failed := it
	failed.Error = "a rule does not apply"
	for name, c := range map[string]struct {
		first   BundleHolding
		install bool
	}{
		"an older agent applied none":  {BundleHolding{Manifest: atoll.Manifest{Bundle: "b1", Generation: 1, Items: []atoll.RenderedItem{lost}}}, true},
		"an older agent kept content":  {BundleHolding{Manifest: atoll.Manifest{Bundle: "b1", Generation: 1, Items: []atoll.RenderedItem{lost}}, Kept: []atoll.RenderedItem{{Key: it.Key, UID: it.UID}}}, false},
		"content without hooks":        {BundleHolding{Manifest: atoll.Manifest{Bundle: "b1", Generation: 1, Items: []atoll.RenderedItem{waveItem("x", 0)}}}, false},
		"no objects":                   {BundleHolding{Manifest: atoll.Manifest{Bundle: "b1", Generation: 1}}, false},
		"a hook that was not rendered": {BundleHolding{Manifest: hookManifest(1, "c1", failed), Install: true}, true},
	} {
		b := NewOwnershipRecords()
		b.FoldHolding(c.first)
		m := hookManifest(2, "c2", it)
		if got := b.IsInstall(&m); got != c.install {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A Bundle without hooks stores nothing for them.
func TestABundleWithoutHooksStoresNothingForThem(t *testing.T) {
	m := hookManifest(1, "", waveItem("x", 0))
	if b := NewOwnershipRecords(); b.IsInstall(&m) {
		t.Error("that it is an install is stored")
	}
}
