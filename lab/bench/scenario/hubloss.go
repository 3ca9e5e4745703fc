package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/lab"
	"atoll.dev/atoll/lab/bench/measure"
	"atoll.dev/atoll/lab/bench/verify"
	"atoll.dev/atoll/lab/fleet"
	"atoll.dev/atoll/lab/process"
)

const (
	lossHubs   = 3
	lossAgents = 21_000 // more than one process can hold
	// handOver is how long the fleet may be without a leader.
	handOver = 15 * time.Second
	// spreadStill is the time without a move after which the spread of agents counts as
	// final.
	spreadStill = 5 * time.Second
)

// runHubLoss kills hubs that share an etcd.
func runHubLoss(ctx context.Context, s *testbed) error {
	if err := s.startHubsOnSharedEtcd(ctx); err != nil {
		return err
	}
	agents, err := s.launchAgents(fleetSize{count: s.atScale(lossAgents, 2*stormGroups), groups: stormGroups})
	if err != nil {
		return err
	}
	s.startSampling(ctx)
	if err := s.awaitJoined(ctx, agents); err != nil {
		return err
	}
	apps := s.newApplications("loss", stormGroups)
	if err := s.applyAndWait(ctx, "applying an application per group", apps); err != nil {
		return err
	}
	if err := s.reportAgentSpread(ctx, "before"); err != nil {
		return err
	}
	leader, err := s.findLeader(ctx)
	if err != nil {
		return err
	}
	if apps, err = s.loseHub(ctx, "leader", leader, apps); err != nil {
		return err
	}
	if err := s.restartHubAndCheckBalance(ctx, leader); err != nil {
		return err
	}
	if leader, err = s.findLeader(ctx); err != nil {
		return err
	}
	var follower *hubProcess
	for _, h := range s.hubs {
		if h != leader {
			follower = h
		}
	}
	_, err = s.loseHub(ctx, "follower", follower, apps)
	return err
}

// restartHubAndCheckBalance starts a hub again, and checks that the others send it its share of the agents.
func (s *testbed) restartHubAndCheckBalance(ctx context.Context, h *hubProcess) error {
	if _, err := s.startHubProcess(ctx, h); err != nil {
		return err
	}
	// A starting hub writes; afterwards nothing is written.
	began := time.Now()
	settled, err := s.readSettledCost(ctx, quietTime, 3*time.Minute)
	if err != nil {
		return err
	}
	before := s.sumHubWrites(ctx)
	s.report.MarkNow(h.Name + " is back")
	count, share := s.fleets[0].count, s.fleets[0].count/len(s.hubs)
	most := share + share/10 + 20
	s.Progress.BeginStep("the agents spread over all hubs again", count)
	spread, since, err := s.waitForStableAgents(ctx)
	if err != nil && ctx.Err() != nil {
		return err
	}
	s.report.AddCheck("a hub that is back gets its share of the agents", err == nil && slices.Max(spread) <= most,
		"%v agents, of %d; with a share of %d, %d are clearly more", spread, count, share, most)
	s.report.AddTime("agents_spread_again", since.Sub(began))
	now, err := s.etcd.ReadLeaseWrites(ctx)
	if err != nil {
		return err
	}
	own, leases := now.WritesSince(settled.upkeep)
	writes := s.sumHubWrites(ctx).CountsSince(before).TotalCount() + leases
	s.report.AddCount("spread_again_api_writes", writes, "requests")
	s.report.AddCount("spread_again_hub_lease_writes", own, "requests")
	s.report.CheckAtMost("API writes while agents go on to the hub that is back, the hubs' leases aside", writes, 10, "requests")
	return s.reportAgentSpread(ctx, "after "+h.Name+" is back")
}

// sumHubWrites sums the writes of all running hubs.
func (s *testbed) sumHubWrites(ctx context.Context) measure.WriteCounts {
	all := measure.WriteCounts{}
	for _, h := range s.hubs {
		m, ok := metricsOf(ctx, h)
		if !ok {
			continue
		}
		for key, n := range m.WriteCounts() {
			all[key] += n
		}
	}
	return all
}

