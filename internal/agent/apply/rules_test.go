package apply

import (
	"slices"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
)

// ruledItem is confItem with a condition of its health.
func ruledItem(value, condition string) atoll.RenderedItem {
	it := confItem(value)
	it.Assessment, it.Error = &atoll.Assessment{Health: []v1alpha1.HealthRule{{Expression: condition}}}, atoll.UnknownAssessment
	return it
}

// heardView is a view that the watch has reported.
func heardView(v observe.View) view { return view{View: v} }

// ownedConf is the record of confItem("x") in the member.
func ownedConf() ownership.Record {
	return ownership.Record{
		Key: confKey, APIVersion: "v1", UID: "live", Template: "t", Owner: "b1", Label: "b1", Applied: "hx", Chosen: true,
		Claims: map[string]ownership.Claim{"b1": {State: ownership.Wanted, Template: "t"}},
	}
}

// Rules come and go with manifests. An item that fails keeps the rules of the content that is kept.
func TestRulesAreThoseOfTheContent(t *testing.T) {
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{ownedConf()}, newManifest("b1", 1, ruledItem("x", "true")))
	idOf := func() string { return e.JudgesOf("b1", confKey).Rules.ID() }
	first := idOf()
	if first == "" || !e.IsInterpreted("", "ConfigMap") || e.IsInterpreted("", "Service") || e.JudgesOf("b2", confKey).Rules != nil {
		t.Error("the rules of the manifest do not judge its object alone")
	}
	failed := atoll.RenderedItem{Key: confKey, APIVersion: "v1", UID: "t", Hash: "e", Error: "a rule does not apply"}
	for generation, c := range []struct {
		item atoll.RenderedItem
		want bool
	}{2: {failed, true}, 3: {confItem("x"), false}} {
		if c.item.UID == "" {
			continue
		}
		if err := e.UpsertManifest(t.Context(), newManifest("b1", int64(generation), c.item), store.Position{}); err != nil {
			t.Fatal(err)
		}
		if (idOf() == first) != c.want || (idOf() != "") != c.want || e.IsInterpreted("", "ConfigMap") != c.want {
			t.Errorf("generation %d: the rules are %q", generation, idOf())
		}
	}
}

// Other rules judge the object again. Until then its content does not count as applied, so that no rollout goes on by the
// verdict of the rules before.
func TestOtherRulesJudgeTheObjectAgain(t *testing.T) {
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{ownedConf()}, newManifest("b1", 1, confItem("x")))
	seen := func() {
		e.ObjectSeen(observe.View{Key: confKey, UID: "live", Label: "b1", Template: "t", Health: atoll.Healthy, RulesID: e.JudgesOf("b1", confKey).Rules.ID()})
	}
	state := func() atoll.RowState {
		s, _ := e.StatusOf("b1", nil, testNow)
		return s.State
	}
	seen()
	if got := state(); got != atoll.RowReady {
		t.Fatalf("without rules it is %s", got)
	}
	if err := e.UpsertManifest(t.Context(), newManifest("b1", 2, ruledItem("x", "false")), store.Position{}); err != nil {
		t.Fatal(err)
	}
	if got := state(); got != atoll.RowProgressing || !e.tasks[confKey].judge {
		t.Errorf("before the new rules have judged it is %s", got)
	}
	seen()
	if got := state(); got != atoll.RowReady {
		t.Errorf("afterwards it is %s", got)
	}
}

