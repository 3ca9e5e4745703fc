package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bench/measure"
	"atoll.dev/atoll/internal/bench/truth"
	"atoll.dev/atoll/internal/lab"
	"atoll.dev/atoll/internal/lab/fleet"
	"atoll.dev/atoll/internal/lab/process"
)

const (
	lossHubs   = 3
	lossAgents = 21_000 // more than one process can hold
	// handOver is how long the fleet may be without a leader.
	handOver = 15 * time.Second
	// spreadStill is for how long no agent goes on to another hub once all are where they
	// stay.
	spreadStill = 5 * time.Second
)

// hubLoss kills hubs that share an etcd.
func hubLoss(ctx context.Context, s *stage) error {
	if err := s.openSeveral(ctx); err != nil {
		return err
	}
	agents, err := s.launchAgents(crowd{count: s.scaled(lossAgents, 2*stormGroups), groups: stormGroups})
	if err != nil {
		return err
	}
	s.startSampling(ctx)
	if err := s.awaitJoined(ctx, agents); err != nil {
		return err
	}
	apps := s.apps("loss", stormGroups)
	if err := s.deliver(ctx, "applying an application per group", apps); err != nil {
		return err
	}
	if err := s.noteSpread(ctx, "before"); err != nil {
		return err
	}
	leader, err := s.leader(ctx)
	if err != nil {
		return err
	}
	if apps, err = s.lose(ctx, "leader", leader, apps); err != nil {
		return err
	}
	if err := s.comeBack(ctx, leader); err != nil {
		return err
	}
	if leader, err = s.leader(ctx); err != nil {
		return err
	}
	var follower *hub
	for _, h := range s.hubs {
		if h != leader {
			follower = h
		}
	}
	_, err = s.lose(ctx, "follower", follower, apps)
	return err
}

// comeBack starts a hub again, and sees the others send it its share of the agents.
func (s *stage) comeBack(ctx context.Context, h *hub) error {
	if _, err := s.start(ctx, h); err != nil {
		return err
	}
	// It writes what a hub writes that starts; from then on nothing is written.
	began := time.Now()
	settled, err := s.settled(ctx, quiet, 3*time.Minute)
	if err != nil {
		return err
	}
	before := s.allWrites(ctx)
	s.report.Mark(h.Name + " is back")
	count, share := s.fleets[0].count, s.fleets[0].count/len(s.hubs)
	most := share + share/10 + 20
	s.Progress.Step("the agents spread over all hubs again", count)
	spread, since, err := s.spread(ctx)
	if err != nil && ctx.Err() != nil {
		return err
	}
	s.report.Check("a hub that is back gets its share of the agents", err == nil && slices.Max(spread) <= most,
		"%v agents, of %d; with a share of %d, %d are clearly more", spread, count, share, most)
	s.report.Time("agents_spread_again", since.Sub(began))
	now, err := s.etcd.Upkeep(ctx)
	if err != nil {
		return err
	}
	own, leases := now.Since(settled.upkeep)
	writes := s.allWrites(ctx).Since(before).Total() + leases
	s.report.Count("spread_again_api_writes", writes, "requests")
	s.report.Count("spread_again_hub_lease_writes", own, "requests")
	s.report.AtMost("API writes while agents go on to the hub that is back, the hubs' leases aside", writes, 10, "requests")
	return s.noteSpread(ctx, "after "+h.Name+" is back")
}

// allWrites of all hubs that run.
func (s *stage) allWrites(ctx context.Context) measure.Writes {
	all := measure.Writes{}
	for _, h := range s.hubs {
		m, ok := metricsOf(ctx, h)
		if !ok {
			continue
		}
		for key, n := range m.Writes() {
			all[key] += n
		}
	}
	return all
}

