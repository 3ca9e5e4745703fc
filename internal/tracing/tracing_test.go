package tracing

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

const userTraceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

var (
	testBundle = enginev1.BundleRef{UID: "uid-bundle", Namespace: "shop", Name: "web"}
	testItem   = atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	testOrder  = Order{Bundle: testBundle, Cluster: "paris", ClusterUID: "uid-paris", Revision: "rev-1", Generation: 7}
)

// newTestTracer returns a Tracer of all changes whose spans stay in memory.
func newTestTracer(t *testing.T, traceparents map[string]string) (*Tracer, *tracetest.InMemoryExporter) {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	tracer, err := New(t.Context(), Options{
		Processor: sdktrace.NewSimpleSpanProcessor(spans), SamplingRatePerMillion: 1_000_000, Version: "test",
		Traceparent: func(revision string) string { return traceparents[revision] },
	})
	if err != nil {
		t.Fatal(err)
	}
	return tracer, spans
}

// traceChange records a whole change, as the components do.
func traceChange(ctx context.Context, tr *Tracer, report *atoll.RowStatus) (traceparent string) {
	start := time.Now().Add(-time.Minute)
	tr.NoteWrite(ctx, testItem, "UPDATE", start)
	ctx, finish := tr.BeginBind(ctx, RevisionBind{Bundle: testBundle, Started: start.Add(time.Second), Sources: slices.Values([]atoll.ItemKey{{Kind: "ConfigMap", Name: "other"}, testItem})})
	finish("rev-1")
	tr.RecordPlace(PlacementStep{Bundle: testBundle, Revision: "rev-1", Started: start.Add(2 * time.Second), Clusters: 1, IsFirst: true})
	tr.OrderSent(testOrder, start.Add(3*time.Second), start.Add(4*time.Second))
	tr.OrderStored("uid-paris", "uid-bundle", 7)
	tr.OrderApplied("uid-paris", "uid-bundle", report, 5*time.Second, 2*time.Second)
	tr.ReportWritten("uid-paris", "uid-bundle", report, time.Now())
	tr.RecordStatus(Status{Bundle: testBundle, Revision: "rev-1", Started: time.Now(), Reason: "Ready", IsReady: true, Ready: 1, Desired: 1})
	return TraceparentOf(ctx)
}

func readyReport() *atoll.RowStatus {
	return &atoll.RowStatus{Generation: 7, State: atoll.RowReady, Applied: true, Total: 2, Ready: 2}
}

func spansByName(t *testing.T, spans *tracetest.InMemoryExporter) map[string]tracetest.SpanStub {
	t.Helper()
	byName := map[string]tracetest.SpanStub{}
	for _, s := range spans.GetSpans() {
		if _, twice := byName[s.Name]; twice {
			t.Errorf("span %s is recorded twice", s.Name)
		}
		byName[s.Name] = s
	}
	return byName
}

func attributesOf(s tracetest.SpanStub) map[string]string {
	out := map[string]string{}
	for _, a := range s.Attributes {
		out[string(a.Key)] = a.Value.String()
	}
	return out
}

func TestChangeIsOneTrace(t *testing.T) {
	tr, spans := newTestTracer(t, nil)
	traceChange(t.Context(), tr, readyReport())
	got := spansByName(t, spans)
	parents := map[string]string{
		"write": "", "bind": "write", "place": "bind", "deliver": "place", "render": "deliver", "apply": "deliver", "report": "deliver", "status": "bind",
	}
	if want := slices.Sorted(maps.Keys(parents)); !slices.Equal(slices.Sorted(maps.Keys(got)), want) {
		t.Fatalf("got spans %v, want %v", slices.Sorted(maps.Keys(got)), want)
	}
	for name, parent := range parents {
		s := got[name]
		if s.SpanContext.TraceID() != got["write"].SpanContext.TraceID() {
			t.Errorf("%s is in trace %s", name, s.SpanContext.TraceID())
		}
		if parent == "" && s.Parent.IsValid() || parent != "" && s.Parent.SpanID() != got[parent].SpanContext.SpanID() {
			t.Errorf("parent of %s is %s, want that of %q", name, s.Parent.SpanID(), parent)
		}
		if attributesOf(s)["atoll.revision"] != "rev-1" || attributesOf(s)["atoll.bundle"] != "web" || attributesOf(s)["k8s.namespace.name"] != "shop" {
			t.Errorf("%s has attributes %v", name, attributesOf(s))
		}
		if s.EndTime.Before(s.StartTime) || parent != "" && s.StartTime.Before(got[parent].StartTime) {
			t.Errorf("%s is from %s to %s", name, s.StartTime, s.EndTime)
		}
	}
	for _, name := range []string{"deliver", "render", "apply", "report"} {
		if a := attributesOf(got[name]); a["k8s.cluster.name"] != "paris" || a["atoll.generation"] != "7" {
			t.Errorf("%s has attributes %v", name, a)
		}
	}
	if a := attributesOf(got["write"]); a["atoll.verb"] != "update" || !strings.Contains(a["atoll.object"], "web") {
		t.Errorf("write has attributes %v", a)
	}
	if took := got["apply"].EndTime.Sub(got["apply"].StartTime); took != 5*time.Second {
		t.Errorf("the apply took %s", took)
	}
	for _, s := range got {
		service, want := "", map[bool]string{true: serviceAgent, false: serviceHub}[s.Name == "apply"]
		for _, a := range s.Resource.Attributes() {
			if a.Key == "service.name" {
				service = a.Value.AsString()
			}
		}
		if service != want {
			t.Errorf("%s is of service %q, want %q", s.Name, service, want)
		}
	}
}

