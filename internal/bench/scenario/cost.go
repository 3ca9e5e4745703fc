package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"atoll.dev/atoll/internal/bench/measure"
	"atoll.dev/atoll/internal/lab/fleet"
	"atoll.dev/atoll/internal/lab/process"
)

const (
	sampleEvery = time.Second
	// scrapeEvery is how often the hub is asked for its metrics; that costs it some
	// tens of milliseconds, so not while it is to do nothing.
	scrapeEvery = 5 * time.Second
)

// reading is what everything has cost until a moment.
type reading struct {
	at        time.Time
	metrics   measure.Metrics
	store     measure.Size
	upkeep    measure.Upkeep
	hub, sims measure.Process
	stats     fleet.Stats
}

// read what everything has cost until now.
func (s *stage) read(ctx context.Context) (r reading, err error) {
	r.at = time.Now()
	if r.metrics, err = measure.ReadMetrics(ctx, s.kube.CoreV1().RESTClient()); err != nil {
		return r, err
	}
	if r.store, err = s.etcd.Size(ctx); err != nil {
		return r, err
	}
	if r.upkeep, err = s.etcd.Upkeep(ctx); err != nil {
		return r, err
	}
	if r.hub, err = s.hubCosts(); err != nil {
		return r, err
	}
	if r.stats, err = s.stats(ctx); err != nil {
		return r, err
	}
	r.sims, err = measure.ReadProcess(r.stats.PIDs...)
	return r, err
}

// hubCosts of all hubs that run.
func (s *stage) hubCosts() (measure.Process, error) {
	var pids []int
	for _, h := range s.hubs {
		if state, pid := h.State(); state == process.Running {
			pids = append(pids, pid)
		}
	}
	if len(pids) == 0 {
		return measure.Process{}, errors.New("no hub runs")
	}
	return measure.ReadProcess(pids...)
}

// ownRevisions between two readings are those by which the hub renewed its own Leases.
func ownRevisions(from, to reading) float64 {
	own, _ := to.upkeep.Since(from.upkeep)
	return own
}

// cost puts what happened between two readings into the report, under names that
// begin with phase, and returns the API writes without the user's own.
func (s *stage) cost(phase string, from, to reading, own measure.Writes) measure.Writes {
	if phase != "" {
		phase += "_"
	}
	writes := to.metrics.Writes().Since(from.metrics.Writes()).Without(own)
	if _, others := to.upkeep.Since(from.upkeep); others > 0 {
		writes["WRITE leases"] = others // the metrics do not tell whose they are
	}
	s.report.Count(phase+"api_writes", writes.Total(), "requests")
	s.report.Note("%sAPI writes without the user's own: %s", phase, writes)
	s.report.Count(phase+"etcd_revisions", float64(to.store.Revision-from.store.Revision), "revisions")
	since := func(name string, labels ...string) float64 {
		return to.metrics.Sum(name, labels...) - from.metrics.Sum(name, labels...)
	}
	for _, direction := range []string{"down", "up"} {
		s.report.Count(phase+"stream_messages_"+direction, since("atoll_gateway_messages_total", "direction", direction), "messages")
		s.report.Count(phase+"stream_bytes_"+direction, since("atoll_gateway_bytes_total", "direction", direction), "bytes")
	}
	s.report.Count(phase+"hub_allocations", since("go_memstats_mallocs_total"), "allocations")
	s.report.Count(phase+"hub_allocated_bytes", since("go_memstats_alloc_bytes_total"), "bytes")
	span := to.at.Sub(from.at)
	s.report.Time(phase+"span", span)
	s.report.Component(phase+"hub_cpu", (to.hub.CPU - from.hub.CPU), "s")
	s.report.Component(phase+"hub_cores", (to.hub.CPU-from.hub.CPU)/span.Seconds(), "cores")
	s.report.Component(phase+"simulator_cores", (to.sims.CPU-from.sims.CPU)/span.Seconds(), "cores")
	s.report.Component(phase+"hub_resident", to.hub.Resident, "bytes")
	s.report.Component(phase+"simulator_resident", to.sims.Resident, "bytes")
	return writes
}

// noteStore puts the size of the store after its history was forgotten.
func (s *stage) noteStore(ctx context.Context) (measure.Size, error) {
	s.Progress.Step("etcd forgets its history", 0)
	size, err := s.etcd.Compacted(ctx)
	if err != nil {
		return size, err
	}
	s.report.Count("etcd_in_use", size.InUse, "bytes")
	s.report.Count("etcd_file", size.Total, "bytes")
	return size, nil
}

