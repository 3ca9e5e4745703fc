package session

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

func TestCheckPosition(t *testing.T) {
	chain := []enginev1.ChainLink{{ID: "a", Revision: 10}, {ID: "b", Revision: 50}, {ID: "c", Revision: 90}}
	for _, c := range []struct {
		name     string
		chain    []enginev1.ChainLink
		forgiven int64
		position *pb.Position
		rewound  bool
	}{
		{"an agent that saw nothing", chain, 0, nil, false},
		{"the present start", chain, 0, &pb.Position{ChainId: "c", Revision: 1000, Issued: 5}, false},
		{"an earlier start, before its end", chain, 0, &pb.Position{ChainId: "a", Revision: 50, Issued: 5}, false},
		{"an earlier start, past its end", chain, 0, &pb.Position{ChainId: "a", Revision: 51, Issued: 5}, true},
		{"a start that this store never had", chain, 0, &pb.Position{ChainId: "x", Revision: 60, Issued: 5}, true},
		{"a start that the chain has forgotten", chain, 0, &pb.Position{ChainId: "x", Revision: 9, Issued: 5}, false},
		{"what an accepted rewind covers", chain, 6, &pb.Position{ChainId: "x", Revision: 60, Issued: 5}, false},
		{"a second rewind after the accepted one", chain, 6, &pb.Position{ChainId: "x", Revision: 60, Issued: 6}, true},
		{"a hub without a chain yet", nil, 0, &pb.Position{ChainId: "x", Revision: 60, Issued: 5}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			reason, rewound := CheckPosition(c.chain, c.forgiven, c.position)
			if rewound != c.rewound || rewound != (reason != "") {
				t.Errorf("rewound %t because %q, want %t", rewound, reason, c.rewound)
			}
		})
	}
}

func TestStatusHash(t *testing.T) {
	s := atoll.RowStatus{Generation: 3, Seq: 4, State: atoll.RowReady, Since: 5, Items: []atoll.ItemStatus{{Health: atoll.Healthy, Since: 6}}}
	same := s
	same.Seq, same.Since, same.UID = 9, 9, "u"
	same.Items = []atoll.ItemStatus{{Health: atoll.Healthy, Since: 7}}
	if StatusHash(s) != StatusHash(same) {
		t.Error("times, seq and UID change the hash")
	}
	if s.Items[0].Since != 6 {
		t.Error("hashing changed the status")
	}
	same.Items[0].Health = atoll.Degraded
	if StatusHash(s) == StatusHash(same) {
		t.Error("an item's health does not change the hash")
	}
}

func TestWantedEntry(t *testing.T) {
	removing := atoll.RowSpec{Generation: 4, Phase: atoll.RowRemoving}
	done := &atoll.RowStatus{Generation: 4, State: atoll.RowRemoved}
	if _, ok := WantedEntry("b", removing, Reported{RowStatus: done}); ok {
		t.Error("a removal that is done is still wanted")
	}
	if _, ok := WantedEntry("b", removing, Reported{RowStatus: &atoll.RowStatus{Generation: 3, State: atoll.RowRemoved}}); !ok {
		t.Error("a removal of another generation counts as done")
	}
	for _, phase := range []atoll.RowPhase{atoll.RowVacant, atoll.RowPending} {
		if _, ok := WantedEntry("b", atoll.RowSpec{Generation: 3, Phase: phase}, Reported{}); ok {
			t.Errorf("the agent is to hold a row that is %s", phase)
		}
	}
	if w, ok := WantedEntry("b", atoll.RowSpec{Generation: 4}, Reported{RowStatus: &atoll.RowStatus{Generation: 3, Content: "old"}}); !ok || w.Content != "" || w.Status == "" {
		t.Errorf("want %+v of a row whose status is about an older generation", w)
	}
}

// A manifest larger than a frame is sent in pieces.
func TestPayloadSizes(t *testing.T) {
	var m atoll.Manifest
	for i := range 8 {
		object := json.RawMessage(`{"data":"` + strings.Repeat(fmt.Sprint(i), 400_000) + `"}`)
		m.Items = append(m.Items, atoll.RenderedItem{Key: atoll.ItemKey{Kind: "K", Name: fmt.Sprint(i)}, Hash: fmt.Sprintf("h%d", i), Object: object})
	}
	m.Items = append(m.Items, atoll.RenderedItem{Key: atoll.ItemKey{Kind: "K", Name: "broken"}, Hash: "broken", Error: "a patch did not apply"})
	p := NewPayload(m)
	body, err := p.Encode(nil)
	if err != nil || len(body) > InlineBytes+InlineBytes/2 {
		t.Fatalf("%d bytes, %v", len(body), err)
	}
	a := NewAgent(AgentOptions{}, Memory{})
	out := a.HandleFrame(&pb.FromHub{Frame: &pb.FromHub_Upsert{Upsert: &pb.Upsert{Bundle: "b", Generation: 1, Manifest: body}}})
	if len(out.Store) != 0 || len(out.Frames) != 1 || len(out.Frames[0].GetNeed().GetHashes()) != 6 {
		t.Fatalf("store %d, frames %v", len(out.Store), out.Frames)
	}
	answer := p.AnswerNeed(out.Frames[0].GetNeed())
	if len(answer) != 3 {
		t.Fatalf("%d frames of objects", len(answer))
	}
	var stored []atoll.Manifest
	for i, f := range answer {
		if proto.Size(f) > InlineBytes+1000 {
			t.Errorf("frame %d has %d bytes", i, proto.Size(f))
		}
		stored = append(stored, a.HandleFrame(f).Store...)
	}
	if len(stored) != 1 || stored[0].Generation != 1 || string(stored[0].Items[7].Object) != string(m.Items[7].Object) || stored[0].Items[8].Object != nil {
		t.Errorf("stored %d manifests", len(stored))
	}
}

