// Package tracing records a change as one OpenTelemetry trace: the user's write, bind, place,
// for each cluster render, deliver, apply and report, and at the end status.
//
// Contract: a trace belongs to a Revision. Its ID, and the IDs of spans that have children, are
// hashes of the Revision's name, so every hub and a restarted hub continue the same trace. The
// exception is a write whose request carries a traceparent: the Revision then keeps the
// traceparent as an annotation. Tracing causes no write. Spans have names of objects, reasons
// and times, and never their content.
//
// All methods are safe for concurrent use. They do nothing and allocate nothing on a nil Tracer.
// Memory is bounded: what a Tracer stores, and the spans that wait for the collector.
package tracing
