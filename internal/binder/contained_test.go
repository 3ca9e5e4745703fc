package binder

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds/script"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/reconcile"
	"atoll.dev/atoll/internal/state"
)

// brokenTemplates panics for every template.
type brokenTemplates struct{ Templates }

func (brokenTemplates) Get(atoll.ItemKey) (*unstructured.Unstructured, bool) { panic("defect") }

// A template whose event panics is handled again after 10 s, then after 20 s, as if it had changed.
// Other events go on in between.
func TestAnEventThatPanicsIsHandledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Binder{
			ownership: newOwnershipIndex(), events: newEventQueue(), eventPauses: map[tableEvent]time.Duration{},
			Options: Options{Templates: brokenTemplates{}, Log: slog.New(slog.DiscardHandler)},
		}
		key := atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "conf"}
		e := tableEvent{template: key}
		for i, pause := range []time.Duration{10 * time.Second, 20 * time.Second} {
			b.handleEventContainingPanic(e)
			b.handleEventContainingPanic(tableEvent{kindsSynced: true})
			time.Sleep(pause - time.Nanosecond)
			if early, ok := b.events.takeNext(); ok {
				t.Fatalf("try %d: %+v is handled again before %s", i, early, pause)
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			again, ok := b.events.takeNext()
			if !ok || again != (tableEvent{template: key, force: true}) {
				t.Fatalf("try %d: after %s %t, %+v", i, pause, ok, again)
			}
			e = again
		}
		if len(b.eventPauses) != 1 {
			t.Errorf("pauses %v", b.eventPauses)
		}
	})
}

// bundlesByUID has the Bundles of fakeTables by UID, too.
type bundlesByUID struct{ fakeBundles }

func (l bundlesByUID) Get(uid string) (state.Bundle, bool) {
	for _, b := range l.bundles {
		if b.Ref.UID == uid {
			return b, true
		}
	}
	return state.Bundle{}, false
}

// An event whose Bundles cannot be touched has its effect when it is handled again: its state is not
// noted before.
func TestAnEventThatPanickedFindsItsChangeAgain(t *testing.T) {
	id := policymatch.BundleID{Namespace: "shop", Name: "web"}
	for name, c := range map[string]struct {
		change func(l *fakeTables, b *Binder)
		event  tableEvent
	}{
		"an override policy goes": {func(_ *fakeTables, b *Binder) {
			b.overrideSelections[PolicyKey{kindOverridePolicy, "shop", "p"}] = objectSet{all: true}
		}, tableEvent{policy: PolicyKey{kindOverridePolicy, "shop", "p"}}},
		"an interpreter goes": {func(_ *fakeTables, b *Binder) {
			b.lastInterpreters = script.NewLibrary([]*v1alpha1.ResourceInterpreter{{Spec: v1alpha1.ResourceInterpreterSpec{Target: v1alpha1.InterpreterTarget{Group: "apps", Kinds: []string{"Deployment"}}}}})
		}, tableEvent{policy: PolicyKey{Kind: script.Kind}}},
		"another label of a namespace": {func(l *fakeTables, b *Binder) {
			b.lastNamespaceMeta["shop"] = b.namespaceFingerprint("shop")
			l.namespaces["shop"].Labels = map[string]string{"team": "red"}
		}, tableEvent{namespace: "shop"}},
		"a decision about held removals": {func(l *fakeTables, b *Binder) {
			bundle := l.bundles[id]
			b.lastRecallDecision["b"] = decisionOnHeldBackDeletions(bundle)
			bundle.Meta.Annotations = map[string]string{atoll.AnnotationKeep: "plan"}
			l.bundles[id] = bundle
		}, tableEvent{bundleUID: "b"}},
	} {
		l, b := newShopTables(t)
		b.Bundles = bundlesByUID{fakeBundles{nil, l}}
		b.policyStatus = newPolicyStatusWriter(b)
		c.change(l, b)
		b.touchBundle = func(policymatch.BundleID) { panic("defect") }
		if p := reconcile.ContainPanicCounted("test", func() { b.handleEvent(c.event) }); p == nil {
			t.Errorf("%s: no Bundle is touched", name)
		}
		touched := 0
		b.touchBundle = func(policymatch.BundleID) { touched++ }
		if b.handleEvent(c.event); touched != 1 {
			t.Errorf("%s: the next try touches %d Bundles", name, touched)
		}
		touched = 0
		if b.handleEvent(c.event); touched != 0 {
			t.Errorf("%s: without a change %d Bundles are touched", name, touched)
		}
	}
}

// Each new decision about held removals touches its Bundle, and the same decision does not.
func TestANewDecisionAboutHeldRemovalsTouchesItsBundle(t *testing.T) {
	id := policymatch.BundleID{Namespace: "shop", Name: "web"}
	l, b := newShopTables(t)
	b.Bundles = bundlesByUID{fakeBundles{nil, l}}
	touched := 0
	b.touchBundle = func(policymatch.BundleID) { touched++ }
	for _, step := range []struct {
		confirm, keep string
		want          int
	}{{"", "", 0}, {"p1", "", 1}, {"p1", "", 0}, {"p2", "", 1}, {"", "p2", 1}, {"", "", 1}, {"", "", 0}} {
		bundle := l.bundles[id]
		bundle.Meta.Annotations = map[string]string{atoll.AnnotationConfirm: step.confirm, atoll.AnnotationKeep: step.keep}
		l.bundles[id] = bundle
		touched = 0
		if b.handleEvent(tableEvent{bundleUID: "b"}); touched != step.want {
			t.Errorf("confirmed %q, kept %q: %d Bundles are touched, want %d", step.confirm, step.keep, touched, step.want)
		}
	}
}