// TestOtherHubContinuesTheTrace: the IDs follow from the Revision.
func TestOtherHubContinuesTheTrace(t *testing.T) {
	first, spans := newTestTracer(t, nil)
	traceChange(t.Context(), first, readyReport())
	second, more := newTestTracer(t, nil)
	second.OrderSent(testOrder, time.Now(), time.Now())
	second.OrderStored("uid-paris", "uid-bundle", 7)
	a, b := spansByName(t, spans), spansByName(t, more)
	if a["deliver"].SpanContext.TraceID() != b["deliver"].SpanContext.TraceID() || a["place"].SpanContext.SpanID() != b["deliver"].Parent.SpanID() || a["deliver"].SpanContext.SpanID() != b["deliver"].SpanContext.SpanID() {
		t.Error("the second hub began a trace of its own")
	}
}

// TestTraceparentOfTheUser: the user's trace is continued, on a hub that reads it from the Revision.
func TestTraceparentOfTheUser(t *testing.T) {
	kept := map[string]string{"rev-1": userTraceparent}
	tr, spans := newTestTracer(t, kept)
	var fromRequest string
	serve := tr.ExtractTraceparent(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fromRequest = traceChange(r.Context(), tr, readyReport())
	}))
	r := httptest.NewRequest(http.MethodPatch, "/", nil)
	r.Header.Set("traceparent", userTraceparent)
	serve.ServeHTTP(httptest.NewRecorder(), r)
	if fromRequest != userTraceparent {
		t.Errorf("the Revision gets traceparent %q", fromRequest)
	}
	write := spansByName(t, spans)["write"]
	if write.SpanContext.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" || write.Parent.SpanID().String() != "b7ad6b7169203331" {
		t.Errorf("write is in %s below %s", write.SpanContext.TraceID(), write.Parent.SpanID())
	}
	kept["rev-1"] = strings.TrimSuffix(userTraceparent, "1") + "0"
	if tr.IsTraced("rev-1") {
		t.Error("a change is traced whose request is not sampled")
	}
	for _, bad := range []string{"", "x", strings.Repeat("0", 1<<16), "00-" + strings.Repeat("0", 32) + "-b7ad6b7169203331-01"} {
		if tr.parseTraceparent(bad).IsValid() {
			t.Errorf("%.40q is taken for a traceparent", bad)
		}
	}
}

// TestSamplingIsByRevision: a fixed part of the changes is traced, the same on each hub.
func TestSamplingIsByRevision(t *testing.T) {
	of := func(rate int) (n int) {
		tr, err := New(t.Context(), Options{Processor: sdktrace.NewSimpleSpanProcessor(tracetest.NewNoopExporter()), SamplingRatePerMillion: rate})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2000 {
			if tr.IsTraced(strings.Repeat("r", i+1)) {
				n++
			}
		}
		return n
	}
	if none, half, again, all := of(0), of(500_000), of(500_000), of(1_000_000); none != 0 || half < 900 || half > 1100 || half != again || all != 2000 {
		t.Errorf("of 2000 changes %d, %d, %d and %d are traced", none, half, again, all)
	}
}

// TestFailedReport: spans have the reason of a failure, and nothing else that the agent wrote.
func TestFailedReport(t *testing.T) {
	for reason, want := range map[string]string{
		"Forbidden": "Forbidden", "": "Failed", "password=1234": "Failed", strings.Repeat("A", 65): "Failed",
	} {
		tr, spans := newTestTracer(t, nil)
		traceChange(t.Context(), tr, &atoll.RowStatus{Generation: 7, State: atoll.RowFailed, Reason: atoll.Reason(reason), Message: "the password is 1234"})
		got := spansByName(t, spans)
		for _, name := range []string{"apply", "report"} {
			if s := got[name]; s.Status.Description != want || attributesOf(s)["atoll.reason"] != want {
				t.Errorf("reason %q: %s has status %v and attributes %v", reason, name, s.Status, attributesOf(s))
			}
		}
		for name, s := range got {
			for key, value := range attributesOf(s) {
				if strings.Contains(value, "1234") {
					t.Errorf("attribute %s of %s has text of the agent", key, name)
				}
			}
		}
	}
}

