package e2e

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/lab"
)

const (
	tracedTraceID   = "0af7651916cd43dd8448eb211c80319c"
	tracedUsersSpan = "b7ad6b7169203331"
)

// tracedApplication is placed on both members.
const tracedApplication = `
apiVersion: v1
kind: Namespace
metadata: {name: traced, annotations: {atoll.dev/clusters: "*"}}
---
apiVersion: v1
kind: Secret
metadata: {name: traced, namespace: traced}
stringData: {password: not-for-traces}
`

// spanCollector is an OTLP collector that keeps the spans.
type spanCollector struct {
	collector.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans []collectedSpan
}

type collectedSpan struct {
	*otlp.Span
	service string
}

// Export implements collector.TraceServiceServer.
func (c *spanCollector) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range r.GetResourceSpans() {
		service := ""
		for _, a := range resource.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, collectedSpan{s, service})
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// spansOf returns the spans of a trace.
func (c *spanCollector) spansOf(trace string) (spans []collectedSpan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if hex.EncodeToString(s.GetTraceId()) == trace {
			spans = append(spans, s)
		}
	}
	return spans
}

// isComplete reports whether a trace has a ready status and the report of both clusters.
func isComplete(spans []collectedSpan) bool {
	reports, ready := map[string]bool{}, false
	for _, s := range spans {
		switch a := spanAttributes(s); s.GetName() {
		case "report":
			if a["atoll.state"] == "Ready" {
				reports[a["k8s.cluster.name"]] = true
			}
		case "status":
			ready = ready || a["atoll.reason"] == "Ready" && a["atoll.clusters.ready"] == "2"
		}
	}
	return ready && len(reports) == 2
}

func spanAttributes(s collectedSpan) map[string]string {
	out := map[string]string{}
	for _, a := range s.GetAttributes() {
		out[a.GetKey()] = a.GetValue().GetStringValue()
		if v := a.GetValue(); v.GetStringValue() == "" {
			out[a.GetKey()] = fmt.Sprint(v.GetIntValue())
		}
	}
	return out
}

// startCollector serves a collector on loopback.
func startCollector(t *testing.T) (*spanCollector, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, server := &spanCollector{}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(l) }() // ends with Stop
	t.Cleanup(server.Stop)
	return c, l.Addr().String()
}

// tracedParents lists, by span, its parent.
var tracedParents = map[string]string{
	"bind": "write", "place": "bind", "deliver": "place", "render": "deliver", "apply": "deliver", "report": "deliver", "status": "bind",
}

// TestAChangeIsOneTrace: a user's request with a traceparent, and one without, are each one trace
// from the write to the status.
func TestAChangeIsOneTrace(t *testing.T) {
	spans, address := startCollector(t)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "200") // the hub of the lab inherits it
	dir := filepath.Join(t.TempDir(), "lab")
	l, err := lab.BringUp(t.Context(), lab.Options{
		Dir: dir, EndsWithStarter: true, Members: 2, Nodes: 1, HubArgs: []string{"--tracing-endpoint=" + address, "--tracing-sampling-rate-per-million=1000000"},
	})
	t.Cleanup(func() {
		if opened, err := lab.OpenExisting(dir); err == nil {
			if err := opened.StopAll(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := l.KubeconfigPath("hub")
	expectOutput(t, "apply", kubectlAt(t, kubeconfig, tracedApplication, "apply -f -"), "secret/traced created")
	var trace string
	testwait.UntilNil(t, "a trace without traceparent is complete", func(context.Context) error {
		trace = spans.completeTrace()
		if trace == "" {
			return errors.New("none is")
		}
		return nil
	})
	checkTrace(t, spans.spansOf(trace), "")

	patchWithTraceparent(t, kubeconfig, "00-"+tracedTraceID+"-"+tracedUsersSpan+"-01")
	testwait.UntilNil(t, "the user's trace is complete", func(context.Context) error {
		if got := spans.spansOf(tracedTraceID); !isComplete(got) {
			return fmt.Errorf("it has %d spans", len(got))
		}
		return nil
	})
	checkTrace(t, spans.spansOf(tracedTraceID), tracedUsersSpan)
}

// completeTrace returns a trace that is complete; empty: there is none yet.
func (c *spanCollector) completeTrace() string {
	c.mu.Lock()
	traces := map[string][]collectedSpan{}
	for _, s := range c.spans {
		id := hex.EncodeToString(s.GetTraceId())
		traces[id] = append(traces[id], s)
	}
	c.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(traces)) {
		if isComplete(traces[id]) {
			return id
		}
	}
	return ""
}

// checkTrace checks parents, services and attributes of a trace. user is the span of the request.
func checkTrace(t *testing.T, spans []collectedSpan, user string) {
	t.Helper()
	byID, names := map[string]string{}, map[string]int{}
	for _, s := range spans {
		byID[hex.EncodeToString(s.GetSpanId())] = s.GetName()
		names[s.GetName()]++
	}
	t.Logf("spans %v", names)
	for _, s := range spans {
		parent := hex.EncodeToString(s.GetParentSpanId())
		if s.GetName() == "write" {
			if parent != user {
				t.Errorf("write has the parent %q, want %q", parent, user)
			}
		} else if byID[parent] != tracedParents[s.GetName()] {
			t.Errorf("%s has the parent %q, want %q", s.GetName(), byID[parent], tracedParents[s.GetName()])
		}
		service := "atoll-hub"
		if s.GetName() == "apply" {
			service = "atoll-agent"
		}
		if s.service != service || s.GetEndTimeUnixNano() < s.GetStartTimeUnixNano() {
			t.Errorf("%s is of %s, from %d to %d", s.GetName(), s.service, s.GetStartTimeUnixNano(), s.GetEndTimeUnixNano())
		}
		if a := spanAttributes(s); a["atoll.revision"] == "" || strings.Contains(fmt.Sprint(a), "not-for-traces") {
			t.Errorf("%s has attributes %v", s.GetName(), a)
		}
	}
	for name, want := range map[string]int{"write": 1, "bind": 1, "place": 1, "deliver": 2, "render": 2, "apply": 2} {
		if names[name] != want && !(name == "place" && names[name] > want) {
			t.Errorf("%d spans %s, want %d", names[name], name, want)
		}
	}
}

// patchWithTraceparent changes the traced Secret by a request with a traceparent.
func patchWithTraceparent(t *testing.T, kubeconfig, traceparent string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return traceparentTransport{next, traceparent} })
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "traced", Name: "traced"}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"stringData":{"password":"not-for-traces-either"}}`))
	if err := c.Patch(t.Context(), secret, patch); err != nil {
		t.Fatal(err)
	}
}

// traceparentTransport adds a traceparent to requests.
type traceparentTransport struct {
	next        http.RoundTripper
	traceparent string
}

func (t traceparentTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("traceparent", t.traceparent)
	return t.next.RoundTrip(r)
}
