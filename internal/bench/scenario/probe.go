package scenario

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"atoll.dev/atoll/internal/bench/measure"
)

const (
	// callsPerSecond of the user, one call after the other on a fixed beat: a slow
	// answer does not make the next call come later.
	callsPerSecond = 10
	// callPatience is what a call may take; one that takes longer counts as so long.
	callPatience = 10 * time.Second
	probeObjects = 10
)

// probe is a user who reads and applies small objects while something else goes on.
type probe struct {
	stage   *stage
	calls   measure.Distribution
	failed  atomic.Int64
	applied atomic.Int64
	first   atomic.Pointer[error]
	cancel  context.CancelFunc
	done    sync.WaitGroup
}

// probeNamespace holds what the probe applies; no policy selects it.
const probeNamespace = "probe"

// newProbe makes what the probe calls for, so that only the calls count later.
func (s *stage) newProbe(ctx context.Context) (*probe, error) {
	if err := s.makeNamespaces(ctx, []app{{namespace: probeNamespace}}); err != nil {
		return nil, err
	}
	p := &probe{stage: s}
	for i := range probeObjects {
		if err := p.apply(ctx, i, "new"); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// probeQuiet begins to probe once the hub has nothing more to write, and gives what
// everything has cost until then.
func (s *stage) probeQuiet(ctx context.Context) (*probe, reading, error) {
	p, err := s.newProbe(ctx)
	if err != nil {
		return nil, reading{}, err
	}
	before, err := s.settled(ctx, quiet, 5*time.Minute)
	if err != nil {
		return nil, reading{}, err
	}
	p.start(ctx)
	return p, before, nil
}

// start to call until stop.
func (p *probe) start(ctx context.Context) {
	ctx, p.cancel = context.WithCancel(ctx)
	p.done.Go(func() {
		beat := time.NewTicker(time.Second / callsPerSecond)
		defer beat.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-beat.C:
				p.done.Go(func() { p.call(ctx, i) })
			}
		}
	})
}

func probePath(i int) string {
	return fmt.Sprintf("/api/v1/namespaces/%s/configmaps/probe-%d", probeNamespace, i)
}

func (p *probe) apply(ctx context.Context, i int, what string) error {
	return p.stage.apply(ctx, probePath(i), encode(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": fmt.Sprintf("probe-%d", i)},
		"data": map[string]any{"call": what},
	}))
}

// call applies a small object or reads it, in turn.
func (p *probe) call(ctx context.Context, i int) {
	within, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	begin := time.Now()
	var err error
	if i%2 == 0 {
		p.applied.Add(1)
		err = p.apply(within, i/2%probeObjects, fmt.Sprint(i))
	} else {
		err = p.stage.kube.CoreV1().RESTClient().Get().AbsPath(probePath(i / 2 % probeObjects)).Do(within).Error()
	}
	if ctx.Err() != nil {
		return // the probe was stopped
	}
	p.calls.Add(time.Since(begin))
	if err != nil {
		p.failed.Add(1)
		p.first.CompareAndSwap(nil, &err)
	}
}

// stop calling, and note what it was like, under that name. The p99 has to be under a
// second, and no call may fail.
func (p *probe) stop(name string) measure.Writes {
	p.cancel()
	p.done.Wait()
	values := p.calls.Values()
	r := p.stage.report
	r.Distribution(name, values)
	r.Within("p99 of user calls ("+name+")", measure.Quantile(values, 0.99), 1, "s")
	detail := fmt.Sprintf("%d calls", len(values))
	if err := p.first.Load(); err != nil {
		detail += fmt.Sprintf(", %d failed, first: %v", p.failed.Load(), *err)
	}
	r.Check("no user call fails ("+name+")", p.failed.Load() == 0, "%s", detail)
	return measure.Writes{"APPLY configmaps": float64(p.applied.Load())}
}
