package session

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"atoll.dev/atoll/internal/atoll"
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

// measureOwnAssessments returns why no frame has room for a manifest with the assessment of each item; nil: one may have.
// Many items share few assessments, so that the encoded manifest could have thousands of times the memory of the decoded
// one.
func measureOwnAssessments(m *atoll.Manifest) *OrderTooLargeError {
	n, sizes := 0, map[*atoll.Assessment]int{}
	for i := range m.Items {
		a := m.Items[i].Assessment
		if a == nil {
			continue
		}
		if _, measured := sizes[a]; !measured {
			sizes[a] = a.CountBytes()
		}
		n += sizes[a]
	}
	if n > MaxFrameBytes {
		return &OrderTooLargeError{n, MaxFrameBytes, "bytes of rules in one frame"}
	}
	return nil
}
