package session

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// upsertOverhead is more than what an Upsert has beside its manifest, in bytes.
const upsertOverhead = 1 << 10

// OrderTooLargeError is returned for an order that no agent takes. It is never sent: an agent that cannot read a frame
// ends its session, and would get the frame again in the next one.
type OrderTooLargeError struct {
	// Size of the order and Limit, both in Unit.
	Size, Limit int
	Unit        string
}

// Error states the size and the bound.
func (e *OrderTooLargeError) Error() string {
	return fmt.Sprintf("it has %d %s, and an agent takes at most %d", e.Size, e.Unit, e.Limit)
}

// CheckFrameSize returns an error for a frame of the hub that is larger than an agent reads. The error is a
// *OrderTooLargeError.
func CheckFrameSize(f *pb.FromHub) error {
	if n := proto.Size(f); n > MaxFrameBytes {
		return &OrderTooLargeError{n, MaxFrameBytes, "bytes in one frame"}
	}
	return nil
}

// measureManifest returns why no agent decodes an encoded manifest; nil: agents do.
func measureManifest(text []byte) *OrderTooLargeError {
	if n := countJSONValues(text, manifestDepth); n > maxManifestValues {
		return &OrderTooLargeError{n, maxManifestValues, "values"}
	}
	if n := countJSONValues(text, elementDepth); n > maxManifestElements {
		return &OrderTooLargeError{n, maxManifestElements, "items and other elements"}
	}
	return nil
}
