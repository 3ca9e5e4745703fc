package placer

import (
	"fmt"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/tracing"
)

// A step is traced where it brings a row to the target. It counts these rows.
func TestStepsAreTraced(t *testing.T) {
	target, other := &atoll.RowSpec{Revision: "web-1-r2"}, &atoll.RowSpec{Revision: "web-1-r1"}
	for _, tc := range []struct {
		name    string
		changes map[string]*atoll.RowSpec
		want    string
	}{
		{"two rows", map[string]*atoll.RowSpec{"a": target, "b": target, "c": other, "d": nil}, "place web of 2 clusters"},
		{"other changes", map[string]*atoll.RowSpec{"c": other, "d": nil}, ""},
		{"no change", nil, ""},
	} {
		spans := tracetest.NewInMemoryExporter()
		tracer, err := tracing.New(t.Context(), tracing.Options{
			Processor: sdktrace.NewSimpleSpanProcessor(spans), SamplingRatePerMillion: 1_000_000, Version: "test",
			Traceparent: func(string) string { return "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" },
		})
		if err != nil {
			t.Fatal(err)
		}
		cfg := newFakeHub().reconcilerConfig()
		cfg.Traces = tracer
		a := stepAttempt{output: rollout.Output{Changes: tc.changes}}
		a.input.bundle.Ref.Name, a.input.rollout.Revision, a.input.rollout.Now = "web", "web-1-r2", time.Unix(1000, 0)
		New(cfg).traceStep(a, true)
		got := ""
		for _, s := range spans.GetSpans() {
			of := map[string]string{}
			for _, kv := range s.Attributes {
				of[string(kv.Key)] = kv.Value.String()
			}
			got += fmt.Sprintf("%s %s of %s clusters", s.Name, of["atoll.bundle"], of["atoll.clusters"])
			if !s.StartTime.Equal(time.Unix(1000, 0)) {
				t.Errorf("%s: it began at %s", tc.name, s.StartTime)
			}
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
		cfg.Traces = nil
		New(cfg).traceStep(a, true) // records nothing
	}
	rows := []state.Row{{Spec: *other}}
	if hasRevision(rows, "web-1-r2") || !hasRevision(rows, "web-1-r1") {
		t.Error("a revision is found in other rows")
	}
}

// No placement distinguishes clusters that differ in resources or stated capacity alone.
func TestClustersThatAreTheSameForPlacement(t *testing.T) {
	base := boundedCluster(5)
	for name, tc := range map[string]struct {
		change func(*schedule.Cluster)
		want   bool
	}{
		"nothing": {func(*schedule.Cluster) {}, true}, "resources": {func(c *schedule.Cluster) { c.Resources = []schedule.ResourceAmount{{Name: "cpu"}} }, true},
		"capacity": {func(c *schedule.Cluster) { c.Capacity = nil }, true}, "a label": {func(c *schedule.Cluster) { c.Labels = map[string]string{"a": "b"} }, false},
		"acceptance": {func(c *schedule.Cluster) { c.Accepted = false }, false}, "its UID": {func(c *schedule.Cluster) { c.UID = "other" }, false},
	} {
		is := base
		if tc.change(&is); isSameForPlacement(base, is) != tc.want {
			t.Errorf("%s: the same is %t", name, !tc.want)
		}
	}
}

// A cluster that comes to match other override rules is touched in the Bundles that have a row there, unless their
// variant stays.
func TestVariantsThatChangedAreTouched(t *testing.T) {
	eu := schedule.Cluster{ClusterView: atoll.ClusterView{Name: "a", Region: "eu"}, UID: "uid-a"}
	for _, tc := range []struct {
		name    string
		variant string
		content bool
		want    bool
	}{
		{"another variant", "former", true, true}, {"a content that cannot be read", "former", false, true}, {"no Revision", "", true, false},
	} {
		m := newFakeHub()
		if tc.variant != "" {
			m.cutRevision("web", excludingContent())
		}
		if !tc.content {
			delete(m.contents, "web-1-r1")
		}
		m.rows["web"] = map[string]state.Row{"a": withBundle(state.Row{Cluster: "a", Spec: atoll.RowSpec{UID: "uid-a", Revision: "web-1-r1", Variant: tc.variant}}, "web")}
		r := New(m.reconcilerConfig())
		e := r.index.ensureEntry("web")
		if r.variantsChanged(t.Context(), eu); e.hasTouched("a") != tc.want {
			t.Errorf("%s: touched %v", tc.name, e.touchedClusters)
		}
	}
	m := newFakeHub()
	m.cutRevision("web", &atoll.Content{})
	m.rows["web"] = map[string]state.Row{"a": withBundle(state.Row{Cluster: "a", Spec: atoll.RowSpec{UID: "uid-a", Revision: "web-1-r1"}}, "web")}
	r := New(m.reconcilerConfig())
	if r.variantsChanged(t.Context(), eu); r.index.ensureEntry("web").hasTouched("a") {
		t.Error("a row of the same variant is touched")
	}
}
