package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// value is a metric as programs get it.
type value struct {
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// WriteJSON writes the one object that programs read.
func (r *Report) WriteJSON(out io.Writer) error {
	metrics := map[string]value{}
	for _, m := range r.metrics {
		metrics[m.Name] = value{Value: m.Value, Unit: m.Unit}
	}
	checks := r.checks
	if checks == nil {
		checks = []Check{}
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(struct {
		Scenario string           `json:"scenario"`
		Seed     int64            `json:"seed"`
		Machine  Machine          `json:"machine"`
		Checks   []Check          `json:"checks"`
		Metrics  map[string]value `json:"metrics"`
	}{r.Scenario, r.Seed, r.Machine, checks, metrics})
}

// WriteText writes for people: counts, times, components, checks.
func (r *Report) WriteText(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintf(t, "%s: %s\n", r.Scenario, r.About)
	fmt.Fprintf(t, "%s, seed %d, %s, took %s\n", r.Machine, r.Seed, Text(r.Scale, "of full size"), time.Since(r.Begun).Round(time.Second))
	fmt.Fprint(t, "\nCOUNT\t\n")
	for _, m := range r.grouped(Counts) {
		fmt.Fprintf(t, "%s\t%s\n", words(m.Name), Text(m.Value, m.Unit))
	}
	if len(r.distributions) > 0 {
		fmt.Fprint(t, "\nTIME\tP50\tP90\tP99\tMAX\n")
	}
	within := map[string]bool{}
	for _, d := range r.distributions {
		fmt.Fprint(t, words(d.Name))
		for _, q := range []string{"_p50", "_p90", "_p99", "_max"} {
			m, _ := r.Metric(d.Name + q)
			within[m.Name] = true
			fmt.Fprintf(t, "\t%s", Text(m.Value, m.Unit))
		}
		fmt.Fprintln(t)
	}
	fmt.Fprintln(t)
	for _, m := range r.grouped(Times) {
		if !within[m.Name] {
			fmt.Fprintf(t, "%s\t%s\n", words(m.Name), Text(m.Value, m.Unit))
		}
	}
	fmt.Fprint(t, "\nCOMPONENT\t\n")
	for _, m := range r.grouped(Components) {
		fmt.Fprintf(t, "%s\t%s\n", words(m.Name), Text(m.Value, m.Unit))
	}
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

// words of a metric's name.
func words(name string) string { return strings.ReplaceAll(name, "_", " ") }
