package delivery

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/testwait"
)

// connectReader connects an agent that reads the frames that real agents read.
func (h *testHub) connectReader(name string, older bool) (uid string, a *testAgent) {
	h.t.Helper()
	uid, id := h.createCluster(name)
	a = h.newAgent(id, name+"-1")
	a.by, a.older = []grpc.DialOption{grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(session.MaxFrameBytes))}, older
	a.connectSession()
	testwait.UntilTrue(h.t, name+" is welcome", func() bool { return a.checkLocked(func() bool { return a.welcome != nil }) })
	return uid, a
}

// manifestOfFrame returns a manifest of the bundle that makes a frame of so many bytes.
func (h *testHub) manifestOfFrame(bundle, content string, bytes int) atoll.Manifest {
	h.t.Helper()
	filled := func(filler int) atoll.Manifest {
		m := testManifest(bundle, content, "a")
		m.Items[0].MemberOwned = []string{strings.Repeat("x", filler)}
		return m
	}
	size := func(m atoll.Manifest) int {
		body, err := json.Marshal(m.WithoutParts()) // a frame that is nearly full has no objects
		if err != nil {
			h.t.Fatal(err)
		}
		return proto.Size(&pb.FromHub{Frame: &pb.FromHub_Upsert{Upsert: &pb.Upsert{Bundle: bundle, Generation: 2, Manifest: body, Position: h.currentPosition()}}})
	}
	const first = 4 << 20
	m := filled(first + bytes - size(filled(first)))
	if got := size(m); got != bytes {
		h.t.Fatalf("a frame of %d bytes, want %d", got, bytes)
	}
	return m
}

func (h *testHub) serveManifest(m atoll.Manifest) {
	h.content.Store(m.Content, func(state.Row) (atoll.Manifest, error) { return m, nil })
}

func (h *testHub) rowStatus(bundle, cluster string) atoll.RowStatus {
	row, _ := h.rows.Get(bundle, cluster)
	return heldStatus(row)
}

// A frame of the most bytes is sent. With one byte more it is not: the row shows why, what the member holds stays, and the
// session goes on with other Bundles. A smaller order is sent again.
func TestAnOrderOverAFrameIsRefusedForItsRow(t *testing.T) {
	h := newTestHub(t)
	uid, a := h.connectReader("tokyo", false)
	h.serveManifest(h.manifestOfFrame("largest", "fits", session.MaxFrameBytes))
	h.serveManifest(h.manifestOfFrame("larger", "over", session.MaxFrameBytes+1))
	for _, bundle := range []string{"largest", "larger"} {
		h.rows.setRows(bundle, map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "r1", 1)})
		testwait.UntilTrue(t, "the first order comes", a.holdsManifest(bundle, "r1", 1))
		a.reportReady(bundle)
		testwait.UntilTrue(t, "the first order is ready", func() bool { return h.rowStatus(bundle, "tokyo").State == atoll.RowReady })
	}
	h.rows.setRows("largest", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "fits", 2)})
	testwait.UntilTrue(t, "the largest frame comes", a.holdsManifest("largest", "fits", 2))

	h.rows.setRows("larger", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "over", 2)})
	h.rows.setRows("other", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "r1", 1)})
	testwait.UntilTrue(t, "the order of another Bundle comes", a.holdsManifest("other", "r1", 1))
	refused := func() bool { return h.rowStatus("larger", "tokyo").Reason == atoll.ReasonOrderTooLarge }
	testwait.UntilTrue(t, "the row says that its order is not sent", refused)
	st := h.rowStatus("larger", "tokyo")
	want := fmt.Sprintf("the order is not sent: it has %d bytes in one frame, and an agent takes at most %d; divide the objects over several policies, or shorten itemRules", session.MaxFrameBytes+1, session.MaxFrameBytes)
	if st.Message != want || st.State != atoll.RowFailed || st.Generation != 2 || st.Since == 0 || st.Applied || st.Ready != 2 {
		t.Errorf("%+v", st)
	}

	a.reportStatus("larger", atoll.RowStatus{Generation: 1, Content: "r1", State: atoll.RowDegraded, Applied: true, Total: 2, Ready: 1})
	testwait.UntilTrue(t, "what the member reports is in the row", func() bool { return h.rowStatus("larger", "tokyo").Ready == 1 })
	if !refused() || h.rowStatus("larger", "tokyo").Message != want {
		t.Errorf("a report hides the refusal: %+v", h.rowStatus("larger", "tokyo"))
	}
	if !a.checkLocked(func() bool { return a.err == nil && a.frames["Welcome"] == 1 && a.stored["larger"].Content == "r1" }) {
		t.Error("the session has ended, or the member holds something else")
	}

	h.rows.setRows("larger", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "r3", 3)})
	testwait.UntilTrue(t, "a smaller order comes", a.holdsManifest("larger", "r3", 3))
	a.reportReady("larger")
	testwait.UntilTrue(t, "the smaller order is ready", func() bool {
		st := h.rowStatus("larger", "tokyo")
		return st.State == atoll.RowReady && st.Generation == 3 && st.Reason == ""
	})
}

