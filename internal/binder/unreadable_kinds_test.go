package binder

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bundlecontent"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/reconcile"
	"atoll.dev/atoll/internal/state"
)

// recordPolicyQueue replaces the loop of policies' statuses. The returned function waits until all enqueued policies
// are due, and takes them. It needs the bubble of a synctest.
func recordPolicyQueue(t *testing.T, b *Binder) (takeDue func() []PolicyKey) {
	t.Helper()
	var due []PolicyKey
	b.policyStatus.loop = reconcile.New(reconcile.Options[PolicyKey]{Name: "test", Reconcile: func(_ context.Context, key PolicyKey) (time.Duration, error) {
		due = append(due, key)
		return 0, nil
	}})
	b.policyStatus.loop.AcceptKeys()
	go b.policyStatus.loop.Run(t.Context(), nil)
	return func() (out []PolicyKey) {
		time.Sleep(statusDelay)
		synctest.Wait()
		out, due = due, nil
		return out
	}
}

// countedLog counts the errors that are logged.
type countedLog struct {
	slog.Handler
	errors int
}

func (x *countedLog) Enabled(context.Context, slog.Level) bool { return true }
func (x *countedLog) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelError {
		x.errors++
	}
	return nil
}

// unreadKinds are kinds of which some cannot be read, for a reason.
type unreadKinds struct {
	syncedTemplates
	reasons map[string]error
}

func (x unreadKinds) IsSynced(_, kind string) bool            { return x.reasons[kind] == nil }
func (x unreadKinds) UnreadReason(_, kind string) error       { return x.reasons[kind] }
func (x unreadKinds) IsNamespaced(_, kind string) (_, _ bool) { return true, kind != "Unserved" }

// newStoredBundle returns a Bundle that the store has, as the table has it.
func newStoredBundle(t *testing.T, b *Binder, conditions ...metav1.Condition) state.Bundle {
	t.Helper()
	o := &v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", Generation: 4}, Status: v1alpha1.BundleStatus{Conditions: conditions}}
	if err := b.Client.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	o.Status.Conditions = conditions
	if err := b.Client.Status().Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	bundle, _ := state.BundleOf(o)
	return bundle
}

// boundCondition returns the condition Bound of the stored Bundle without its time; zero: it has none.
func boundCondition(t *testing.T, b *Binder) (out metav1.Condition) {
	t.Helper()
	var o v1alpha1.Bundle
	if err := b.Client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, &o); err != nil {
		t.Fatal(err)
	}
	for _, c := range o.Status.Conditions {
		if c.Type == v1alpha1.BundleBound {
			c.LastTransitionTime = metav1.Time{}
			out = c
		}
	}
	return out
}

// A kind that cannot be read is reported after 10 s on the Bundle and on its policy, with its reason, and logged
// once. Its Bundle is planned again each minute, and when kinds are read.
func TestAKindThatCannotBeReadIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, _ := newTestBinder(t)
		log := &countedLog{}
		b.Log = slog.New(log)
		b.Kinds = unreadKinds{reasons: map[string]error{"Widget": errors.New("no CRD of that version")}}
		takeDue := recordPolicyQueue(t, b)
		bundle, id := newStoredBundle(t, b), policymatch.BundleID{Namespace: "shop", Name: "web"}
		from := bundleOrigin{source: v1alpha1.BundleSource{Kind: v1alpha1.SourceClusterPropagationPolicy, Name: "all"}}
		widget := schema.GroupKind{Group: "x.dev", Kind: "Widget"}
		since := time.Now().UTC().Format(time.RFC3339)
		expect := func(what string, again time.Duration, want metav1.Condition, due []PolicyKey) {
			t.Helper()
			got, err := b.awaitKind(t.Context(), id, bundle, from, widget)
			if err != nil || got != again {
				t.Errorf("%s: planned again after %v, %v; want %v", what, got, err, again)
			}
			if c := boundCondition(t, b); c != want {
				t.Errorf("%s: the Bundle says %+v, want %+v", what, c, want)
			}
			if got := takeDue(); !slices.Equal(got, due) {
				t.Errorf("%s: policies %v, want %v", what, got, due)
			}
		}
		expect("at once", 10*time.Second, metav1.Condition{}, nil)
		reported := metav1.Condition{
			Type: v1alpha1.BundleBound, Status: metav1.ConditionFalse, Reason: string(atoll.ReasonCannotRead), ObservedGeneration: 4,
			Message: "objects of kind Widget.x.dev cannot be read since " + since + ": no CRD of that version; what is placed stays as it is, and changes wait. Look at the hub's log, and repair or remove what cannot be read",
		}
		all := []PolicyKey{{v1alpha1.SourceClusterPropagationPolicy, "", "all"}}
		expect("after 10 s", time.Minute, reported, all)
		bundle.Status.Conditions = []metav1.Condition{reported}
		expect("later", time.Minute, reported, all)
		if log.errors != 1 {
			t.Errorf("it is logged %d times", log.errors)
		}
		if got := b.ownership.bundlesWaitingForSync(); !slices.Equal(got, []policymatch.BundleID{id}) {
			t.Errorf("%v wait for kinds", got)
		}
		b.ReadOnly = true
		expect("on a hub that does not lead", 0, reported, nil)
	})
}

