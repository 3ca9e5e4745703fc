package fleet

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/testwait"
)

// held returns all holdings by name, over the socket.
func heldBy(t *testing.T, c *SimulatorClient) map[string]AgentState {
	t.Helper()
	out := map[string]AgentState{}
	if err := c.ForEachAgentState(t.Context(), func(h AgentState) error { out[h.Name] = h; return nil }); err != nil {
		t.Fatal(err)
	}
	return out
}

func fleetHasSettled(t *testing.T, c *SimulatorClient, agents, rows int) func() bool {
	return func() bool {
		s, err := c.ReadStats(t.Context())
		return err == nil && s.Connected == agents && s.Rows == rows && s.RowsHealthy == rows && s.Unacknowledged == 0
	}
}

// TestFleet follows a few agents through what a hub orders.
func TestFleet(t *testing.T) {
	t.Parallel()
	const agents = 20
	h := startTestHub(webBundles(2)...)
	t.Cleanup(h.server.Stop)
	c := h.fleetConfig(t, agents)
	_, stop := run(t, c)
	control := NewSimulatorClient(c.Dir, "sim")
	testwait.UntilTrue(t, "all hold both", fleetHasSettled(t, control, agents, 2*agents))
	for name, holding := range heldBy(t, control) {
		want := map[string]BundleState{}
		for _, m := range webBundles(2) {
			want[m.Bundle] = BundleState{Generation: 1, Content: m.Content, Items: 2, State: atoll.RowReady, Mark: ObjectsChecksum(m.Items[0].Object, m.Items[1].Object)}
		}
		if holding.UID != name || !reflect.DeepEqual(holding.Bundles, want) {
			t.Errorf("%s holds %v, want %v", name, holding.Bundles, want)
		}
	}
	st := h.reportedStatus("sim-07", webBundles(1)[0].Bundle)
	if st.State != atoll.RowReady || !st.Applied || st.Total != 2 || st.Ready != 2 || len(st.Items) != 1 || string(st.Items[0].ReflectedStatus) == "" {
		t.Errorf("the hub received %+v", st)
	}

	// New content, a removal, and a Bundle that returns.
	rows := webBundles(3)
	rows[0] = webBundle(rows[0].Bundle, 2, 5)
	rows[1] = atoll.Manifest{Bundle: rows[1].Bundle, Generation: 2, Remove: true, Content: "gone", Namespace: "shop"}
	h.orderRows(rows...)
	testwait.UntilTrue(t, "all hold the new ones", fleetHasSettled(t, control, agents, 2*agents))
	testwait.UntilTrue(t, "all reported the removal", func() bool { return h.reportedStatus("sim-00", rows[1].Bundle).State == atoll.RowRemoved })
	for name, holding := range heldBy(t, control) {
		if got := holding.Bundles[rows[0].Bundle]; got.Generation != 2 || got.Content != rows[0].Content || len(holding.Bundles) != 2 {
			t.Errorf("%s holds %v", name, holding.Bundles)
		}
	}
	if got := string(h.reportedStatus("sim-00", rows[0].Bundle).Items[0].ReflectedStatus); !strings.Contains(got, "5") {
		t.Errorf("five replicas are reported as %s", got)
	}

	// A simulator that starts again has its keys, and another one may not run beside.
	if err := serveControl(t.Context(), c.Socket, processGroup(nil)); err == nil {
		t.Error("two simulators have one socket")
	}
	stop()
	joins := h.joins.Load()
	run(t, c)
	testwait.UntilTrue(t, "all are back", fleetHasSettled(t, control, agents, 2*agents))
	if n := h.joins.Load(); n != joins || n != agents {
		t.Errorf("%d joins for %d agents, then %d", joins, agents, n)
	}
}

