package delivery

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/state"
)

// A row may turn to a phase that orders nothing after its order was queued, or after the agent asked for its
// objects. The agent then gets neither: two copies could run.
func TestAPhaseThatOrdersNothingSendsNothing(t *testing.T) {
	for phase, ordered := range map[atoll.RowPhase]bool{atoll.RowPending: false, atoll.RowVacant: false, atoll.RowActive: true, atoll.RowRemoving: true} {
		t.Run(string(phase), func(t *testing.T) {
			rows := &memRows{rows: map[string]map[string]state.Row{}}
			rows.setRows("web", map[string]atoll.RowSpec{"tokyo": {UID: "u", Generation: 3, Phase: phase}})
			s := &agentSession{gateway: &Gateway{options: Options{Rows: rows}}, cluster: "tokyo", id: identity{uid: "u"}} // it cannot render
			if _, ok := s.orderedRow("web"); ok != ordered {
				t.Errorf("the row is ordered: %t, want %t", ok, ordered)
			}
			if ordered {
				return
			}
			if err := s.sendOrder(session.Order{Bundle: "web"}); err != nil {
				t.Error(err)
			}
			if err := s.answerNeed(&pb.Need{Bundle: "web", Generation: 3}); err != nil || len(s.queue.retries) > 0 {
				t.Errorf("the objects are rendered: %v, %v", err, s.queue.retries)
			}
		})
	}
}