// A kind that is still being read is no fault, and a wait that is shorter than 10 s is none.
func TestAKindThatIsReadSoonIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, _ := newTestBinder(t)
		b.Kinds = unreadKinds{reasons: map[string]error{"Widget": errors.New("no CRD")}}
		widget, gadget := schema.GroupKind{Kind: "Widget"}, schema.GroupKind{Kind: "Gadget"}
		for _, step := range []struct {
			after  time.Duration
			widget bool
		}{{0, false}, {10*time.Second - 1, false}, {1, true}, {time.Hour, true}} {
			time.Sleep(step.after)
			if got := b.unreadableReason(widget); (got != "") != step.widget {
				t.Errorf("after %v more: %q", step.after, got)
			}
			if got := b.unreadableReason(gadget); got != "" {
				t.Errorf("a kind that is being read: %q", got)
			}
		}
	})
}

// The end of a wait is written once: on the Bundle, where a wait was reported, and on its policy, which is that of the
// whole hub for a cluster policy. Kinds that are read wait no more.
func TestTheEndOfAWaitIsReported(t *testing.T) {
	wait := metav1.Condition{Type: v1alpha1.BundleBound, Status: metav1.ConditionFalse, Reason: string(atoll.ReasonCannotRead), Message: "w", LastTransitionTime: metav1.NewTime(time.Unix(1, 0)), ObservedGeneration: 4}
	bound := metav1.Condition{Type: v1alpha1.BundleBound, Status: metav1.ConditionTrue, Reason: string(atoll.ReasonRead), Message: "all kinds of its objects are read, and all can be sent", ObservedGeneration: 4}
	unknown := atoll.UnknownCondition(v1alpha1.BundleBound)
	unknown.LastTransitionTime = wait.LastTransitionTime
	placed := bound
	placed.LastTransitionTime = wait.LastTransitionTime
	stripped := func(c metav1.Condition) metav1.Condition { c.LastTransitionTime = metav1.Time{}; return c }
	for what, tc := range map[string]struct {
		kind     string
		readOnly bool
		before   []metav1.Condition
		want     metav1.Condition
		due      []PolicyKey
	}{
		"a wait":                        {policyKind, false, []metav1.Condition{wait}, bound, []PolicyKey{{policyKind, "shop", "web"}}},
		"a wait, of a cluster policy":   {v1alpha1.SourceClusterPropagationPolicy, false, []metav1.Condition{wait}, bound, []PolicyKey{{v1alpha1.SourceClusterPropagationPolicy, "", "web"}}},
		"a wait, and the hub leads not": {policyKind, true, []metav1.Condition{wait}, stripped(wait), nil},
		"no condition":                  {policyKind, false, nil, metav1.Condition{}, nil},
		"nothing was determined":        {policyKind, false, []metav1.Condition{unknown}, stripped(unknown), nil},
		"it was bound":                  {policyKind, false, []metav1.Condition{placed}, bound, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, _, _ := newTestBinder(t)
			b.ReadOnly = tc.readOnly
			b.Kinds = unreadKinds{reasons: map[string]error{"Widget": errors.New("no CRD")}}
			widget, conf := schema.GroupKind{Kind: "Widget"}, schema.GroupKind{Kind: "ConfigMap"}
			b.unreadableKinds.startWait(widget, time.Now())
			b.unreadableKinds.startWait(conf, time.Now())
			takeDue := recordPolicyQueue(t, b)
			bundle := newStoredBundle(t, b, tc.before...)
			if err := b.clearUnboundCondition(t.Context(), bundle, bundleOrigin{source: v1alpha1.BundleSource{Kind: tc.kind, Name: "web"}}); err != nil {
				t.Fatal(err)
			}
			if c := boundCondition(t, b); c != tc.want {
				t.Errorf("%s: the Bundle says %+v, want %+v", what, c, tc.want)
			}
			if got := takeDue(); !slices.Equal(got, tc.due) {
				t.Errorf("%s: policies %v, want %v", what, got, tc.due)
			}
			if got := b.unreadableKinds.pendingKeys(); !slices.Equal(got, []schema.GroupKind{widget}) {
				t.Errorf("%s: kinds %v wait", what, got)
			}
		})
	}
}

