package ownership

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// removalOf returns a manifest that removes the Bundle.
func removalOf(generation int64, order string) atoll.Manifest {
	return atoll.Manifest{Bundle: "b1", Generation: generation, Remove: true, Removal: v1alpha1.RemoveDelete, RemovalHooks: order}
}

// A removal keeps the hooks of the content that the member has, with what they need, under one name for all its manifests.
func TestHooksThatARemovalKeeps(t *testing.T) {
	pre, post, sync := hookItem("pre", "PreDelete", "", 0), hookItem("post", "PostSync,PostDelete", "", 3), hookItem("sync", "PreSync", "", 0)
	failed := pre
	failed.Error, failed.Hash = "a rule does not apply", "e"
	active := BundleHolding{Manifest: hookManifest(4, "c1", waveItem("app", 0), pre, post, sync)}
	active.Manifest.ConflictResolution = v1alpha1.ConflictAbort
	active.Manifest.Namespaces = map[string]atoll.NamespaceMeta{"shop": {Labels: map[string]string{"a": "b"}}}
	active.Manifest.Interpreters = []atoll.Interpreter{{Name: "i"}}
	begun := Merge(&active, removalOf(5, ""))
	ended := begun.WithoutRemovalHooks()
	unrendered := active
	unrendered.Manifest.Items, unrendered.Kept = []atoll.RenderedItem{failed, post}, []atoll.RenderedItem{pre}
	unlisted := active
	unlisted.Manifest.Items, unlisted.Kept = []atoll.RenderedItem{post}, []atoll.RenderedItem{pre}
	orphaned, deleted, last := removalOf(5, ""), removalOf(5, ""), removalOf(5, "")
	orphaned.Removal = v1alpha1.RemoveOrphan
	deleted.Tombstones = []atoll.Tombstone{{Key: pre.Key, UID: pre.UID, Cause: atoll.CauseDeleted}, {Key: post.Key, UID: "former", Cause: atoll.CauseDeleted}}
	last.Tombstones = []atoll.Tombstone{{Key: pre.Key, UID: pre.UID, Cause: atoll.CauseExcluded, Last: true}}
	for name, c := range map[string]struct {
		prev *BundleHolding
		m    atoll.Manifest
		want string
	}{
		"nothing is held":              {nil, removalOf(5, ""), ""},
		"a content":                    {&active, removalOf(5, ""), "pre post"},
		"the same removal again":       {&begun, removalOf(6, ""), "pre post"},
		"its hooks run again":          {&begun, removalOf(6, "Retry"), "pre post"},
		"its hooks are skipped":        {&begun, removalOf(6, "Skip"), ""},
		"its hooks have run":           {&ended, removalOf(6, "Retry"), ""},
		"it orphans":                   {&active, orphaned, ""},
		"it orphans now":               {&begun, orphaned, ""},
		"a hook was deleted before":    {&active, deleted, "post"},
		"a hook that is removed last":  {&active, last, "pre post"},
		"a hook that is not rendered":  {&unrendered, removalOf(5, ""), "pre post"},
		"a hook that is not listed":    {&unlisted, removalOf(5, ""), "post"},
		"a content without such hooks": {&BundleHolding{Manifest: hookManifest(4, "c1", sync)}, removalOf(5, ""), ""},
	} {
		h := Merge(c.prev, c.m)
		var names []string
		for _, it := range h.Hooks() {
			names = append(names, it.Key.Name)
			if it.ConflictResolution != v1alpha1.ConflictAbort {
				t.Errorf("%s: the conflicts of %s are resolved by %q", name, it.Key.Name, it.ConflictResolution)
			}
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%s: it keeps %q, want %q", name, got, c.want)
		}
		has := c.want != ""
		if h.HasRemovalHooks() != has || atoll.IsHookRun(h.Manifest.HookRun) != has || len(h.Manifest.Namespaces) > 0 != has || len(h.Manifest.Interpreters) > 0 != has {
			t.Errorf("%s: it keeps %+v", name, h.Manifest)
		}
		if has && h.Manifest.HookRun != begun.Manifest.HookRun {
			t.Errorf("%s: the removal has another name", name)
		}
	}
	if later := Merge(&active, removalOf(7, "")); later.Manifest.HookRun == begun.Manifest.HookRun {
		t.Error("two removals have one name")
	}
	if back := Merge(&begun, hookManifest(6, "c1", waveItem("app", 0))); len(back.Kept) > 0 {
		t.Errorf("a Bundle that comes back keeps %d items", len(back.Kept))
	}
	if (*BundleHolding)(nil).HasRemovalHooks() || active.HasRemovalHooks() {
		t.Error("a holding that is no removal has hooks of one")
	}
}

