package report

import (
	"cmp"
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret"
)

// What a row's items, and its tombstones, take at most, in bytes of JSON. Messages
// go first: they take the first half of the items' room only.
const (
	itemsRoom = 8 << 10
	goneRoom  = 8 << 10
)

// someGone are as many tombstones as there is room for, the first by name, so that
// all clusters report the same. The rest is reported when all are carried out, or
// once the hub has dropped these.
func someGone(gone []string) []string {
	gone = slices.Sorted(slices.Values(gone))
	room := goneRoom
	for i, id := range gone {
		if room -= len(id) + len(`"",`); room < 0 {
			return gone[:i]
		}
	}
	return gone
}

// The ranks of items: the lower, the more somebody needs to see them.
const (
	rankError = iota
	rankDegraded
	rankUnready
	// rankReflected: healthy, and only its status tells how it ended.
	rankReflected
	// rankPending: not applied yet, as the row says already.
	rankPending
	// rankReplicated: healthy, so that it has all the replicas that it is to have.
	rankReplicated
)

func rank(st atoll.ItemStatus, applied bool) int {
	ready := st.Health == atoll.Healthy || st.Health == atoll.Suspended
	_, _, replicated := interpret.ReplicaCounts(schema.GroupKind{Group: st.Key.Group, Kind: st.Key.Kind}, st.Reflected)
	switch {
	case st.Error:
		return rankError
	case !ready && st.Reason == reasonPending && !applied:
		return rankPending
	case st.Health == atoll.Degraded:
		return rankDegraded
	case !ready:
		return rankUnready
	case replicated:
		return rankReplicated
	}
	return rankReflected
}

// someItems are as many of the items as there is room for, by key; those that
// somebody needs to see stay. unlisted counts the others that are not ready.
func someItems(items []atoll.ItemStatus, applied bool) (kept []atoll.ItemStatus, unlisted int32) {
	byKey := func(x, y atoll.ItemStatus) int { return cmp.Compare(x.Key.String(), y.Key.String()) }
	room := itemsRoom
	for _, it := range items {
		room -= size(it)
	}
	if room >= 0 {
		slices.SortFunc(items, byKey)
		return items, 0
	}
	ranks := make(map[atoll.ItemKey]int, len(items))
	for _, it := range items {
		ranks[it.Key] = rank(it, applied)
	}
	slices.SortFunc(items, func(x, y atoll.ItemStatus) int {
		return cmp.Or(cmp.Compare(ranks[x.Key], ranks[y.Key]), byKey(x, y))
	})
	room = itemsRoom
	for _, it := range items {
		if room < itemsRoom/2 {
			it.Message = ""
		}
		n := size(it)
		if room < n {
			room = 0 // nothing of a higher rank before this one
			if r := ranks[it.Key]; r < rankReflected || r == rankPending {
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

func size(st atoll.ItemStatus) int {
	text, err := json.Marshal(st)
	if err != nil {
		return itemsRoom // what cannot be written is not reported
	}
	return len(text) + len(",")
}
