package peer

import (
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/peer/peerpb"
)

func TestWhatNoHubSaysIsDropped(t *testing.T) {
	long := strings.Repeat("x", maxName+1)
	good := &peerpb.Session{Uid: "a", At: maxClock, Carriage: strings.Repeat("x", maxCarriage), CertificateEnds: maxCertificateEnd}
	for what, s := range map[string]*peerpb.Session{
		"no UID": {At: 1}, "a long UID": {Uid: long, At: 1}, "a negative begin": {Uid: "a", At: -1}, "a begin without end": {Uid: "a", At: maxClock + 1},
		"a long text":             {Uid: "a", At: 1, Carriage: strings.Repeat("x", maxCarriage+1)},
		"an end before all times": {Uid: "a", At: 1, CertificateEnds: -1}, "an end after them": {Uid: "a", At: 1, CertificateEnds: maxCertificateEnd + 1},
	} {
		told := &peerpb.Told{Sessions: []*peerpb.Session{good, s, good}}
		if dropped := dropMalformed(told); dropped != 1 || len(told.Sessions) != 2 || told.Sessions[1] != good {
			t.Errorf("%s: %d are dropped", what, dropped)
		}
	}
	told := &peerpb.Told{
		Gone: []*peerpb.Gone{
			{Uid: "a", Quiet: maxQuiet}, {Uid: "a"}, // good
			{}, {Uid: long}, {Uid: "a", Quiet: maxQuiet + 1}, {Uid: "a", Quiet: math.MinInt64},
		},
		Ahead: []*peerpb.Ahead{
			{Bundle: "b", Cluster: "c", Generation: 1}, // good
			{Cluster: "c"}, {Bundle: "b"}, {Bundle: long, Cluster: "c"}, {Bundle: "b", Cluster: "c", Generation: -1},
		},
	}
	if dropped := dropMalformed(told); dropped != 8 || len(told.Gone) != 2 || len(told.Ahead) != 1 {
		t.Errorf("%d are dropped, of %+v", dropped, told)
	}
	for range 2 * aheadLimit {
		told.Ahead = append(told.Ahead, told.Ahead[0])
	}
	if dropped := dropMalformed(told); dropped != aheadLimit+1 || len(told.Ahead) != aheadLimit {
		t.Errorf("%d rows are dropped", dropped)
	}
}

// TestABrokenHubLeavesTheClock: a session that begins at the end of time would make every later session
// of every hub older than all others.
func TestABrokenHubLeavesTheClock(t *testing.T) {
	h := &hub{known: map[string]string{}, own: map[string]time.Time{}, told: map[string]string{}, came: map[string]string{}}
	p := New(Options{Address: "a:1", Log: slog.New(slog.DiscardHandler)}, "1")
	p.Attach(h, h, fakeGateway{h})
	f := &foundHub{name: "b:1_2"}
	p.found[f.name] = f
	p.union.beginHubList(f.name)
	p.applyUpdate(f, &peerpb.Told{Sessions: []*peerpb.Session{{Uid: "x", At: math.MaxInt64}, {Uid: "y", At: 5}}})
	p.StreamOpened("y")
	if at := p.union.own["y"].at; at <= 5 {
		t.Errorf("a session of now begins at %d", at)
	}
	p.applyUpdate(f, &peerpb.Told{Sessions: []*peerpb.Session{{Uid: "y", At: 5}}})
	if len(h.ended) > 0 || p.IsHeldElsewhere("x") || !p.IsHeldElsewhere("y") {
		t.Errorf("superseded: %q; x is held elsewhere: %t, y: %t", h.ended, p.IsHeldElsewhere("x"), p.IsHeldElsewhere("y"))
	}
}

// TestAClockFarAheadIsOvertaken: begins in the far future count as a day ahead, so that the next session
// of this hub is newer, and within what other hubs take.
func TestAClockFarAheadIsOvertaken(t *testing.T) {
	h := &hub{known: map[string]string{}, own: map[string]time.Time{}, told: map[string]string{}, came: map[string]string{}}
	p := New(Options{Address: "a:1", Log: slog.New(slog.DiscardHandler)}, "1")
	p.Attach(h, h, fakeGateway{h})
	f := &foundHub{name: "b:1_2"}
	p.found[f.name] = f
	p.union.beginHubList(f.name)
	p.applyUpdate(f, &peerpb.Told{Sessions: []*peerpb.Session{{Uid: "x", At: maxClock}}})
	if !p.IsHeldElsewhere("x") {
		t.Error("the session is left out")
	}
	p.StreamOpened("x")
	if at, latest := p.union.own["x"].at, time.Now().Add(maxAhead+time.Minute).UnixMicro(); at > latest {
		t.Errorf("the next session begins at %d, after %d", at, latest)
	}
	p.StreamOpened("y")
	if p.union.own["y"].at <= p.union.own["x"].at {
		t.Error("a later session is not newer")
	}
}