// TestFaults: links that go, half-open ones, restarts, failures.
func TestFaults(t *testing.T) {
	t.Parallel()
	const agents = 10
	h := startTestHub(webBundles(2)...)
	t.Cleanup(h.server.Stop)
	c := h.fleetConfig(t, agents)
	s, _ := run(t, c)
	control := NewSimulatorClient(c.Dir, "sim")
	testwait.UntilTrue(t, "all hold both", fleetHasSettled(t, control, agents, 2*agents))
	for _, silent := range []bool{false, true} {
		was := mustSucceed(control.ReadStats(t.Context()))
		if err := control.DropLinks(t.Context(), DropOrder{Names: []string{"sim-3", "sim-4"}, Share: 0, For: time.Second, Silent: silent}); err != nil {
			t.Fatal(err)
		}
		// Unless so much time went by that they are back, or about to be.
		if now := mustSucceed(control.ReadStats(t.Context())); now.Connected != agents-2 && now.Connects == was.Connects {
			t.Errorf("silent %t: %d are connected after two were dropped", silent, now.Connected)
		}
		testwait.UntilTrue(t, "they are back", fleetHasSettled(t, control, agents, 2*agents))
		if now := mustSucceed(control.ReadStats(t.Context())); now.Connects != was.Connects+2 || now.Upserts != was.Upserts {
			t.Errorf("silent %t: from %+v to %+v", silent, was, now)
		}
	}
	was, resumed := mustSucceed(control.ReadStats(t.Context())), h.resumed.Load()
	if resumed == 0 {
		t.Error("no agent came back by a ticket")
	}
	s.agents[5].restartProcess()
	testwait.UntilTrue(t, "it is back", func() bool { return mustSucceed(control.ReadStats(t.Context())).Connects == was.Connects+1 })
	testwait.UntilTrue(t, "and in step", fleetHasSettled(t, control, agents, 2*agents))
	if now := mustSucceed(control.ReadStats(t.Context())); now.Upserts != was.Upserts || now.Reports != was.Reports {
		t.Errorf("a restart costs orders or reports: from %+v to %+v", was, now)
	}
	if h.resumed.Load() != resumed {
		t.Error("a process that is new came by a ticket")
	}
	if err := control.SetRates(t.Context(), FaultRates{FlipsPerMinute: 60}); err != nil {
		t.Fatal(err)
	}
	testwait.UntilTrue(t, "all have flipped twice", func() bool { return mustSucceed(control.ReadStats(t.Context())).Reports >= was.Reports+4*agents })
	if err := control.SetRates(t.Context(), FaultRates{}); err != nil {
		t.Fatal(err)
	}
	h.server.Stop()
	testwait.UntilTrue(t, "all are away", func() bool { return mustSucceed(control.ReadStats(t.Context())).Connected == 0 })
	h.startListening(h.Address)
	for _, a := range s.agents {
		for row := range 2 {
			a.changeRow(row, func(_ *simulatedAgent, h *heldBundle) { h.setMood(moodReady, time.Now()) })
		}
	}
	testwait.UntilTrue(t, "all are back and have the changes", func() bool {
		for _, a := range s.agents {
			for _, m := range webBundles(2) {
				if h.reportedStatus(a.clusterName(), m.Bundle).State != atoll.RowReady {
					return false
				}
			}
		}
		return fleetHasSettled(t, control, agents, 2*agents)()
	})
}

// TestCheckIns: sessions end when every report is delivered, and come again.
func TestCheckIns(t *testing.T) {
	t.Parallel()
	const agents = 5
	h := startTestHub(webBundles(2)...)
	t.Cleanup(h.server.Stop)
	h.checkIn = 1
	c := h.fleetConfig(t, agents)
	c.CheckIn, c.Rates = time.Second, FaultRates{HealthDelay: time.Second}
	run(t, c)
	control := NewSimulatorClient(c.Dir, "sim")
	testwait.UntilTrue(t, "all have checked in three times and are well", func() bool {
		s := mustSucceed(control.ReadStats(t.Context()))
		return s.CheckIns >= 3*agents && s.RowsHealthy == 2*agents
	})
	s := mustSucceed(control.ReadStats(t.Context()))
	if s.Upserts != 2*agents || s.Failures != 0 {
		t.Errorf("%+v", s)
	}
	if resumed := h.resumed.Load(); resumed < s.CheckIns-agents {
		t.Errorf("%d of %d check-ins were by a ticket: all are but an agent's first", resumed, s.CheckIns)
	}
	testwait.UntilTrue(t, "no agent stays", func() bool { return h.streams.Load() == 0 })
}