// startHubsOnSharedEtcd starts an etcd and the hubs on it.
func (s *testbed) startHubsOnSharedEtcd(ctx context.Context) error {
	ports, err := freePorts(1 + 2*lossHubs)
	if err != nil {
		return err
	}
	path, err := lab.ProgramPath("atoll-lab")
	if err != nil {
		return err
	}
	dir := filepath.Join(s.Dir, "etcd")
	etcd := s.processSpec("etcd", path, "etcd", "--dir", dir, "--port", fmt.Sprint(ports[0]))
	s.Progress.BeginStep("starting etcd", 0)
	if err := s.launchRequired(etcd); err != nil {
		return err
	}
	if err := etcd.WaitReady(ctx, time.Minute, func(context.Context) error {
		_, err := os.Stat(filepath.Join(dir, lab.MemberReady))
		return err
	}); err != nil {
		return err
	}
	var gateways []string
	for _, port := range ports[1:][:lossHubs] {
		gateways = append(gateways, fmt.Sprintf("127.0.0.1:%d", port))
	}
	endpoint := fmt.Sprintf("https://127.0.0.1:%d", ports[0])
	s.hubs = nil
	for i := range lossHubs {
		h, err := s.newHub(fmt.Sprintf("hub%d", i+1), "--gateway-port", fmt.Sprint(ports[1+i]), "--gateway-address", strings.Join(gateways, ","),
			"--port", fmt.Sprint(ports[1+lossHubs+i]), "--etcd-servers", endpoint, "--etcd-cafile", filepath.Join(dir, "ca.crt"),
			"--etcd-certfile", filepath.Join(dir, "client.crt"), "--etcd-keyfile", filepath.Join(dir, "client.key"))
		if err != nil {
			return err
		}
		s.hubs = append(s.hubs, h)
		if i > 0 {
			if err := s.shareKeys(ctx, h); err != nil {
				return err
			}
		}
		if _, err := s.startHubProcess(ctx, h); err != nil {
			return err
		}
	}
	s.etcd, err = measure.DialEtcdAt(ctx, endpoint, dir)
	return err
}

// shareKeys copies the keys of the first hub to another.
func (s *testbed) shareKeys(ctx context.Context, h *hubProcess) error {
	keys := filepath.Join(s.Dir, "keys.tar")
	defer os.Remove(keys)
	for _, args := range [][]string{{"backup", "--data-dir", s.hubs[0].dir, "--file", keys}, {"restore", "--data-dir", h.dir, "--file", keys}} {
		if out, err := exec.CommandContext(ctx, h.Command[0], args...).CombinedOutput(); err != nil {
			return fmt.Errorf("share the hubs' keys: atoll-hub %s: %w: %s", args[0], err, bytes.TrimSpace(out))
		}
	}
	return nil
}

