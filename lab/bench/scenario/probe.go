package scenario

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"atoll.dev/atoll/lab"
	"atoll.dev/atoll/lab/bench/measure"
)

const (
	// callsPerSecond is the rate of the user's calls on a fixed beat: a slow answer does
	// not delay the next call.
	callsPerSecond = 10
	// callPatience bounds a call; a longer one counts as this time.
	callPatience = 10 * time.Second
	probeObjects = 10
)

// userProbe is a user that reads and applies small objects during other work.
type userProbe struct {
	stage      *testbed
	calls      measure.Distribution
	slowest    slowCalls
	failed     atomic.Int64
	applied    atomic.Int64
	firstError atomic.Pointer[error]
	began      time.Time
	cancel     context.CancelFunc // of the beat
	done       sync.WaitGroup
}

// probeNamespace holds the probe's objects; no policy selects it.
const probeNamespace = "probe"

// newProbe creates the objects of the probe, so that only the calls count later.
func (s *testbed) newProbe(ctx context.Context) (*userProbe, error) {
	if err := s.makeNamespaces(ctx, []application{{namespace: probeNamespace}}); err != nil {
		return nil, err
	}
	p := &userProbe{stage: s}
	for i := range probeObjects {
		if err := p.applyProbeObject(ctx, i, "new"); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// startProbeWhenQuiet begins to probe after the hub's last write, and returns the cost until then.
func (s *testbed) startProbeWhenQuiet(ctx context.Context) (*userProbe, costReading, error) {
	p, err := s.newProbe(ctx)
	if err != nil {
		return nil, costReading{}, err
	}
	before, err := s.readSettledCost(ctx, quietTime, 5*time.Minute)
	if err != nil {
		return nil, costReading{}, err
	}
	p.start(ctx)
	return p, before, nil
}

// start calls until stop. A call that misses its beat on a busy machine is still made.
func (p *userProbe) start(ctx context.Context) {
	beat, cancel := context.WithCancel(ctx)
	p.cancel, p.began = cancel, time.Now()
	p.done.Go(func() {
		for i := 0; ; i++ {
			if lab.PauseFor(beat, time.Until(p.began.Add(time.Duration(i)*time.Second/callsPerSecond))) != nil {
				return
			}
			p.done.Go(func() { p.callOnce(ctx, i) })
		}
	})
}

func probePath(i int) string {
	return fmt.Sprintf("/api/v1/namespaces/%s/configmaps/probe-%d", probeNamespace, i)
}

func (p *userProbe) applyProbeObject(ctx context.Context, i int, what string) error {
	return p.stage.apply(ctx, probePath(i), mustEncodeJSON(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": fmt.Sprintf("probe-%d", i)},
		"data": map[string]any{"call": what},
	}))
}

// callOnce applies a small object or reads it, in turn.
func (p *userProbe) callOnce(ctx context.Context, i int) {
	within, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	begin := time.Now()
	var err error
	if i%2 == 0 {
		p.applied.Add(1)
		err = p.applyProbeObject(within, i/2%probeObjects, fmt.Sprint(i))
	} else {
		err = p.stage.kube.CoreV1().RESTClient().Get().AbsPath(probePath(i / 2 % probeObjects)).Do(within).Error()
	}
	if ctx.Err() != nil {
		return // the scenario is over
	}
	took := time.Since(begin)
	p.calls.Add(took)
	p.slowest.add(slowCall{startedAfter: begin.Sub(p.began), duration: took})
	if err != nil {
		p.failed.Add(1)
		p.firstError.CompareAndSwap(nil, &err)
	}
}

// stopAndReport ends the calls, waits for pending ones, of which the slowest return last, and
// reports the result under the name. The p99 must be under a second, no call may fail, and
// hardly a call may be missing.
func (p *userProbe) stopAndReport(name string) measure.WriteCounts {
	p.cancel()
	due := time.Since(p.began).Seconds() * callsPerSecond
	p.done.Wait()
	values := p.calls.SortedValues()
	r := p.stage.report
	r.AddCheck("user calls were made as often as they were due ("+name+")", enoughCalls(len(values), due), "%d calls, %.0f were due", len(values), due)
	r.AddDistribution(name, values)
	r.CheckMachineDependentAtMost("p99 of user calls ("+name+")", measure.QuantileOf(values, 0.99), 1, "s")
	detail := fmt.Sprintf("%d calls, the slowest: %s", len(values), &p.slowest)
	if err := p.firstError.Load(); err != nil {
		detail += fmt.Sprintf(", %d failed, first: %v", p.failed.Load(), *err)
	}
	r.AddCheck("no user call fails ("+name+")", p.failed.Load() == 0, "%s", detail)
	return measure.WriteCounts{"APPLY configmaps": float64(p.applied.Load())}
}

// enoughCalls reports whether enough of the due calls were made for a result.
func enoughCalls(calls int, due float64) bool { return calls > 0 && float64(calls) >= 0.9*due }

// slowCall is the duration of a call and its start after the first one.
type slowCall struct{ startedAfter, duration time.Duration }

// slowCalls keeps the slowest calls: their times show their cause. It is safe for
// concurrent use; the zero value is ready.
type slowCalls struct {
	mu    sync.Mutex
	calls []slowCall // slowest first
}

// slowCallsKept bounds the kept calls.
const slowCallsKept = 5

func (s *slowCalls) add(c slowCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, _ := slices.BinarySearchFunc(s.calls, c, func(a, b slowCall) int { return cmp.Compare(b.duration, a.duration) })
	s.calls = slices.Insert(s.calls, at, c)
	s.calls = s.calls[:min(len(s.calls), slowCallsKept)]
}

// String lists them, slowest first.
func (s *slowCalls) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var said []string
	for _, c := range s.calls {
		said = append(said, fmt.Sprintf("%.2f s after %.1f s", c.duration.Seconds(), c.startedAfter.Seconds()))
	}
	return strings.Join(said, ", ")
}
