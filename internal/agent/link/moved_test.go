package link

import (
	"log/slog"
	"testing"

	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

func TestAnAgentGoesOnToTheHubThatItIsToldOf(t *testing.T) {
	l := &HubLink{o: Options{Log: slog.New(slog.DiscardHandler)}, hubs: []string{"a:1", "b:1", "c:1"}}
	for _, step := range []struct{ movedTo, dials string }{
		{"c:1", "c:1"},
		{"c:1", "c:1"},
		{"elsewhere:1", "a:1"}, // it knows no such hub
		{"b:1", "b:1"},
	} {
		if l.switchHub(&movedError{hub: step.movedTo}); l.currentHub() != step.dials {
			t.Errorf("redirected to %s it dials %s, want %s", step.movedTo, l.currentHub(), step.dials)
		}
	}
}

func TestTheCoreHandsAMoveOn(t *testing.T) {
	out := session.NewAgent(session.AgentOptions{}, session.Memory{}).HandleFrame(&pb.FromHub{Frame: &pb.FromHub_Move{Move: &pb.Move{Hub: "b:1"}}})
	if out.Move.GetHub() != "b:1" || len(out.Frames) > 0 {
		t.Errorf("%+v", out)
	}
}
