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

// initialTableBytes is the size of the dynamic table that HTTP/2 allows a peer until it has read
// the server's settings, which forbid it.
const initialTableBytes = 4096

// headerBlock is a header block of which more fragments follow.
type headerBlock struct {
	stream    uint32
	endStream bool // the request has no body
	fragments []byte
}

var decoders = sync.Pool{New: func() any { return hpack.NewDecoder(initialTableBytes, nil) }}

// requestHeaders holds the header fields of a request.
type requestHeaders struct {
	method, path, contentType, encoding string
	timeout                             time.Duration
	md                                  metadata.MD
	size, maxFieldBytes                 int
	err                                 error
}

// readHeaderFragment adds a fragment to the header block, and opens the stream once the block is
// complete.
func (c *serverConn) readHeaderFragment(w *frameWriter, piece []byte, whole bool) error {
	b := c.input.block
	if len(b.fragments)+len(piece) > c.server.options.FieldsMost {
		return connError{http2.ErrCodeEnhanceYourCalm, "the header fields are too large"}
	}
	if !whole {
		if len(piece) == 0 {
			return connError{http2.ErrCodeEnhanceYourCalm, "a continuation without header fields"}
		}
		b.fragments = append(b.fragments, piece...)
		return nil
	}
	if len(b.fragments) > 0 {
		piece = append(b.fragments, piece...)
	}
	c.input.block = nil
	r := requestHeaders{maxFieldBytes: c.server.options.FieldsMost}
	if err := c.decodeBlock(piece, r.readField); err != nil {
		return connError{http2.ErrCodeCompression, "the header fields are malformed: " + err.Error()}
	}
	return c.openRequestStream(w, b.stream, b.endStream, &r)
}

// decodeBlock decodes a header block. The connection keeps its decoder only while the decoder's
// dynamic table has entries. A peer adds none once it has read the server's settings.
func (c *serverConn) decodeBlock(piece []byte, emit func(hpack.HeaderField)) error {
	d := c.input.decoder
	if d == nil {
		d = decoders.Get().(*hpack.Decoder)
		d.SetMaxDynamicTableSize(initialTableBytes)
	}
	c.input.decoder = nil
	d.SetMaxStringLength(c.server.options.FieldsMost)
	d.SetEmitFunc(emit)
	_, err := d.Write(piece)
	if err = errors.Join(err, d.Close()); err != nil {
		return err
	}
	d.SetEmitFunc(func(hpack.HeaderField) {})
	if _, err := d.Write(firstTableEntry); errors.Join(err, d.Close()) != nil {
		decoders.Put(d)
	} else {
		c.input.decoder = d
	}
	return nil
}

// firstTableEntry refers to the first entry of the dynamic table. Decoding it fails when the
// table is empty.
var firstTableEntry = []byte{0x80 | 62}

// readField reads one header field.
func (r *requestHeaders) readField(f hpack.HeaderField) {
	if r.size += len(f.Name) + len(f.Value) + 32; r.size > r.maxFieldBytes {
		r.err = status.Error(codes.ResourceExhausted, "too many header fields")
		return
	}
	switch f.Name {
	case ":method":
		r.method = f.Value
	case ":path":
		r.path = f.Value
	case "content-type":
		r.contentType = f.Value
		r.addMetadata(f.Name, f.Value)
	case "grpc-encoding":
		r.encoding = f.Value
	case "grpc-timeout":
		var ok bool
		if r.timeout, ok = parseTimeout(f.Value); !ok {
			r.err = status.Error(codes.Internal, "malformed grpc-timeout: "+f.Value)
		}
	case ":authority", "user-agent":
		r.addMetadata(f.Name, f.Value)
	default:
		r.addOtherField(f)
	}
}

// addOtherField adds a field to the metadata, unless it is reserved by HTTP or gRPC.
func (r *requestHeaders) addOtherField(f hpack.HeaderField) {
	switch {
	case strings.HasPrefix(f.Name, ":"), f.Name == "te", strings.HasPrefix(f.Name, "grpc-") && reservedFields[f.Name]:
		return
	case strings.HasSuffix(f.Name, "-bin"):
		for v := range strings.SplitSeq(f.Value, ",") {
			raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(v, "="))
			if err != nil {
				r.err = status.Error(codes.Internal, "malformed field "+f.Name)
				return
			}
			r.addMetadata(f.Name, string(raw))
		}
	default:
		r.addMetadata(f.Name, f.Value)
	}
}

// reservedFields are gRPC's own fields that handlers do not see.
var reservedFields = map[string]bool{"grpc-message-type": true, "grpc-message": true, "grpc-status": true}

