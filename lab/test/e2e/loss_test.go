package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vocabulary "atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/lab"
	simulated "atoll.dev/atoll/lab/fleet"
)

const (
	lossAgents = 60
	lossApps   = 5
	// handOver is the longest time without a leader when one is lost.
	handOver = 15 * time.Second
)

// hubTrio is three hubs on one etcd and a simulated fleet that is spread over them.
type hubTrio struct {
	lab    *lab.Lab
	hubs   []string
	shared map[string]*sharedHub
	raw    map[string]*discovery.DiscoveryClient
	fleet  *simulated.SimulatorClient
}

func newTrio(t *testing.T) *hubTrio {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "l")
	l, err := lab.BringUp(t.Context(), lab.Options{EndsWithStarter: true, Dir: dir, Hubs: 3, Progress: t.Output()})
	t.Cleanup(func() {
		if l, err := lab.OpenExisting(dir); err == nil {
			for _, hub := range []string{"hub", "hub2", "hub3"} {
				if t.Failed() {
					t.Logf("%s ended with:\n%s", hub, fileTail(filepath.Join(dir, "logs", hub+".log")))
				}
			}
			if err := l.StopAll(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	h := &hubTrio{
		lab: l, hubs: []string{"hub", "hub2", "hub3"}, shared: map[string]*sharedHub{}, raw: map[string]*discovery.DiscoveryClient{},
		fleet: simulated.NewSimulatorClient(dir, ""),
	}
	for _, name := range h.hubs {
		cfg, err := clientcmd.BuildConfigFromFlags("", l.KubeconfigPath(name))
		if err != nil {
			t.Fatal(err)
		}
		cfg.QPS, cfg.Timeout = -1, 5*time.Second
		s := &sharedHub{}
		if s.client, err = client.New(cfg, client.Options{}); err != nil {
			t.Fatal(err)
		}
		if h.raw[name], err = discovery.NewDiscoveryClientForConfig(cfg); err != nil {
			t.Fatal(err)
		}
		h.shared[name] = s
	}
	runProgram(t, filepath.Join(dir, "fleet.log"), "atoll-lab", "fleet", "--dir", dir, "--agents", strconv.Itoa(lossAgents), "--groups", "1")
	return h
}

// gaugeValue returns a gauge of a hub; -1 when it does not answer.
func (h *hubTrio) gaugeValue(ctx context.Context, hub, name string) int {
	raw, err := h.raw[hub].RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return -1
	}
	for line := range strings.SplitSeq(string(raw), "\n") {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			if n, err := strconv.Atoi(value); err == nil {
				return n
			}
		}
	}
	return -1
}

// leaderName names the hub that decides; empty while none does.
func (h *hubTrio) leaderName(ctx context.Context) string {
	for _, hub := range h.hubs {
		if h.gaugeValue(ctx, hub, "atoll_hub_leading") == 1 {
			return hub
		}
	}
	return ""
}

func (h *hubTrio) connectedIs(want int) func(context.Context) error {
	return func(ctx context.Context) error {
		s, err := h.fleet.ReadStats(ctx)
		if err != nil {
			return err
		}
		n := 0
		for _, hub := range h.hubs {
			n += max(0, h.gaugeValue(ctx, hub, "atoll_gateway_streams"))
		}
		if s.Connected != want || n != want {
			return fmt.Errorf("%d agents say that they are connected, hubs that %d are; last failure %q, last refusal %q", s.Connected, n, s.LastFailure, s.LastRefusal)
		}
		return nil
	}
}

// write writes an application's value through one hub.
func (h *hubTrio) write(ctx context.Context, hub string, app, value int) error {
	patch := fmt.Sprintf(`{"data":{"value":"%d"}}`, value)
	return h.shared[hub].client.Patch(ctx, configMap("loss", fmt.Sprint("app", app)), client.RawPatch(types.MergePatchType, []byte(patch)))
}

// editApplications applications through whichever hub answers until ctx ends.
func (h *hubTrio) editApplications(ctx context.Context) (edits int) {
	for value := 1; ctx.Err() == nil; value++ {
		if h.write(ctx, h.hubs[value%len(h.hubs)], value%lossApps, value) == nil {
			edits++
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
	return edits
}

// storedRow is a row in the store.
type storedRow struct {
	slice, state    string
	wanted          int64
	reported, heard int64 // generation and seq of the status
}

// storedRows returns the rows by Bundle and cluster, from any hub that answers. Two rows of
// one Bundle and cluster are an error.
func (h *hubTrio) storedRows(ctx context.Context) (map[string]storedRow, error) {
	var errs []error
	for _, hub := range h.hubs {
		list, err := h.shared[hub].storedSlices(ctx)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out := map[string]storedRow{}
		for _, s := range list {
			bundle := s.name[:strings.LastIndexByte(s.name, '-')]
			for cluster, line := range s.specs {
				key := bundle + " " + cluster
				if old, twice := out[key]; twice {
					return nil, fmt.Errorf("%s is placed twice: in slices %s and %s", key, old.slice, s.name)
				}
				row := storedRow{slice: s.name, wanted: line.Generation, state: string(line.Phase)}
				if st, ok := s.statuses[cluster]; ok {
					row.reported, row.heard = st.Generation, st.Seq
				}
				out[key] = row
			}
		}
		return out, nil
	}
	return nil, errors.Join(errs...)
}

// watch checks until ctx ends that no row vanishes, is doubled, is removed, or goes
// backwards.
func (h *hubTrio) watch(ctx context.Context, looks *atomic.Int64) error {
	last := map[string]storedRow{}
	for ctx.Err() == nil {
		now, err := h.storedRows(ctx)
		if err != nil {
			if strings.Contains(err.Error(), "twice") {
				return err
			}
			continue // no hub answers within the moment
		}
		looks.Add(1)
		for key, was := range last {
			is, ok := now[key]
			switch {
			case !ok:
				return fmt.Errorf("row %s is gone", key)
			case is.state != string(vocabulary.RowActive):
				return fmt.Errorf("row %s is %s", key, is.state)
			case is.wanted < was.wanted || is.reported < was.reported || is.heard < was.heard:
				return fmt.Errorf("row %s went from %+v back to %+v", key, was, is)
			}
		}
		last = now
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// allReported checks that every agent holds the content of its rows, and has reported it.
func (h *hubTrio) allReported(ctx context.Context) error {
	rows, err := h.storedRows(ctx)
	if err != nil {
		return err
	}
	if len(rows) != lossAgents*lossApps {
		return fmt.Errorf("%d rows, want %d", len(rows), lossAgents*lossApps)
	}
	contents, wrong := map[string]string{}, error(nil)
	err = h.fleet.ForEachAgentState(ctx, func(agent simulated.AgentState) error {
		if len(agent.Bundles) != lossApps {
			wrong = fmt.Errorf("%s holds %d bundles", agent.Name, len(agent.Bundles))
		}
		for bundle, held := range agent.Bundles {
			row := rows[bundle+" "+agent.Name]
			if held.Generation != row.wanted || row.reported != row.wanted || held.State != vocabulary.RowReady {
				wrong = fmt.Errorf("%s holds generation %d of %s and says %s; its row is %+v", agent.Name, held.Generation, bundle, held.State, row)
			}
			if other, known := contents[bundle]; known && other != held.Content {
				wrong = fmt.Errorf("agents hold different contents of %s", bundle)
			}
			contents[bundle] = held.Content
		}
		return nil
	})
	if err != nil {
		return err
	}
	return wrong
}

// TestHubsAreLost takes one hub away after the other while users edit: a follower and
// a leader by SIGKILL, a leader that is asked to end.
func TestHubsAreLost(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts hubs")
	}
	h := newTrio(t)
	first := h.shared["hub"]
	first.apply(t, "loss", "apiVersion: v1\nkind: Namespace\nmetadata: {name: $NS}")
	for app := range lossApps {
		first.apply(t, "loss", annotatedConfigMap(fmt.Sprint("app", app), "*", "0"))
	}
	testwait.UntilNilWithin(t, 2*testwait.HangLimit, "the fleet is there and served", allChecks(h.connectedIs(lossAgents), h.allReported))
	// A third is the mean: which hub an agent dials follows from the ports, which are drawn.
	for _, hub := range h.hubs {
		if n := h.gaugeValue(t.Context(), hub, "atoll_gateway_streams"); n < lossAgents/12 {
			t.Errorf("%s serves %d of %d agents", hub, n, lossAgents)
		}
	}

	ctx, stop := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	var edits int
	var looks atomic.Int64
	watched := make(chan error, 1)
	busy.Go(func() { edits = h.editApplications(ctx) })
	busy.Go(func() { watched <- h.watch(ctx, &looks) })
	t.Cleanup(func() { stop(); busy.Wait() })

	leader := h.leaderName(t.Context())
	follower := h.hubs[0]
	if follower == leader {
		follower = h.hubs[1]
	}
	h.loseHub(t, follower, h.lab.KillComponent, false)
	h.loseHub(t, leader, h.lab.KillComponent, true)
	testwait.UntilNil(t, "a hub leads", func(ctx context.Context) error {
		if leader = h.leaderName(ctx); leader == "" {
			return errors.New("no hub decides")
		}
		return nil
	})
	h.loseHub(t, leader, h.lab.StopComponent, true)

	stop()
	busy.Wait()
	if err := <-watched; err != nil {
		t.Errorf("while hubs were lost: %v", err)
	}
	if edits < 20 || looks.Load() < 20 {
		t.Errorf("%d edits went through and rows were looked at %d times: too few to prove anything", edits, looks.Load())
	}
	for app := range lossApps {
		if err := h.write(t.Context(), h.hubs[0], app, 1_000_000); err != nil {
			t.Fatal(err)
		}
	}
	testwait.UntilNilWithin(t, 2*testwait.HangLimit, "every agent holds what is wanted", h.allReported)
	for _, hub := range h.hubs {
		if log, err := os.ReadFile(filepath.Join(h.lab.Dir(), "logs", hub+".log")); err != nil || strings.Contains(string(log), "set back") {
			t.Errorf("to %s taking turns looks like a restore: %v", hub, err)
		}
	}
}

// ledSince is when the hub that leads took the lease.
func (h *hubTrio) ledSince(t *testing.T) time.Time {
	t.Helper()
	var lease coordinationv1.Lease
	testwait.UntilNil(t, "the lease is read", func(ctx context.Context) error {
		var errs []error
		for _, hub := range h.hubs {
			err := h.shared[hub].client.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "atoll-hub"}, &lease)
			if err == nil && lease.Spec.AcquireTime != nil {
				return nil
			}
			errs = append(errs, err)
		}
		return fmt.Errorf("no hub has a lease with an acquire time: %v", errs)
	})
	return lease.Spec.AcquireTime.Time
}

// loseHub loses a hub, waits until its agents and its duties are elsewhere, and brings it
// back.
func (h *hubTrio) loseHub(t *testing.T, hub string, lose func(context.Context, string) error, led bool) {
	t.Helper()
	asked := time.Now()
	if err := lose(t.Context(), hub); err != nil {
		t.Fatal(err)
	}
	if led {
		testwait.UntilNil(t, "another hub leads", func(ctx context.Context) error {
			if l := h.leaderName(ctx); l == "" || l == hub {
				return errors.New("no other hub decides")
			}
			return nil
		})
		// By the lease: an ending hub takes time after its release, and so does the
		// reader.
		took := h.ledSince(t).Sub(asked)
		t.Logf("another hub led %s after %s was lost; it was seen after %s", took.Round(10*time.Millisecond), hub, time.Since(asked).Round(10*time.Millisecond))
		if took > handOver {
			t.Errorf("for %s no hub decided; at most %s may pass", took, handOver)
		}
	}
	testwait.UntilNil(t, "the agents of "+hub+" are with the others", h.connectedIs(lossAgents))
	t.Logf("all agents were connected %s after %s was lost", time.Since(asked).Round(10*time.Millisecond), hub)
	if err := h.lab.StartComponent(t.Context(), hub); err != nil {
		t.Fatal(err)
	}
}