// metricsOf returns the metrics of a hub; false if it does not run.
func metricsOf(ctx context.Context, h *hubProcess) (measure.HubMetrics, bool) {
	if state, _ := h.CurrentState(); state != process.Running || h.kube == nil {
		return measure.HubMetrics{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	m, err := measure.ReadMetrics(ctx, h.kube.CoreV1().RESTClient())
	return m, err == nil
}

// findLeader returns the leading hub.
func (s *testbed) findLeader(ctx context.Context) (*hubProcess, error) {
	var found *hubProcess
	err := pollUntil(ctx, "a hub leads", 200*time.Millisecond, time.Minute, func(ctx context.Context) (bool, error) {
		for _, h := range s.hubs {
			if m, ok := metricsOf(ctx, h); ok && m.SumSeries("atoll_hub_leading") == 1 {
				found = h
			}
		}
		return found != nil, nil
	})
	return found, err
}

// waitForStableAgents waits until no agent moves to another hub. It returns the number of agents
// of each hub, and since when. A stopped hub serves none; a running hub that does not
// answer is read again.
func (s *testbed) waitForStableAgents(ctx context.Context) (streams []int, since time.Time, err error) {
	err = pollUntil(ctx, "agents stay with their hubs", time.Second, 5*time.Minute, func(ctx context.Context) (bool, error) {
		now := make([]int, len(s.hubs))
		for i, h := range s.hubs {
			if state, _ := h.CurrentState(); state != process.Running {
				continue
			}
			m, ok := metricsOf(ctx, h)
			if !ok {
				return false, nil
			}
			now[i] = int(m.SumSeries("atoll_gateway_streams"))
		}
		if !slices.Equal(now, streams) {
			streams, since = now, time.Now()
		}
		return time.Since(since) >= spreadStill, nil
	})
	return streams, since, err
}

// reportAgentSpread reports how many agents each hub serves, once they stay. Hubs are read in
// turn, so that an agent that moves in between would count twice.
func (s *testbed) reportAgentSpread(ctx context.Context, when string) error {
	s.Progress.BeginStep("agents stay with their hubs", 0)
	streams, _, err := s.waitForStableAgents(ctx)
	if err != nil {
		return err
	}
	total := 0
	for i, h := range s.hubs {
		total += streams[i]
		s.report.AddCount(fmt.Sprintf("streams_%s_of_%s", strings.ReplaceAll(when, " ", "_"), h.Name), float64(streams[i]), "agents")
	}
	s.report.AddCheck("each agent has one stream ("+when+")", total == s.fleets[0].count, "%d streams of %d agents", total, s.fleets[0].count)
	return nil
}

// findOtherHub returns a hub that runs and is not the lost one.
func (s *testbed) findOtherHub(lost *hubProcess) (other *hubProcess) {
	for _, h := range s.hubs {
		if state, _ := h.CurrentState(); h != lost && state == process.Running {
			other = h
		}
	}
	return other
}

// connectedIfAllAcknowledged counts the connected agents once all their reports are acknowledged.
func connectedIfAllAcknowledged(t fleet.Stats) int {
	if t.Unacknowledged > 0 {
		return 0
	}
	return t.Connected
}

// loseHub kills a hub and checks its agents and the work in progress.
func (s *testbed) loseHub(ctx context.Context, what string, lost *hubProcess, apps []application) ([]application, error) {
	if _, err := s.readSettledCost(ctx, quietTime, 3*time.Minute); err != nil {
		return nil, err
	}
	if err := s.useHub(s.findOtherHub(lost)); err != nil {
		return nil, err
	}
	rows := newRowWatch(s)
	if err := rows.recordBackwardReports(ctx); err != nil {
		return nil, err
	}
	before, err := s.readRowSpecs(ctx)
	if err != nil {
		return nil, err
	}
	s.report.MarkNow(what + " killed")
	if err := s.killProcess(ctx, lost.ProcessSpec); err != nil {
		return nil, err
	}
	killed := time.Now()
	rows.beginWatch(ctx)
	if _, err := s.findLeader(ctx); err != nil {
		return nil, errors.Join(err, rows.finishRowCheck(ctx, what))
	}
	led := time.Since(killed)
	s.report.MarkNow("led")
	s.report.AddTime("until_led_after_"+what+"_lost", led)
	s.report.CheckMachineDependentAtMost("leader hand-over ("+what+" lost)", led.Seconds(), handOver.Seconds(), "s")
	extra := s.newApplications("after-"+what, 1)
	if err := s.applyAndWait(ctx, "applying a new application", extra); err != nil {
		return nil, errors.Join(err, rows.finishRowCheck(ctx, what))
	}
	s.report.AddTime("new_apply_ready_after_"+what+"_lost", time.Since(killed))
	err = s.awaitAgents(ctx, s.fleets[0], "its agents go to the others", 5*time.Minute, connectedIfAllAcknowledged)
	if err != nil {
		return nil, errors.Join(err, rows.finishRowCheck(ctx, what))
	}
	s.report.AddTime("agents_with_the_others_after_"+what+"_lost", time.Since(killed))
	if err := rows.finishRowCheck(ctx, what); err != nil {
		return nil, err
	}
	if err := s.reportAgentSpread(ctx, "after "+what+" lost"); err != nil {
		return nil, err
	}
	if err := s.checkRowsUnmovedExceptFresh(ctx, before, apps, extra); err != nil {
		return nil, err
	}
	apps = append(apps, extra...)
	return apps, s.verifyFleet(ctx, time.Minute, apps)
}

// applyAndWait applies applications and waits until they are ready. For a moment the
// answering hub may not have the leader that binds them.
func (s *testbed) applyAndWait(ctx context.Context, what string, apps []application) error {
	b, err := s.watchBundles(ctx)
	if err != nil {
		return err
	}
	defer b.stop()
	if err := s.applyAll(ctx, what, apps); err != nil {
		return err
	}
	return s.awaitReady(ctx, b, apps, 5*time.Minute, nil)
}

// rowWatch checks that no row's status goes backwards.
type rowWatch struct {
	stage         *testbed
	byRow         map[string]atoll.RowStatus
	backwardCount int
	checkCount    int
	firstBackward string
	cancel        context.CancelFunc
	done          sync.WaitGroup
}

func newRowWatch(s *testbed) *rowWatch {
	return &rowWatch{stage: s, byRow: map[string]atoll.RowStatus{}}
}

// recordBackwardReports reads all rows once.
func (w *rowWatch) recordBackwardReports(ctx context.Context) error {
	w.checkCount++
	return verify.ForEachRow(ctx, w.stage.kube.CoreV1().RESTClient(), func(r verify.Row) error {
		if r.Status == nil {
			return nil
		}
		key := r.Bundle + " " + r.Cluster
		if was := w.byRow[key]; r.Status.Seq < was.Seq || r.Status.Generation < was.Generation {
			w.backwardCount++
			w.firstBackward = fmt.Sprintf(": %s was %+v and is %+v", key, was, *r.Status)
		}
		// Only the compared fields are kept.
		w.byRow[key] = atoll.RowStatus{Seq: r.Status.Seq, Generation: r.Status.Generation}
		return nil
	})
}

// beginWatch checks the rows repeatedly, until finishRowCheck.
func (w *rowWatch) beginWatch(ctx context.Context) {
	ctx, w.cancel = context.WithCancel(ctx)
	w.done.Go(func() {
		for ctx.Err() == nil {
			_ = w.recordBackwardReports(ctx) // a hub that takes over may not answer for a moment
			if lab.PauseFor(ctx, time.Second) != nil {
				return
			}
		}
	})
}

// finishRowCheck ends the watch, checks once more, and reports the result.
func (w *rowWatch) finishRowCheck(ctx context.Context, what string) error {
	w.cancel()
	w.done.Wait()
	s := w.stage
	err := w.recordBackwardReports(ctx)
	s.report.AddCheck("no row's status goes backwards ("+what+" lost)", w.backwardCount == 0, "%d looks at %d rows, %d went back%s", w.checkCount, len(w.byRow), w.backwardCount, w.firstBackward)
	return err
}
