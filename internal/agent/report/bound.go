package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/drift"
	"atoll.dev/atoll/internal/kinds"
)

// The largest size of a row's items, of its tombstones, and of the large statuses of its items, in
// bytes of JSON. Messages go first: they take the first half of the items' part only.
const (
	itemsRoom       = 8 << 10
	goneRoom        = 8 << 10
	largeStatusRoom = 17 << 10 // one status of the largest size that scripts join, with its frame
	feedbackRoom    = 4 << 10  // of itemsRoom
)

// dropExcessFeedback leaves out the feedback of items that does not fit, of the last items by key first. It reports
// so in place of a message that is empty. items are sorted by key.
func dropExcessFeedback(items []atoll.ItemStatus) {
	room := feedbackRoom
	for i := range items {
		it := &items[i]
		if len(it.Feedback) == 0 {
			continue
		}
		if n := encodedSize(atoll.ItemStatus{Feedback: it.Feedback}); n <= room {
			room -= n
			continue
		}
		it.Feedback = nil
		if it.Message == "" {
			it.Message = fmt.Sprintf("the report leaves out its feedback: the values of one application have %d bytes at most", feedbackRoom)
		}
	}
}

// largeStatus is the size, in bytes, above which a status counts in largeStatusRoom.
const largeStatus = 1 << 10

// dropExcessLargeStatuses leaves out large statuses that do not fit, of the least important items first.
// The health of an item stays. items are sorted by importance.
func dropExcessLargeStatuses(items []atoll.ItemStatus) {
	room := largeStatusRoom
	for i := range items {
		it := &items[i]
		n := largeStatusSize(*it)
		if n <= room {
			room -= n
			continue
		}
		it.ReflectedStatus = nil
		if it.Message == "" {
			it.Message = fmt.Sprintf("the report leaves out its status of %d bytes: the large statuses of one application have %d bytes at most", n, largeStatusRoom)
		}
	}
}

// keepTombstonesThatFit returns as many tombstones as there is space for, the first by name, so
// that all clusters report the same ones. The rest is reported when all are carried out, or once
// the hub has dropped these.
func keepTombstonesThatFit(gone []string) []string {
	gone = slices.Sorted(slices.Values(gone))
	room := goneRoom
	for i, id := range gone {
		if room -= len(id) + len(`"",`); room < 0 {
			return gone[:i]
		}
	}
	return gone
}

// The ranks of items: the lower, the more important for readers.
const (
	rankError = iota
	rankDegraded
	rankUnready
	// rankDrifted: healthy, and observed to differ.
	rankDrifted
	// rankReflected: healthy, and only its status shows how it ended.
	rankReflected
	// rankPending: not applied yet, as the row shows already.
	rankPending
	// rankReplicated: healthy, so that it has all the replicas that it is to have.
	rankReplicated
)

// waitReasons are those of items that are not applied yet.
var waitReasons = []atoll.Reason{atoll.ReasonPending, atoll.ReasonWaitsForWave, atoll.ReasonWaitsForHook, atoll.ReasonHeldByPolicy}

func itemReportRank(st atoll.ItemStatus, applied bool) int {
	ready := isReady(st)
	_, _, replicated := kinds.ReplicaCounts(schema.GroupKind{Group: st.Key.Group, Kind: st.Key.Kind}, st.ReflectedStatus)
	switch {
	case st.Error:
		return rankError
	case !ready && slices.Contains(waitReasons, st.Reason) && !applied:
		return rankPending
	case st.Health == atoll.Degraded:
		return rankDegraded
	case !ready:
		return rankUnready
	case st.Drift != nil:
		return rankDrifted
	case replicated:
		return rankReplicated
	}
	return rankReflected
}

// keepItemsThatFit returns as many of the items as fit, by key; important ones stay. unlisted counts the
// others that are not ready.
func keepItemsThatFit(items []atoll.ItemStatus, applied bool) (kept []atoll.ItemStatus, unlisted int32) {
	byKey := func(x, y atoll.ItemStatus) int { return cmp.Compare(x.Key.String(), y.Key.String()) }
	slices.SortFunc(items, byKey)
	dropExcessFeedback(items)
	room, large := itemsRoom, largeStatusRoom
	for _, it := range items {
		room -= encodedSize(it)
		large -= largeStatusSize(it)
	}
	if room >= 0 && large >= 0 {
		return items, 0
	}
	ranks := make(map[atoll.ItemKey]int, len(items))
	for _, it := range items {
		ranks[it.Key] = itemReportRank(it, applied)
	}
	slices.SortFunc(items, func(x, y atoll.ItemStatus) int {
		return cmp.Or(cmp.Compare(ranks[x.Key], ranks[y.Key]), byKey(x, y))
	})
	dropExcessLargeStatuses(items)
	room = itemsRoom
	for _, it := range items {
		if room < itemsRoom/2 {
			it.Message, it.Drift = "", drift.FirstField(it.Drift)
		}
		n := encodedSize(it)
		if room < n {
			room = 0 // nothing of a higher rank before this one
			if !isReady(it) {
				unlisted++
			}
			continue
		}
		room -= n
		kept = append(kept, it)
	}
	slices.SortFunc(kept, byKey)
	return kept, unlisted
}

// largeStatusSize returns the bytes that an item takes of largeStatusRoom.
func largeStatusSize(st atoll.ItemStatus) int {
	if n := len(st.ReflectedStatus); n > largeStatus {
		return n
	}
	return 0
}

// encodedSize returns the bytes that an item takes of itemsRoom.
func encodedSize(st atoll.ItemStatus) int {
	text, err := json.Marshal(st)
	if err != nil {
		return itemsRoom // what cannot be written is not reported
	}
	return len(text) + len(",") - largeStatusSize(st)
}
