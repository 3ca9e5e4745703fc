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
	slowest slowCalls
	failed  atomic.Int64
	applied atomic.Int64
	first   atomic.Pointer[error]
	began   time.Time
	cancel  context.CancelFunc // of the beat
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

// start to call until stop. A call that is late for its beat, since the machine is busy,
// is made nevertheless.
func (p *probe) start(ctx context.Context) {
	beat, cancel := context.WithCancel(ctx)
	p.cancel, p.began = cancel, time.Now()
	p.done.Go(func() {
		for i := 0; ; i++ {
			if pause(beat, time.Until(p.began.Add(time.Duration(i)*time.Second/callsPerSecond))) != nil {
				return
			}
			p.done.Go(func() { p.call(ctx, i) })
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
		return // the scenario is over
	}
	took := time.Since(begin)
	p.calls.Add(took)
	p.slowest.add(slowCall{after: begin.Sub(p.began), took: took})
	if err != nil {
		p.failed.Add(1)
		p.first.CompareAndSwap(nil, &err)
	}
}

// stop calling, wait for the calls that were made, of which the slowest are the last to
// come back, and note what it was like, under that name. The p99 has to be under a
// second, no call may fail, and hardly one may not have been made.
func (p *probe) stop(name string) measure.Writes {
	p.cancel()
	due := time.Since(p.began).Seconds() * callsPerSecond
	p.done.Wait()
	values := p.calls.Values()
	r := p.stage.report
	r.Check("user calls were made as often as they were due ("+name+")", called(len(values), due), "%d calls, %.0f were due", len(values), due)
	r.Distribution(name, values)
	r.Within("p99 of user calls ("+name+")", measure.Quantile(values, 0.99), 1, "s")
	detail := fmt.Sprintf("%d calls, the slowest: %s", len(values), &p.slowest)
	if err := p.first.Load(); err != nil {
		detail += fmt.Sprintf(", %d failed, first: %v", p.failed.Load(), *err)
	}
	r.Check("no user call fails ("+name+")", p.failed.Load() == 0, "%s", detail)
	return measure.Writes{"APPLY configmaps": float64(p.applied.Load())}
}

// called tells whether so many calls show what it was like.
func called(calls int, due float64) bool { return calls > 0 && float64(calls) >= 0.9*due }

// slowCall took so long, and began so long after the first.
type slowCall struct{ after, took time.Duration }

// slowCalls remembers the slowest few: when they were made tells what they waited for.
// It is safe for concurrent use; the zero value is ready.
type slowCalls struct {
	mu    sync.Mutex
	calls []slowCall // slowest first
}

// slowCallsKept at most.
const slowCallsKept = 5

func (s *slowCalls) add(c slowCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, _ := slices.BinarySearchFunc(s.calls, c, func(a, b slowCall) int { return cmp.Compare(b.took, a.took) })
	s.calls = slices.Insert(s.calls, at, c)
	s.calls = s.calls[:min(len(s.calls), slowCallsKept)]
}

// String tells them, slowest first.
func (s *slowCalls) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var said []string
	for _, c := range s.calls {
		said = append(said, fmt.Sprintf("%.2f s after %.1f s", c.took.Seconds(), c.after.Seconds()))
	}
	return strings.Join(said, ", ")
}
