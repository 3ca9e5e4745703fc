package delivery

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/internal/trust/handshake"
)

// haSwitches others, a hub whose switches the test sets.
type haSwitches struct {
	serves, leads atomic.Bool
	table         atomic.Int64           // revision up to which the table shows rows
	looks         atomic.Int64           // that found it behind; it catches up at the third
	elsewhere     atomic.Pointer[string] // the cluster whose stream another hub holds
}

func (b *haSwitches) IsServing() bool { return b.serves.Load() }

func (b *haSwitches) IsLeader() bool { return b.leads.Load() }

func (b *haSwitches) AreRowsBehind(revision int64) bool {
	behind := b.table.Load() < revision
	if behind && b.looks.Add(1) == 3 {
		b.table.Store(revision)
	}
	return behind
}

func (b *haSwitches) Register(grpc.ServiceRegistrar) {}

func (b *haSwitches) IsHeldElsewhere(uid string) bool {
	held := b.elsewhere.Load()
	return held != nil && *held == uid
}

// fakeHAHub leads. It serves, and its table is not behind, unless a function returns otherwise.
type fakeHAHub struct {
	serving func() bool
	behind  func(revision int64) bool
}

func (f fakeHAHub) IsServing() bool { return f.serving == nil || f.serving() }

func (fakeHAHub) IsLeader() bool { return true }

func (f fakeHAHub) AreRowsBehind(revision int64) bool { return f.behind != nil && f.behind(revision) }

func newHAHub(t *testing.T) (*testHub, *haSwitches) {
	b := &haSwitches{}
	b.serves.Store(true)
	b.table.Store(1000)
	return newTestHub(t, func(o *Options) {
		o.HA = HAOptions{Hub: b, Peers: b}
	}), b
}

// A name whose agent is connected to another hub is as taken as one whose is connected here.
func TestNameIsTakenAtAllHubs(t *testing.T) {
	h, b := newHAHub(t)
	uid, _ := h.createCluster("tokyo")
	b.elsewhere.Store(&uid)
	token := h.createToken(handshake.TokenSpec{Uses: 9, AutoAccept: true})
	_, err := h.pinnedClient().Join(t.Context(), joinRequest(t, token.RevealSecret(), "tokyo", newKey(t)))
	if status.Code(err) != codes.AlreadyExists || !strings.Contains(err.Error(), "another agent is connected as tokyo") {
		t.Errorf("another machine gets %v", err)
	}
	if c := mustGetCluster(t, h, "tokyo"); c.Annotations[handshake.AnnotationNextKey] != "" {
		t.Error("its key waits to be accepted")
	}
}

func TestDisconnectedHubRedirectsAgents(t *testing.T) {
	h, b := newHAHub(t)
	uid, a := h.connectAgent("tokyo")
	b.serves.Store(false)
	h.EndSessions()
	<-a.closed
	if a.refused != nil { // an agent that is refused stays
		t.Errorf("the agent gets %v", a.refused)
	}
	a.connectSession()
	<-a.closed
	if status.Code(a.err) != codes.Unavailable || a.refused != nil {
		t.Errorf("an agent that dials gets %v, %v", a.refused, a.err)
	}
	_, err := h.pinnedClient().Join(t.Context(), joinRequest(t, "", "oslo", newKey(t)))
	if status.Code(err) != codes.Unavailable {
		t.Errorf("an agent that joins gets %v", err)
	}
	testwait.UntilTrue(t, "it is offline", func() bool { return !h.clusters.isOnline(uid) })
	b.serves.Store(true)
	a.connectSession()
	testwait.UntilTrue(t, "it is back", func() bool { return h.clusters.isOnline(uid) })
}

func TestNewerSessionAtAnotherHubWins(t *testing.T) {
	h, _ := newHAHub(t)
	uid, a := h.connectAgent("tokyo")
	for _, reason := range []string{"Elsewhere", "Superseded"} {
		h.SupersedeSession(uid, "10.0.0.2:6444")
		<-a.closed
		if a.refused.GetReason() != reason || !strings.Contains(a.refused.GetMessage(), "10.0.0.2:6444") {
			t.Errorf("the agent gets %v, want %s", a.refused, reason)
		}
		a.connectSession()
		testwait.UntilTrue(t, "it is back", func() bool { return h.sessions.getByUID(uid) != nil })
	}
	if !strings.Contains(h.log.String(), "agents at two hubs take the stream") {
		t.Error("the log does not tell that the identity was copied")
	}
	h.SupersedeSession("unknown", "10.0.0.2:6444")
}

func TestComparisonWaitsForNewerRows(t *testing.T) {
	h, b := newHAHub(t)
	uid, a := h.connectAgent("tokyo") // it keeps the position: revision 10
	a.cutStream()
	b.table.Store(9)
	h.rows.setRows("b1", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "r1", 1)})
	a.connectSession()
	testwait.UntilTrue(t, "it is welcome", func() bool { return a.checkLocked(func() bool { return a.welcome != nil }) })
	if b.looks.Load() == 0 {
		t.Error("the table was not checked for the rows that the agent was sent")
	}
}

func TestWaitForRowsIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		behind int // looks
		want   time.Duration
	}{
		"not behind": {0, 0}, "catches up": {3, 3 * tablePollInterval}, "does not": {1000, maxTableLag},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				looks, begin := 0, time.Now()
				g := &Gateway{options: Options{HA: HAOptions{Hub: fakeHAHub{behind: func(revision int64) bool {
					looks++
					return revision == 10 && looks <= c.behind
				}}}}}
				g.waitForRows(t.Context(), &pb.Position{Revision: 10})
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
	h, _ := newHAHub(t)
	uid, a := h.connectAgent("tokyo")
	a.reportStatus("b1", atoll.RowStatus{Generation: 3, Content: "c", State: atoll.RowReady, Applied: true})
	testwait.UntilTrue(t, "it came", func() bool { return strings.Contains(h.log.String(), "no row of the bundle") })
	h.rows.setRows("b1", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "r1", 3)})
	testwait.UntilTrue(t, "it is stored", func() bool {
		row, ok := h.rows.Get("b1", "tokyo")
		return ok && row.Status != nil && row.Status.State == atoll.RowReady && row.Status.Generation == 3
	})
}

func TestFollowersLeaveRequestsToTheLeader(t *testing.T) {
	h, b := newHAHub(t)
	if after := h.signingDelay(); after != followerSignDelay {
		t.Errorf("a follower signs after %s", after)
	}
	b.leads.Store(true)
	if after := h.signingDelay(); after != 0 {
		t.Errorf("the leader signs after %s", after)
	}
}
