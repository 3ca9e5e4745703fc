package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// metricValue is the JSON form of a metric.
type metricValue struct {
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// WriteJSON writes the one object that programs read.
func (r *BenchReport) WriteJSON(out io.Writer) error {
	metrics := map[string]metricValue{}
	for _, m := range r.metrics {
		metrics[m.Name] = metricValue{Value: m.Value, Unit: m.Unit}
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(struct {
		Scenario string                 `json:"scenario"`
		Seed     int64                  `json:"seed"`
		Machine  Machine                `json:"machine"`
		Checks   []Check                `json:"checks"`
		Metrics  map[string]metricValue `json:"metrics"`
		Series   []*Series              `json:"series"`
		Marks    []Mark                 `json:"marks"`
	}{r.Scenario, r.Seed, r.Machine, notNil(r.checks), metrics, notNil(r.series), notNil(r.marks)})
}

// notNil returns the list as JSON's empty list where it is nil.
func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func (r *BenchReport) writeMetrics(out io.Writer, g Group, except map[string]bool) {
	for _, m := range r.metricsOf(g) {
		if !except[m.Name] {
			fmt.Fprintf(out, "%s\t%s\n", metricWords(m.Name), FormatValue(m.Value, m.Unit))
		}
	}
}

// WriteText writes for people: counts, times, components, checks.
func (r *BenchReport) WriteText(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintf(t, "%s: %s\n", r.Scenario, r.About)
	fmt.Fprintf(t, "%s, seed %d, %s, took %s\n", r.Machine, r.Seed, FormatValue(r.Scale, "of full size"), time.Since(r.Begun).Round(time.Second))
	fmt.Fprint(t, "\nCOUNT\t\n")
	r.writeMetrics(t, GroupCounts, nil)
	if len(r.distributions) > 0 {
		fmt.Fprint(t, "\nTIME\tP50\tP90\tP99\tMAX\n")
	}
	within := map[string]bool{}
	for _, name := range r.distributions {
		fmt.Fprint(t, metricWords(name))
		for _, q := range []string{"_p50", "_p90", "_p99", "_max"} {
			m, _ := r.FindMetric(name + q)
			within[m.Name] = true
			fmt.Fprintf(t, "\t%s", FormatValue(m.Value, m.Unit))
		}
		fmt.Fprintln(t)
	}
	fmt.Fprintln(t)
	r.writeMetrics(t, GroupTimes, within)
	fmt.Fprint(t, "\nCOMPONENT\t\n")
	r.writeMetrics(t, GroupComponents, nil)
	fmt.Fprint(t, "\nCHECK\t\n")
	for _, c := range r.checks {
		verdict := "ok"
		if !c.OK {
			verdict = "FAILS"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", c.Name, verdict, c.Detail)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, n := range r.notes {
		if _, err := fmt.Fprintf(out, "\n%s\n", n); err != nil {
			return err
		}
	}
	return nil
}

// String describes the machine in a few words.
func (m Machine) String() string {
	return fmt.Sprintf("%d CPUs, %.0f GiB, %s, load %.1f before", m.CPUs, float64(m.Memory)/(1<<30), m.System, m.Load)
}

// metricWords returns a metric's name as words.
func metricWords(name string) string { return strings.ReplaceAll(name, "_", " ") }
