// Package report holds what a scenario found, and writes it for programs, for people
// and as a page with charts.
//
// Contract: a Report is filled while a scenario runs and written when it has ended;
// filling is safe for concurrent use, writing is not meant to go on beside it. JSON
// is one object and nothing else. The page is one file that refers to nothing outside
// itself.
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

	"atoll.dev/atoll/internal/bench/measure"
)

// Machine that the figures are of.
type Machine struct {
	CPUs   int    `json:"cpus"`
	Memory int64  `json:"memoryBytes"`
	System string `json:"system"`
	// Load is the kernel's average over the last minute when the scenario began:
	// what else was running.
	Load float64 `json:"loadBefore"`
}

// Check is one thing that has to hold.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// Group of metrics, in the order in which people read them.
type Group int

// The groups.
const (
	// Counts do not depend on the machine.
	Counts Group = iota
	// Times depend on it, and on what else ran.
	Times
	// Components is what processes take.
	Components
)

// Metric is one figure.
type Metric struct {
	Name  string
	Value float64
	Unit  string
	Group Group
}

// Distribution of durations.
type Distribution struct {
	Name string
	// Values in seconds, sorted.
	Values []float64
}

// Point of a series.
type Point struct{ At, Value float64 }

// Series is a figure over time.
type Series struct {
	// Chart that it is drawn in, and Unit of that chart's axis.
	Chart, Unit string
	Name        string
	Points      []Point
}

// Mark is a moment of interest.
type Mark struct {
	At   float64
	What string
}

// Report of one run of a scenario.
type Report struct {
	Scenario, About string
	Seed            int64
	Scale           float64
	Machine         Machine
	Begun           time.Time
	// CountsOnly leaves out the checks that depend on the machine and on what else
	// runs on it.
	CountsOnly bool

	mu            sync.Mutex
	checks        []Check
	metrics       []Metric
	distributions []Distribution
	series        []*Series
	marks         []Mark
	notes         []string
}

// New report that begins now, on this machine.
func New(scenario, about string, seed int64, scale float64) *Report {
	r := &Report{Scenario: scenario, About: about, Seed: seed, Scale: scale, Machine: ThisMachine(), Begun: time.Now()}
	r.Count("scale", scale, "of full size")
	return r
}

// ThisMachine describes where the program runs.
func ThisMachine() Machine {
	m := Machine{CPUs: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kib int64
		if n, _ := fmt.Sscanf(string(text), "MemTotal: %d kB", &kib); n == 1 {
			m.Memory = kib * 1024
		}
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscanf(string(text), "%f", &m.Load) // it stays 0 where nobody tells
	}
	return m
}

// Check notes whether something holds, and the figures by which one sees it.
func (r *Report) Check(name string, ok bool, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checks = append(r.checks, Check{Name: name, OK: ok, Detail: fmt.Sprintf(format, args...)})
}

// AtMost checks a count against what it may be.
func (r *Report) AtMost(name string, value, most float64, unit string) {
	r.Check(name, value <= most, "%s, at most %s", Text(value, unit), Text(most, unit))
}

// Within is AtMost for a figure that depends on the machine; where only counts are of
// interest, it checks nothing.
func (r *Report) Within(name string, value, most float64, unit string) {
	if !r.CountsOnly {
		r.AtMost(name, value, most, unit)
	}
}

// AtLeast checks a figure that depends on the machine against what it has to be at
// least.
func (r *Report) AtLeast(name string, value, least float64, unit string) {
	if !r.CountsOnly {
		r.Check(name, value >= least, "%s, at least %s", Text(value, unit), Text(least, unit))
	}
}

// Timed is Check for what depends on the machine.
func (r *Report) Timed(name string, ok bool, format string, args ...any) {
	if !r.CountsOnly {
		r.Check(name, ok, format, args...)
	}
}

// Put a figure; a later one of the same name replaces it. One that is no number, such as
// a rate over no time, is a check that fails, since nothing was measured.
func (r *Report) Put(m Metric) {
	if math.IsNaN(m.Value) || math.IsInf(m.Value, 0) {
		r.Check(m.Name+" can be told", false, "it comes out as %v", m.Value)
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

// Count puts a figure that does not depend on the machine.
func (r *Report) Count(name string, value float64, unit string) {
	r.Put(Metric{Name: name, Value: value, Unit: unit, Group: Counts})
}

// Time puts one duration.
func (r *Report) Time(name string, d time.Duration) {
	r.Put(Metric{Name: name, Value: d.Seconds(), Unit: "s", Group: Times})
}

// Component puts what a process takes.
func (r *Report) Component(name string, value float64, unit string) {
	r.Put(Metric{Name: name, Value: value, Unit: unit, Group: Components})
}

// Distribution puts p50, p90, p99 and max of durations, and keeps all of them for the
// chart. Values are in seconds and sorted.
func (r *Report) Distribution(name string, values []float64) {
	for _, q := range []struct {
		name string
		q    float64
	}{{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"max", 1}} {
		r.Put(Metric{Name: name + "_" + q.name, Value: measure.Quantile(values, q.q), Unit: "s", Group: Times})
	}
	r.Count(name+"_samples", float64(len(values)), "samples")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.distributions = append(r.distributions, Distribution{Name: name, Values: values})
}

// Sample adds a point to a series, at this moment.
func (r *Report) Sample(chart, unit, name string, value float64) {
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

// Mark this moment in the charts.
func (r *Report) Mark(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.marks = append(r.marks, Mark{At: time.Since(r.Begun).Seconds(), What: what})
}

// Note says something that figures cannot, such as what writes were made of.
func (r *Report) Note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// Failed lists the checks that do not hold.
func (r *Report) Failed() []Check {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.checks), func(c Check) bool { return c.OK })
}

// Metric of that name.
func (r *Report) Metric(name string) (Metric, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.metrics, func(m Metric) bool { return m.Name == name })
	if i < 0 {
		return Metric{}, false
	}
	return r.metrics[i], true
}

// grouped gives the metrics of a group, in the order in which they came.
func (r *Report) grouped(g Group) []Metric {
	return slices.DeleteFunc(slices.Clone(r.metrics), func(m Metric) bool { return m.Group != g })
}

// Text of a value with its unit, for people.
func Text(value float64, unit string) string {
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
