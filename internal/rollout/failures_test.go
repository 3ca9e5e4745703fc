package rollout

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// A failure holds what waited before the failed row changed. A resume excuses what had failed, and a clock that is
// wrong ends no hold.
func TestFailureScope(t *testing.T) {
	earlier, pending, unseen := atoll.RowSpec{Phase: atoll.RowActive, Since: 980}, func(since int64) atoll.RowSpec {
		return atoll.RowSpec{Phase: atoll.RowPending, Since: since}
	}, atoll.RowSpec{}
	for name, c := range map[string]struct {
		waiting                                []atoll.RowSpec
		movedAt, failedAt, markedAt, resumedAt int64
		want                                   bool
	}{
		"nothing waits":                          {nil, 900, 910, 0, 0, false},
		"an earlier revision":                    {[]atoll.RowSpec{earlier}, 900, 910, 0, 0, true},
		"failed before the resume":               {[]atoll.RowSpec{earlier}, 900, 910, 0, 950, false},
		"marked before the resume":               {[]atoll.RowSpec{earlier}, 900, 990, 910, 950, false},
		"failed in the second of the resume":     {[]atoll.RowSpec{earlier}, 900, 950, 0, 950, false},
		"was changing at the resume":             {[]atoll.RowSpec{earlier}, 900, 951, 0, 950, true},
		"was changing, and is marked since":      {[]atoll.RowSpec{earlier}, 900, 910, 951, 950, true},
		"changed in the second of the resume":    {[]atoll.RowSpec{earlier}, 950, 950, 0, 950, true},
		"changed after the resume":               {[]atoll.RowSpec{earlier}, 951, 960, 0, 950, true},
		"resumed in the future":                  {[]atoll.RowSpec{earlier}, 900, 910, 0, 1001, true},
		"changed before rollouts were stated":    {[]atoll.RowSpec{earlier}, 0, 910, 0, 0, true},
		"a cluster that came before":             {[]atoll.RowSpec{pending(800)}, 900, 910, 0, 0, true},
		"a cluster that came in the same second": {[]atoll.RowSpec{pending(900)}, 900, 910, 0, 0, true},
		"a cluster that came later":              {[]atoll.RowSpec{pending(901)}, 900, 910, 0, 0, false},
		"a cluster that comes":                   {[]atoll.RowSpec{unseen}, 900, 910, 0, 0, false},
		"its stage failed before it came":        {[]atoll.RowSpec{pending(990)}, 900, 910, 915, 0, true},
		"that was resumed":                       {[]atoll.RowSpec{pending(990)}, 900, 910, 915, 950, false},
		"one of several came before":             {[]atoll.RowSpec{unseen, pending(800)}, 900, 910, 0, 0, true},
		"it came by a clock that was ahead":      {[]atoll.RowSpec{pending(5000)}, 1000, 1000, 0, 0, true},
	} {
		f := NewFailureScope(time.Time{}, time.Unix(1000, 0))
		if c.resumedAt != 0 {
			f = NewFailureScope(time.Unix(c.resumedAt, 0), time.Unix(1000, 0))
		}
		for _, spec := range c.waiting {
			f.AddWaiting(Row{Spec: spec})
		}
		row := Row{Spec: atoll.RowSpec{Generation: 1, MovedAt: c.movedAt, FailedAt: c.markedAt}, Status: &atoll.RowStatus{Generation: 1, State: atoll.RowDegraded, Since: c.failedAt}}
		if got := f.IsHeldBy(nil, row); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
		if row.Status.State = atoll.RowReady; c.markedAt == 0 && f.IsHeldBy(nil, row) {
			t.Errorf("%s: a healthy row holds the rollout", name)
		}
	}
}

// A resume excuses the rows that were unhealthy then, by the default bound alone.
func TestExcusedRows(t *testing.T) {
	const resumed = 950
	unhealthy := func(since int64) *atoll.RowStatus {
		return &atoll.RowStatus{Generation: 2, State: atoll.RowDegraded, Since: since}
	}
	ready := &atoll.RowStatus{Generation: 1, State: atoll.RowReady, Since: 800} // of an earlier share
	for name, c := range map[string]struct {
		spec   atoll.RowSpec
		status *atoll.RowStatus
		want   bool
	}{
		"unhealthy since before":                {atoll.RowSpec{MovedAt: 900}, unhealthy(940), true},
		"unhealthy since that second":           {atoll.RowSpec{MovedAt: 900}, unhealthy(950), true},
		"unhealthy since later":                 {atoll.RowSpec{MovedAt: 900}, unhealthy(951), false},
		"changed in that second":                {atoll.RowSpec{MovedAt: 950}, unhealthy(940), false},
		"marked later":                          {atoll.RowSpec{MovedAt: 900, FailedAt: 951}, unhealthy(940), false},
		"unhealthy before, with a larger share": {atoll.RowSpec{MovedAt: 900, GrownAt: 990}, unhealthy(940), true},
		"never reported":                        {atoll.RowSpec{Since: 900}, nil, true},
		"joined later":                          {atoll.RowSpec{Since: 951}, nil, false},
		"behind with its share":                 {atoll.RowSpec{MovedAt: 900, GrownAt: 940}, ready, true},
		"got its share later":                   {atoll.RowSpec{MovedAt: 900, GrownAt: 951}, ready, false},
	} {
		c.spec.Generation = 2
		f, row := NewFailureScope(time.Unix(resumed, 0), time.Unix(1000, 0)), Row{Spec: c.spec, Status: c.status}
		if got := f.IsExcused(CompileTerms(nil), row); got != c.want {
			t.Errorf("%s: excused %t, want %t", name, got, c.want)
		}
		one := intstr.FromInt32(1)
		if f.IsExcused(CompileTerms(&v1alpha1.Rollout{MaxUnavailable: &one}), row) {
			t.Errorf("%s: a stated bound excuses", name)
		}
		if never := NewFailureScope(time.Time{}, time.Unix(1000, 0)); never.IsExcused(CompileTerms(nil), row) {
			t.Errorf("%s: without a resume it is excused", name)
		}
	}
}

// When no cluster waits, only a failure soon after the change rolls back, also by a member with a clock that is behind.
func TestFailureAfterTheLastStage(t *testing.T) {
	terms := CompileTerms(&v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, Stages: []v1alpha1.RolloutStage{{Name: "all", OnFailure: v1alpha1.FailureRollback}}})
	for name, c := range map[string]struct {
		now, failedAt, markedAt int64
		want                    bool
	}{
		"soon":                                   {1100, 1100, 0, true},
		"at the end of the time":                 {1600, 1600, 0, true},
		"later":                                  {1700, 1601, 0, false},
		"soon, and the hub sees it later":        {9000, 1100, 0, true},
		"soon, and the hub marked it":            {9000, 8000, 1100, true},
		"soon, by a clock that is behind":        {1100, 400, 0, true},
		"much later, by a clock that is behind":  {9000, 400, 0, false},
		"a clock that is behind, and marked":     {9000, 400, 1100, true},
		"much later, by a clock that has no day": {9000, 0, 0, false},
	} {
		row := Row{
			Spec:   atoll.RowSpec{Phase: atoll.RowActive, Generation: 1, MovedAt: 1000, FailedAt: c.markedAt, PreviousRevision: "r1"},
			Status: &atoll.RowStatus{Generation: 1, State: atoll.RowDegraded, Since: c.failedAt}, Online: true,
		}
		f := NewFailureScope(time.Time{}, time.Unix(c.now, 0))
		if got := f.IsHeldBy(terms, row); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