// The session of an agent that makes the hub query without end is ended.
func TestFalseDigestsAreRefused(t *testing.T) {
	hub, out := NewHubSession(&pb.Hello{Held: 20}, nil, false)
	queried := 0
	for rounds := 0; ; rounds++ {
		if out.Refused != nil {
			break
		}
		if rounds > 100 {
			t.Fatal("the hub still asks")
		}
		answer := &pb.Digest{}
		for _, f := range out.Frames {
			for _, p := range f.GetDigestQuery().GetPrefixes() {
				queried++
				r := &pb.Range{Prefix: p}
				for range treeFanOut {
					r.Children = append(r.Children, []byte("a lie"))
				}
				answer.Ranges = append(answer.Ranges, r)
			}
		}
		out = hub.HandleFrame(&pb.FromAgent{Frame: &pb.FromAgent_Digest{Digest: answer}})
	}
	if most := treeFanOut + 2*20; queried > most {
		t.Errorf("%d ranges are queried of an agent with 20 bundles, whose tree has at most %d", queried, most)
	}
	if !hub.IsSynced() {
		t.Error("a refused session still compares")
	}
	if _, out := NewHubSession(&pb.Hello{Held: maxHeldBundles + 1}, nil, false); out.Refused == nil {
		t.Error("an absurd Hello is taken")
	}
}

func TestHoldingComparesNothing(t *testing.T) {
	_, out := NewHubSession(&pb.Hello{Held: 3, Digest: []byte("other")}, []Entry{{Bundle: "b", Generation: 1}}, true)
	if len(out.Orders)+len(out.Frames) > 0 || !out.Synced {
		t.Errorf("a hub that holds does %+v", out)
	}
}

func BenchmarkReconnectEqual(b *testing.B) {
	entries := make([]Entry, 10_000)
	for i := range entries {
		entries[i] = Entry{fmt.Sprintf("bundle-%d", i), 1, "content", "status"}
	}
	hello := &pb.Hello{Held: 10_000, Digest: NewTree(entries).RootDigest()}
	b.ReportAllocs()
	for b.Loop() {
		if _, out := NewHubSession(hello, entries, false); !out.Synced {
			b.Fatal("not equal")
		}
	}
}

// A frame that only the hub's shell handles is handed on as it came, once the resync is over.
func TestFramesOfAnAgentAreHandedOn(t *testing.T) {
	hub, out := NewHubSession(&pb.Hello{Digest: NewTree(nil).RootDigest()}, nil, false)
	if !out.Synced {
		t.Fatalf("two that hold nothing are not equal: %+v", out)
	}
	hub.RowChanged(Entry{Bundle: "b", Generation: 1})
	inventory, renew, remembered, left, leaving, need, report := &pb.Inventory{}, &pb.Renew{}, &pb.Remembered{}, &pb.Left{}, &pb.Leaving{}, &pb.Need{Bundle: "b"}, &pb.Report{Bundle: "b"}
	for name, c := range map[string]struct {
		frame *pb.FromAgent
		has   func(HubOutput) bool
	}{
		"an inventory":        {&pb.FromAgent{Frame: &pb.FromAgent_Inventory{Inventory: inventory}}, func(o HubOutput) bool { return o.Inventory == inventory }},
		"a renewal":           {&pb.FromAgent{Frame: &pb.FromAgent_Renew{Renew: renew}}, func(o HubOutput) bool { return o.Renew == renew }},
		"removals":            {&pb.FromAgent{Frame: &pb.FromAgent_Remembered{Remembered: remembered}}, func(o HubOutput) bool { return o.Remembered == remembered }},
		"that it left":        {&pb.FromAgent{Frame: &pb.FromAgent_Left{Left: left}}, func(o HubOutput) bool { return o.Left == left }},
		"that it leaves":      {&pb.FromAgent{Frame: &pb.FromAgent_Leaving{Leaving: leaving}}, func(o HubOutput) bool { return o.Leaving == leaving }},
		"a report":            {&pb.FromAgent{Frame: &pb.FromAgent_Report{Report: report}}, func(o HubOutput) bool { return len(o.Reports) == 1 && o.Reports[0] == report }},
		"a need":              {&pb.FromAgent{Frame: &pb.FromAgent_Need{Need: need}}, func(o HubOutput) bool { return len(o.Needs) == 1 && o.Needs[0] == need }},
		"a need of no Bundle": {&pb.FromAgent{Frame: &pb.FromAgent_Need{Need: &pb.Need{Bundle: "other"}}}, func(o HubOutput) bool { return len(o.Needs) == 0 }},
	} {
		if out := hub.HandleFrame(c.frame); !c.has(out) || out.Refused != nil {
			t.Errorf("%s becomes %+v", name, out)
		}
	}
}