// Steps of a removal: hooks by their waves, the other objects, hooks by their waves.
func TestStepsOfARemoval(t *testing.T) {
	active := BundleHolding{Manifest: hookManifest(1, "c1", waveItem("app", 0), hookItem("post", "PostDelete", "", -9), hookItem("pre2", "PreDelete", "", 2), hookItem("both", "PreDelete,PostDelete", "", 0), hookItem("sync", "Sync", "", 0))}
	h := Merge(&active, removalOf(2, ""))
	g := NewRemovalGate(&h)
	if !g.IsRemoval() || len(g.Hooks()) != 4 {
		t.Fatalf("the gate has %d hooks", len(g.Hooks()))
	}
	var got []string
	for !g.IsFinished() {
		before := g.OpenStep()
		var names []string
		for _, entry := range g.entries[g.begin:g.end] {
			names = append(names, entry.Step.Phase.String()+" "+entry.Item.Key.Name)
			if entry.IsRemovalOfOthers() != (entry.Step.Phase == atoll.PhaseRemoval) {
				t.Errorf("%+v stands for the others", entry)
			}
		}
		got = append(got, strings.Join(names, ", "))
		g.Advance(func(entry GateEntry) bool { return entry.Step == before })
	}
	if text := strings.Join(got, "|"); text != "PreDelete both|PreDelete pre2|Removal |PostDelete post|PostDelete both" {
		t.Errorf("the steps are %s", text)
	}
	for name, none := range map[string]BundleHolding{"a content": active, "a removal whose hooks have run": h.WithoutRemovalHooks()} {
		if g := NewRemovalGate(&none); g != nil || g.IsRemoval() {
			t.Errorf("%s has the gate of a removal", name)
		}
	}
}

// A hook of a removal is no object of its content, runs once for the removal, and again by order if it failed. Its record stays.
func TestARemovalHookRunsOnce(t *testing.T) {
	b, it := NewOwnershipRecords(), hookItem("a", "PreDelete", "", 0)
	foldHooks(b, hookManifest(1, "c1", it))
	expect := func(what string, verb Verb, begun, failed bool) {
		t.Helper()
		if s := b.Next(it.Key); s.Verb != verb || s.Hook.Begun != begun || s.Hook.Failed() != failed {
			t.Fatalf("%s: next is %s, %+v", what, s.Verb, s.Hook)
		}
	}
	apply := func(uid string) {
		r, _ := b.Record(it.Key)
		b.RecordApplied(it.Key, Fact{UID: uid, Template: it.UID, Hash: it.Hash, Label: "b1", HookRun: r.Hook.Label(), At: 7})
	}
	expect("in the content", Nothing, false, false)
	foldHooks(b, removalOf(2, ""))
	expect("in the removal", Apply, false, false)
	b.BeginHook(it.Key)
	apply("u1")
	expect("made", Nothing, true, false)
	if r, _ := b.Record(it.Key); r.Hook.Since != 7 {
		t.Errorf("the run began at %d", r.Hook.Since)
	}
	if !b.RecordOverdueHook(it.Key, "u1") || b.RecordOverdueHook(it.Key, "u1") || b.RecordOverdueHook(it.Key, "other") {
		t.Error("a deadline is recorded twice, or of another object")
	}
	expect("overdue", Nothing, false, true)
	foldHooks(b, removalOf(3, ""))
	expect("the same order", Nothing, false, true)
	foldHooks(b, removalOf(4, "Retry"))
	expect("run again", Replace, false, false)
	b.RecordGone(it.Key, "u1", nil)
	expect("the former object is gone", Apply, false, false)
	b.BeginHook(it.Key)
	apply("u2")
	b.RecordHookOutcome(it.Key, "u2", HookSucceeded)
	foldHooks(b, removalOf(5, "Retry-2"))
	expect("succeeded", Nothing, false, false)
	if r, _ := b.Record(it.Key); r.Hook.Overdue || b.IsBundleRemovalDone("b1") {
		t.Errorf("the record is %+v", r.Hook)
	}
	b.FoldHolding(b.HoldingOf("b1").WithoutRemovalHooks())
	if s := b.Next(it.Key); s.Verb != Delete || s.Hook != nil {
		t.Errorf("after all hooks: %s", s.Verb)
	}
	b.RecordGone(it.Key, "u2", nil)
	if !b.IsBundleRemovalDone("b1") {
		t.Error("the removal is not done")
	}
}

