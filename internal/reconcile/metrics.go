package reconcile

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"atoll.dev/atoll/internal/metrictable"
)

// countedQueue is what metrics read of a Loop.
type countedQueue interface{ CountReady() int }

// process holds the metrics of all loops of the process: as with Kubernetes' own queues, a Loop is
// measured wherever it is made.
var process = struct {
	mu         sync.Mutex
	names      map[countedQueue]string
	reconciles *prometheus.CounterVec
	seconds    *prometheus.HistogramVec
	depth      *prometheus.Desc
}{
	names: map[countedQueue]string{}, reconciles: metrictable.QueueReconciles.NewCounterVec(),
	seconds: metrictable.QueueSeconds.NewHistogramVec(), depth: metrictable.QueueDepth.NewDesc(),
}

// LoopCollector collects the metrics of the loops that take keys. A scrape costs their number.
type LoopCollector struct{}

// Describe is prometheus.Collector's.
func (LoopCollector) Describe(out chan<- *prometheus.Desc) {
	process.reconciles.Describe(out)
	process.seconds.Describe(out)
	out <- process.depth
}

// Collect is prometheus.Collector's.
func (LoopCollector) Collect(out chan<- prometheus.Metric) {
	process.reconciles.Collect(out)
	process.seconds.Collect(out)
	depths := map[string]int{}
	for queue, name := range copyOpenQueues() {
		depths[name] += queue.CountReady()
	}
	for name, depth := range depths {
		out <- prometheus.MustNewConstMetric(process.depth, prometheus.GaugeValue, float64(depth), name)
	}
}

// copyOpenQueues copies the open queues, so that no lock of a Loop is taken under the lock of process.
func copyOpenQueues() map[countedQueue]string {
	process.mu.Lock()
	defer process.mu.Unlock()
	return maps.Clone(process.names)
}

// loopMetrics are the series of one Loop.
type loopMetrics struct {
	ok, failed, panicked prometheus.Counter
	seconds              prometheus.Observer
}

func addLoop(name string, queue countedQueue) loopMetrics {
	process.mu.Lock()
	defer process.mu.Unlock()
	process.names[queue] = name
	return loopMetrics{
		ok: process.reconciles.WithLabelValues(name, "ok"), failed: process.reconciles.WithLabelValues(name, "error"),
		panicked: process.reconciles.WithLabelValues(name, "panic"), seconds: process.seconds.WithLabelValues(name),
	}
}

func removeLoop(queue countedQueue) {
	process.mu.Lock()
	defer process.mu.Unlock()
	delete(process.names, queue)
}

func (m loopMetrics) countReconcile(start time.Time, err error) {
	m.seconds.Observe(time.Since(start).Seconds())
	switch {
	case err == nil:
		m.ok.Inc()
	case AsPanic(err) != nil:
		m.panicked.Inc()
	default:
		m.failed.Inc()
	}
}
