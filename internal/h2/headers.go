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

// requestFields is the block of header fields that opens the call.
func requestFields(o *Options) []byte {
	return encoded([]hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "https"}, {Name: ":path", Value: o.Method},
		{Name: ":authority", Value: o.Authority}, {Name: "content-type", Value: "application/grpc"},
		{Name: "user-agent", Value: "atoll-fleet"}, {Name: "te", Value: "trailers"},
	}).Bytes()
}

// encoded is a block of header fields, without any table.
func encoded(fields []hpack.HeaderField) *bytes.Buffer {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	e.SetMaxDynamicTableSize(0)
	for _, f := range fields {
		_ = e.WriteField(f) // a buffer takes everything
	}
	return &b
}

// headersMost bounds the fields of one answer.
const headersMost = 64 << 10

// headers reads the answer's first fields, or its last, with those that continue
// them.
func (c *Call) headers(r *reader, f *http2.HeadersFrame) (over bool, err error) {
	if f.StreamID != streamID {
		return true, protocolError("fields of a stream that nobody opened")
	}
	over = f.StreamEnded()
	block := bytes.Clone(f.HeaderBlockFragment())
	for ended := f.HeadersEnded(); !ended; {
		if _, err := io.ReadFull(c.conn, c.head[:]); err != nil {
			return true, err
		}
		r.head = c.head[:]
		next, err := r.framer.ReadFrame()
		if err != nil {
			return true, err
		}
		more, ok := next.(*http2.ContinuationFrame)
		if !ok || more.StreamID != streamID || len(block) > headersMost {
			return true, protocolError("fields that do not end")
		}
		block = append(block, more.HeaderBlockFragment()...)
		ended = more.HeadersEnded()
	}
	told := answer{}
	r.fields.SetMaxStringLength(headersMost)
	r.fields.SetEmitFunc(told.field)
	defer r.fields.SetEmitFunc(nil)
	if _, err = r.fields.Write(block); err == nil {
		err = r.fields.Close()
	}
	if err != nil {
		return true, protocolError("fields that cannot be read: " + err.Error())
	}
	return over, told.verdict(over)
}

// answer is what of the fields matters.
type answer struct {
	http, code, message string
}

func (a *answer) field(f hpack.HeaderField) {
	switch f.Name {
	case ":status":
		a.http = f.Value
	case "grpc-status":
		a.code = f.Value
	case "grpc-message":
		a.message = f.Value
	}
}

func (a *answer) verdict(over bool) error {
	switch {
	case a.http != "" && a.http != "200":
		return status.Error(codes.Unavailable, "the peer answers with HTTP status "+a.http)
	case !over:
		return nil
	}
	code, err := strconv.ParseUint(a.code, 10, 32)
	if err != nil {
		return protocolError("no gRPC status")
	}
	message, err := url.PathUnescape(a.message)
	if err != nil {
		message = a.message
	}
	return status.Error(codes.Code(code), message) // nil for OK
}