// TestHostileAgent: an agent cannot make spans outside its order's time, or more than it is due.
func TestHostileAgent(t *testing.T) {
	for name, report := range map[string]struct{ took, age time.Duration }{
		"past": {1 << 32 * time.Millisecond, 1 << 32 * time.Millisecond}, "future": {0, -time.Hour}, "negative": {-time.Hour, 0},
	} {
		tr, spans := newTestTracer(t, nil)
		sent := time.Now().Add(-time.Minute)
		tr.OrderSent(testOrder, sent, sent)
		for range 100 {
			tr.OrderStored("uid-paris", "uid-bundle", 7)
			tr.OrderApplied("uid-paris", "uid-bundle", readyReport(), report.took, report.age)
			tr.OrderApplied("uid-paris", "uid-bundle", &atoll.RowStatus{Generation: 8}, report.took, report.age)
			tr.OrderApplied("uid-other", "uid-bundle", readyReport(), report.took, report.age)
		}
		s := spansByName(t, spans)["apply"]
		if s.StartTime.Before(sent.Truncate(0)) || s.EndTime.After(time.Now()) || s.EndTime.Before(s.StartTime) {
			t.Errorf("%s: the apply is from %s to %s", name, s.StartTime, s.EndTime)
		}
		spans.Reset()
		for i := range 100 {
			state := []atoll.RowState{atoll.RowReady, atoll.RowProgressing, "made up\n"}[i%3]
			tr.ReportWritten("uid-paris", "uid-bundle", &atoll.RowStatus{Generation: 7, State: state}, time.Now())
		}
		if n := len(spans.GetSpans()); n != maxReports {
			t.Errorf("%s: %d reports are recorded", name, n)
		}
	}
}

// TestCauseIsTheNewestWrite: writes that the previous Revision has are no cause.
func TestCauseIsTheNewestWrite(t *testing.T) {
	tr, _ := newTestTracer(t, nil)
	now := time.Now()
	key := func(name string) atoll.ItemKey { return atoll.ItemKey{Kind: "ConfigMap", Name: name} }
	for name, ago := range map[string]time.Duration{"old": time.Hour, "first": time.Minute, "second": time.Second, "later": -time.Second} {
		tr.NoteWrite(t.Context(), key(name), "CREATE", now.Add(-ago))
	}
	sources := slices.Values([]atoll.ItemKey{key("old"), key("second"), key("first"), key("later"), key("unknown")})
	previous := func(ago time.Duration) *enginev1.Revision {
		return &enginev1.Revision{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-ago))}}
	}
	for _, c := range []struct {
		previous *enginev1.Revision
		want     string
	}{{nil, "second"}, {previous(30 * time.Second), "second"}, {previous(0), ""}} {
		if got, _ := tr.findCausingWrite(RevisionBind{Previous: c.previous, Started: now, Sources: sources}); got.key.Name != c.want {
			t.Errorf("after %v the cause is %q, want %q", c.previous, got.key.Name, c.want)
		}
	}
}

// TestNilTracerDoesNothing: no component allocates for tracing that is off.
func TestNilTracerDoesNothing(t *testing.T) {
	tr, err := New(t.Context(), Options{SamplingRatePerMillion: 1_000_000})
	if tr != nil || err != nil {
		t.Fatalf("without an endpoint: %v, %v", tr, err)
	}
	report, ctx, now := readyReport(), t.Context(), time.Now()
	if n := testing.AllocsPerRun(100, func() {
		tr.NoteWrite(ctx, testItem, "UPDATE", now)
		if tr.IsTraced("rev-1") {
			t.Error("a change is traced")
		}
		tr.OrderStored("uid-paris", "uid-bundle", 7)
		tr.OrderApplied("uid-paris", "uid-bundle", report, time.Second, time.Second)
		tr.ReportWritten("uid-paris", "uid-bundle", report, now)
		tr.RecordStatus(Status{Revision: "rev-1"})
		_ = TraceparentOf(ctx)
	}); n != 0 {
		t.Errorf("tracing that is off makes %v allocations", n)
	}
	tr.Shutdown(ctx)
	if trace.SpanContextFromContext(ctx).IsValid() {
		t.Error("tracing that is off did something")
	}
}

func TestValidateOptions(t *testing.T) {
	for _, o := range []Options{{SamplingRatePerMillion: -1}, {SamplingRatePerMillion: 1_000_001}, {Endpoint: "a b"}} {
		if o.ValidateOptions() == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	if err := (&Options{Endpoint: "collector:4317", SamplingRatePerMillion: DefaultSamplingRate}).ValidateOptions(); err != nil {
		t.Error(err)
	}
}