// A condition is written to a Bundle that exists, when it changes, on what the hub has read. The first write
// has the other conditions as unknown. The table's object stays as it was until the write is done.
func TestAConditionOfABundleIsWrittenWhenItChanges(t *testing.T) {
	b, table, _ := newTestBinder(t)
	old := metav1.Condition{Type: v1alpha1.BundleBound, Status: metav1.ConditionTrue, Reason: "Read", Message: "m", LastTransitionTime: metav1.NewTime(time.Unix(1, 0))}
	bundle := newStoredBundle(t, b, old)
	c := metav1.Condition{Type: v1alpha1.BundleBound, Status: metav1.ConditionFalse, Reason: string(atoll.ReasonCannotSend), Message: "m"}
	if err := b.SetBundleCondition(t.Context(), state.Bundle{}, c); err != nil || len(table.written) > 0 {
		t.Errorf("of a Bundle that does not exist: %v, written %v", err, table.written)
	}
	if err := b.SetBundleCondition(t.Context(), bundle, c); err != nil || len(table.written) != 1 {
		t.Fatalf("a change: %v, the table gets %v", err, table.written)
	}
	if !reflect.DeepEqual(bundle.Status.Conditions, []metav1.Condition{old}) {
		t.Errorf("the table's object says %+v", bundle.Status.Conditions)
	}
	written, _ := state.BundleOf(table.written[0])
	types := map[string]bool{}
	for _, c := range written.Status.Conditions {
		types[c.Type] = true
		if is := c.Type == v1alpha1.BundleBound; c.ObservedGeneration != 4 || is == (c.Reason == string(atoll.ReasonNotDetermined)) {
			t.Errorf("it is written as %+v", c)
		}
	}
	for _, is := range atoll.ConditionTypes["Bundle"] {
		if !is.Temporary && !types[is.Type] {
			t.Errorf("condition %s is missing", is.Type)
		}
	}
	if err := b.SetBundleCondition(t.Context(), written, c); err != nil || len(table.written) != 1 {
		t.Errorf("no change: %v, the table gets %v", err, table.written)
	}
	c.Message = "another"
	err := b.SetBundleCondition(t.Context(), bundle, c)
	if err == nil || !strings.HasPrefix(err.Error(), "write the condition of bundle shop/web: ") || len(table.written) != 1 {
		t.Errorf("the Bundle has changed since: %v, the table gets %v", err, table.written)
	}
}

// A Bundle shows which object cannot be sent and how many more, or that its Placement is missing, or that all is well.
func TestTheProblemsOfABundleAreReported(t *testing.T) {
	problem := func(kind string) bundlecontent.TemplateProblem {
		return bundlecontent.TemplateProblem{Key: newKey(kind, "a"), Err: errors.New("a is too large")}
	}
	bound := metav1.Condition{Type: v1alpha1.BundleBound, ObservedGeneration: 4}
	says := func(status metav1.ConditionStatus, reason atoll.Reason, message string) metav1.Condition {
		c := bound
		c.Status, c.Reason, c.Message = status, string(reason), message
		return c
	}
	for what, tc := range map[string]struct {
		unplaced string
		problems []bundlecontent.TemplateProblem
		want     metav1.Condition
	}{
		"one object":       {"", []bundlecontent.TemplateProblem{problem("ConfigMap")}, says(metav1.ConditionFalse, atoll.ReasonCannotSend, "a is too large; members keep what they have of it")},
		"three objects":    {"", []bundlecontent.TemplateProblem{problem("Secret"), problem("ConfigMap"), problem("ConfigMap")}, says(metav1.ConditionFalse, atoll.ReasonCannotSend, "a Secret cannot be sent as it is: an Event on it has the reason; members keep what they have of it (and 2 objects more cannot be sent)")},
		"two objects":      {"", []bundlecontent.TemplateProblem{problem("ConfigMap"), problem("Secret")}, says(metav1.ConditionFalse, atoll.ReasonCannotSend, "a is too large; members keep what they have of it (and 1 objects more cannot be sent)")},
		"and no Placement": {"no Placement", []bundlecontent.TemplateProblem{problem("ConfigMap")}, says(metav1.ConditionFalse, atoll.ReasonCannotSend, "a is too large; members keep what they have of it")},
		"no Placement":     {"no Placement", nil, says(metav1.ConditionFalse, atoll.ReasonPlacementMissing, "no Placement")},
		"nothing":          {"", nil, says(metav1.ConditionTrue, atoll.ReasonRead, "all kinds of its objects are read, and all can be sent")},
	} {
		b, _, _ := newTestBinder(t)
		bundle := newStoredBundle(t, b, metav1.Condition{Type: v1alpha1.BundleBound, Status: metav1.ConditionFalse, Reason: "Before", LastTransitionTime: metav1.NewTime(time.Unix(1, 0))})
		if err := b.reportProblems(t.Context(), bundle, bundleOrigin{}, tc.unplaced, tc.problems); err != nil {
			t.Fatal(err)
		}
		if c := boundCondition(t, b); c != tc.want {
			t.Errorf("%s: the Bundle says %+v, want %+v", what, c, tc.want)
		}
	}
}