// TestCrews: several processes answer as one.
func TestCrews(t *testing.T) {
	t.Parallel()
	h := startTestHub(webBundles(1)...)
	t.Cleanup(h.server.Stop)
	whole := h.fleetConfig(t, 7)
	var all processGroup
	for i, from := range []int{0, 3} {
		c := whole
		c.Process, c.From, c.To = i, from, []int{3, 7}[i]
		c.Socket = ControlSocketPath(c.Dir, "sim."+string(rune('0'+i)))
		all = append(all, NewSimulatorClient(c.Dir, "sim."+string(rune('0'+i))))
		run(t, c)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = serveControl(ctx, whole.Socket, all) }()
	control := NewSimulatorClient(whole.Dir, "")
	testwait.UntilTrue(t, "all hold", fleetHasSettled(t, control, 7, 7))
	var names []string
	if err := control.ForEachAgentState(t.Context(), func(h AgentState) error { names = append(names, h.Name); return nil }); err != nil || len(names) != 7 || !slices.IsSorted(names) {
		t.Errorf("holdings of %v: %v", names, err)
	}
	if s := mustSucceed(control.ReadStats(t.Context())); len(s.PIDs) != 3 || s.JoinTime.Count != 7 || s.JoinTime.P50 <= 0 || s.JoinTime.P99 > s.JoinTime.Max {
		t.Errorf("%+v", s)
	}
}

// TestShapedLinks are slow, by their round trips and not by much more: a loaded machine
// may add seconds to a handshake, but not a round trip to each of its bytes.
func TestShapedLinks(t *testing.T) {
	t.Parallel()
	h := startTestHub(webBundles(1)...)
	t.Cleanup(h.server.Stop)
	c := h.fleetConfig(t, 3)
	c.ShapeLinks = true
	run(t, c)
	control := NewSimulatorClient(c.Dir, "sim")
	testwait.UntilTrue(t, "all hold", fleetHasSettled(t, control, 3, 3))
	if s := mustSucceed(control.ReadStats(t.Context())); s.ConnectTime.P50 < 3*linkRTT || s.ConnectTime.P50 > 200*linkRTT {
		t.Errorf("connected in %v: three round trips are %v", s.ConnectTime.P50, 3*linkRTT)
	}
}

// TestARepeatedJoinShowsTheSameKey: a hub with a slow store may have created the Cluster of
// a join that failed, with a use of the token. It admits the agent by its key alone.
func TestARepeatedJoinShowsTheSameKey(t *testing.T) {
	t.Parallel()
	const agents = 3
	h := startTestHub()
	h.failFirstJoin = true
	t.Cleanup(h.server.Stop)
	c := h.fleetConfig(t, agents)
	s, _ := run(t, c)
	control := NewSimulatorClient(c.Dir, "sim")
	testwait.UntilTrue(t, "all are there", fleetHasSettled(t, control, agents, 0))
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, keys := range h.keys {
		if len(keys) != 2 || keys[0] != keys[1] {
			t.Errorf("%s asked with the keys %v", name, keys)
		}
	}
	if len(h.keys) != agents {
		t.Errorf("%d of %d asked", len(h.keys), agents)
	}
	s.pendingJoinKeys.Range(func(index, _ any) bool {
		t.Errorf("the key of agent %d is kept twice", index)
		return true
	})
}
