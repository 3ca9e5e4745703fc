package h2

import (
	"encoding/base64"
	"errors"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// responseHeaderFields returns the fields with which every response begins.
func responseHeaderFields(http string) []hpack.HeaderField {
	return []hpack.HeaderField{{Name: ":status", Value: http}, {Name: "content-type", Value: "application/grpc"}}
}

// trailerFields returns the trailer fields: the status and the handler's trailers. When no header
// fields were sent, they include those of responseHeaderFields.
func trailerFields(headed bool, http string, st *status.Status, md metadata.MD) []hpack.HeaderField {
	var out []hpack.HeaderField
	if !headed {
		out = responseHeaderFields(http)
	}
	out = append(out, hpack.HeaderField{Name: "grpc-status", Value: strconv.Itoa(int(st.Code()))},
		hpack.HeaderField{Name: "grpc-message", Value: percentEncode(st.Message())})
	if p := st.Proto(); len(p.GetDetails()) > 0 {
		if raw, err := proto.Marshal(p); err == nil {
			out = append(out, hpack.HeaderField{Name: "grpc-status-details-bin", Value: base64.RawStdEncoding.EncodeToString(raw)})
		}
	}
	return append(out, customHeaderFields(md)...)
}

// customHeaderFields returns the handler's fields, without those that HTTP and gRPC reserve.
func customHeaderFields(md metadata.MD) []hpack.HeaderField {
	var out []hpack.HeaderField
	for name, values := range md {
		if strings.HasPrefix(name, ":") || strings.HasPrefix(name, "grpc-") || name == "content-type" || name == "te" {
			continue
		}
		for _, v := range values {
			if strings.HasSuffix(name, "-bin") {
				v = base64.RawStdEncoding.EncodeToString([]byte(v))
			}
			out = append(out, hpack.HeaderField{Name: name, Value: v})
		}
	}
	return out
}

// percentEncode encodes the percent sign and all bytes that are not printable ASCII.
func percentEncode(message string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range []byte(strings.ToValidUTF8(message, "�")) {
		if c >= ' ' && c <= '~' && c != '%' {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	return b.String()
}

// writeFields writes a header block for a stream, in as many frames as it needs.
func (w *frameWriter) writeFields(id uint32, last bool, fields []hpack.HeaderField) error {
	b := encodeFields(fields)
	first := b.Next(maxFrameBytes)
	err := w.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: b.Len() == 0, EndStream: last, BlockFragment: first})
	for b.Len() > 0 {
		next := b.Next(maxFrameBytes)
		err = errors.Join(err, w.framer.WriteContinuation(id, b.Len() == 0, next))
	}
	return err
}

// resetUnlessEnded resets a stream that the peer has not ended, so that the peer stops sending.
func (w *frameWriter) resetUnlessEnded(id uint32, ended bool) error {
	if ended {
		return nil
	}
	return w.framer.WriteRSTStream(id, http2.ErrCodeNo)
}
