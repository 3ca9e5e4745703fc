package tunnel

import (
	"bytes"
	"io"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"
)

// scriptedStream receives pieces, and then an end.
type scriptedStream struct {
	pieces [][]byte
	end    error
}

func (s *scriptedStream) Send(*wrapperspb.BytesValue) error { return nil }

func (s *scriptedStream) Recv() (*wrapperspb.BytesValue, error) {
	if len(s.pieces) == 0 {
		return nil, s.end
	}
	p := s.pieces[0]
	s.pieces = s.pieces[1:]
	return &wrapperspb.BytesValue{Value: p}, nil
}

// FuzzPieces: a reader gets the bytes of all pieces in order, however the peer cuts them, and then the end
// of the stream.
func FuzzPieces(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), []byte{0, 1, 3, 0}, uint8(2), true)
	f.Add([]byte{}, []byte{0, 0}, uint8(1), false)
	f.Fuzz(func(t *testing.T, data, cuts []byte, step uint8, clean bool) {
		s := &scriptedStream{end: io.EOF}
		if !clean {
			s.end = io.ErrUnexpectedEOF
		}
		rest := data
		for _, n := range cuts {
			n := min(int(n), len(rest))
			s.pieces = append(s.pieces, rest[:n])
			rest = rest[n:]
		}
		s.pieces = append(s.pieces, rest)
		c := New(s, func() {}, "the peer")
		pumped := make(chan error, 1)
		go func() { pumped <- c.PumpMessages() }()
		var got bytes.Buffer
		buffer := make([]byte, max(1, int(step)))
		_, err := io.CopyBuffer(struct{ io.Writer }{&got}, struct{ io.Reader }{c}, buffer)
		if !bytes.Equal(got.Bytes(), data) || (err == nil) != clean {
			t.Errorf("read %q, %v; want %q", got.Bytes(), err, data)
		}
		if err := <-pumped; (err == nil) != clean {
			t.Errorf("the stream ends with %v", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}
