package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"atoll.dev/atoll/lab/bench/measure"
	"atoll.dev/atoll/lab/fleet"
	"atoll.dev/atoll/lab/process"
)

const (
	sampleEvery = time.Second
	// scrapeEvery is the interval of reading the hub's metrics. A reading costs the hub
	// some tens of milliseconds, so an idle hub is not read.
	scrapeEvery = 5 * time.Second
)

// costReading is the cost of everything until a moment.
type costReading struct {
	at        time.Time
	metrics   measure.HubMetrics
	store     measure.StoreSize
	upkeep    measure.LeaseWrites
	hub, sims measure.ProcessUsage
	stats     fleet.Stats
}

// readCost returns the cost of everything until now.
func (s *testbed) readCost(ctx context.Context) (r costReading, err error) {
	r.at = time.Now()
	if r.metrics, err = measure.ReadMetrics(ctx, s.kube.CoreV1().RESTClient()); err != nil {
		return r, err
	}
	if r.store, err = s.etcd.ReadSize(ctx); err != nil {
		return r, err
	}
	if r.upkeep, err = s.etcd.ReadLeaseWrites(ctx); err != nil {
		return r, err
	}
	if r.hub, err = s.hubCosts(); err != nil {
		return r, err
	}
	if r.stats, err = s.fleetStats(ctx); err != nil {
		return r, err
	}
	r.sims, err = measure.ReadProcess(r.stats.PIDs...)
	return r, err
}

// hubCosts returns the costs of all running hubs.
func (s *testbed) hubCosts() (measure.ProcessUsage, error) {
	var pids []int
	for _, h := range s.hubs {
		if state, pid := h.CurrentState(); state == process.Running {
			pids = append(pids, pid)
		}
	}
	if len(pids) == 0 {
		return measure.ProcessUsage{}, errors.New("no hub runs")
	}
	return measure.ReadProcess(pids...)
}

// leaseRenewalRevisions returns the revisions between two readings by which the hub renewed its own
// Leases.
func leaseRenewalRevisions(from, to costReading) float64 {
	own, _ := to.upkeep.WritesSince(from.upkeep)
	return own
}

// reportCost reports the cost between two readings, under names that begin with phase. It
// returns the API writes without the user's own.
func (s *testbed) reportCost(phase string, from, to costReading, own measure.WriteCounts) measure.WriteCounts {
	if phase != "" {
		phase += "_"
	}
	writes := to.metrics.WriteCounts().CountsSince(from.metrics.WriteCounts()).SubtractCounts(own)
	if _, others := to.upkeep.WritesSince(from.upkeep); others > 0 {
		writes["WRITE leases"] = others // the metrics do not show their owner
	}
	s.report.AddCount(phase+"api_writes", writes.TotalCount(), "requests")
	s.report.AddNote("%sAPI writes without the user's own: %s", phase, writes)
	s.report.AddCount(phase+"etcd_revisions", float64(to.store.Revision-from.store.Revision), "revisions")
	since := func(name string, labels ...string) float64 {
		return to.metrics.SumSeries(name, labels...) - from.metrics.SumSeries(name, labels...)
	}
	for _, direction := range []string{"down", "up"} {
		s.report.AddCount(phase+"stream_messages_"+direction, since("atoll_gateway_messages_total", "direction", direction), "messages")
		s.report.AddCount(phase+"stream_bytes_"+direction, since("atoll_gateway_bytes_total", "direction", direction), "bytes")
	}
	s.report.AddCount(phase+"hub_allocations", since(allocationsMetric), "allocations")
	s.report.AddCount(phase+"hub_allocated_bytes", since("go_memstats_alloc_bytes_total"), "bytes")
	span := to.at.Sub(from.at)
	s.report.AddTime(phase+"span", span)
	s.report.AddComponentUsage(phase+"hub_cpu", (to.hub.CPU - from.hub.CPU), "s")
	s.report.AddComponentUsage(phase+"hub_cores", (to.hub.CPU-from.hub.CPU)/span.Seconds(), "cores")
	s.report.AddComponentUsage(phase+"simulator_cores", (to.sims.CPU-from.sims.CPU)/span.Seconds(), "cores")
	s.report.AddComponentUsage(phase+"hub_resident", to.hub.Resident, "bytes")
	s.report.AddComponentUsage(phase+"simulator_resident", to.sims.Resident, "bytes")
	return writes
}

// reportStoreSize reports the size of the store without its history.
func (s *testbed) reportStoreSize(ctx context.Context) (measure.StoreSize, error) {
	s.Progress.BeginStep("etcd compacts its history", 0)
	size, err := s.etcd.CompactAndReadSize(ctx)
	if err != nil {
		return size, err
	}
	s.report.AddCount("etcd_in_use", size.InUse, "bytes")
	s.report.AddCount("etcd_file", size.Total, "bytes")
	return size, nil
}

// readSettledCost returns a reading after the API server has written nothing for the quiet
// time, except the requests in besides.
func (s *testbed) readSettledCost(ctx context.Context, quiet, patience time.Duration, besides ...string) (costReading, error) {
	s.Progress.BeginStep("the hub finishes what it writes", 0)
	var first, writes measure.WriteCounts
	var revision int64
	since := time.Now()
	err := pollUntil(ctx, "the hub stops writing", 500*time.Millisecond, patience, func(ctx context.Context) (bool, error) {
		// The store's revision costs nothing to read. If only Leases moved it, the
		// metrics show it.
		size, err := s.etcd.ReadSize(ctx)
		if err != nil {
			return false, err
		}
		if size.Revision != revision {
			m, err := measure.ReadMetrics(ctx, s.kube.CoreV1().RESTClient())
			if err != nil {
				return false, err
			}
			revision = size.Revision
			w := m.WriteCounts()
			for _, key := range besides {
				delete(w, key)
			}
			if first == nil {
				first = w
			}
			if !maps.Equal(w, writes) {
				writes, since = w, time.Now()
			}
		}
		return time.Since(since) >= quiet, nil
	})
	if err != nil {
		return costReading{}, fmt.Errorf("%w; written in between: %s", err, writes.CountsSince(first))
	}
	return s.readCost(ctx)
}