// Rules do not read an object that the member's administrator denies. Values that they read before are not reported,
// also with a failure, and the object is judged without them.
func TestRulesDoNotReadWhatIsDenied(t *testing.T) {
	item := ruledItem("x", "quantity(object.data.a) > 1.0")
	for name, failure := range map[string]*Failure{"no failure": nil, "a failure": {Reason: atoll.ReasonDeniedByPolicy, Message: deniedText}} {
		e := newStubEngine(t, newMemoryMember(t, liveConf("secret")), []ownership.Record{shopNamespace, ownedConf()}, newManifest("b1", 1, item))
		view := seenConf()
		view.Health, view.Reason, view.Message = atoll.Unknown, atoll.ReasonHealthRuleFailed, `quantity("secret"): it is none`
		view.RulesID, view.Feedback = item.Assessment.ID(), []atoll.FeedbackValue{{Name: "a", Value: "secret"}}
		e.views[confKey] = heardView(view)
		e.limitAgent(t, noConfigMaps)
		e.holdTask(confKey).weigh = true
		e.mu.Lock()
		e.setForbidden(confKey, deniedText)
		e.mu.Unlock()
		e.holdTask(confKey).failure = failure
		got := e.itemStatus("b1", &item, nil)
		if !e.tasks[confKey].judge || e.JudgesOf("b1", confKey).Rules != nil || got.Observed || got.Applied || got.Text != "" || got.Feedback != nil {
			t.Errorf("%s: before it is judged again: %+v", name, got)
		}
		e.holdTask(confKey).failure = nil
		expectFailure(t, e.workOnKey(t.Context(), confKey), nil)
		got = e.itemStatus("b1", &item, nil)
		if got.Health != atoll.Unknown || got.Why != atoll.ReasonDeniedByPolicy || !got.Applied || got.Feedback != nil || e.views[confKey].RulesID != "" {
			t.Errorf("%s: afterwards: %+v", name, got)
		}
		e.limitAgent(t, "{}")
		e.holdTask(confKey).weigh = true
		expectFailure(t, e.workOnKey(t.Context(), confKey), nil)
		if got = e.itemStatus("b1", &item, nil); got.Why != atoll.ReasonHealthRuleFailed {
			t.Errorf("%s: when it is permitted: %+v", name, got)
		}
	}
}

// An object that the member's administrator denies reports no feedback.
func TestForbiddenObjectsReportNoFeedback(t *testing.T) {
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{ownedConf()}, newManifest("b1", 1, confItem("x")))
	for forbidden, want := range map[string]int{"": 1, "denied": 0} {
		e.forbidden[confKey] = forbidden
		e.ObjectSeen(observe.View{Key: confKey, UID: "live", Label: "b1", Template: "t", Health: atoll.Healthy, Feedback: []atoll.FeedbackValue{{Name: "a", Value: "1"}}})
		s, _ := e.StatusOf("b1", nil, testNow)
		i := slices.IndexFunc(s.Items, func(it atoll.ItemStatus) bool { return it.Key == confKey })
		if i < 0 || len(s.Items[i].Feedback) != want {
			t.Errorf("%q: the items are %+v", forbidden, s.Items)
		}
	}
}

// A view that earlier rules judged does not record a completion, and another expression forgets the completion of an
// object that exists.
func TestACompletionIsOfThePresentRules(t *testing.T) {
	withCompletion := func(text string) atoll.RenderedItem {
		it := confItem("x")
		it.Assessment, it.Error = &atoll.Assessment{Completion: text}, atoll.UnknownAssessment
		return it
	}
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{ownedConf()}, newManifest("b1", 1, withCompletion("object.a")))
	done := seenConf()
	done.Finished, done.RulesID = true, e.JudgesOf("b1", confKey).Rules.ID()
	ran := func() string {
		e.mu.Lock()
		defer e.mu.Unlock()
		r, _ := e.book.Record(confKey)
		return r.Ran
	}
	if e.ObjectSeen(done); ran() != "t" {
		t.Fatalf("it ran as %q", ran())
	}
	if err := e.UpsertManifest(t.Context(), newManifest("b1", 2, withCompletion("object.b")), store.Position{}); err != nil {
		t.Fatal(err)
	}
	if ran() != "" {
		t.Errorf("under another expression it ran as %q", ran())
	}
	if e.ObjectSeen(done); ran() != "" {
		t.Errorf("by the rules before it ran as %q", ran())
	}
	done.RulesID = e.JudgesOf("b1", confKey).Rules.ID()
	if e.ObjectSeen(done); ran() != "t" {
		t.Errorf("by the present rules it ran as %q", ran())
	}
}