// A namespace that is deleted on the hub stays until the hooks in it have run, with its labels.
func TestTheNamespaceOfRemovalHooks(t *testing.T) {
	b, it := NewOwnershipRecords(), hookItem("a", "PreDelete", "", 0)
	m := hookManifest(1, "c1", it)
	m.Namespaces = map[string]atoll.NamespaceMeta{"shop": {Labels: map[string]string{"enforce": "privileged"}}}
	foldHooks(b, m)
	b.IntendNamespace("shop")
	b.RecordMadeNamespace("shop", Fact{UID: "n1"})
	gone := removalOf(2, "")
	gone.DeletedNamespaces = []string{"shop"}
	for range 2 { // also after a restart
		h := Merge(b.HoldingOf("b1"), gone)
		b.FoldHolding(h)
		r, _ := b.Record(atoll.NamespaceKey("shop"))
		if !r.Doomed || b.NamespaceMeta("shop").Labels["enforce"] != "privileged" || !b.NeedsNamespace("shop") {
			t.Errorf("the namespace is %+v with %+v", r, b.NamespaceMeta("shop"))
		}
		b.RecordStatefulSetVolumeClaims("shop", []string{"claim"})
		if r, _ := b.Record(atoll.NamespaceKey("shop")); !slices.Equal(r.SetClaims, []string{"claim"}) {
			t.Errorf("the claims are %v", r.SetClaims)
		}
	}
	b.FoldHolding(b.HoldingOf("b1").WithoutRemovalHooks())
	b.RecordGone(it.Key, "", nil)
	if s := b.Next(atoll.NamespaceKey("shop")); s.Verb != DeleteNamespace || b.NeedsNamespace("shop") {
		t.Errorf("after the hooks: %s", s.Verb)
	}
}

// The tombstone of a hook that runs in the removal is carried out when its object is gone, and not before.
func TestTheTombstoneOfARemovalHook(t *testing.T) {
	b, it := NewOwnershipRecords(), hookItem("a", "PostDelete", "", 0)
	foldHooks(b, hookManifest(1, "c1", it))
	m := removalOf(2, "")
	m.Tombstones = []atoll.Tombstone{{Key: it.Key, UID: it.UID, Cause: atoll.CauseExcluded, Last: true}}
	foldHooks(b, m)
	if done := b.CompletedTombstoneIDs("b1"); len(done) > 0 {
		t.Errorf("%v is carried out before the hook runs", done)
	}
	b.FoldHolding(b.HoldingOf("b1").WithoutRemovalHooks())
	if r, _ := b.Record(it.Key); !r.Claims["b1"].Last {
		t.Errorf("the claim is %+v", r.Claims["b1"])
	}
	b.RecordGone(it.Key, "", nil)
	if done := b.CompletedTombstoneIDs("b1"); len(done) != 1 {
		t.Errorf("%v is carried out", done)
	}
}

// removalSim is an agent that crashes at any moment of a removal with hooks, of which some fail and are run again by order.
type removalSim struct {
	t       *testing.T
	rng     *rand.Rand
	log     []string
	book    *OwnershipRecords
	gate    *WaveGate
	stored  []Record
	holding BundleHolding
	objects map[atoll.ItemKey]*hookObject
	runs    map[string]int // by label, name and order
	good    map[string]bool
	uids    int
	retries int64
}

func (s *removalSim) fail(format string, args ...any) {
	s.t.Helper()
	for _, line := range s.log {
		s.t.Log(line)
	}
	s.t.Fatalf(format, args...)
}

func (s *removalSim) storeRecords() {
	s.stored = nil
	for _, key := range s.book.RecordedKeys() {
		r, _ := s.book.Record(key)
		s.stored = append(s.stored, r)
	}
}

func (s *removalSim) takeHolding(h BundleHolding) {
	s.holding = h
	s.book.FoldHolding(h)
	s.gate = NewRemovalGate(&s.holding)
}