// reportPeakMemory reports the most memory of each process.
func (s *testbed) reportPeakMemory() error {
	if s.sampler == nil {
		return nil
	}
	s.report.AddComponentUsage("hub_resident_peak", s.hubPeakMemory(), "bytes")
	s.report.AddComponentUsage("simulator_resident_peak", s.sampler.simPeak.currentPeak(), "bytes")
	return nil
}

// peakValue is the largest value so far; safe for concurrent use.
type peakValue struct {
	mu    sync.Mutex
	value float64
}

func (p *peakValue) raiseTo(v float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.value = max(p.value, v)
}

func (p *peakValue) currentPeak() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.value
}

// hubPeakMemory is the most memory of the hub so far, by the kernel's accounting of each of its
// processes, killed ones included. For several hubs it is the greatest sum of hubs that ran
// together. Without samples it is 0.
func (s *testbed) hubPeakMemory() float64 {
	if s.sampler == nil {
		return 0
	}
	if p, err := s.hubCosts(); err == nil {
		s.sampler.hubPeak.raiseTo(p.Peak)
	}
	return s.sampler.hubPeak.currentPeak()
}

// seriesSampler samples the series of the report while a scenario runs.
type seriesSampler struct {
	cancel  context.CancelFunc
	done    sync.WaitGroup
	hubPeak peakValue
	simPeak peakValue

	mu    sync.Mutex
	quiet bool
}

// startSampling samples until stopSampling; the hub may be down in between.
func (s *testbed) startSampling(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	s.sampler = &seriesSampler{cancel: cancel}
	s.sampler.done.Go(func() { s.runSampler(ctx) })
}

func (s *testbed) stopSampling() {
	if s.sampler != nil {
		s.sampler.cancel()
		s.sampler.done.Wait()
	}
}

// pauseHubSamples stops or resumes the sampler's requests to the hub.
func (s *testbed) pauseHubSamples(quiet bool) {
	s.sampler.mu.Lock()
	defer s.sampler.mu.Unlock()
	s.sampler.quiet = quiet
}

func (s *seriesSampler) areHubSamplesPaused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.quiet
}

// runSampler samples the processes each second, and the hub's metrics at intervals. A
// process that is down leaves a gap.
func (s *testbed) runSampler(ctx context.Context) {
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	var last struct {
		at        time.Time
		hub, sims float64
		revision  int64
		haveRev   bool
		writes    writeSamples
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := time.Now()
		span := now.Sub(last.at).Seconds()
		if p, err := s.hubCosts(); err == nil {
			s.sampler.hubPeak.raiseTo(p.Peak)
			last.hub = s.addProcessSample("hub", p, last.hub, span)
		}
		if stats, err := s.fleetStats(ctx); err == nil {
			s.report.AddSeriesPoint("agents", "agents", "connected", float64(stats.Connected))
			s.report.AddSeriesPoint("rows", "rows", "held", float64(stats.Rows))
			s.report.AddSeriesPoint("rows", "rows", "healthy", float64(stats.RowsHealthy))
			if p, err := measure.ReadProcess(stats.PIDs...); err == nil {
				s.sampler.simPeak.raiseTo(p.Peak)
				last.sims = s.addProcessSample("simulator", p, last.sims, span)
			}
		}
		last.at = now
		if s.sampler.areHubSamplesPaused() {
			continue
		}
		if size, err := s.etcd.ReadSize(ctx); err == nil {
			if last.haveRev {
				s.report.AddSeriesPoint("writes", "1/s", "revisions of etcd", float64(size.Revision-last.revision)/span)
			}
			last.revision, last.haveRev = size.Revision, true
		}
		last.writes.addSample(ctx, s, now)
	}
}

// addProcessSample adds what a process uses. It returns the CPU time, before which is the one of the last sample.
func (s *testbed) addProcessSample(name string, p measure.ProcessUsage, before, span float64) float64 {
	s.report.AddSeriesPoint("resident memory", "bytes", name, p.Resident)
	if before > 0 && p.CPU >= before {
		s.report.AddSeriesPoint("CPU", "cores", name, (p.CPU-before)/span)
	}
	return p.CPU
}

// writeSamples are the samples of the hub's API writes, with the last count and its time.
type writeSamples struct {
	at    time.Time
	count float64
	known bool
}

// addSample adds a sample where the last one is old enough.
func (w *writeSamples) addSample(ctx context.Context, s *testbed, now time.Time) {
	if now.Sub(w.at) < scrapeEvery {
		return
	}
	m, err := measure.ReadMetrics(ctx, s.kube.CoreV1().RESTClient())
	if err != nil {
		return
	}
	total := m.WriteCounts().TotalCount()
	if w.known && total >= w.count {
		s.report.AddSeriesPoint("writes", "1/s", "API writes", (total-w.count)/now.Sub(w.at).Seconds())
	}
	*w = writeSamples{now, total, true}
}