// settled gives a reading once the API server has written nothing for so long, besides what
// is named as in Writes.
func (s *stage) settled(ctx context.Context, quiet, patience time.Duration, besides ...string) (reading, error) {
	s.Progress.Step("the hub finishes what it writes", 0)
	var first, writes measure.Writes
	var revision int64
	since := time.Now()
	err := until(ctx, "the hub stops writing", 500*time.Millisecond, patience, func(ctx context.Context) (bool, error) {
		// The store's revision costs nothing to ask for. Where only leases moved it,
		// the metrics tell.
		size, err := s.etcd.Size(ctx)
		if err != nil {
			return false, err
		}
		if size.Revision != revision {
			m, err := measure.ReadMetrics(ctx, s.kube.CoreV1().RESTClient())
			if err != nil {
				return false, err
			}
			revision = size.Revision
			w := m.Writes()
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
		return reading{}, fmt.Errorf("%w; written meanwhile: %s", err, writes.Since(first))
	}
	return s.read(ctx)
}

// notePeaks puts the most memory that each process has had.
func (s *stage) notePeaks() error {
	if s.sampler == nil {
		return nil
	}
	s.report.Component("hub_resident_peak", s.hubPeak(), "bytes")
	s.report.Component("simulator_resident_peak", s.sampler.simPeak.most(), "bytes")
	return nil
}

// peak is the most of something so far; safe for concurrent use.
type peak struct {
	mu    sync.Mutex
	value float64
}

func (p *peak) reach(v float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.value = max(p.value, v)
}

func (p *peak) most() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.value
}

// hubPeak is the most memory that the hub has had so far, by what the kernel remembers of
// each of its processes, those that were killed included. Of several hubs it is the
// greatest sum of those that ran together. Where nothing is sampled, it is 0.
func (s *stage) hubPeak() float64 {
	if s.sampler == nil {
		return 0
	}
	if p, err := s.hubCosts(); err == nil {
		s.sampler.hubPeak.reach(p.Peak)
	}
	return s.sampler.hubPeak.most()
}

// sampler takes the series of the report while a scenario runs.
type sampler struct {
	cancel  context.CancelFunc
	done    sync.WaitGroup
	hubPeak peak
	simPeak peak

	mu    sync.Mutex
	quiet bool
}

// startSampling until stopSampling; the hub may be away in between.
func (s *stage) startSampling(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	s.sampler = &sampler{cancel: cancel}
	s.sampler.done.Go(func() { s.sample(ctx) })
}

func (s *stage) stopSampling() {
	if s.sampler != nil {
		s.sampler.cancel()
		s.sampler.done.Wait()
	}
}

// quietly keeps the sampler from asking the hub anything.
func (s *stage) quietly(quiet bool) {
	s.sampler.mu.Lock()
	defer s.sampler.mu.Unlock()
	s.sampler.quiet = quiet
}

func (s *sampler) isQuiet() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.quiet
}

// sample the processes each second, and the hub's metrics now and then. What cannot
// be read at a moment, since a process is down, leaves a gap.
func (s *stage) sample(ctx context.Context) {
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	var last struct {
		at, scraped    time.Time
		hub, sims      float64
		writes         float64
		revision       int64
		haveW, haveRev bool
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
			s.report.Sample("resident memory", "bytes", "hub", p.Resident)
			s.sampler.hubPeak.reach(p.Peak)
			if last.hub > 0 && p.CPU >= last.hub {
				s.report.Sample("CPU", "cores", "hub", (p.CPU-last.hub)/span)
			}
			last.hub = p.CPU
		}
		if stats, err := s.stats(ctx); err == nil {
			s.report.Sample("agents", "agents", "connected", float64(stats.Connected))
			s.report.Sample("rows", "rows", "held", float64(stats.Rows))
			s.report.Sample("rows", "rows", "healthy", float64(stats.RowsHealthy))
			if p, err := measure.ReadProcess(stats.PIDs...); err == nil {
				s.report.Sample("resident memory", "bytes", "simulator", p.Resident)
				s.sampler.simPeak.reach(p.Peak)
				if last.sims > 0 && p.CPU >= last.sims {
					s.report.Sample("CPU", "cores", "simulator", (p.CPU-last.sims)/span)
				}
				last.sims = p.CPU
			}
		}
		last.at = now
		if s.sampler.isQuiet() {
			continue
		}
		if size, err := s.etcd.Size(ctx); err == nil {
			if last.haveRev {
				s.report.Sample("writes", "1/s", "revisions of etcd", float64(size.Revision-last.revision)/span)
			}
			last.revision, last.haveRev = size.Revision, true
		}
		if now.Sub(last.scraped) < scrapeEvery {
			continue
		}
		if m, err := measure.ReadMetrics(ctx, s.kube.CoreV1().RESTClient()); err == nil {
			total := m.Writes().Total()
			if last.haveW && total >= last.writes {
				s.report.Sample("writes", "1/s", "API writes", (total-last.writes)/now.Sub(last.scraped).Seconds())
			}
			last.writes, last.haveW, last.scraped = total, true, now
		}
	}
}
