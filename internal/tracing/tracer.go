package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/utils/lru"
)

const (
	// scope is the name of the instrumentation in every span.
	scope = "atoll.dev/atoll"
	// serviceHub and serviceAgent are the services that the spans name.
	serviceHub, serviceAgent = "atoll-hub", "atoll-agent"
	// maxQueuedSpans wait for the collector; further spans are dropped.
	maxQueuedSpans = 8192
	// maxWrites, maxOrders and maxSettled bound what a Tracer stores.
	maxWrites, maxOrders, maxSettled = 4096, 8192, 4096
	// DefaultSamplingRate of changes without a traceparent, per million.
	DefaultSamplingRate = 10_000
)

// Options of a Tracer.
type Options struct {
	// Endpoint of an OTLP collector, by gRPC: HOST:PORT without TLS, or a URL. Empty: no tracing.
	Endpoint string
	// SamplingRatePerMillion of changes without a traceparent.
	SamplingRatePerMillion int
	// Version of the hub.
	Version string
	// Traceparent returns the traceparent that a Revision keeps; empty: none.
	Traceparent func(revision string) string
	// Processor takes the spans in place of the collector at Endpoint.
	Processor sdktrace.SpanProcessor
	// Log; nil: slog's default.
	Log *slog.Logger
}

// ValidateOptions returns an error when the options cannot work.
func (o *Options) ValidateOptions() error {
	if o.SamplingRatePerMillion < 0 || o.SamplingRatePerMillion > 1_000_000 {
		return fmt.Errorf("--tracing-sampling-rate-per-million is %d: it is from 0 to 1000000", o.SamplingRatePerMillion)
	}
	if strings.ContainsAny(o.Endpoint, " \t\r\n") {
		return fmt.Errorf("--tracing-endpoint is %q: it is HOST:PORT or a URL", o.Endpoint)
	}
	return nil
}

// Tracer records the spans of changes. Make it with New.
type Tracer struct {
	ctx         context.Context // of spans, which outlive the calls that record them
	traceparent func(revision string) string
	ratio       sdktrace.Sampler
	hub, agent  trace.Tracer
	shutdown    func(context.Context) error
	log         *slog.Logger

	writes  *lru.Cache // userWrite by atoll.ItemKey
	orders  *lru.Cache // *order by orderKey
	settled *lru.Cache // Revisions whose Bundle was ready once
}

// New returns a Tracer, or nil where the options have no endpoint. Variables of the environment
// OTEL_EXPORTER_OTLP_* add headers, certificates and timeouts of the export, and
// OTEL_RESOURCE_ATTRIBUTES attributes.
func New(ctx context.Context, o Options) (*Tracer, error) {
	if o.Endpoint == "" && o.Processor == nil {
		return nil, nil
	}
	if err := o.ValidateOptions(); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Processor == nil {
		exporter, err := otlptracegrpc.New(ctx, endpointOption(o.Endpoint)...)
		if err != nil {
			return nil, fmt.Errorf("make the exporter of traces to %s: %w", o.Endpoint, err)
		}
		o.Processor = sdktrace.NewBatchSpanProcessor(exporter, sdktrace.WithMaxQueueSize(maxQueuedSpans))
		otel.SetErrorHandler(newErrorLogger(o.Log))
	}
	t := &Tracer{
		ctx: context.WithoutCancel(ctx), traceparent: o.Traceparent, shutdown: o.Processor.Shutdown, log: o.Log,
		ratio:  sdktrace.TraceIDRatioBased(float64(o.SamplingRatePerMillion) / 1_000_000),
		writes: lru.New(maxWrites), orders: lru.New(maxOrders), settled: lru.New(maxSettled),
	}
	var err error
	if t.hub, err = t.newTracer(ctx, o, serviceHub); err != nil {
		return nil, err
	}
	t.agent, err = t.newTracer(ctx, o, serviceAgent)
	return t, err
}

// endpointOption returns the options of the exporter. As in Kubernetes, HOST:PORT has no TLS.
func endpointOption(endpoint string) []otlptracegrpc.Option {
	if strings.Contains(endpoint, "://") {
		return []otlptracegrpc.Option{otlptracegrpc.WithEndpointURL(endpoint)}
	}
	return []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(endpoint), otlptracegrpc.WithInsecure()}
}

// newTracer returns a tracer of spans of one service.
func (t *Tracer) newTracer(ctx context.Context, o Options, service string) (trace.Tracer, error) {
	res, err := resource.New(ctx, resource.WithFromEnv(), resource.WithAttributes(
		attribute.String("service.name", service), attribute.String("service.version", o.Version)))
	if err != nil {
		return nil, fmt.Errorf("read the attributes of traces: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(o.Processor), sdktrace.WithResource(res),
		sdktrace.WithSampler(sdktrace.ParentBased(t.ratio)), sdktrace.WithIDGenerator(derivedIDs{}))
	return provider.Tracer(scope), nil
}

// flushTimeout bounds how long the last spans are sent.
const flushTimeout = 3 * time.Second

// Shutdown sends the spans that wait, for 3 seconds at most, also where ctx has ended. A failure is logged.
func (t *Tracer) Shutdown(ctx context.Context) {
	if t == nil {
		return
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	if err := t.shutdown(end); err != nil {
		t.log.Warn("the last traces could not be sent", "err", err)
	}
}

// span is a finished part of a change.
type span struct {
	name string
	kind trace.SpanKind
	// id; zero: a random one, for spans without children.
	id trace.SpanID
	// parent; zero: the user's span, or none.
	parent     trace.SpanID
	start, end time.Time
	// reason of a failure; empty: none.
	reason string
	// byAgent: the agent did it.
	byAgent    bool
	attributes []attribute.KeyValue
}

// record records a span of a change that is sampled.
func (t *Tracer) record(c changeTrace, s span) {
	ctx := context.WithValue(t.ctx, idsKey{}, ids{c.trace, s.id})
	parent := c.user
	if s.parent.IsValid() {
		parent = trace.NewSpanContext(trace.SpanContextConfig{TraceID: c.trace, SpanID: s.parent, TraceFlags: trace.FlagsSampled, Remote: true})
	}
	if parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	}
	tracer := t.hub
	if s.byAgent {
		tracer = t.agent
	}
	if s.end.Before(s.start) {
		s.end = s.start
	}
	_, out := tracer.Start(ctx, s.name, trace.WithTimestamp(s.start), trace.WithSpanKind(s.kind), trace.WithAttributes(attribute.String("atoll.revision", c.revision)), trace.WithAttributes(s.attributes...))
	if s.reason != "" {
		out.SetAttributes(attribute.String("atoll.reason", s.reason))
		out.SetStatus(codes.Error, s.reason)
	}
	out.End(trace.WithTimestamp(s.end))
}

// newErrorLogger logs the first error of the export in each minute.
func newErrorLogger(log *slog.Logger) otel.ErrorHandler {
	turns := make(chan struct{}, 1)
	turns <- struct{}{}
	return otel.ErrorHandlerFunc(func(err error) {
		select {
		case <-turns:
			log.Warn("traces cannot be exported; further errors are not logged for a minute", "err", err)
			time.AfterFunc(time.Minute, func() { turns <- struct{}{} })
		default:
		}
	})
}
