// Package report holds the findings of a scenario, and writes them for programs and for
// people.
//
// Contract: a Report is filled while a scenario runs and written after its end. Filling is
// safe for concurrent use; writing is not. JSON output is one object and nothing else. It
// holds the samples and the marks, which any plotting program draws.
package report

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"atoll.dev/atoll/lab/bench/measure"
)

// Machine is the machine of the figures.
type Machine struct {
	CPUs   int    `json:"cpus"`
	Memory int64  `json:"memoryBytes"`
	System string `json:"system"`
	// Load is the kernel's load average over the last minute before the scenario: the
	// other load on the machine.
	Load float64 `json:"loadBefore"`
}

// Check is one condition that must hold.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// Group is a group of metrics, in the order of the report.
type Group int

// The groups of metrics.
const (
	// GroupCounts do not depend on the machine.
	GroupCounts Group = iota
	// GroupTimes depend on the machine and on its other load.
	GroupTimes
	// GroupComponents are the resources of processes.
	GroupComponents
)

// Metric is one figure.
type Metric struct {
	Name  string
	Value float64
	Unit  string
	Group Group
}

// Point is a point of a series. At is in seconds from the begin of the scenario.
type Point struct {
	At    float64 `json:"at"`
	Value float64 `json:"value"`
}

// Series is a figure over time.
type Series struct {
	// Chart names what the series belongs to, and Unit the unit of its values.
	Chart  string  `json:"chart"`
	Unit   string  `json:"unit"`
	Name   string  `json:"name"`
	Points []Point `json:"points"`
}

// Mark is a moment of interest.
type Mark struct {
	At   float64 `json:"at"`
	What string  `json:"what"`
}

// BenchReport is the report of one run of a scenario.
type BenchReport struct {
	Scenario, About string
	Seed            int64
	Scale           float64
	Machine         Machine
	Begun           time.Time
	// CountsOnly leaves out the checks that depend on the machine and on its other load.
	CountsOnly bool

	mu            sync.Mutex
	checks        []Check
	metrics       []Metric
	distributions []string // names
	series        []*Series
	marks         []Mark
	notes         []string
}

// NewReport returns a report that begins now, on this machine.
func NewReport(scenario, about string, seed int64, scale float64) *BenchReport {
	r := &BenchReport{Scenario: scenario, About: about, Seed: seed, Scale: scale, Machine: ThisMachine(), Begun: time.Now()}
	r.AddCount("scale", scale, "of full size")
	return r
}

// ThisMachine describes the machine of this process.
func ThisMachine() Machine {
	m := Machine{CPUs: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kib int64
		if n, _ := fmt.Sscanf(string(text), "MemTotal: %d kB", &kib); n == 1 {
			m.Memory = kib * 1024
		}
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscanf(string(text), "%f", &m.Load) // it stays 0 if the system does not report it
	}
	return m
}

// AddCheck records a condition and the figures that show it.
func (r *BenchReport) AddCheck(name string, ok bool, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checks = append(r.checks, Check{Name: name, OK: ok, Detail: fmt.Sprintf(format, args...)})
}

// CheckAtMost checks a count against its upper bound.
func (r *BenchReport) CheckAtMost(name string, value, most float64, unit string) {
	r.AddCheck(name, value <= most, "%s, at most %s", FormatValue(value, unit), FormatValue(most, unit))
}

// CheckMachineDependentAtMost is CheckAtMost for a figure that depends on the machine. It does nothing
// with CountsOnly.
func (r *BenchReport) CheckMachineDependentAtMost(name string, value, most float64, unit string) {
	if !r.CountsOnly {
		r.CheckAtMost(name, value, most, unit)
	}
}

// CheckMachineDependentAtLeast checks a figure that depends on the machine against its lower bound.
func (r *BenchReport) CheckMachineDependentAtLeast(name string, value, least float64, unit string) {
	if !r.CountsOnly {
		r.AddCheck(name, value >= least, "%s, at least %s", FormatValue(value, unit), FormatValue(least, unit))
	}
}

