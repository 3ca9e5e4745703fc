package h2

import (
	"encoding/binary"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// pile holds what came of a stream and was not read yet, as it came: so it is never
// larger than the window, however small the messages are.
type pile struct {
	buffer *[]byte
	from   int // where what was not read begins
}

// size in bytes.
func (p *pile) size() int {
	if p.buffer == nil {
		return 0
	}
	return len(*p.buffer) - p.from
}

// add what came.
func (p *pile) add(data []byte) {
	switch {
	case len(data) == 0:
		return
	case p.buffer == nil:
		p.buffer = bufferOf(len(data))
	case p.from > len(*p.buffer)/2:
		*p.buffer = append((*p.buffer)[:0], (*p.buffer)[p.from:]...)
		p.from = 0
	}
	*p.buffer = append(*p.buffer, data...)
}

// first tells how long the first message is with its prefix, and whether it is whole.
func (p *pile) first(most int) (length int, whole bool, err error) {
	if p.size() < PrefixBytes {
		return 0, false, nil
	}
	prefix := (*p.buffer)[p.from:]
	size := binary.BigEndian.Uint32(prefix[1:])
	switch {
	case prefix[0] != 0:
		return 0, false, status.Error(codes.Unimplemented, "the message is compressed")
	case uint64(size) > uint64(most):
		return 0, false, status.Errorf(codes.ResourceExhausted, "grpc: received message larger than max (%d vs. %d)", size, most)
	}
	length = PrefixBytes + int(size)
	return length, p.size() >= length, nil
}

// take the first message with its prefix, of that length. It is the caller's, to keep
// for others in the end.
func (p *pile) take(length int) *[]byte {
	if p.from == 0 && length == len(*p.buffer) {
		taken := p.buffer
		p.buffer = nil
		return taken
	}
	taken := bufferOf(length)
	*taken = append(*taken, (*p.buffer)[p.from:p.from+length]...)
	if p.from += length; p.size() == 0 {
		p.drop()
	}
	return taken
}

// drop everything.
func (p *pile) drop() {
	if p.buffer != nil {
		keep(p.buffer)
	}
	*p = pile{}
}
