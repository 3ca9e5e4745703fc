package h2

import (
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// tableMost is what HTTP/2 lets a peer use of a table before it has heard that there is
// none.
const tableMost = 4096

// block of header fields that is being read.
type block struct {
	stream uint32
	last   bool // nothing comes after it
	bytes  []byte
}

var decoders = sync.Pool{New: func() any { return hpack.NewDecoder(tableMost, nil) }}

// request is what the fields of a request say.
type request struct {
	method, path, content, encoding string
	timeout                         time.Duration
	md                              metadata.MD
	size, most                      int
	err                             error
}

// takeFields takes a piece of a block, and the request once it is whole.
func (c *conn) takeFields(w *writer, piece []byte, whole bool) error {
	b := c.in.block
	if len(b.bytes)+len(piece) > c.server.o.FieldsMost {
		return breach{http2.ErrCodeEnhanceYourCalm, "too many header fields"}
	}
	if !whole {
		if len(piece) == 0 {
			return breach{http2.ErrCodeEnhanceYourCalm, "header fields that do not go on"}
		}
		b.bytes = append(b.bytes, piece...)
		return nil
	}
	if len(b.bytes) > 0 {
		piece = append(b.bytes, piece...)
	}
	c.in.block = nil
	r := request{most: c.server.o.FieldsMost}
	if err := c.decode(piece, r.field); err != nil {
		return breach{http2.ErrCodeCompression, "header fields that cannot be read: " + err.Error()}
	}
	return c.open(w, b.stream, b.last, &r)
}

// decode a block. A decoder is kept for the connection only while its table holds
// something, which ends with the peer's hearing of the settings.
func (c *conn) decode(piece []byte, emit func(hpack.HeaderField)) error {
	d := c.in.fields
	if d == nil {
		d = decoders.Get().(*hpack.Decoder)
		d.SetMaxDynamicTableSize(tableMost)
	}
	c.in.fields = nil
	d.SetMaxStringLength(c.server.o.FieldsMost)
	d.SetEmitFunc(emit)
	_, err := d.Write(piece)
	if err = errors.Join(err, d.Close()); err != nil {
		return err
	}
	d.SetEmitFunc(func(hpack.HeaderField) {})
	if _, err := d.Write(firstOfTable); errors.Join(err, d.Close()) != nil {
		decoders.Put(d)
	} else {
		c.in.fields = d
	}
	return nil
}

// firstOfTable refers to the first entry of the dynamic table, which is an error where
// that is empty.
var firstOfTable = []byte{0x80 | 62}

// field takes one field.
func (r *request) field(f hpack.HeaderField) {
	if r.size += len(f.Name) + len(f.Value) + 32; r.size > r.most {
		r.err = status.Error(codes.ResourceExhausted, "too many header fields")
		return
	}
	switch f.Name {
	case ":method":
		r.method = f.Value
	case ":path":
		r.path = f.Value
	case "content-type":
		r.content = f.Value
		r.add(f.Name, f.Value)
	case "grpc-encoding":
		r.encoding = f.Value
	case "grpc-timeout":
		var ok bool
		if r.timeout, ok = timeoutOf(f.Value); !ok {
			r.err = status.Error(codes.Internal, "malformed grpc-timeout: "+f.Value)
		}
	case ":authority", "user-agent":
		r.add(f.Name, f.Value)
	default:
		r.other(f)
	}
}

// other fields are the caller's, unless they are HTTP's or gRPC's.
func (r *request) other(f hpack.HeaderField) {
	switch {
	case strings.HasPrefix(f.Name, ":"), f.Name == "te", strings.HasPrefix(f.Name, "grpc-") && reserved[f.Name]:
		return
	case strings.HasSuffix(f.Name, "-bin"):
		for v := range strings.SplitSeq(f.Value, ",") {
			raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(v, "="))
			if err != nil {
				r.err = status.Error(codes.Internal, "malformed field "+f.Name)
				return
			}
			r.add(f.Name, string(raw))
		}
	default:
		r.add(f.Name, f.Value)
	}
}

