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

func TestWantOf(t *testing.T) {
	removing := atoll.RowSpec{Generation: 4, Phase: atoll.RowRemoving}
	done := &atoll.RowStatus{Generation: 4, State: atoll.RowRemoved}
	if _, ok := WantOf("b", removing, Reported{RowStatus: done}); ok {
		t.Error("a removal that is done is still wanted")
	}
	if _, ok := WantOf("b", removing, Reported{RowStatus: &atoll.RowStatus{Generation: 3, State: atoll.RowRemoved}}); !ok {
		t.Error("a removal of another generation counts as done")
	}
	if w, ok := WantOf("b", atoll.RowSpec{Generation: 4}, Reported{RowStatus: &atoll.RowStatus{Generation: 3, Content: "old"}}); !ok || w.Content != "" || w.Status == "" {
		t.Errorf("want %+v of a row whose status is about an older generation", w)
	}
}

// TestParcelSizes sends a manifest larger than a frame in pieces.
func TestParcelSizes(t *testing.T) {
	var m atoll.Manifest
	for i := range 8 {
		object := json.RawMessage(`{"data":"` + strings.Repeat(fmt.Sprint(i), 400_000) + `"}`)
		m.Items = append(m.Items, atoll.Rendered{Key: atoll.ItemKey{Kind: "K", Name: fmt.Sprint(i)}, Hash: fmt.Sprintf("h%d", i), Object: object})
	}
	m.Items = append(m.Items, atoll.Rendered{Key: atoll.ItemKey{Kind: "K", Name: "broken"}, Hash: "broken", Error: "a patch did not apply"})
	p := NewParcel(m)
	body, err := p.Encode(nil)
	if err != nil || len(body) > InlineBytes+InlineBytes/2 {
		t.Fatalf("%d bytes, %v", len(body), err)
	}
	a := NewAgent(AgentOptions{}, Memory{})
	out := a.Frame(&pb.FromHub{Frame: &pb.FromHub_Upsert{Upsert: &pb.Upsert{Bundle: "b", Generation: 1, Manifest: body}}})
	if len(out.Store) != 0 || len(out.Frames) != 1 || len(out.Frames[0].GetNeed().GetHashes()) != 6 {
		t.Fatalf("store %d, frames %v", len(out.Store), out.Frames)
	}
	answer := p.Answer(out.Frames[0].GetNeed())
	if len(answer) != 3 {
		t.Fatalf("%d frames of objects", len(answer))
	}
	var stored []atoll.Manifest
	for i, f := range answer {
		if proto.Size(f) > InlineBytes+1000 {
			t.Errorf("frame %d has %d bytes", i, proto.Size(f))
		}
		stored = append(stored, a.Frame(f).Store...)
	}
	if len(stored) != 1 || stored[0].Generation != 1 || string(stored[0].Items[7].Object) != string(m.Items[7].Object) || stored[0].Items[8].Object != nil {
		t.Errorf("stored %d manifests", len(stored))
	}
}

// TestLyingDigests ends a session whose agent makes the hub ask without end.
func TestLyingDigests(t *testing.T) {
	hub, out := NewHub(&pb.Hello{Held: 20}, nil, false)
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
				r := &pb.Range{Prefix: p}
				for range fanOut {
					r.Children = append(r.Children, []byte("a lie"))
				}
				answer.Ranges = append(answer.Ranges, r)
			}
		}
		out = hub.Frame(&pb.FromAgent{Frame: &pb.FromAgent_Digest{Digest: answer}})
	}
	if !hub.Synced() {
		t.Error("a refused session still compares")
	}
	if _, out := NewHub(&pb.Hello{Held: heldLimit + 1}, nil, false); out.Refused == nil {
		t.Error("an absurd Hello is taken")
	}
}

func TestHoldingComparesNothing(t *testing.T) {
	_, out := NewHub(&pb.Hello{Held: 3, Digest: []byte("other")}, []Entry{{Bundle: "b", Generation: 1}}, true)
	if len(out.Orders)+len(out.Frames) > 0 || !out.Synced {
		t.Errorf("a hub that holds does %+v", out)
	}
}

func BenchmarkReconnectEqual(b *testing.B) {
	entries := make([]Entry, 10_000)
	for i := range entries {
		entries[i] = Entry{fmt.Sprintf("bundle-%d", i), 1, "content", "status"}
	}
	hello := &pb.Hello{Held: 10_000, Digest: NewTree(entries).Digest()}
	b.ReportAllocs()
	for b.Loop() {
		if _, out := NewHub(hello, entries, false); !out.Synced {
			b.Fatal("not equal")
		}
	}
}