// openSeveral starts an etcd and the hubs on it.
func (s *stage) openSeveral(ctx context.Context) error {
	ports, err := freePorts(1 + lossHubs)
	if err != nil {
		return err
	}
	path, err := lab.Program("atoll-lab")
	if err != nil {
		return err
	}
	dir := filepath.Join(s.Dir, "etcd")
	etcd := s.process("etcd", path, "etcd", "--dir", dir, "--port", fmt.Sprint(ports[0]))
	s.Progress.Step("starting etcd", 0)
	if err := s.launch(etcd); err != nil {
		return err
	}
	if err := etcd.WaitReady(ctx, time.Minute, func(context.Context) error {
		_, err := os.Stat(filepath.Join(dir, lab.MemberReady))
		return err
	}); err != nil {
		return err
	}
	var gateways []string
	for _, port := range ports[1:] {
		gateways = append(gateways, fmt.Sprintf("127.0.0.1:%d", port))
	}
	endpoint := fmt.Sprintf("https://127.0.0.1:%d", ports[0])
	s.hubs = nil
	for i := range lossHubs {
		h, err := s.newHub(fmt.Sprintf("hub%d", i+1), "--gateway-port", fmt.Sprint(ports[1+i]), "--gateway-address", strings.Join(gateways, ","),
			"--etcd-servers", endpoint, "--etcd-cafile", filepath.Join(dir, "ca.crt"),
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
		if _, err := s.start(ctx, h); err != nil {
			return err
		}
	}
	s.etcd, err = measure.DialEtcdAt(ctx, endpoint, dir)
	return err
}

// freePorts of this machine.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close() // all are held until all are found, so that none is found twice
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// shareKeys gives a hub the keys of the first.
func (s *stage) shareKeys(ctx context.Context, h *hub) error {
	keys := filepath.Join(s.Dir, "keys.tar")
	defer os.Remove(keys)
	for _, args := range [][]string{{"backup", "--data-dir", s.hubs[0].dir, "--file", keys}, {"restore", "--data-dir", h.dir, "--file", keys}} {
		if out, err := exec.CommandContext(ctx, h.Command[0], args...).CombinedOutput(); err != nil {
			return fmt.Errorf("share the hubs' keys: atoll-hub %s: %w: %s", args[0], err, bytes.TrimSpace(out))
		}
	}
	return nil
}

// metricsOf a hub, nothing where it does not run.
func metricsOf(ctx context.Context, h *hub) (measure.Metrics, bool) {
	if state, _ := h.State(); state != process.Running || h.kube == nil {
		return measure.Metrics{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	m, err := measure.ReadMetrics(ctx, h.kube.CoreV1().RESTClient())
	return m, err == nil
}

// leader of the hubs.
func (s *stage) leader(ctx context.Context) (*hub, error) {
	var found *hub
	err := until(ctx, "a hub leads", 200*time.Millisecond, time.Minute, func(ctx context.Context) (bool, error) {
		for _, h := range s.hubs {
			if m, ok := metricsOf(ctx, h); ok && m.Sum("atoll_hub_leading") == 1 {
				found = h
			}
		}
		return found != nil, nil
	})
	return found, err
}

// spread waits until no agent goes on to another hub, and gives how many each hub serves
// and since when. A hub that does not run serves none; one that runs and cannot be asked
// is asked again.
func (s *stage) spread(ctx context.Context) (streams []int, since time.Time, err error) {
	err = until(ctx, "agents stay with their hubs", time.Second, 5*time.Minute, func(ctx context.Context) (bool, error) {
		now := make([]int, len(s.hubs))
		for i, h := range s.hubs {
			if state, _ := h.State(); state != process.Running {
				continue
			}
			m, ok := metricsOf(ctx, h)
			if !ok {
				return false, nil
			}
			now[i] = int(m.Sum("atoll_gateway_streams"))
		}
		if !slices.Equal(now, streams) {
			streams, since = now, time.Now()
		}
		return time.Since(since) >= spreadStill, nil
	})
	return streams, since, err
}

// noteSpread notes how many agents each hub serves, once they stay: hubs are asked one
// after the other, so that one who goes on meanwhile would count twice.
func (s *stage) noteSpread(ctx context.Context, when string) error {
	s.Progress.Step("agents stay with their hubs", 0)
	streams, _, err := s.spread(ctx)
	if err != nil {
		return err
	}
	total := 0
	for i, h := range s.hubs {
		total += streams[i]
		s.report.Count(fmt.Sprintf("streams_%s_of_%s", strings.ReplaceAll(when, " ", "_"), h.Name), float64(streams[i]), "agents")
	}
	s.report.Check("each agent has one stream ("+when+")", total == s.fleets[0].count, "%d streams of %d agents", total, s.fleets[0].count)
	return nil
}

// lose kills a hub and follows what becomes of its agents and of what goes on.
func (s *stage) lose(ctx context.Context, what string, lost *hub, apps []app) ([]app, error) {
	if _, err := s.settled(ctx, quiet, 3*time.Minute); err != nil {
		return nil, err
	}
	var other *hub
	for _, h := range s.hubs {
		if state, _ := h.State(); h != lost && state == process.Running {
			other = h
		}
	}
	if err := s.use(other); err != nil {
		return nil, err
	}
	rows := newRowWatch(s)
	if err := rows.look(ctx); err != nil {
		return nil, err
	}
	before, err := s.rowsNow(ctx)
	if err != nil {
		return nil, err
	}
	s.report.Mark(what + " killed")
	if err := s.kill(ctx, lost.Spec); err != nil {
		return nil, err
	}
	killed := time.Now()
	rows.begin(ctx)
	if _, err := s.leader(ctx); err != nil {
		return nil, errors.Join(err, rows.end(ctx, what))
	}
	led := time.Since(killed)
	s.report.Mark("led")
	s.report.Time("until_led_after_"+what+"_lost", led)
	s.report.Within("leader hand-over ("+what+" lost)", led.Seconds(), handOver.Seconds(), "s")
	extra := s.apps("after-"+what, 1)
	if err := s.deliver(ctx, "applying a new application", extra); err != nil {
		return nil, errors.Join(err, rows.end(ctx, what))
	}
	s.report.Time("new_apply_ready_after_"+what+"_lost", time.Since(killed))
	err = s.awaitAgents(ctx, s.fleets[0], "its agents go to the others", 5*time.Minute, func(t fleet.Stats) int {
		if t.Unacknowledged > 0 {
			return 0
		}
		return t.Connected
	})
	if err != nil {
		return nil, errors.Join(err, rows.end(ctx, what))
	}
	s.report.Time("agents_with_the_others_after_"+what+"_lost", time.Since(killed))
	if err := rows.end(ctx, what); err != nil {
		return nil, err
	}
	if err := s.noteSpread(ctx, "after "+what+" lost"); err != nil {
		return nil, err
	}
	if err := s.compareRows(ctx, before, apps, extra); err != nil {
		return nil, err
	}
	apps = append(apps, extra...)
	return apps, s.tellTruth(ctx, time.Minute, apps)
}

// deliver applies applications and waits until they are ready. The hub that answers
// may have lost the one that binds them for the moment.
func (s *stage) deliver(ctx context.Context, what string, apps []app) error {
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

// rowWatch sees that no row's status goes backwards.
type rowWatch struct {
	stage  *stage
	by     map[string]atoll.RowStatus
	back   int
	looks  int
	first  string
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func newRowWatch(s *stage) *rowWatch { return &rowWatch{stage: s, by: map[string]atoll.RowStatus{}} }

// look at all rows once.
func (w *rowWatch) look(ctx context.Context) error {
	w.looks++
	return truth.EachRow(ctx, w.stage.kube.CoreV1().RESTClient(), func(r truth.Row) error {
		if r.Status == nil {
			return nil
		}
		key := r.Bundle + " " + r.Cluster
		if was := w.by[key]; r.Status.Seq < was.Seq || r.Status.Generation < was.Generation {
			w.back++
			w.first = fmt.Sprintf(": %s was %+v and is %+v", key, was, *r.Status)
		}
		// Only what is compared is kept.
		w.by[key] = atoll.RowStatus{Seq: r.Status.Seq, Generation: r.Status.Generation}
		return nil
	})
}

// begin looks again and again, until end.
func (w *rowWatch) begin(ctx context.Context) {
	ctx, w.cancel = context.WithCancel(ctx)
	w.done.Go(func() {
		for ctx.Err() == nil {
			_ = w.look(ctx) // a hub that takes over may not answer for a moment
			if pause(ctx, time.Second) != nil {
				return
			}
		}
	})
}

// end looking, look once more, and note what was seen.
func (w *rowWatch) end(ctx context.Context, what string) error {
	w.cancel()
	w.done.Wait()
	s := w.stage
	err := w.look(ctx)
	s.report.Check("no row's status goes backwards ("+what+" lost)", w.back == 0, "%d looks at %d rows, %d went back%s", w.looks, len(w.by), w.back, w.first)
	return err
}
