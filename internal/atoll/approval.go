package atoll

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The bounds of approvals.
const (
	// MaxRowApprovals is the number of approvals of a row that its member has not answered.
	MaxRowApprovals = 64
	// MaxOrderedDrifts is the number of IDs that a DriftOrder names.
	MaxOrderedDrifts = 1000
	// maxApproverName bounds the name of the user that approves, in bytes.
	maxApproverName = 128
	// driftIDLength is the length of a drift's ID, in hexadecimal digits.
	driftIDLength = 16
)

// DriftApproval is a person's order that a member applies an item once, over the drift that the member
// reports under the ID.
type DriftApproval struct {
	// Item is the key of the item, as ItemKey.String gives it.
	Item string `json:"k"`
	// ID of the drift.
	ID string `json:"i"`
	// By is the name of the user, at most 128 bytes.
	By string `json:"b,omitempty"`
	// At is when the hub took the order, in Unix seconds.
	At int64 `json:"t,omitempty"`
}

// ApprovalOrigin is the author and the time of an approval, as previews show it.
type ApprovalOrigin struct {
	// By is the name of the user, and At the time; nil: it is not known.
	By string     `json:"by,omitempty"`
	At *time.Time `json:"at,omitempty"`
}

// ToOrigin returns the author and the time.
func (a DriftApproval) ToOrigin() *ApprovalOrigin {
	out := &ApprovalOrigin{By: a.By}
	if a.At != 0 {
		at := time.Unix(a.At, 0).UTC()
		out.At = &at
	}
	return out
}

// IsDriftID reports whether a text has the form of a drift's ID.
func IsDriftID(text string) bool {
	return len(text) == driftIDLength && strings.Trim(text, "0123456789abcdef") == ""
}

// DriftOrder is a user's order to correct drift, one line of a Bundle's AnnotationCorrectDrift. Later orders come
// before earlier ones that the hub may not have taken yet.
type DriftOrder struct {
	IDs []string
	// By is the name of the user.
	By string
}

// FormatDriftOrders returns the value of AnnotationCorrectDrift. It leaves out what exceeds MaxOrderedDrifts.
func FormatDriftOrders(orders []DriftOrder) string {
	var lines []string
	left := MaxOrderedDrifts
	for _, o := range orders {
		ids := o.IDs[:min(len(o.IDs), left)]
		if left -= len(ids); len(ids) == 0 {
			continue
		}
		lines = append(lines, strings.TrimSuffix(strings.Join(ids, ",")+" "+ApproverName(o.By), " "))
	}
	return strings.Join(lines, "\n")
}

// ApproverName returns the name of a user as a DriftOrder has it: on one line, and cut.
func ApproverName(user string) string {
	return strings.TrimSuffix(cutApproverName(strings.Join(strings.Fields(user), " ")), " ")
}

// cutApproverName returns the first bytes of a user's name.
func cutApproverName(name string) string {
	return strings.ToValidUTF8(name[:min(len(name), maxApproverName)], "")
}

// ParseDriftOrders reads a value of AnnotationCorrectDrift. It fails for an ID without the form of one, and
// for more than MaxOrderedDrifts.
func ParseDriftOrders(value string) ([]DriftOrder, error) {
	if n := strings.Count(value, ",") + strings.Count(value, "\n") + 1; n > 2*MaxOrderedDrifts {
		return nil, fmt.Errorf("about %d IDs of drift, and at most %d are possible", n, MaxOrderedDrifts)
	}
	var out []DriftOrder
	total := 0
	for line := range strings.SplitSeq(value, "\n") {
		ids, by, _ := strings.Cut(line, " ")
		o := DriftOrder{IDs: strings.Split(ids, ","), By: cutApproverName(by)}
		for _, id := range o.IDs {
			if !IsDriftID(id) {
				return nil, fmt.Errorf("%.40q is no ID of drift, which has %d hexadecimal digits: `atoll drift` lists the IDs", id, driftIDLength)
			}
		}
		if total += len(o.IDs); total > MaxOrderedDrifts {
			return nil, fmt.Errorf("%d IDs of drift, and at most %d are possible", total, MaxOrderedDrifts)
		}
		out = append(out, o)
	}
	return out, nil
}

// OpenApprovals returns the approvals that the member has not answered by its status; nil: it never reported.
// An approval is answered when the member reports no drift of the item, or drift under another ID.
func (r RowSpec) OpenApprovals(status *RowStatus) []DriftApproval {
	if len(r.Approvals) == 0 || status == nil || status.Generation < r.Generation {
		return r.Approvals
	}
	return slices.DeleteFunc(slices.Clone(r.Approvals), func(a DriftApproval) bool { return status.hasAnswered(a) })
}

func (s *RowStatus) hasAnswered(a DriftApproval) bool {
	listed := int32(0)
	for i := range s.Items {
		it := &s.Items[i]
		if it.Drift != nil {
			listed++
		}
		if it.Key.String() != a.Item {
			continue
		}
		if it.Drift == nil {
			return !it.Error && it.Reason != ReasonPending
		}
		return it.Drift.ID != a.ID
	}
	// The report lists every drifted item, or the item may be among those without room.
	return s.Applied && s.UnlistedNotReady == 0 && listed == s.Drifted
}
