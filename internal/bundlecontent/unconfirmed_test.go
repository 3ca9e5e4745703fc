package bundlecontent

import (
	"errors"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// newConfirmedPair returns a Bundle with ConfigMaps a and b. The removal of a needs a confirmation.
func newConfirmedPair(t *testing.T) (m *fakeHub, w *bundleTest, a atoll.ItemKey) {
	m = newFakeHub()
	a, b := shopKey("ConfigMap", "a"), shopKey("ConfigMap", "b")
	m.putTemplate(a, "1").SetAnnotations(map[string]string{atoll.AnnotationRemoval: string(v1alpha1.RemoveConfirm)})
	m.putTemplate(b, "2")
	m.placers[a], m.placers[b] = PlacedByThis, PlacedByThis
	w = newBundleTest(t, m, false)
	w.in.BundleUID = "bundle"
	w.wantContent("before", "ConfigMap/a@1 ConfigMap/b@2", 1)
	return m, w, a
}

const heldPair = "ConfigMap/a@1(Unconfirmed) ConfigMap/b@2"

// Each cause that takes an item out waits for the confirmation of exactly that removal. Other items go on.
func TestARemovalWaitsForItsConfirmation(t *testing.T) {
	other := func(m *fakeHub, a atoll.ItemKey) {
		m.placers[a], m.held[a], m.holders[a] = PlacedByOther, true, []string{"next"}
	}
	for name, tc := range map[string]struct {
		remove func(m *fakeHub, a atoll.ItemKey)
		done   string
	}{
		"deleted": {func(m *fakeHub, a atoll.ItemKey) { m.markDeleting(a) }, "ConfigMap/b@2 -ConfigMap/a@1:Deleted[]"},
		"deleted in no time": {func(m *fakeHub, a atoll.ItemKey) {
			delete(m.templates, a)
			delete(m.placers, a)
			m.deleted[a.String()+"1"] = true
		}, "ConfigMap/b@2 -ConfigMap/a@1:Deleted[]"},
		"kept on the hub":         {func(m *fakeHub, a atoll.ItemKey) { m.hubOnly = map[atoll.ItemKey]bool{a: true} }, "ConfigMap/b@2 -ConfigMap/a@1:HubOnly[]"},
		"placed by another":       {other, "ConfigMap/b@2 -ConfigMap/a@1:Moved[next]"},
		"deleted, policy is gone": {func(m *fakeHub, a atoll.ItemKey) { m.markDeleting(a) }, "ConfigMap/b@2(Unclaimed) -ConfigMap/a@1:Deleted[]"},
	} {
		t.Run(name, func(t *testing.T) {
			m, w, a := newConfirmedPair(t)
			held := heldPair
			if tc.remove(m, a); name == "deleted, policy is gone" {
				w.in.Intent, held = nil, "ConfigMap/a@1(Unconfirmed) ConfigMap/b@2(Unclaimed)"
				delete(m.placers, shopKey("ConfigMap", "b"))
			}
			out := w.wantContent("held", held, 2)
			w.wantContent("again", held, 2)
			plan, items := atoll.PlanUnconfirmedRemovals("bundle", &out.Content)
			if plan == "" || len(items) != 1 || items[0].Key != a {
				t.Fatalf("the plan is %q of %v", plan, items)
			}
			w.in.ConfirmedPlan = "another"
			w.wantContent("another plan is confirmed", held, 2)
			w.in.ConfirmedPlan = plan
			w.wantContent("confirmed", tc.done, 3)
			w.wantContent("it does not come back", tc.done, 3)
		})
	}
}

// While the removal of an object waits, a new one of its name is not sent, and its author gets the reason. After
// the confirmation the new one replaces the former.
func TestANewObjectWaitsForTheFormerOne(t *testing.T) {
	m, w, a := newConfirmedPair(t)
	m.putTemplate(a, "3")
	out := w.wantContent("held", heldPair, 2)
	if len(out.Problems) != 1 || out.Problems[0].Key != a || !errors.Is(out.Problems[0].Err, errFormerUnconfirmed) {
		t.Errorf("the problems are %+v", out.Problems)
	}
	w.in.ConfirmedPlan, _ = atoll.PlanUnconfirmedRemovals("bundle", &out.Content)
	out = w.wantContent("confirmed", "ConfigMap/a@3 ConfigMap/b@2 -ConfigMap/a@1:Deleted[]", 3)
	if len(out.Problems) > 0 {
		t.Errorf("the problems are %+v", out.Problems)
	}
	// The confirmation of one removal is none of the next.
	m.templates[a].SetAnnotations(map[string]string{atoll.AnnotationRemoval: string(v1alpha1.RemoveConfirm)})
	w.planNext()
	m.markDeleting(a)
	w.wantContent("the next one", "ConfigMap/a@3(Unconfirmed) ConfigMap/b@2 -ConfigMap/a@1:Deleted[]", 5)
}

// A rule or an annotation that no longer asks for the confirmation releases the removal. A rule that comes
// while the object is being deleted holds it.
func TestTheRulesOfNowDecideAboutAConfirmation(t *testing.T) {
	m, w, a := newConfirmedPair(t)
	m.markDeleting(a)
	w.wantContent("held", heldPair, 2)
	m.templates[a].SetAnnotations(map[string]string{atoll.AnnotationRemoval: string(v1alpha1.RemoveDelete)})
	w.wantContent("not asked for", "ConfigMap/b@2 -ConfigMap/a@1:Deleted[]", 3)
	w.in.Intent.Spec.ItemRules = []v1alpha1.ItemRule{{Removal: v1alpha1.RemoveConfirm}}
	m.markDeleting(shopKey("ConfigMap", "b"))
	w.wantContent("by a rule of now", "ConfigMap/b@2(Unconfirmed) -ConfigMap/a@1:Deleted[]", 4)
}

// confirmHeld confirms the plan that the content waits for.
func (b *bundleTest) confirmHeld(c *atoll.Content) {
	b.in.ConfirmedPlan, _ = atoll.PlanUnconfirmedRemovals("bundle", c)
}

// A confirmation is good for one removal: the same object is not removed by it a second time.
func TestAConfirmationIsGoodForOneRemoval(t *testing.T) {
	m, w, a := newConfirmedPair(t)
	m.hubOnly = map[atoll.ItemKey]bool{a: true}
	out := w.wantContent("held", heldPair, 2)
	w.confirmHeld(&out.Content)
	w.wantContent("confirmed", "ConfigMap/b@2 -ConfigMap/a@1:HubOnly[]", 3)
	m.hubOnly = nil
	w.wantContent("sent again", "ConfigMap/a@1 ConfigMap/b@2", 4)
	m.hubOnly, w.in.PreviousNumber = map[atoll.ItemKey]bool{a: true}, 4
	w.wantContent("held again", heldPair, 5)
	w.wantContent("still held", heldPair, 5)
}

// A removal is confirmed for its cause: a deletion that comes instead waits for its own confirmation.
func TestAConfirmationIsGoodForItsCause(t *testing.T) {
	m, w, a := newConfirmedPair(t)
	m.hubOnly = map[atoll.ItemKey]bool{a: true}
	out := w.wantContent("held", heldPair, 2)
	w.confirmHeld(&out.Content)
	m.markDeleting(a)
	w.wantContent("deleted instead", heldPair, 3)
}

// A removal that no longer needs its confirmation takes the object out by the mode of the moment.
func TestAReleasedRemovalHasTheModeOfTheMoment(t *testing.T) {
	for name, release := range map[string]func(m *fakeHub, w *bundleTest, a atoll.ItemKey){
		"by the annotation": func(m *fakeHub, w *bundleTest, a atoll.ItemKey) {
			m.templates[a].SetAnnotations(map[string]string{atoll.AnnotationRemoval: string(v1alpha1.RemoveOrphan)})
		},
		"by the policy": func(m *fakeHub, w *bundleTest, a atoll.ItemKey) {
			m.templates[a].SetAnnotations(nil)
			w.in.Intent.Spec.Removal.Mode = v1alpha1.RemoveOrphan
		},
	} {
		m, w, a := newConfirmedPair(t)
		m.markDeleting(a)
		w.wantContent(name, heldPair, 2)
		release(m, w, a)
		out := w.wantContent(name, "ConfigMap/b@2 -ConfigMap/a@1:Deleted[]", 3)
		if len(out.Content.Tombstones) != 1 || !out.Content.Tombstones[0].Orphan {
			t.Errorf("%s: the object is deleted: %+v", name, out.Content.Tombstones)
		}
	}
}

// A rule that comes after the deletion holds the object also when the policy goes, and when its cluster is left.
func TestARuleThatComesLateHolds(t *testing.T) {
	_, w, _ := newConfirmedPair(t)
	b := shopKey("ConfigMap", "b")
	w.in.Intent.Spec.ItemRules = []v1alpha1.ItemRule{{Removal: v1alpha1.RemoveConfirm}}
	w.m.markDeleting(b)
	out := w.wantContent("held", "ConfigMap/a@1 ConfigMap/b@2(Unconfirmed)", 2)
	if !out.Content.Items[1].Treatment.MustConfirmRemoval() {
		t.Error("the rows of the Bundle need no confirmation")
	}
	w.in.Intent, w.m.placers = nil, map[atoll.ItemKey]PlacedBy{}
	w.wantContent("the policy is gone", "ConfigMap/a@1(Unclaimed) ConfigMap/b@2(Unconfirmed)", 3)
}

// The content remembers a deletion that waits: a restart of the hub forgets that it saw the deletion.
func TestADeletionThatWaitsOutlastsARestart(t *testing.T) {
	m, w, a := newConfirmedPair(t)
	delete(m.templates, a)
	delete(m.placers, a)
	m.deleted[a.String()+"1"] = true
	w.wantContent("held", heldPair, 2)
	m.deleted = map[string]bool{}
	out := w.wantContent("after a restart", heldPair, 2)
	w.confirmHeld(&out.Content)
	w.wantContent("confirmed", "ConfigMap/b@2 -ConfigMap/a@1:Deleted[]", 3)
}

// An item that is to stay after all waits for no confirmation, also while it cannot be sent or handed over.
func TestARemovalThatIsTakenBackWaitsNoLonger(t *testing.T) {
	m, w, a := newConfirmedPair(t)
	m.hubOnly = map[atoll.ItemKey]bool{a: true}
	w.wantContent("held", heldPair, 2)
	m.hubOnly = nil
	m.templates[a].SetAnnotations(map[string]string{atoll.AnnotationUpdate: "Sometimes"})
	w.wantContent("taken back with an error", "ConfigMap/a@1 ConfigMap/b@2", 3)

	m, w, a = newConfirmedPair(t)
	m.placers[a], m.held[a], m.holders[a] = PlacedByOther, true, []string{"next"}
	w.wantContent("moved", heldPair, 2)
	m.held[a] = false
	w.wantContent("not yet taken over", "ConfigMap/a@1 ConfigMap/b@2", 3)
}

// A removal that takes nothing out of any cluster needs no confirmation, also one that waits since there were clusters.
func TestARemovalFromNoClusterNeedsNoConfirmation(t *testing.T) {
	m, w, a := newConfirmedPair(t)
	isNowhere := false
	w.in.IsInNoCluster = func() bool { return isNowhere }
	m.markDeleting(a)
	w.wantContent("held", heldPair, 2)
	isNowhere = true
	w.wantContent("in no cluster", "ConfigMap/b@2 -ConfigMap/a@1:Deleted[]", 3)
}

// An object that waits keeps the objects that it needs: a workload that moves or is deleted, and an unused dependency.
func TestAnObjectThatWaitsKeepsItsDependencies(t *testing.T) {
	web, cfg, sec, sa := shopKey("Deployment", "web"), shopKey("ConfigMap", "cfg"), shopKey("Secret", "sec"), shopKey("ServiceAccount", "sa")
	confirm := map[string]string{atoll.AnnotationRemoval: string(v1alpha1.RemoveConfirm)}
	for name, tc := range map[string]struct {
		marked     atoll.ItemKey
		remove     func(m *fakeHub)
		held, done string
	}{
		"moved": {web, func(m *fakeHub) { m.placers[web], m.held[web], m.holders[web] = PlacedByOther, true, []string{"next"} },
			"ConfigMap/cfg@2+(Unclaimed) Secret/sec@4+(Unclaimed) ServiceAccount/sa@3+(Unclaimed) Deployment/web@1(Unconfirmed)",
			"-ConfigMap/cfg@2:Unused[] -Secret/sec@4:Unused[] -ServiceAccount/sa@3:Unused[] -Deployment/web@1:Moved[next]"},
		"deleted": {web, func(m *fakeHub) { m.markDeleting(web) },
			"ConfigMap/cfg@2+ Secret/sec@4+ ServiceAccount/sa@3+ Deployment/web@1(Unconfirmed)",
			"-ConfigMap/cfg@2:Unused[] -Secret/sec@4:Unused[] -ServiceAccount/sa@3:Unused[] -Deployment/web@1:Deleted[]"},
		"not used any more": {sa, func(m *fakeHub) { m.markDeleting(web) },
			"Secret/sec@4+(Unclaimed) ServiceAccount/sa@3+(Unconfirmed) -ConfigMap/cfg@2:Unused[] -Deployment/web@1:Deleted[]",
			"-ConfigMap/cfg@2:Unused[] -Secret/sec@4:Unused[] -ServiceAccount/sa@3:Unused[] -Deployment/web@1:Deleted[]"},
	} {
		m := newFakeHub()
		m.putTemplate(web, "1", "ConfigMap/cfg", "ServiceAccount/sa")
		m.putTemplate(cfg, "2")
		m.putTemplate(sa, "3").Object["imagePullSecrets"] = []any{map[string]any{"name": "sec"}}
		m.putTemplate(sec, "4")
		m.templates[tc.marked].SetAnnotations(confirm)
		m.placers[web] = PlacedByThis
		w := newBundleTest(t, m, true)
		w.in.BundleUID = "bundle"
		w.wantContent(name, "ConfigMap/cfg@2+ Secret/sec@4+ ServiceAccount/sa@3+ Deployment/web@1", 1)
		tc.remove(m)
		out := w.wantContent(name, tc.held, 2)
		w.confirmHeld(&out.Content)
		w.wantContent(name, tc.done, 3)
	}
}

// A deletion from before a restore is confirmed once: the object that members have removed is not sent again.
func TestADeletionFromBeforeARestoreIsConfirmedOnce(t *testing.T) {
	m, w, a := newConfirmedPair(t)
	m.templates[a].SetAnnotations(map[string]string{atoll.AnnotationRemoval: string(v1alpha1.RemoveConfirm), atoll.AnnotationRecalled: atoll.RecalledDeleted + ", says tokyo"})
	out := w.wantContent("held back", "ConfigMap/a@1(RemovalHeld) ConfigMap/b@2", 2)
	w.in.ConfirmedPlan, _ = atoll.PlanDeletionsRememberedByMembers("bundle", &out.Content)
	m.markDeleting(a)
	w.wantContent("confirmed", "ConfigMap/b@2 -ConfigMap/a@1:Deleted[]", 3)
}
