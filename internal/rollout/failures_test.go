package rollout

import (
	"testing"
	"time"

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
		if got := f.IsHeldBy(row); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
		if row.Status.State = atoll.RowReady; c.markedAt == 0 && f.IsHeldBy(row) {
			t.Errorf("%s: a healthy row holds the rollout", name)
		}
	}
}
