package link

import (
	"log/slog"
	"testing"

	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

func TestAnAgentGoesOnToTheHubThatItIsToldOf(t *testing.T) {
	l := &Link{o: Options{Log: slog.New(slog.DiscardHandler)}, hubs: []string{"a:1", "b:1", "c:1"}}
	for _, step := range []struct{ told, dials string }{
		{"c:1", "c:1"},
		{"c:1", "c:1"},
		{"elsewhere:1", "a:1"}, // it knows no such hub
		{"b:1", "b:1"},
	} {
		if l.moved(&movedError{hub: step.told}); l.hub() != step.dials {
			t.Errorf("told of %s it dials %s, want %s", step.told, l.hub(), step.dials)
		}
	}
}

func TestTheCoreHandsAMoveOn(t *testing.T) {
	out := session.NewAgent(session.AgentOptions{}, session.Memory{}).Frame(&pb.FromHub{Frame: &pb.FromHub_Move{Move: &pb.Move{Hub: "b:1"}}})
	if out.Move.GetHub() != "b:1" || len(out.Frames) > 0 {
		t.Errorf("%+v", out)
	}
}
