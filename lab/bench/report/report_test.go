package report

import (
	"encoding/json"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"
)

// filledReport is a report with something of everything.
func filledReport() *BenchReport {
	r := NewReport("place-100", "what it does & more", 7, 0.5)
	r.AddCount("api_writes", 12, "requests")
	r.AddDistribution("apply_to_healthy", []float64{0.1, 0.2, 0.3, 0.4})
	r.AddTime("restart", 3e9)
	r.AddComponentUsage("hub_resident", 512e6, "bytes")
	r.CheckAtMost("writes", 12, 20, "requests")
	r.CheckMachineDependentAtMost("time", 2, 1, "s")
	for i := range 3 {
		r.AddSeriesPoint("resident memory", "bytes", "hub", float64(i)*1e6)
		r.AddSeriesPoint("resident memory", "bytes", "simulator", 1e6)
	}
	r.MarkNow("killed")
	r.AddSeriesPoint("resident memory", "bytes", "hub", 4e6)
	r.AddNote("writes were %s", "<none>")
	return r
}

func TestJSONIsOneObject(t *testing.T) {
	var b strings.Builder
	if err := filledReport().WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(strings.NewReader(b.String()))
	d.DisallowUnknownFields()
	var got struct {
		Scenario string
		Seed     int64
		Machine  Machine
		Checks   []Check
		Metrics  map[string]struct {
			Value float64
			Unit  string
		}
		Series []Series
		Marks  []Mark
	}
	if err := d.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if d.More() {
		t.Error("there is more than one object")
	}
	if got.Scenario != "place-100" || got.Seed != 7 || got.Machine.CPUs == 0 || len(got.Checks) != 2 || !got.Checks[0].OK || got.Checks[1].OK {
		t.Errorf("got %+v", got)
	}
	if m := got.Metrics["apply_to_healthy_p90"]; m.Value != 0.4 || m.Unit != "s" {
		t.Errorf("p90 is %+v", m)
	}
	if m := got.Metrics["apply_to_healthy_p50"]; m.Value != 0.2 {
		t.Errorf("p50 is %+v", m)
	}
	if len(got.Series) != 2 || len(got.Marks) != 1 || got.Marks[0].What != "killed" {
		t.Fatalf("got series %+v, marks %+v", got.Series, got.Marks)
	}
	hub := got.Series[0]
	if hub.Chart != "resident memory" || hub.Unit != "bytes" || hub.Name != "hub" || len(hub.Points) != 4 || hub.Points[2].Value != 2e6 || hub.Points[3].Value != 4e6 {
		t.Errorf("the hub's series is %+v", hub)
	}
	if n := len(got.Series[1].Points); n != 3 {
		t.Errorf("the simulator has %d samples, want 3", n)
	}
	if killed := got.Marks[0].At; killed < hub.Points[2].At || killed > hub.Points[3].At {
		t.Errorf("the mark at %v is not between its samples at %v and %v", killed, hub.Points[2].At, hub.Points[3].At)
	}
}

// An empty report has lists and no null.
func TestJSONHasNoNull(t *testing.T) {
	var b strings.Builder
	if err := NewReport("x", "y", 1, 1).WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "null") {
		t.Errorf("it has a null:\n%s", b.String())
	}
}

func TestTextHasCountsFirst(t *testing.T) {
	var b strings.Builder
	if err := filledReport().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(` {2,}`).ReplaceAllString(b.String(), "|")
	last := -1
	for _, want := range []string{"api writes|12 requests", "apply to healthy|200 ms|400 ms|400 ms|400 ms", "restart|3.00 s", "hub resident|512.0 MB", "writes|ok|12 requests, at most 20 requests", "time|FAILS|2.00 s, at most 1.00 s", "writes were <none>"} {
		at := strings.Index(text, want)
		if at < last || at < 0 {
			t.Errorf("%q is not where it should be in\n%s", want, text)
		}
		last = at
	}
}

func TestCountsOnlySkipsMachineDependentChecks(t *testing.T) {
	r := NewReport("x", "y", 1, 1)
	r.CountsOnly = true
	r.CheckMachineDependentAtMost("time", 2, 1, "s")
	r.CheckMachineDependentAtLeast("rate", 1, 2, "1/s")
	r.AddMachineDependentCheck("flat", false, "no")
	r.CheckAtMost("writes", 3, 2, "requests")
	if failed := r.FailedChecks(); len(failed) != 1 || failed[0].Name != "writes" {
		t.Errorf("failed: %+v", failed)
	}
}

// TestANonNumberFails: nothing was measured then, and JSON has no word for it.
func TestANonNumberFails(t *testing.T) {
	r := NewReport("nothing", "divides by nothing", 1, 1)
	r.AddCount("rate", math.Inf(1), "1/s")
	r.AddCount("share", math.NaN(), "")
	if got := len(r.FailedChecks()); got != 2 {
		t.Errorf("%d checks fail, want 2: %v", got, r.FailedChecks())
	}
	if err := r.WriteJSON(io.Discard); err != nil {
		t.Error(err)
	}
}
