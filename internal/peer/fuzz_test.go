package peer

import (
	"log/slog"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"atoll.dev/atoll/internal/peer/peerpb"
)

// FuzzUpdates: no bytes that decode make a hub panic, and after them the hub's own next session is still
// newer than what another hub claims, with a begin that other hubs take.
func FuzzUpdates(f *testing.F) {
	for _, m := range []*peerpb.Told{
		{Sessions: []*peerpb.Session{{Uid: "x", At: 5, CertificateEnds: 7, Generation: 1, Carriage: "WebSocket"}}, Serves: true},
		{Gone: []*peerpb.Gone{{Uid: "x", Quiet: 9}}, Complete: true},
		{Ahead: []*peerpb.Ahead{{Bundle: "b", Cluster: "c", Generation: 3}}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var told peerpb.Told
		if proto.Unmarshal(b, &told) != nil {
			return
		}
		h := &hub{known: map[string]string{}, own: map[string]time.Time{}, told: map[string]string{}, came: map[string]string{}}
		p := New(Options{Address: "a:1", Log: slog.New(slog.DiscardHandler)}, "1")
		p.Attach(h, h, fakeGateway{h})
		other := &foundHub{name: "b:1_2"}
		p.found[other.name] = other
		p.union.beginHubList(other.name)
		p.applyUpdate(other, &told)
		for _, s := range told.GetSessions() { // those that were taken
			p.StreamOpened(s.GetUid())
			own := p.union.own[s.GetUid()].at
			if latest := time.Now().Add(maxAhead + time.Minute).UnixMicro(); own > latest || own <= min(s.GetAt(), latest-2*time.Minute.Microseconds()) {
				t.Errorf("after a session that begins at %d, the next one begins at %d", s.GetAt(), own)
			}
		}
	})
}