// reserved fields of gRPC, which say nothing to handlers.
var reserved = map[string]bool{"grpc-message-type": true, "grpc-message": true, "grpc-status": true}

func (r *request) add(name, value string) {
	if r.md == nil {
		r.md = metadata.MD{}
	}
	r.md[name] = append(r.md[name], value)
}

// timeoutOf a field: at most eight digits, and a unit.
func timeoutOf(s string) (time.Duration, bool) {
	if len(s) < 2 || len(s) > 9 {
		return 0, false
	}
	unit, ok := map[byte]time.Duration{
		'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond,
	}[s[len(s)-1]]
	n, err := strconv.ParseUint(s[:len(s)-1], 10, 32)
	if !ok || err != nil {
		return 0, false
	}
	if unit == time.Hour {
		n = min(n, 1<<21) // above which durations end
	}
	return max(time.Duration(n)*unit, 1), true
}

// open the stream of a request, or refuse it.
func (c *conn) open(w *writer, id uint32, last bool, r *request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id%2 == 0 {
		return breach{http2.ErrCodeProtocol, "a stream of even number"}
	}
	if id <= c.highest {
		return c.trailers(id, last)
	}
	c.highest = id
	if c.err != nil {
		return nil
	}
	if len(c.streams) >= c.server.o.Streams {
		if err := c.patience.spend(costReset); err != nil {
			return err
		}
		return w.framer.WriteRSTStream(id, http2.ErrCodeRefusedStream)
	}
	m := c.server.methods[r.path]
	if err := r.judge(); err != nil || m == nil {
		if err == nil {
			err = status.Error(codes.Unimplemented, c.server.missing(r.path))
		}
		if broke := c.patience.spend(costReset); broke != nil {
			return broke
		}
		return errors.Join(w.fields(id, true, lastFields(false, r.http(), status.Convert(err), nil)), w.end(id, last))
	}
	s := newStream(c, id, m, r)
	s.ended = last
	c.streams = append(c.streams, s)
	if m.inline && c.home && c.next == nil {
		c.next = s
		c.change.Broadcast()
	} else {
		c.server.served.Go(s.run)
	}
	return nil
}

// widen the windows for a call that may have a larger one, once so much has come of it that
// it is of use, and while the server has some to spare. The caller holds mu.
func (c *conn) widen(w *writer, s *stream) error {
	more := int64(s.method.window) - s.window
	if more <= 0 || s.ended || s.err != nil || s.total < s.window/2 || !c.server.spend(more) {
		return nil
	}
	s.window += more
	s.recvLeft += more
	err := w.framer.WriteWindowUpdate(s.id, uint32(more))
	if more = int64(s.method.window) - c.recvWindow; more > 0 {
		c.recvWindow += more
		c.recvLeft += more
		err = errors.Join(err, w.framer.WriteWindowUpdate(0, uint32(more)))
	}
	return err
}

// judge what all requests of gRPC have in common.
func (r *request) judge() error {
	switch {
	case r.err != nil:
		return r.err
	case r.method != "POST":
		return status.Error(codes.Internal, "the method is not POST")
	case r.http() != "200":
		return status.Errorf(codes.InvalidArgument, "invalid gRPC request content-type %q", r.content)
	case r.encoding != "" && r.encoding != "identity":
		return status.Errorf(codes.Unimplemented, "grpc: Decompressor is not installed for grpc-encoding %q", r.encoding)
	}
	return nil
}

// http is the status by which HTTP sees the request.
func (r *request) http() string {
	rest, ok := strings.CutPrefix(r.content, "application/grpc")
	switch {
	case r.method != "POST":
		return "405"
	case !ok || rest != "" && rest[0] != '+' && rest[0] != ';':
		return "415"
	}
	return "200"
}

// trailers of a request, which gRPC has none of, end it. The caller holds mu.
func (c *conn) trailers(id uint32, last bool) error {
	s := c.stream(id)
	if s == nil {
		return c.patience.spend(costSettings) // it may not know yet that the stream is closed
	}
	if !last || s.ended {
		return breach{http2.ErrCodeProtocol, "header fields in the middle of a request"}
	}
	s.ended = true
	c.change.Broadcast()
	return nil
}
