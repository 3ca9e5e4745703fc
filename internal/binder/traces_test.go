package binder

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bundlecontent"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/tracing"
)

// newTracedPlan is the plan of a Bundle of a policy, with an item, a tombstone and override policies.
func newTracedPlan(kind string) bundlePlan {
	named := metav1.ObjectMeta{Name: "o"}
	return bundlePlan{
		origin:    bundleOrigin{source: v1alpha1.BundleSource{Kind: kind, Name: "web"}},
		startedAt: time.Unix(100, 0),
		input: bundlecontent.Input{
			ClusterOverrides:   []*v1alpha1.ClusterOverridePolicy{{ObjectMeta: named}},
			NamespaceOverrides: []*v1alpha1.OverridePolicy{{ObjectMeta: named}},
		},
		output: bundlecontent.Output{Content: atoll.Content{
			Items:      []atoll.Item{{Key: newKey("Deployment", "web")}},
			Tombstones: []atoll.Tombstone{{Key: newKey("ConfigMap", "gone")}},
		}},
	}
}

// Any write of an item, of what was removed, of the policy and of its overrides can be the cause of a Revision.
func TestTheCausesOfARevision(t *testing.T) {
	policy := func(kind, namespace, name string) atoll.ItemKey {
		return atoll.ItemKey{Group: "atoll.dev", Kind: kind, Namespace: namespace, Name: name}
	}
	for kind, namespace := range map[string]string{policyKind: "shop", v1alpha1.SourceClusterPropagationPolicy: ""} {
		want := []atoll.ItemKey{
			newKey("Deployment", "web"), newKey("ConfigMap", "gone"), policy(kind, namespace, "web"), policy("ClusterOverridePolicy", "", "o"), policy("OverridePolicy", "shop", "o"),
		}
		causes := newTracedPlan(kind).listCauses("shop")
		if got := slices.Collect(causes); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", kind, got, want)
		}
		for n := range want {
			var got []atoll.ItemKey
			for key := range causes {
				if got = append(got, key); len(got) > n {
					break
				}
			}
			if !slices.Equal(got, want[:n+1]) {
				t.Errorf("%s: the first %d are %v", kind, n+1, got)
			}
		}
	}
}

// orderedRevisions knows one Revision and writes another, or fails.
type orderedRevisions struct {
	Revisions
	fails error
}

func (orderedRevisions) LatestOfBundle(string) (*enginev1.Revision, bool) {
	return &enginev1.Revision{ObjectMeta: metav1.ObjectMeta{Name: "r-1", CreationTimestamp: metav1.NewTime(time.Unix(50, 0))}}, true
}

func (x orderedRevisions) CreateRevision(context.Context, enginev1.BundleRef, *atoll.Content) (string, error) {
	return "r-2", x.fails
}

// A new Revision is reported with the time at which its Bundle was first touched, and its trace begins with the
// user's write since the Revision before. A Revision that is not written is reported by its error alone.
func TestARevisionIsReportedWithItsTrace(t *testing.T) {
	ref := enginev1.BundleRef{UID: "u", Namespace: "shop", Name: "web"}
	away := errors.New("the store is away")
	for what, tc := range map[string]struct {
		written time.Time
		fails   error
		want    []string
	}{
		"a write since the Revision before": {time.Unix(60, 0), nil, []string{"bind", "write"}},
		"an older write":                    {time.Unix(40, 0), nil, []string{"bind"}},
		"the Revision is not written":       {time.Unix(60, 0), away, nil},
	} {
		spans := tracetest.NewInMemoryExporter()
		tracer, err := tracing.New(t.Context(), tracing.Options{
			Processor: sdktrace.NewSimpleSpanProcessor(spans), SamplingRatePerMillion: 1_000_000, Traceparent: func(string) string { return "" },
		})
		if err != nil {
			t.Fatal(err)
		}
		_, b := newShopTables(t)
		b.Traces, b.Revisions = tracer, orderedRevisions{fails: tc.fails}
		var reported []any
		b.OnRevision = func(bundle, revision string, changed time.Time) {
			reported = append(reported, bundle, revision, changed)
		}
		touched := time.Unix(70, 0)
		b.touched.startWait(policymatch.BundleID{Namespace: "shop", Name: "web"}, touched)
		tracer.NoteWrite(t.Context(), newKey("Deployment", "web"), "UPDATE", tc.written)
		if err := b.createRevision(t.Context(), ref, newTracedPlan(policyKind)); !errors.Is(err, tc.fails) {
			t.Errorf("%s: %v", what, err)
		}
		want := []any{"u", "r-2", touched}
		if tc.fails != nil {
			want = nil
		}
		if !slices.Equal(reported, want) {
			t.Errorf("%s: reported %v, want %v", what, reported, want)
		}
		var names []string
		for _, s := range spans.GetSpans() {
			names = append(names, s.Name)
		}
		slices.Sort(names)
		if !slices.Equal(names, tc.want) {
			t.Errorf("%s: spans %v, want %v", what, names, tc.want)
		}
	}
}