// AddMachineDependentCheck is AddCheck for a condition that depends on the machine.
func (r *BenchReport) AddMachineDependentCheck(name string, ok bool, format string, args ...any) {
	if !r.CountsOnly {
		r.AddCheck(name, ok, format, args...)
	}
}

// PutMetric records a figure and replaces an earlier one of the same name. A value that is no
// number, such as a rate over no time, is a failed check: nothing was measured.
func (r *BenchReport) PutMetric(m Metric) {
	if math.IsNaN(m.Value) || math.IsInf(m.Value, 0) {
		r.AddCheck(m.Name+" is a number", false, "it comes out as %v", m.Value)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.IndexFunc(r.metrics, func(o Metric) bool { return o.Name == m.Name }); i >= 0 {
		r.metrics[i] = m
		return
	}
	r.metrics = append(r.metrics, m)
}

// AddCount records a figure that does not depend on the machine.
func (r *BenchReport) AddCount(name string, value float64, unit string) {
	r.PutMetric(Metric{Name: name, Value: value, Unit: unit, Group: GroupCounts})
}

// AddTime records one duration.
func (r *BenchReport) AddTime(name string, d time.Duration) {
	r.PutMetric(Metric{Name: name, Value: d.Seconds(), Unit: "s", Group: GroupTimes})
}

// AddComponentUsage records the resources of a process.
func (r *BenchReport) AddComponentUsage(name string, value float64, unit string) {
	r.PutMetric(Metric{Name: name, Value: value, Unit: unit, Group: GroupComponents})
}

// AddDistribution records p50, p90, p99 and max of durations. Values are in seconds and sorted.
func (r *BenchReport) AddDistribution(name string, values []float64) {
	for _, q := range []struct {
		name string
		q    float64
	}{{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"max", 1}} {
		r.PutMetric(Metric{Name: name + "_" + q.name, Value: measure.QuantileOf(values, q.q), Unit: "s", Group: GroupTimes})
	}
	r.AddCount(name+"_samples", float64(len(values)), "samples")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.distributions = append(r.distributions, name)
}

// AddSeriesPoint adds a point to a series, at this moment.
func (r *BenchReport) AddSeriesPoint(chart, unit, name string, value float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := Point{At: time.Since(r.Begun).Seconds(), Value: value}
	for _, s := range r.series {
		if s.Chart == chart && s.Name == name {
			s.Points = append(s.Points, p)
			return
		}
	}
	r.series = append(r.series, &Series{Chart: chart, Unit: unit, Name: name, Points: []Point{p}})
}

// MarkNow marks this moment among the samples.
func (r *BenchReport) MarkNow(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.marks = append(r.marks, Mark{At: time.Since(r.Begun).Seconds(), What: what})
}

// AddNote records a fact that is no figure, such as the parts of a sum.
func (r *BenchReport) AddNote(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// FailedChecks returns the checks that do not hold.
func (r *BenchReport) FailedChecks() []Check {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.checks), func(c Check) bool { return c.OK })
}

// FindMetric returns the metric of that name.
func (r *BenchReport) FindMetric(name string) (Metric, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.metrics, func(m Metric) bool { return m.Name == name })
	if i < 0 {
		return Metric{}, false
	}
	return r.metrics[i], true
}

// metricsOf returns the metrics of a group, in the order of their addition.
func (r *BenchReport) metricsOf(g Group) []Metric {
	return slices.DeleteFunc(slices.Clone(r.metrics), func(m Metric) bool { return m.Group != g })
}

// FormatValue formats a value with its unit, for people.
func FormatValue(value float64, unit string) string {
	switch unit {
	case "s":
		if value < 1 {
			return fmt.Sprintf("%.0f ms", value*1000)
		}
		return fmt.Sprintf("%.2f s", value)
	case "bytes":
		for _, step := range []struct {
			size float64
			name string
		}{{1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}} {
			if value >= step.size {
				return fmt.Sprintf("%.1f %s", value/step.size, step.name)
			}
		}
	}
	text := fmt.Sprintf("%.2f", value)
	if value >= 1000 || value == float64(int64(value)) {
		text = fmt.Sprintf("%.0f", value)
	}
	return strings.TrimSpace(text + " " + cmp.Or(unit, ""))
}
