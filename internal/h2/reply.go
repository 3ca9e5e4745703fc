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

// firstFields of every answer.
func firstFields(http string) []hpack.HeaderField {
	return []hpack.HeaderField{{Name: ":status", Value: http}, {Name: "content-type", Value: "application/grpc"}}
}

// lastFields of an answer: its status and what the handler adds. They are the first as
// well where none were sent.
func lastFields(headed bool, http string, st *status.Status, md metadata.MD) []hpack.HeaderField {
	var out []hpack.HeaderField
	if !headed {
		out = firstFields(http)
	}
	out = append(out, hpack.HeaderField{Name: "grpc-status", Value: strconv.Itoa(int(st.Code()))},
		hpack.HeaderField{Name: "grpc-message", Value: percent(st.Message())})
	if p := st.Proto(); len(p.GetDetails()) > 0 {
		if raw, err := proto.Marshal(p); err == nil {
			out = append(out, hpack.HeaderField{Name: "grpc-status-details-bin", Value: base64.RawStdEncoding.EncodeToString(raw)})
		}
	}
	return append(out, userFields(md)...)
}

// userFields are what a handler adds; what is HTTP's or gRPC's is not his to say.
func userFields(md metadata.MD) []hpack.HeaderField {
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

// percent encodes what is not printable ASCII, and the percent sign.
func percent(message string) string {
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

// fields writes header fields of a stream, last or not.
func (w *writer) fields(id uint32, last bool, fields []hpack.HeaderField) error {
	b := encoded(fields)
	first := b.Next(frameMost)
	err := w.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: b.Len() == 0, EndStream: last, BlockFragment: first})
	for b.Len() > 0 {
		next := b.Next(frameMost)
		err = errors.Join(err, w.framer.WriteContinuation(id, b.Len() == 0, next))
	}
	return err
}

// end a stream of which the peer may have more to say, unless it has ended it.
func (w *writer) end(id uint32, ended bool) error {
	if ended {
		return nil
	}
	return w.framer.WriteRSTStream(id, http2.ErrCodeNo)
}