func (r *requestHeaders) addMetadata(name, value string) {
	if r.md == nil {
		r.md = metadata.MD{}
	}
	r.md[name] = append(r.md[name], value)
}

// parseTimeout parses the value of grpc-timeout: at most eight digits and a unit.
func parseTimeout(s string) (time.Duration, bool) {
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
		n = min(n, 1<<21) // the longest time.Duration is about 2.5 million hours
	}
	return max(time.Duration(n)*unit, 1), true
}

// openRequestStream opens the stream of a request, or refuses it.
func (c *serverConn) openRequestStream(w *frameWriter, id uint32, last bool, r *requestHeaders) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id%2 == 0 {
		return connError{http2.ErrCodeProtocol, "the stream has an even number"}
	}
	if id <= c.lastStreamID {
		return c.handleTrailers(id, last)
	}
	c.lastStreamID = id
	if c.err != nil {
		return nil
	}
	if len(c.streams) >= c.server.options.Streams {
		if err := c.flood.spendAllowance(costReset); err != nil {
			return err
		}
		return w.framer.WriteRSTStream(id, http2.ErrCodeRefusedStream)
	}
	m := c.server.methods[r.path]
	err := r.checkGRPC()
	switch {
	case err != nil:
		return c.rejectRequest(w, id, last, r, err)
	case m == nil:
		return c.rejectRequest(w, id, last, r, status.Error(codes.Unimplemented, c.server.unservedText(r.path)))
	}
	c.startStream(newStream(c, id, m, r), last)
	return nil
}

// rejectRequest answers a request with an error, without a handler. The caller holds mu.
func (c *serverConn) rejectRequest(w *frameWriter, id uint32, last bool, r *requestHeaders, reason error) error {
	if err := c.flood.spendAllowance(costReset); err != nil {
		return err
	}
	return errors.Join(w.writeFields(id, true, trailerFields(false, r.httpStatus(), status.Convert(reason), nil)), w.resetUnlessEnded(id, last))
}

// startStream runs the handler of a new stream. An Inline method runs in the connection's goroutine
// when that is idle. The caller holds mu.
func (c *serverConn) startStream(s *serverStream, last bool) {
	s.remoteClosed = last
	c.streams = append(c.streams, s)
	if s.method.inline && c.idle && c.nextStream == nil {
		c.nextStream = s
		c.change.Broadcast()
	} else {
		c.server.running.Go(s.run)
	}
}

// widenWindow enlarges the windows for a call whose method allows it. It does so once half a
// window of data has arrived, and while the server's spare bytes last. The caller holds mu.
func (c *serverConn) widenWindow(w *frameWriter, s *serverStream) error {
	more := int64(s.method.window) - s.window
	if more <= 0 || s.remoteClosed || s.err != nil || s.receivedBytes < s.window/2 || !c.server.reserveSpareWindow(more) {
		return nil
	}
	s.window += more
	s.recvAvailable += more
	err := w.framer.WriteWindowUpdate(s.id, uint32(more))
	if more = int64(s.method.window) - c.recvWindow; more > 0 {
		c.recvWindow += more
		c.recvAvailable += more
		err = errors.Join(err, w.framer.WriteWindowUpdate(0, uint32(more)))
	}
	return err
}

// checkGRPC returns the error of a request that is not valid gRPC.
func (r *requestHeaders) checkGRPC() error {
	switch {
	case r.err != nil:
		return r.err
	case r.method != "POST":
		return status.Error(codes.Internal, "the method is not POST")
	case r.httpStatus() != "200":
		return status.Errorf(codes.InvalidArgument, "invalid gRPC request content-type %q", r.contentType)
	case r.encoding != "" && r.encoding != "identity":
		return status.Errorf(codes.Unimplemented, "grpc: Decompressor is not installed for grpc-encoding %q", r.encoding)
	}
	return nil
}

// httpStatus returns the HTTP status for the request.
func (r *requestHeaders) httpStatus() string {
	rest, ok := strings.CutPrefix(r.contentType, "application/grpc")
	switch {
	case r.method != "POST":
		return "405"
	case !ok || rest != "" && rest[0] != '+' && rest[0] != ';':
		return "415"
	}
	return "200"
}

// handleTrailers handles header fields on a stream that is open already. gRPC requests have no
// trailers, so they can only end the request. The caller holds mu.
func (c *serverConn) handleTrailers(id uint32, last bool) error {
	s := c.findStream(id)
	if s == nil {
		return c.flood.spendAllowance(costSettings) // the peer may not have read yet that the stream is closed
	}
	if !last || s.remoteClosed {
		return connError{http2.ErrCodeProtocol, "header fields within the body of a request"}
	}
	s.remoteClosed = true
	c.change.Broadcast()
	return nil
}
