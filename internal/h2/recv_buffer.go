package h2

import (
	"encoding/binary"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// recvBuffer holds the data of a stream that the handler has not read. It keeps data in its wire
// form, so it is never larger than the window, even for many small messages.
type recvBuffer struct {
	buffer     *[]byte
	readOffset int // start of the unread data
}

// byteSize returns the number of unread bytes.
func (p *recvBuffer) byteSize() int {
	if p.buffer == nil {
		return 0
	}
	return len(*p.buffer) - p.readOffset
}

// add appends received data.
func (p *recvBuffer) add(data []byte) {
	switch {
	case len(data) == 0:
		return
	case p.buffer == nil:
		p.buffer = getBuffer(len(data))
	case p.readOffset > len(*p.buffer)/2:
		*p.buffer = append((*p.buffer)[:0], (*p.buffer)[p.readOffset:]...)
		p.readOffset = 0
	}
	*p.buffer = append(*p.buffer, data...)
}

// firstMessage returns the length of the first message with its prefix, and whether it is
// complete.
func (p *recvBuffer) firstMessage(most int) (length int, whole bool, err error) {
	if p.byteSize() < PrefixBytes {
		return 0, false, nil
	}
	prefix := (*p.buffer)[p.readOffset:]
	size := binary.BigEndian.Uint32(prefix[1:])
	switch {
	case prefix[0] != 0:
		return 0, false, status.Error(codes.Unimplemented, "the message is compressed")
	case uint64(size) > uint64(most):
		return 0, false, status.Errorf(codes.ResourceExhausted, "grpc: received message larger than max (%d vs. %d)", size, most)
	}
	length = PrefixBytes + int(size)
	return length, p.byteSize() >= length, nil
}

// takeMessage removes the first message, which has that length with its prefix, and returns it.
// The caller recycles the buffer.
func (p *recvBuffer) takeMessage(length int) *[]byte {
	if p.readOffset == 0 && length == len(*p.buffer) {
		taken := p.buffer
		p.buffer = nil
		return taken
	}
	taken := getBuffer(length)
	*taken = append(*taken, (*p.buffer)[p.readOffset:p.readOffset+length]...)
	if p.readOffset += length; p.byteSize() == 0 {
		p.dropAll()
	}
	return taken
}

// dropAll discards the data and recycles the buffer.
func (p *recvBuffer) dropAll() {
	if p.buffer != nil {
		recycleBuffer(p.buffer)
	}
	*p = recvBuffer{}
}