// listBroken panics when a namespace is listed.
type listBroken struct{ fakeTemplates }

func (listBroken) InNamespace(string) []*unstructured.Unstructured { panic("defect") }

// A policy that cannot be handled stays as it was, so that the next try compares with it. A
// namespace's annotation is not noted either.
func TestAPolicyThatPanickedIsComparedAgain(t *testing.T) {
	l, b := newShopTables(t)
	b.policyStatus = newPolicyStatusWriter(b)
	whole := b.Templates
	b.Templates = listBroken{fakeTemplates{nil, nil, l}}
	l.policies = nil
	l.namespaces["shop"].Annotations = map[string]string{atoll.AnnotationClusters: "a"}
	b.lastNamespaceMeta["shop"] = b.namespaceFingerprint("shop")
	key := PolicyKey{policyKind, "shop", "web"}
	for _, e := range []tableEvent{{policy: key}, {namespace: "shop"}} {
		if p := reconcile.ContainPanicCounted("test", func() { b.handleEvent(e) }); p == nil {
			t.Errorf("%+v: no panic", e)
		}
	}
	b.Templates = whole
	if b.handleEvent(tableEvent{namespace: "shop"}); len(b.events.queued) != 2 {
		t.Errorf("the templates of the namespace are not handled: %v", b.events.queued)
	}
	if was := b.index.setPolicy(key, nil); was == nil {
		t.Error("the policy is forgotten")
	}
}

// The Bundle of a deleted object is touched although its content cannot be forgotten: the next try
// does not find it.
func TestADeletedBundleIsTouchedAfterAPanic(t *testing.T) {
	l, b := newShopTables(t)
	clear(l.bundles)
	b.Bundles = bundlesByUID{fakeBundles{nil, l}}
	var touched []policymatch.BundleID
	b.touchBundle = func(id policymatch.BundleID) { touched = append(touched, id) }
	if p := reconcile.ContainPanicCounted("test", func() { b.handleEvent(tableEvent{bundleUID: "b"}) }); p == nil {
		t.Error("no panic without a writer of policies' statuses")
	}
	if len(touched) != 1 || touched[0] != (policymatch.BundleID{Namespace: "shop", Name: "web"}) {
		t.Errorf("touched are %v", touched)
	}
}

// The condition is written after a repeated panic, too: the first write may have failed.
func TestARepeatedPanicIsReported(t *testing.T) {
	l, b := newShopTables(t)
	b.Log = slog.New(slog.DiscardHandler)
	writes := 0
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	b.Client = fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			writes++
			return errors.New("the store is away")
		},
	}).Build()
	for id := range l.bundles {
		b.reportPanic(t.Context(), id, &reconcile.Panic{})
		b.reportPanic(t.Context(), id, &reconcile.Panic{IsRepeated: true})
	}
	if writes != 2 {
		t.Errorf("%d writes", writes)
	}
}

// A Bundle that cannot be bound says so, where it exists and the hub leads.
func TestAPanicIsReportedOnItsBundle(t *testing.T) {
	want := metav1.Condition{
		Type: v1alpha1.BundleBound, Status: metav1.ConditionFalse, Reason: string(atoll.ReasonReconcilePanicked), ObservedGeneration: 4,
		Message: "its objects cannot be bound by a defect of Atoll: the content stays as it is, and the hub tries again; its log has the place",
	}
	for what, tc := range map[string]struct {
		readOnly, known bool
		want            metav1.Condition
	}{
		"the leader": {false, true, want}, "another hub": {true, true, metav1.Condition{}}, "a Bundle that is not there": {false, false, metav1.Condition{}},
	} {
		b, _, _ := newTestBinder(t)
		b.ReadOnly = tc.readOnly
		bundle := newStoredBundle(t, b)
		table := bundleTable{byID: map[policymatch.BundleID]state.Bundle{}}
		if tc.known {
			table.byID[policymatch.BundleID{Namespace: "shop", Name: "web"}] = bundle
		}
		b.Bundles = table
		b.reportPanic(t.Context(), policymatch.BundleID{Namespace: "shop", Name: "web"}, &reconcile.Panic{})
		if got := boundCondition(t, b); got != tc.want {
			t.Errorf("%s: the Bundle says %+v, want %+v", what, got, tc.want)
		}
	}
}

// An event that succeeds after a panic begins again: its next panic waits for 10 s again.
func TestASuccessEndsThePausesOfAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newShopTables(t)
		b.eventPauses, b.Log = map[tableEvent]time.Duration{}, slog.New(slog.DiscardHandler)
		e := tableEvent{template: newKey("ConfigMap", "gone")}
		for _, step := range []struct {
			broken bool
			pause  time.Duration
		}{{true, 10 * time.Second}, {true, 20 * time.Second}, {false, 0}, {true, 10 * time.Second}} {
			b.Templates = fakeTemplates{nil, nil, l}
			if step.broken {
				b.Templates = brokenTemplates{}
			}
			b.handleEventContainingPanic(e)
			if got := b.eventPauses[tableEvent{template: e.template, force: true}]; got != step.pause || len(b.eventPauses) > 1 {
				t.Errorf("broken %t: pauses %v, want %v", step.broken, b.eventPauses, step.pause)
			}
		}
	})
}