// A row without a report is refused, too, and further sessions write nothing.
func TestARefusalIsWrittenOnce(t *testing.T) {
	h := newTestHub(t)
	uid, a := h.connectReader("tokyo", false)
	h.serveManifest(h.manifestOfFrame("larger", "over", session.MaxFrameBytes+1))
	h.rows.setRows("larger", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "over", 2)})
	testwait.UntilTrue(t, "the row says that its order is not sent", func() bool { return h.rowStatus("larger", "tokyo").Reason == atoll.ReasonOrderTooLarge })
	first := h.rowStatus("larger", "tokyo")
	refusals := func() int { return strings.Count(h.log.String(), "an order is not sent") }
	for n := range 2 {
		a.cutStream()
		a.connectSession()
		testwait.UntilTrue(t, "the next session refuses the order again", func() bool { return refusals() == n+2 })
	}
	h.rows.setRows("other", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "r1", 1)})
	testwait.UntilTrue(t, "the order of another Bundle comes", a.holdsManifest("other", "r1", 1))
	a.reportReady("other")
	testwait.UntilTrue(t, "a later report is written", func() bool { return h.rowStatus("other", "tokyo").State == atoll.RowReady })
	if now := h.rowStatus("larger", "tokyo"); now.Seq != first.Seq || now.Since != first.Since {
		t.Errorf("the refusal is written again: %+v, first %+v", now, first)
	}
}

// A row is refused also where an agent has lost what the row says that it holds.
func TestAnOrderOfALostStoreIsRefused(t *testing.T) {
	h := newTestHub(t)
	uid, id := h.createCluster("tokyo")
	h.serveManifest(h.manifestOfFrame("larger", "over", session.MaxFrameBytes+1))
	h.rows.setRows("larger", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "over", 2)})
	h.rows.setStatus("larger", atoll.RowStatus{Generation: 2, Content: "over", Seq: 7, State: atoll.RowReady, Applied: true})
	h.newAgent(id, "tokyo-1").connectSession()
	testwait.UntilTrue(t, "the row says that its order is not sent", func() bool {
		st := h.rowStatus("larger", "tokyo")
		return st.Reason == atoll.ReasonOrderTooLarge && st.State == atoll.RowFailed && !st.Applied && st.Content == ""
	})
}

// An object over a frame, which an agent requests, ends no session either.
func TestAnObjectOverAFrameIsNotSent(t *testing.T) {
	h := newTestHub(t)
	uid, a := h.connectReader("tokyo", false)
	m := testManifest("larger", "over", "a*8388608")
	h.serveManifest(m)
	h.rows.setRows("larger", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "over", 2)})
	testwait.UntilTrue(t, "the row says that its order is not sent", func() bool { return h.rowStatus("larger", "tokyo").Reason == atoll.ReasonOrderTooLarge })
	h.rows.setRows("other", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "r1", 1)})
	testwait.UntilTrue(t, "the order of another Bundle comes", a.holdsManifest("other", "r1", 1))
	if !a.checkLocked(func() bool { return a.err == nil && a.frames["Welcome"] == 1 }) {
		t.Error("the session has ended")
	}
}

