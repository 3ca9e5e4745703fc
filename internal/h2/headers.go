package h2

import (
	"bytes"
	"io"
	"net/url"
	"strconv"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// requestFields returns the header block that opens the call.
func requestFields(o *CallOptions) []byte {
	return encodeFields([]hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "https"}, {Name: ":path", Value: o.Method},
		{Name: ":authority", Value: o.Authority}, {Name: "content-type", Value: "application/grpc"},
		{Name: "user-agent", Value: "atoll-fleet"}, {Name: "te", Value: "trailers"},
	}).Bytes()
}

// encodeFields returns a header block that uses no dynamic table.
func encodeFields(fields []hpack.HeaderField) *bytes.Buffer {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	e.SetMaxDynamicTableSize(0)
	for _, f := range fields {
		_ = e.WriteField(f) // writing to a buffer does not fail
	}
	return &b
}

// maxResponseHeaderBytes limits the header fields of a response.
const maxResponseHeaderBytes = 64 << 10

// readHeaders reads the response's header or trailer fields, with the frames that continue them.
// It reports whether the call is over.
func (c *ClientCall) readHeaders(r *frameReader, f *http2.HeadersFrame) (over bool, err error) {
	if f.StreamID != streamID {
		return true, peerViolationError("header fields on an unopened stream")
	}
	over = f.StreamEnded()
	block := bytes.Clone(f.HeaderBlockFragment())
	for ended := f.HeadersEnded(); !ended; {
		if _, err := io.ReadFull(c.conn, c.frameHeader[:]); err != nil {
			return true, err
		}
		r.head = c.frameHeader[:]
		next, err := r.framer.ReadFrame()
		if err != nil {
			return true, err
		}
		more, ok := next.(*http2.ContinuationFrame)
		if !ok || more.StreamID != streamID || len(block) > maxResponseHeaderBytes {
			return true, peerViolationError("header fields that are incomplete or too large")
		}
		block = append(block, more.HeaderBlockFragment()...)
		ended = more.HeadersEnded()
	}
	response := responseFields{}
	r.fields.SetMaxStringLength(maxResponseHeaderBytes)
	r.fields.SetEmitFunc(response.readField)
	defer r.fields.SetEmitFunc(nil)
	if _, err = r.fields.Write(block); err == nil {
		err = r.fields.Close()
	}
	if err != nil {
		return true, peerViolationError("malformed header fields: " + err.Error())
	}
	return over, response.statusError(over)
}

// responseFields holds the fields of a response that matter.
type responseFields struct {
	http, code, message string
}

func (a *responseFields) readField(f hpack.HeaderField) {
	switch f.Name {
	case ":status":
		a.http = f.Value
	case "grpc-status":
		a.code = f.Value
	case "grpc-message":
		a.message = f.Value
	}
}

func (a *responseFields) statusError(over bool) error {
	switch {
	case a.http != "" && a.http != "200":
		return status.Error(codes.Unavailable, "the peer answered with HTTP status "+a.http)
	case !over:
		return nil
	}
	code, err := strconv.ParseUint(a.code, 10, 32)
	if err != nil {
		return peerViolationError("trailers without a gRPC status")
	}
	message, err := url.PathUnescape(a.message)
	if err != nil {
		message = a.message
	}
	return status.Error(codes.Code(code), message) // nil for OK
}
