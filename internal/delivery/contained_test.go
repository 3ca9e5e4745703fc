package delivery

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/reconcile"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/internal/trust/handshake"
)

// defectiveRows panics where it reads what has the name "defect", and where it writes the state
// RowFailed of a cluster.
type defectiveRows struct{ Rows }

func (r defectiveRows) Get(bundle, cluster string) (state.Row, bool) {
	if bundle == "defect" {
		panic("a defect of the table")
	}
	return r.Rows.Get(bundle, cluster)
}

func (r defectiveRows) WriteStatuses(ctx context.Context, bundle string, reports map[string]atoll.RowStatus) error {
	for _, s := range reports {
		if s.State == atoll.RowFailed {
			panic("a defect of the writer")
		}
	}
	return r.Rows.WriteStatuses(ctx, bundle, reports)
}

// defectiveStore panics when a row is raised.
type defectiveStore struct{ Store }

func (defectiveStore) OnRowAhead(string, string, int64) { panic("a defect of the store") }

// A panic in what a frame triggers ends the session of that agent with a reason, is logged, and
// leaves the sessions of others as they are.
func TestAPanicEndsTheSessionThatCausesIt(t *testing.T) {
	report := func(bundle, status string) *pb.FromAgent {
		return &pb.FromAgent{Frame: &pb.FromAgent_Report{Report: &pb.Report{Bundle: bundle, Seq: 1, Status: []byte(status)}}}
	}
	for name, frame := range map[string]*pb.FromAgent{
		"a report":                     report("defect", `{}`),
		"a raised row, with a lock":    {Frame: &pb.FromAgent_Stored{Stored: &pb.Stored{Bundle: "web", Generation: 9, Content: "r1"}}},
		"an inventory":                 {Frame: &pb.FromAgent_Inventory{Inventory: &pb.Inventory{ApisHash: "x"}}},
		"a changed row, in the sender": nil,
	} {
		t.Run(name, func(t *testing.T) {
			h := newTestHub(t, func(o *Options) { o.Rows, o.Store = defectiveRows{o.Rows}, defectiveStore{o.Store} })
			uid, a := h.connectAgent("tokyo")
			otherUID, other := h.connectAgent("oslo")
			h.rows.setRows("web", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "r1", 1), "oslo": activeSpec(otherUID, "r1", 1)})
			testwait.UntilTrue(t, "the orders", func() bool { return a.holdsManifest("web", "r1", 1)() && other.holdsManifest("web", "r1", 1)() })
			h.inventory.setHooks(nil, func(of string) {
				if of == uid {
					panic("a defect of the inventory")
				}
			})
			if frame != nil {
				a.sendFrame(t, frame)
			} else {
				h.sessions.getByUID(uid).markRowChanged("defect")
				<-a.closed
			}
			if a.refused.GetReason() != "SessionPanicked" || a.refused.GetFinal() {
				t.Errorf("the session ends with %v", a.refused)
			}
			if log := h.log.String(); !strings.Contains(log, "cluster=tokyo reason=SessionPanicked") || !strings.Contains(log, "a defect of the ") {
				t.Errorf("the log does not have the panic:\n%s", log)
			}
			testwait.UntilTrue(t, "the session is down", func() bool { return h.sessions.getByUID(uid) == nil && !h.clusters.isOnline(uid) })
			h.rows.setRows("web", map[string]atoll.RowSpec{"oslo": activeSpec(otherUID, "r2", 2)})
			testwait.UntilTrue(t, "an order of another cluster", other.holdsManifest("web", "r2", 2))
		})
	}
}

// A Hello that panics ends the session before it is answered.
func TestAPanicOfHelloEndsTheSession(t *testing.T) {
	h := newTestHub(t, func(o *Options) { o.Store = defectiveStore{o.Store} })
	uid, id := h.createCluster("tokyo")
	h.rows.setRows("b", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "old", 5)})
	a := h.newAgent(id, "one")
	a.core = session.NewAgent(session.AgentOptions{Instance: "one", Object: a.storedObject}, session.Memory{Held: []session.Entry{{Bundle: "b", Generation: 7, Content: "new"}}})
	a.connectSession()
	<-a.closed
	testwait.UntilTrue(t, "the session is down", func() bool { return h.sessions.getByUID(uid) == nil })
	if h.connectAgent("oslo"); !strings.Contains(h.log.String(), "a defect of the store") {
		t.Error("the log does not have the panic")
	}
}

// A call that panics has the code Internal.
func TestAPanicEndsTheCallThatCausesIt(t *testing.T) {
	h := newTestHub(t)
	token := h.createToken(handshake.TokenSpec{AutoAccept: true})
	var isArmed = true
	h.options.Clusters = defectiveClusters{h.options.Clusters, &isArmed}
	join := func(name string) error {
		_, err := h.pinnedClient().Join(t.Context(), joinRequest(t, token.RevealSecret(), name, newKey(t)))
		return err
	}
	if err := join("tokyo"); status.Code(err) != codes.Internal {
		t.Errorf("the call ends with %v", err)
	}
	isArmed = false
	if err := join("oslo"); err != nil {
		t.Errorf("the next call ends with %v", err)
	}
}

// defectiveClusters panics while it is armed.
type defectiveClusters struct {
	Clusters
	isArmed *bool
}

func (c defectiveClusters) Get(name string) (*v1alpha1.Cluster, bool) {
	if *c.isArmed {
		panic("a defect of the table of clusters")
	}
	return c.Clusters.Get(name)
}

// A report whose write panics is dropped, and its cluster is named. The reports that wait with it
// are written, and so are later ones of the same cluster.
func TestAPanicOfAWriteDropsThatReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, panicked := newReportDesk(t), []string{}
		d.reportWriter.rows = defectiveRows{d.rows}
		d.reportWriter.onPanic = func(uid string, _ *reconcile.Panic) { panicked = append(panicked, uid) }
		d.rows.setRows("b", map[string]atoll.RowSpec{"0": activeSpec("uid-0", "r1", 1), "1": activeSpec("uid-1", "r1", 1)})
		d.reportRow("0", atoll.RowStatus{Generation: 1, State: atoll.RowReady})
		d.reportRow("1", atoll.RowStatus{Generation: 1, State: atoll.RowFailed})
		passTime(time.Minute)
		if d.rowState("0") != atoll.RowReady || d.ackedSeq("0") != 1 {
			t.Errorf("the other report: state %s, acknowledged %d", d.rowState("0"), d.ackedSeq("0"))
		}
		if len(panicked) != 1 || panicked[0] != "uid-1" || d.rowState("1") != "" || d.ackedSeq("1") != 0 {
			t.Errorf("panicked %v, state %q, acknowledged %d", panicked, d.rowState("1"), d.ackedSeq("1"))
		}
		d.reportRow("1", atoll.RowStatus{Generation: 1, State: atoll.RowReady})
		passTime(time.Minute)
		if d.rowState("1") != atoll.RowReady || len(panicked) != 1 {
			t.Errorf("the next report: state %q, panicked %v", d.rowState("1"), panicked)
		}
	})
}

// The report of a panic about a frame has the place where the panic began.
func TestAPanicOfAConnectionIsLogged(t *testing.T) {
	h := newTestHub(t)
	func() {
		defer func() { framePanics{h.Gateway}.ReportPanic(recover()) }()
		(defectiveStore{}).OnRowAhead("", "", 0)
	}()
	if log := h.log.String(); !strings.Contains(log, "a connection of an agent ends") || !strings.Contains(log, "a defect of the store in delivery.defectiveStore.OnRowAhead") {
		t.Errorf("the log is %s", log)
	}
}
