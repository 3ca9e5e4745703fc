package rollout

import (
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// recalledInput is a Bundle placed on clusters a and b; b's row is recalled.
func recalledInput() Input {
	active := atoll.RowSpec{UID: "a", Generation: 5, Revision: "r1", Phase: atoll.RowActive, Since: 100}
	gone := atoll.RowSpec{
		UID: "b", Generation: 9, Revision: "r1", Phase: atoll.RowRemoving, Since: 200,
		Recall: &atoll.RememberedRemoval{RemovedAt: 150, Placement: "p1"},
	}
	return Input{
		BundleUID: "bundle", Revision: "r1", PlacementHash: "p1", Now: time.Unix(1000, 0),
		Rows: map[string]Row{
			"a": {Spec: active, Online: true, Status: &atoll.RowStatus{Generation: 5, State: atoll.RowReady}},
			"b": {Spec: gone, Online: true, Status: &atoll.RowStatus{Generation: 9, State: atoll.RowRemoved}},
		},
		Decision: schedule.Decision{Verdicts: []schedule.Verdict{
			{Cluster: "a", UID: "a", Outcome: schedule.OutcomePlaced}, {Cluster: "b", UID: "b", Outcome: schedule.OutcomePlaced},
		}},
	}
}

// applyOutput the output's changes into the input.
func applyOutput(in Input, out Output) Input {
	rows := map[string]Row{}
	for c, r := range in.Rows {
		rows[c] = r
	}
	for c, spec := range out.Changes {
		if spec == nil {
			delete(rows, c)
			continue
		}
		r := rows[c]
		r.Spec = *spec
		rows[c] = r
	}
	in.Rows = rows
	return in
}

func TestARecalledRowWaitsForADecision(t *testing.T) {
	in := recalledInput()
	out := AdvanceRows(in)
	if out.PendingRemoval == nil || len(out.PendingRemoval.Lines) != 1 {
		t.Fatalf("plan %v", out.PendingRemoval)
	}
	spec := out.Changes["b"]
	if spec == nil || spec.Phase != atoll.RowRemoving || spec.Generation != 9 {
		t.Fatalf("the recalled row became %+v", spec)
	}
	if r := atoll.ParseRowReason(spec.Reason); r.Reason != atoll.ReasonRemovedBeforeRestore || r.Plan != out.PendingRemoval.Hash {
		t.Errorf("its reason is %q, the plan %s", spec.Reason, out.PendingRemoval.Hash)
	}
	in = applyOutput(in, out)
	if again := AdvanceRows(in); len(again.Changes) != 0 || again.PendingRemoval.Hash != out.PendingRemoval.Hash {
		t.Errorf("a second look changes %v, plan %v", again.Changes, again.PendingRemoval)
	}
	for name, c := range map[string]struct {
		edit func(*Input)
		want func(Output, atoll.RowSpec) bool
	}{
		"confirmed": {
			func(in *Input) { in.ConfirmedPlan = out.PendingRemoval.Hash },
			func(o Output, b atoll.RowSpec) bool {
				return b.Phase == atoll.RowRemoving && b.Recall != nil && b.Recall.Confirmed && o.PendingRemoval == nil && len(o.RemovedByEdit) == 0
			},
		},
		"kept": {
			func(in *Input) { in.KeptPlan = out.PendingRemoval.Hash },
			func(o Output, b atoll.RowSpec) bool {
				return b.Phase == atoll.RowActive && b.Recall == nil && b.Generation > 9 && o.PendingRemoval == nil
			},
		},
		"another plan confirmed": {
			func(in *Input) { in.ConfirmedPlan = "other" },
			func(o Output, b atoll.RowSpec) bool { return b.Phase == atoll.RowRemoving && o.PendingRemoval != nil },
		},
		"the placement edited, and wants it": {
			func(in *Input) { in.PlacementHash = "p2" },
			func(o Output, b atoll.RowSpec) bool {
				return b.Phase == atoll.RowActive && b.Recall == nil && o.PendingRemoval == nil
			},
		},
		"the placement edited, and leaves it out": {
			func(in *Input) {
				in.PlacementHash = "p2"
				in.Decision.Verdicts[1] = schedule.Verdict{Cluster: "b", UID: "b", Outcome: schedule.OutcomeLeaves, RowReason: atoll.ReasonPlacementEdited}
			},
			func(o Output, b atoll.RowSpec) bool {
				return b.Phase == atoll.RowRemoving && b.Recall == nil && o.PendingRemoval == nil
			},
		},
		"the Bundle deleted": {
			func(in *Input) { in.Deleting = true },
			func(_ Output, b atoll.RowSpec) bool { return b.Phase == atoll.RowRemoving && b.Recall == nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := recalledInput()
			in = applyOutput(in, out)
			c.edit(&in)
			got := AdvanceRows(in)
			after := applyOutput(in, got)
			if !c.want(got, after.Rows["b"].Spec) {
				t.Errorf("became %+v, plan %v", after.Rows["b"].Spec, got.PendingRemoval)
			}
			if again := AdvanceRows(after); name != "the Bundle deleted" && len(again.Changes) != 0 {
				t.Errorf("a second look changes %+v", again.Changes)
			}
		})
	}
}

func TestRecalledDeletionsShowAtActiveRows(t *testing.T) {
	in := recalledInput()
	delete(in.Rows, "b")
	in.Decision.Verdicts = in.Decision.Verdicts[:1]
	in.Recalled = HeldBackDeletions{PlanHash: "h1", Text: "Deployment web"}
	in.ExplainWaits = true
	out := AdvanceRows(in)
	spec := out.Changes["a"]
	if spec == nil || spec.Generation != 5 || spec.Reason != "RemovedBeforeRestore plan=h1: Deployment web" {
		t.Fatalf("the row became %+v", spec)
	}
	if len(out.Waits) != 1 || out.Waits[0].Actor != atoll.ActorConfirmer {
		t.Errorf("it waits for %+v", out.Waits)
	}
	// The deletion that follows a confirmation is not held by what its row says.
	in = applyOutput(in, out)
	in.ConfirmedPlan, in.Recalled, in.Revision = "h1", HeldBackDeletions{}, "r2"
	in.DeletedItems = map[string][]string{"r1": {"apps/Deployment/shop/web u1"}}
	if got := AdvanceRows(in); got.Changes["a"] == nil || got.Changes["a"].Revision != "r2" || got.Changes["a"].Reason != "" {
		t.Errorf("after the confirmation: %+v", got.Changes["a"])
	}
}

// A plan that waits shows at one row at least: a row that has another reason says both.
func TestAHeldBackPlanShowsWhereEveryRowHasAReason(t *testing.T) {
	in := recalledInput()
	delete(in.Rows, "b")
	in.Decision.Verdicts = in.Decision.Verdicts[:1]
	in.Decision.Verdicts[0].Outcome, in.Decision.Verdicts[0].RowReason, in.Decision.Verdicts[0].Reason = schedule.OutcomeKept, atoll.ReasonUnfit, "tainted"
	in.Unconfirmed = HeldBackDeletions{PlanHash: "h1", Text: "remove ConfigMap web"}
	out := AdvanceRows(in)
	if spec := out.Changes["a"]; spec == nil || spec.Reason != "WaitsForConfirmation plan=h1: remove ConfigMap web; Unfit: tainted" {
		t.Fatalf("the row became %+v", spec)
	}
	if out.RowsIndependent {
		t.Error("a step over some rows cannot choose the row that says it")
	}
	if again := AdvanceRows(applyOutput(in, out)); len(again.Changes) > 0 {
		t.Errorf("a second step changes %+v", again.Changes)
	}
}
