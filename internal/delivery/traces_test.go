package delivery

import (
	"slices"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/protobuf/proto"

	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/internal/tracing"
)

// requestsTiming reports whether the last Upsert of the bundle requested a timing.
func (a *testAgent) requestsTiming(bundle string) bool {
	return a.checkLocked(func() bool { return a.timed[bundle] })
}

// reportTimed reports a status with a timing.
func (a *testAgent) reportTimed(bundle string, s atoll.RowStatus, timing *pb.Timing) {
	a.mu.Lock()
	defer a.mu.Unlock()
	frames := a.core.ReportStatus(bundle, s, 0).Frames
	for _, f := range frames {
		f.GetReport().Timing = timing
	}
	a.send(a.stream, frames)
}

func tracedHub(t *testing.T, rate int) (*testHub, *tracetest.InMemoryExporter) {
	spans := tracetest.NewInMemoryExporter()
	tracer, err := tracing.New(t.Context(), tracing.Options{Processor: sdktrace.NewSimpleSpanProcessor(spans), SamplingRatePerMillion: rate})
	if err != nil {
		t.Fatal(err)
	}
	return newTestHub(t, func(o *Options) { o.Traces = tracer }), spans
}

// TestOrderAndReportAreTraced: over the wire, with the apply's time of a hostile agent.
func TestOrderAndReportAreTraced(t *testing.T) {
	h, spans := tracedHub(t, 1_000_000)
	uid, id := h.createCluster("a")
	h.rows.setRows("b", map[string]atoll.RowSpec{"a": activeSpec(uid, "r1", 1)})
	begin := time.Now()
	a := h.newAgent(id, "one")
	a.connectSession()
	testwait.UntilTrue(t, "the manifest is stored", a.holdsManifest("b", "r1", 1))
	if !a.requestsTiming("b") {
		t.Error("the order requests no timing")
	}
	forever := &pb.Timing{ApplyMs: 1<<32 - 1, AgeMs: 1<<32 - 1}
	a.reportTimed("b", atoll.RowStatus{Generation: 1, Content: "r1", State: atoll.RowFailed, Reason: "Forbidden", Message: "the password is 1234"}, forever)
	names := func() (names []string) {
		for _, s := range spans.GetSpans() {
			names = append(names, s.Name)
		}
		slices.Sort(names)
		return names
	}
	testwait.UntilTrue(t, "the report is recorded", func() bool { return slices.Contains(names(), "report") })
	a.reportTimed("b", atoll.RowStatus{Generation: 1, Content: "r1", State: atoll.RowFailed, Reason: "Forbidden", Message: "again"}, forever)
	testwait.UntilTrue(t, "the second report is written", func() bool { row, _ := h.rows.Get("b", "a"); return row.Status != nil && row.Status.Message == "again" })
	if got := names(); !slices.Equal(got, []string{"apply", "deliver", "render", "report"}) {
		t.Fatalf("spans %v", got)
	}
	all := spans.GetSpans()
	for _, s := range all {
		if s.SpanContext.TraceID() != all[0].SpanContext.TraceID() || s.StartTime.Before(begin) || s.EndTime.After(time.Now()) {
			t.Errorf("%s is from %s to %s in trace %s", s.Name, s.StartTime, s.EndTime, s.SpanContext.TraceID())
		}
		if failed := s.Name == "apply" || s.Name == "report"; failed != (s.Status.Description == "Forbidden") {
			t.Errorf("%s has status %v", s.Name, s.Status)
		}
	}
}

// TestUntracedOrderIsAsBefore: tracing that is off, or leaves a change out, adds no byte.
func TestUntracedOrderIsAsBefore(t *testing.T) {
	with, spans := tracedHub(t, 0)
	for name, h := range map[string]*testHub{"off": newTestHub(t), "not sampled": with} {
		uid, id := h.createCluster("a")
		h.rows.setRows("b", map[string]atoll.RowSpec{"a": activeSpec(uid, "r1", 1)})
		a := h.newAgent(id, "one")
		a.connectSession()
		testwait.UntilTrue(t, "the manifest is stored", a.holdsManifest("b", "r1", 1))
		if a.requestsTiming("b") {
			t.Errorf("%s: the order requests a timing", name)
		}
		a.reportTimed("b", atoll.RowStatus{Generation: 1, Content: "r1", State: atoll.RowReady, Applied: true}, &pb.Timing{ApplyMs: 1})
		testwait.UntilTrue(t, "the report is written", func() bool { row, _ := h.rows.Get("b", "a"); return row.Status != nil })
	}
	if n := len(spans.GetSpans()); n != 0 {
		t.Errorf("%d spans of a change that is not sampled", n)
	}
	if n := proto.Size(&pb.Upsert{Timing: true}) - proto.Size(&pb.Upsert{}); n != 2 {
		t.Errorf("a traced order is %d bytes longer", n)
	}
}
