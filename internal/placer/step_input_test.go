package placer

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// A step's changes add rows, remove rows, and change rows, of which only the first two change how
// many there are.
func TestRowsAfterAStep(t *testing.T) {
	spec := &atoll.RowSpec{}
	for name, c := range map[string]struct {
		changes map[string]*atoll.RowSpec
		want    int
	}{
		"no change":            {nil, 2},
		"a row is added":       {map[string]*atoll.RowSpec{"c": spec}, 3},
		"a row is removed":     {map[string]*atoll.RowSpec{"a": nil}, 1},
		"a row is changed":     {map[string]*atoll.RowSpec{"a": spec}, 2},
		"no row is removed":    {map[string]*atoll.RowSpec{"c": nil}, 2},
		"one comes, one goes":  {map[string]*atoll.RowSpec{"c": spec, "a": nil}, 2},
		"both go, three come":  {map[string]*atoll.RowSpec{"a": nil, "b": nil, "c": spec, "d": spec, "e": spec}, 3},
		"both are changed":     {map[string]*atoll.RowSpec{"a": spec, "b": spec}, 2},
		"one is a new cluster": {map[string]*atoll.RowSpec{"a": spec, "c": spec}, 3},
	} {
		s := &stepInput{baseRows: make([]state.Row, 2)}
		s.rollout.Rows = map[string]rollout.Row{"a": {}, "b": {}}
		if got := s.countRowsAfter(rollout.Output{Changes: c.changes}); got != c.want {
			t.Errorf("%s: %d rows, want %d", name, got, c.want)
		}
	}
}

// A step over some rows is enough only where no row leaves or loses anything.
func TestStepsOverSomeRowsAreEnoughWhileAllRowsStay(t *testing.T) {
	for name, c := range map[string]struct {
		outcome schedule.Outcome
		row     atoll.RowSpec
		change  func(*rollout.Input)
		want    bool
	}{
		"it stays":                       {schedule.OutcomePlaced, atoll.RowSpec{Phase: atoll.RowActive}, nil, true},
		"it is kept":                     {schedule.OutcomeKept, atoll.RowSpec{Phase: atoll.RowActive}, nil, true},
		"it leaves":                      {schedule.OutcomeLeaves, atoll.RowSpec{Phase: atoll.RowActive}, nil, false},
		"it is leaving":                  {schedule.OutcomePlaced, atoll.RowSpec{Phase: atoll.RowLeaving}, nil, false},
		"it is held":                     {schedule.OutcomePlaced, atoll.RowSpec{Phase: atoll.RowHeld}, nil, false},
		"it is recalled":                 {schedule.OutcomePlaced, atoll.RowSpec{Phase: atoll.RowActive, Recall: &atoll.RememberedRemoval{}}, nil, false},
		"an item of it was deleted":      {schedule.OutcomePlaced, atoll.RowSpec{Phase: atoll.RowActive, Revision: "r"}, func(in *rollout.Input) { in.DeletedItems = map[string][]string{"r": {"x"}} }, false},
		"an item of another was deleted": {schedule.OutcomePlaced, atoll.RowSpec{Phase: atoll.RowActive, Revision: "r"}, func(in *rollout.Input) { in.DeletedItems = map[string][]string{"q": {"x"}} }, true},
		"the Bundle is deleted":          {schedule.OutcomePlaced, atoll.RowSpec{Phase: atoll.RowActive}, func(in *rollout.Input) { in.Deleting = true }, false},
		"nothing fits":                   {schedule.OutcomePlaced, atoll.RowSpec{Phase: atoll.RowActive}, func(in *rollout.Input) { in.Decision.NoFit = true }, false},
	} {
		s := &stepInput{}
		s.rollout.Decision.Verdicts = []schedule.Verdict{{Cluster: "a", Outcome: c.outcome}}
		s.rollout.Rows = map[string]rollout.Row{"a": {Spec: c.row}}
		if c.change != nil {
			c.change(&s.rollout)
		}
		if got := s.keepsAllRows(); got != c.want {
			t.Errorf("%s: keeps all rows is %t", name, got)
		}
	}
}
