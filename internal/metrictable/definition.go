// Package metrictable is the table of all metrics of the hub and of the agent: name, type, labels
// and help. Components make their metrics of its entries, so that docs/metrics.md, dashboards and
// rules are checked against the same table.
//
// Contract: the table is constant after the program starts. Label values are enumerated: no label
// holds the name of a cluster, of an object or of a user. The functions of a Definition may be
// called concurrently; each call makes a new metric, which the caller registers.
package metrictable

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Type is the type of a metric in the exposition format.
type Type string

// The types.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// Definition is one entry of the table.
type Definition struct {
	Name   string
	Type   Type
	Labels []string
	Help   string
	// Buckets of a histogram, in seconds.
	Buckets []float64
}

// metricTable collects the entries of one program in the order of their declaration.
type metricTable struct{ entries []Definition }

func (t *metricTable) addDefinition(d Definition) Definition {
	t.entries = append(t.entries, d)
	return d
}

func (t *metricTable) addCounter(name, help string, labels ...string) Definition {
	return t.addDefinition(Definition{Name: name, Type: Counter, Labels: labels, Help: help})
}

func (t *metricTable) addGauge(name, help string, labels ...string) Definition {
	return t.addDefinition(Definition{Name: name, Type: Gauge, Labels: labels, Help: help})
}

func (t *metricTable) addHistogram(name, help string, buckets []float64, labels ...string) Definition {
	return t.addDefinition(Definition{Name: name, Type: Histogram, Labels: labels, Help: help, Buckets: buckets})
}

var hub, agent metricTable

// HubMetrics lists the metrics of the hub.
func HubMetrics() []Definition { return slices.Clone(hub.entries) }

// AgentMetrics lists the metrics of the agent.
func AgentMetrics() []Definition { return slices.Clone(agent.entries) }

func (d Definition) baseOptions() prometheus.Opts {
	return prometheus.Opts{Name: d.Name, Help: d.Help}
}

// NewCounter makes the counter, which has no labels.
func (d Definition) NewCounter() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts(d.baseOptions()))
}

// NewCounterVec makes the counter with its labels.
func (d Definition) NewCounterVec() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts(d.baseOptions()), d.Labels)
}

// NewGauge makes the gauge, which has no labels.
func (d Definition) NewGauge() prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts(d.baseOptions()))
}

// NewGaugeVec makes the gauge with its labels.
func (d Definition) NewGaugeVec() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts(d.baseOptions()), d.Labels)
}

// NewGaugeFunc makes a gauge without labels that reads its value at each scrape.
func (d Definition) NewGaugeFunc(value func() float64) prometheus.GaugeFunc {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts(d.baseOptions()), value)
}

// NewHistogram makes the histogram, which has no labels.
func (d Definition) NewHistogram() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: d.Name, Help: d.Help, Buckets: d.Buckets})
}

// NewHistogramVec makes the histogram with its labels.
func (d Definition) NewHistogramVec() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: d.Name, Help: d.Help, Buckets: d.Buckets}, d.Labels)
}

// NewDesc makes the description for a Collector.
func (d Definition) NewDesc() *prometheus.Desc {
	return prometheus.NewDesc(d.Name, d.Help, d.Labels, nil)
}