// Rules of many items are sent once. An agent that does not read the list gets them with each item, or its row says that
// the agent is to be upgraded.
func TestRulesAreSentAsTheAgentReadsThem(t *testing.T) {
	h := newTestHub(t)
	expression := strings.Repeat("x", 2000)
	serve := func(content string, items int) {
		m := testManifest("b", content)
		for i := range items {
			it := testManifest("b", content, fmt.Sprint("c", i)).Items[0]
			it.Error, it.Assessment = atoll.UnknownAssessment, &atoll.Assessment{Completion: expression}
			m.Items = append(m.Items, it)
		}
		h.serveManifest(m)
	}
	serve("few", 50)
	serve("many", 5000)
	newUID, newer := h.connectReader("tokyo", false)
	oldUID, older := h.connectReader("osaka", true)
	h.rows.setRows("b", map[string]atoll.RowSpec{"tokyo": activeSpec(newUID, "few", 1), "osaka": activeSpec(oldUID, "few", 1)})
	for _, a := range []*testAgent{newer, older} {
		testwait.UntilTrue(t, "the order comes", a.holdsManifest("b", "few", 1))
		if !a.checkLocked(func() bool { return a.stored["b"].Items[49].Assessment.Completion == expression }) {
			t.Error("an item has other rules")
		}
	}
	if few, many := newer.receivedBytes(), older.receivedBytes(); few > 20_000 || many < 50*len(expression) {
		t.Errorf("an agent that reads the list gets %d bytes, and another one %d", few, many)
	}
	h.rows.setRows("b", map[string]atoll.RowSpec{"tokyo": activeSpec(newUID, "many", 2), "osaka": activeSpec(oldUID, "many", 2)})
	testwait.UntilTrue(t, "the large order comes", newer.holdsManifest("b", "many", 2))
	testwait.UntilTrue(t, "the other row says what to do", func() bool {
		return strings.Contains(h.rowStatus("b", "osaka").Message, "; upgrade the agent, or divide")
	})
}

// refuseRow refuses the order of the cluster's row, as the gateway does.
func (d *reportDesk) refuseRow(cluster string, generation int64) {
	row, _ := d.rows.Get("b", cluster)
	refused := &refusedOrder{generation: generation, message: "too large", at: time.Now()}
	d.offerRefusal(pendingReport{bundle: "b", cluster: cluster, slice: row.Slice, refused: refused, ofHub: true, status: refused.addTo(heldStatus(row))}, row.Status)
}

// A refusal and a report of which one comes during the failed write of the other are both written.
func TestAFailedWriteLosesNeitherRefusalNorReport(t *testing.T) {
	report := func(d *reportDesk) { d.reportRow("0", statusAt(1, atoll.RowReady, 1)) }
	refuse := func(d *reportDesk) { d.refuseRow("0", 2) }
	for name, c := range map[string]struct{ first, during func(*reportDesk) }{
		"a report during the write of a refusal": {refuse, report},
		"a refusal during the write of a report": {report, refuse},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newReportDesk(t)
				d.rows.setRows("b", map[string]atoll.RowSpec{"0": activeSpec("uid-0", "r2", 2)})
				d.reportWriter.rows = &interruptedRows{d.rows, func() { c.during(d) }}
				c.first(d)
				passTime(maxRetryDelay)
				row, _ := d.rows.Get("b", "0")
				if st := heldStatus(row); st.Reason != atoll.ReasonOrderTooLarge || st.Generation != 2 || st.Ready != 1 || d.ackedSeq("0") != 1 {
					t.Errorf("acknowledged %d of 1, and the row has %+v", d.ackedSeq("0"), st)
				}
			})
		})
	}
}

// A refusal confirms no tombstone, and no agent's word about an older order does: the object may have come back since.
func TestARefusalConfirmsNoTombstone(t *testing.T) {
	tombstone := atoll.Tombstone{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "a"}, UID: "u"}
	refused := refusedOrder{generation: 7, message: "too large"}
	st := refused.addTo(atoll.RowStatus{Generation: 5, DoneTombstones: []string{tombstone.ID()}, AllTombstonesDone: true})
	if tombstone.IsDoneInRow("r7", activeSpec("uid-0", "r7", 7), &st) {
		t.Error("the tombstone of the refused order is done")
	}
}
