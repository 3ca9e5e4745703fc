package rollout

import (
	"fmt"
	"time"

	"atoll.dev/atoll/internal/atoll"
)

// recalled tells whether the row is not to come back by itself: its member remembers
// to have removed it, and the hub, which was set back, did not. That counts for as
// long as the placement is the one that the hub was set back to, until somebody
// takes it back.
func (s *step) recalled(spec atoll.RowSpec) bool {
	r := spec.Recall
	return r != nil && r.Placement == s.Placement && (r.Confirmed || !s.keep)
}

// recall gives the spec of such a row: it stays as it is, and asks, until somebody
// confirms.
func (s *step) recall(c string) {
	spec := s.Rows[c].Spec
	if s.released && !spec.Recall.Confirmed {
		confirmed := *spec.Recall
		confirmed.Confirmed = true
		spec.Recall = &confirmed
	}
	at := time.Unix(spec.Recall.At, 0).UTC().Format(time.RFC3339)
	spec.Reason = atoll.RowReason{Word: atoll.RowRemovedBefore, Text: "the member removed it at " + at + "; editing the placement ends this"}.String()
	s.next[c] = &spec
	if !spec.Recall.Confirmed {
		s.plan.add(planEntry{
			cluster: c, word: atoll.RowRemovedBefore, text: "the member removed it at " + at + ", before the hub was restored",
			key:  fmt.Sprintf("recalled %s %s %d %d", c, spec.UID, spec.Since, spec.Recall.At),
			line: fmt.Sprintf("leave %s without the Bundle, which it removed at %s, before the hub was restored", c, at),
		})
	}
}

// askRecalled shows the deletions that the revision holds back at every row that has
// nothing else to say.
func (s *step) askRecalled() {
	r := s.Recalled
	if r.Plan == "" || r.Plan == s.Confirm || r.Plan == s.Keep {
		return
	}
	for _, c := range s.stays {
		if spec := s.next[c]; spec.Reason == "" {
			spec.Reason = atoll.RowReason{Word: atoll.RowRemovedBefore, Plan: r.Plan, Text: r.Text}.String()
		}
	}
}