// crashAtTimes restarts the agent with what it has stored, at times. It reports whether it did.
func (s *removalSim) crashAtTimes(oneIn int) bool {
	if s.rng.IntN(oneIn) > 0 {
		return false
	}
	s.log = append(s.log, "restart")
	s.book = NewOwnershipRecords()
	for _, r := range s.stored {
		s.book.RestoreRecord(r)
	}
	s.takeHolding(s.holding)
	return true
}

// newRemovalSim returns an agent that is about to remove a Bundle with hooks.
func newRemovalSim(t *testing.T, seed uint64) *removalSim {
	s := &removalSim{t: t, rng: rand.New(rand.NewPCG(seed, 11)), log: []string{fmt.Sprint("seed ", seed)}, book: NewOwnershipRecords(), objects: map[atoll.ItemKey]*hookObject{}, runs: map[string]int{}, good: map[string]bool{}}
	m := hookManifest(1, "c1", waveItem("app0", 0), waveItem("app1", 1), waveItem("app2", 2),
		hookItem("pre0", "PreDelete", "", 0), hookItem("pre1", "PreDelete", "HookSucceeded", -1), hookItem("both", "PreDelete,PostDelete", "HookFailed", 1),
		hookItem("post0", "PostDelete", "HookSucceeded,HookFailed", 0), hookItem("post1", "PostDelete,PostSync", "BeforeHookCreation", 1))
	s.book.FoldHolding(Merge(nil, m))
	for i := range m.Items {
		if it := &m.Items[i]; it.Hook == nil {
			s.uids++
			s.objects[it.Key] = &hookObject{uid: fmt.Sprint("u", s.uids)}
			s.book.RecordApplied(it.Key, Fact{UID: s.objects[it.Key].uid, Template: it.UID, Hash: it.Hash, Label: "b1"})
		}
	}
	s.storeRecords()
	s.takeHolding(Merge(s.book.HoldingOf("b1"), removalOf(2, "")))
	return s
}

// isPlain reports whether the key is that of an object that is no hook.
func isPlain(key atoll.ItemKey) bool { return strings.HasPrefix(key.Name, "app") }

// checkDeletion fails where an object goes before hooks have succeeded.
func (s *removalSim) checkDeletion(key atoll.ItemKey) {
	for _, name := range []string{"pre0", "pre1", "both"} {
		if isPlain(key) && !s.good["PreDelete "+name] {
			s.fail("%s is deleted before %s", key, name)
		}
	}
}

// checkRun fails where a hook runs out of its turn, or twice by one order.
func (s *removalSim) checkRun(key atoll.ItemKey, label string) {
	_, phase, _ := strings.Cut(label, ".")
	name := label + " " + key.Name
	if s.runs[name+s.holding.Manifest.RemovalHooks]++; s.runs[name+s.holding.Manifest.RemovalHooks] > 1 || s.good[phase+" "+key.Name] {
		s.fail("%s runs twice", name)
	}
	for other := range s.objects {
		if phase == "PostDelete" && isPlain(other) {
			s.fail("%s runs before %s is deleted", name, other)
		}
	}
	if phase == "PreDelete" && key.Name != "pre1" && !s.good["PreDelete pre1"] || key.Name == "both" && !s.good["PreDelete pre0"] {
		s.fail("%s runs before an earlier wave", name)
	}
}

// workOnKey does what is next about a key, and may crash after each part.
func (s *removalSim) workOnKey(key atoll.ItemKey) {
	next := s.book.Next(key)
	switch {
	case next.Verb == Nothing:
	case next.Verb == Search:
		s.book.RecordGone(key, "", nil)
	case next.Verb == Delete && next.Hook != nil:
		if next.Hook.Failed() || s.gate.IsPhaseOver(next.Hook.Last.Phase) {
			s.storeRecords()
			s.removeObject(key, next.Record.UID)
		}
	case next.Verb == Delete:
		if !s.gate.IsRemoval() || s.gate.IsPhaseOver(atoll.PhasePreDelete) {
			s.checkDeletion(key)
			s.removeObject(key, next.Record.UID)
		}
	case !next.Hook.Begun && !s.gate.IsOpen(GateStep{next.Hook.Phase, next.Item.Wave}):
	case next.Verb == Replace:
		s.storeRecords()
		s.removeObject(key, next.Record.UID)
	default:
		s.runHook(key, next)
	}
}

