package report

import (
	"encoding/json"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"
)

// filled is a report with something of everything.
func filled() *Report {
	r := New("place-100", "what it does & more", 7, 0.5)
	r.Count("api_writes", 12, "requests")
	r.Distribution("apply_to_healthy", []float64{0.1, 0.2, 0.3, 0.4})
	r.Time("restart", 3e9)
	r.Component("hub_resident", 512e6, "bytes")
	r.AtMost("writes", 12, 20, "requests")
	r.Within("time", 2, 1, "s")
	for i := range 3 {
		r.Sample("resident memory", "bytes", "hub", float64(i)*1e6)
		r.Sample("resident memory", "bytes", "simulator", 1e6)
	}
	r.Mark("killed")
	r.Sample("resident memory", "bytes", "hub", 4e6)
	r.Note("writes were %s", "<none>")
	return r
}

func TestJSONIsOneObject(t *testing.T) {
	var b strings.Builder
	if err := filled().WriteJSON(&b); err != nil {
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
}

func TestTextHasCountsFirst(t *testing.T) {
	var b strings.Builder
	if err := filled().WriteText(&b); err != nil {
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

func TestPageStandsAlone(t *testing.T) {
	var b strings.Builder
	if err := filled().WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	if n := strings.Count(page, "<svg"); n != 2 {
		t.Errorf("the page has %d charts instead of 2", n)
	}
	for _, want := range []string{"what it does &amp; more", "&lt;none&gt;", "killed", "fails"} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not in the page", want)
		}
	}
	for _, ref := range regexp.MustCompile(`(src|href|url)\s*[=(]`).FindAllString(page, -1) {
		t.Errorf("the page refers to something: %s", ref)
	}
	if strings.Contains(page, "<script") || strings.Contains(page, "<?xml") || strings.Contains(page, "<!DOCTYPE svg") {
		t.Error("the page holds a script or the head of another document")
	}
}

func TestCountsOnlyLeavesOutWhatDependsOnTheMachine(t *testing.T) {
	r := New("x", "y", 1, 1)
	r.CountsOnly = true
	r.Within("time", 2, 1, "s")
	r.AtLeast("rate", 1, 2, "1/s")
	r.Timed("flat", false, "no")
	r.AtMost("writes", 3, 2, "requests")
	if failed := r.Failed(); len(failed) != 1 || failed[0].Name != "writes" {
		t.Errorf("failed: %+v", failed)
	}
}

// TestWhatIsNoNumberFails: nothing was measured then, and JSON has no word for it.
func TestWhatIsNoNumberFails(t *testing.T) {
	r := New("nothing", "divides by nothing", 1, 1)
	r.Count("rate", math.Inf(1), "1/s")
	r.Count("share", math.NaN(), "")
	if got := len(r.Failed()); got != 2 {
		t.Errorf("%d checks fail, want 2: %v", got, r.Failed())
	}
	if err := r.WriteJSON(io.Discard); err != nil {
		t.Error(err)
	}
}
