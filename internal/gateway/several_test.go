package gateway

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/trust/handshake"
)

// beside others, a hub whose switches the test sets.
type beside struct {
	serves, leads atomic.Bool
	table         atomic.Int64           // revision up to which the table shows rows
	looks         atomic.Int64           // that found it behind; it catches up at the third
	elsewhere     atomic.Pointer[string] // the cluster whose stream another hub holds
}

func newBeside(t *testing.T) (*testHub, *beside) {
	b := &beside{}
	b.serves.Store(true)
	b.table.Store(1000)
	return newTestHub(t, func(o *Options) {
		o.Several = Several{
			Serves: b.serves.Load, Leads: b.leads.Load,
			Behind: func(revision int64) bool {
				behind := b.table.Load() < revision
				if behind && b.looks.Add(1) == 3 {
					b.table.Store(revision)
				}
				return behind
			},
			Elsewhere: func(uid string) bool { held := b.elsewhere.Load(); return held != nil && *held == uid },
		}
	}), b
}

// A name whose agent is connected to another hub is as taken as one whose is connected here.
func TestANameIsTakenAtAllHubs(t *testing.T) {
	h, b := newBeside(t)
	uid, _ := h.cluster("tokyo")
	b.elsewhere.Store(&uid)
	token := h.token(handshake.TokenSpec{Uses: 9, AutoAccept: true})
	_, err := h.pinned().Join(t.Context(), joinRequest(t, token.Reveal(), "tokyo", newKey(t)))
	if status.Code(err) != codes.AlreadyExists || !strings.Contains(err.Error(), "another agent is connected as tokyo") {
		t.Errorf("another machine is told %v", err)
	}
	if c := mustGet(t, h, "tokyo"); c.Annotations[handshake.AnnotationNextKey] != "" {
		t.Error("its key waits to be accepted")
	}
}

func TestAHubOutOfTouchSendsAgentsOn(t *testing.T) {
	h, b := newBeside(t)
	uid, a := h.connected("tokyo")
	b.serves.Store(false)
	h.CutOff()
	<-a.closed
	if a.refused != nil { // an agent that is refused stays
		t.Errorf("the agent is told %v", a.refused)
	}
	a.connect()
	<-a.closed
	if status.Code(a.err) != codes.Unavailable || a.refused != nil {
		t.Errorf("an agent that dials is told %v, %v", a.refused, a.err)
	}
	_, err := h.pinned().Join(t.Context(), joinRequest(t, "", "oslo", newKey(t)))
	if status.Code(err) != codes.Unavailable {
		t.Errorf("an agent that joins is told %v", err)
	}
	eventually(t, "it is offline", func() bool { return !h.clusters.isOnline(uid) })
	b.serves.Store(true)
	a.connect()
	eventually(t, "it is back", func() bool { return h.clusters.isOnline(uid) })
}

func TestANewerStreamAtAnotherHubWins(t *testing.T) {
	h, _ := newBeside(t)
	uid, a := h.connected("tokyo")
	for _, reason := range []string{"Elsewhere", "Superseded"} {
		h.Supersede(uid, "10.0.0.2:6444")
		<-a.closed
		if a.refused.GetReason() != reason || !strings.Contains(a.refused.GetMessage(), "10.0.0.2:6444") {
			t.Errorf("the agent is told %v, want %s", a.refused, reason)
		}
		a.connect()
		eventually(t, "it is back", func() bool { return h.sessions.of(uid) != nil })
	}
	if !strings.Contains(h.log.String(), "agents at two hubs take the stream") {
		t.Error("the log does not tell that the identity was copied")
	}
	h.Supersede("nobody", "10.0.0.2:6444")
}

func TestAnAgentThatWasToldMoreIsComparedLater(t *testing.T) {
	h, b := newBeside(t)
	uid, a := h.connected("tokyo") // it keeps the position: revision 10
	a.cut()
	b.table.Store(9)
	h.rows.set("b1", map[string]atoll.RowSpec{"tokyo": active(uid, "r1", 1)})
	a.connect()
	eventually(t, "it is welcome", func() bool { return a.see(func() bool { return a.welcome != nil }) })
	if b.looks.Load() == 0 {
		t.Error("nobody looked whether the table shows what it was told")
	}
}

func TestATableThatIsBehindIsWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		behind int // looks
		want   time.Duration
	}{
		"not behind": {0, 0}, "catches up": {3, 3 * lookLag}, "does not": {1000, tableLag},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				looks, begin := 0, time.Now()
				g := &Gateway{o: Options{Several: Several{Behind: func(revision int64) bool {
					looks++
					return revision == 10 && looks <= c.behind
				}}}}
				g.catchUp(t.Context(), &pb.Position{Revision: 10})
				if d := time.Since(begin); d != c.want {
					t.Errorf("it was waited for %s, want %s", d, c.want)
				}
			})
		})
	}
}

// An agent tells what became of an order that another hub gave, before this hub's table
// shows the row.
func TestAnEarlyReportWaitsForItsRow(t *testing.T) {
	h, _ := newBeside(t)
	uid, a := h.connected("tokyo")
	a.report("b1", atoll.RowStatus{Generation: 3, Content: "c", State: atoll.RowReady, Applied: true})
	eventually(t, "it came", func() bool { return strings.Contains(h.log.String(), "no row of the bundle") })
	h.rows.set("b1", map[string]atoll.RowSpec{"tokyo": active(uid, "r1", 3)})
	eventually(t, "it is stored", func() bool {
		row, ok := h.rows.Get("b1", "tokyo")
		return ok && row.Status != nil && row.Status.State == atoll.RowReady && row.Status.Generation == 3
	})
}

func TestFollowersLeaveRequestsToTheLeader(t *testing.T) {
	h, b := newBeside(t)
	if after := h.signAfter(); after != signLater {
		t.Errorf("a follower signs after %s", after)
	}
	b.leads.Store(true)
	if after := h.signAfter(); after != 0 {
		t.Errorf("the leader signs after %s", after)
	}
}