func (s *removalSim) removeObject(key atoll.ItemKey, uid string) {
	if o := s.objects[key]; o != nil && o.uid == uid {
		s.log = append(s.log, "delete "+key.Name)
		delete(s.objects, key)
	}
	if !s.crashAtTimes(4) {
		s.book.RecordGone(key, uid, nil)
	}
}

func (s *removalSim) runHook(key atoll.ItemKey, next Step) {
	if !next.Hook.Begun {
		s.book.BeginHook(key)
		s.storeRecords()
		if s.crashAtTimes(4) {
			return
		}
	}
	r, _ := s.book.Record(key)
	o, label := s.objects[key], r.Hook.Label()
	if o != nil && r.UID == "" { // an interrupted apply made it
		s.book.RecordFoundAfterInterruptedApply(key, Fact{UID: o.uid, Label: "b1", Template: next.Item.UID, HookRun: o.label})
		return
	}
	s.uids++
	s.checkRun(key, label)
	s.log = append(s.log, "run "+key.Name+" "+label)
	s.objects[key] = &hookObject{uid: fmt.Sprint("u", s.uids), label: label}
	if !s.crashAtTimes(4) {
		s.book.RecordApplied(key, Fact{UID: s.objects[key].uid, Template: next.Item.UID, Hash: next.Item.Hash, Label: "b1", HookRun: label})
		if s.rng.IntN(2) == 0 {
			s.storeRecords()
		}
	}
}

// observeObject ends the object of a hook, and lets the agent see how.
func (s *removalSim) observeObject(key atoll.ItemKey) {
	o := s.objects[key]
	if o == nil || o.label == "" {
		return
	}
	if o.outcome == "" {
		_, phase, _ := strings.Cut(o.label, ".")
		if o.outcome = HookSucceeded; s.rng.IntN(8) == 0 {
			o.outcome = HookFailed
		}
		s.good[phase+" "+key.Name] = o.outcome == HookSucceeded
		s.log = append(s.log, fmt.Sprintf("%s %s", key.Name, o.outcome))
	}
	s.book.RecordHookOutcome(key, o.uid, o.outcome)
}

// advanceSteps opens steps, orders failed hooks to run again, and ends the hooks of the removal.
func (s *removalSim) advanceSteps() {
	isReady := func(entry GateEntry) bool {
		if entry.IsRemovalOfOthers() {
			return s.book.AreObjectsRemoved("b1")
		}
		return s.book.HookStateOf("b1", entry.Item).Succeeded(entry.Step.Phase)
	}
	s.gate.Advance(isReady)
	failed := slices.ContainsFunc(s.gate.Hooks(), func(entry GateEntry) bool { return s.book.HookStateOf("b1", entry.Item).Failed() })
	switch {
	case failed && s.rng.IntN(10) == 0:
		s.retries++
		s.storeRecords()
		s.takeHolding(Merge(&s.holding, removalOf(2+s.retries, fmt.Sprint("Retry-", s.retries))))
	case s.gate.IsRemoval() && s.gate.IsFinished():
		s.storeRecords()
		s.holding = s.holding.WithoutRemovalHooks()
		s.log = append(s.log, "the hooks end")
		if !s.crashAtTimes(2) {
			s.takeHolding(s.holding)
		}
	}
}

// Whenever the agent crashes, no object goes before the hooks before it, none runs after before all objects are gone, and each
// runs once for each order. Every removal ends, and leaves nothing.
func TestRemovalsRunHooksInOrderAndOnceOverCrashes(t *testing.T) {
	retries := int64(0)
	for seed := range uint64(60) {
		s := newRemovalSim(t, seed)
		keys := slices.SortedFunc(slices.Values(s.book.RecordedKeys()), CompareKeys)
		for i := 0; i < 20_000 && !s.book.IsBundleRemovalDone("b1"); i++ {
			key := keys[s.rng.IntN(len(keys))]
			s.workOnKey(key)
			s.observeObject(key)
			s.advanceSteps()
			s.crashAtTimes(60)
		}
		if !s.book.IsBundleRemovalDone("b1") || len(s.objects) > 0 {
			s.fail("it does not end, with %d objects left", len(s.objects))
		}
		retries += s.retries
	}
	if retries == 0 {
		t.Error("no hook failed")
	}
}
