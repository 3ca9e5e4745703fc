package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/drift"
	"atoll.dev/atoll/internal/phrase"
)

// MaxMessage bounds the messages of items.
const MaxMessage = 256

// Input is what is known of one Bundle.
type Input struct {
	Generation int64
	Content    string
	// Remove: the row is to go. Removed: nothing of it is left.
	Remove, Removed bool
	// Kept is what stays in the member for good reason after the row went.
	Kept string
	// Vacant: the Bundle's namespace stays, with nothing of Atoll's in it.
	Vacant bool
	Items  []Item
	// Gone are the tombstones that are carried out; AllGone: there are no others.
	Gone    []string
	AllGone bool
}

// Item is what is known of one object of the Bundle.
type Item struct {
	Key atoll.ItemKey
	// Extra: not in the content; it waits for removal, or is kept.
	Extra bool
	// Applied: the object has the content.
	Applied bool
	// RenderError of the hub.
	RenderError string
	// Reason and Message of an apply that failed, or of what is waited for.
	Reason  atoll.Reason
	Message string
	// Error: it failed. Otherwise it waits.
	Error bool
	// Observed: the object was seen, and was like this.
	Observed  bool
	Health    atoll.Health
	Why       atoll.Reason
	Text      string
	Reflected json.RawMessage
	Feedback  []atoll.FeedbackValue
	// Completed: it has run to completion, as a rule defines it.
	Completed bool
	// Drift, of an object that is observed.
	Drift *atoll.Drift
}

// isReady reports whether an item is as ordered.
func isReady(st atoll.ItemStatus) bool {
	return !st.Error && (st.Health == atoll.Healthy || st.Health == atoll.Suspended)
}

// IsReady reports whether the object has the content and its entry in a report has no problem.
func (i Item) IsReady() bool { return i.Applied && isReady(toItemStatus(i)) }

// needsReportEntry reports whether an item has something that the counts of a report do not show.
func needsReportEntry(st atoll.ItemStatus) bool {
	return !isReady(st) || st.Reason != "" || len(st.ReflectedStatus) > 0 || st.Drift != nil || len(st.Feedback) > 0 || st.Completed
}

// BuildStatus returns the status at a Unix second. prev is the status before; nil without one.
func BuildStatus(in Input, prev *atoll.RowStatus, now int64) atoll.RowStatus {
	s := atoll.RowStatus{Generation: in.Generation, Content: in.Content, DoneTombstones: keepTombstonesThatFit(in.Gone), Applied: true, NamespaceKept: in.Vacant}
	if in.AllGone && len(s.DoneTombstones) < len(in.Gone) {
		s.DoneTombstones, s.AllTombstonesDone = nil, true
	}
	before := statusByKey(prev)
	worst := itemTally{}
	for _, item := range in.Items {
		st := toItemStatus(item)
		st.Since = healthSince(st, before, prev, now)
		ready := isReady(st)
		if !item.Extra {
			s.Total++
			s.Applied = s.Applied && item.Applied && !st.Error
			if ready {
				s.Ready++
			}
		}
		worst.add(st, ready)
		if st.Drift = drift.WithTimes(st.Drift, before[st.Key].Drift, now); st.Drift != nil {
			s.Drifted++
		}
		if needsReportEntry(st) {
			s.Items = append(s.Items, st)
		}
	}
	s.Items, s.UnlistedNotReady = keepItemsThatFit(s.Items, s.Applied)
	s.State, s.Reason, s.Message = worst.overallState(in)
	s.Since = stateSince(&s, prev, now)
	return s
}

func statusByKey(s *atoll.RowStatus) map[atoll.ItemKey]atoll.ItemStatus {
	out := map[atoll.ItemKey]atoll.ItemStatus{}
	if s != nil {
		for _, it := range s.Items {
			out[it.Key] = it
		}
	}
	return out
}

// stateSince returns since when a status has its state and its reason.
func stateSince(s, prev *atoll.RowStatus, now int64) int64 {
	if prev != nil && prev.State == s.State && prev.Reason == s.Reason {
		return prev.Since
	}
	return now
}

func toItemStatus(item Item) atoll.ItemStatus {
	st := atoll.ItemStatus{Key: item.Key, Health: atoll.Progressing, Reason: atoll.ReasonPending, Message: "not applied yet"}
	if item.Observed {
		st.Health, st.Reason, st.Message, st.ReflectedStatus, st.Drift = item.Health, item.Why, item.Text, item.Reflected, item.Drift
		st.Feedback, st.Completed = item.Feedback, item.Completed
	}
	switch {
	case item.Reason != "":
		st.Reason, st.Message, st.Error = item.Reason, item.Message, item.Error
		if !item.Error && (st.Health == atoll.Healthy || st.Health == "") {
			st.Health = atoll.Progressing
		}
	case item.RenderError != "":
		st.Reason, st.Message, st.Error = atoll.ReasonRenderFailed, item.RenderError, true
	case item.Observed && !item.Applied && !item.Extra:
		st.Health, st.Reason, st.Message = atoll.Progressing, atoll.ReasonPending, "the new content is not applied yet"
	}
	if st.Error && !item.Observed {
		st.Health = atoll.Unknown
	}
	st.Message = phrase.TruncateText(st.Message, MaxMessage)
	return st
}

// healthSince is when the item's health began. Healthy items that are not listed date
// from the last report at the latest, so they need no time.
func healthSince(st atoll.ItemStatus, before map[atoll.ItemKey]atoll.ItemStatus, prev *atoll.RowStatus, now int64) int64 {
	if old, ok := before[st.Key]; ok && old.Health == st.Health && old.Error == st.Error {
		return old.Since
	}
	if prev == nil && st.Health == atoll.Healthy {
		return 0
	}
	return now
}

// itemTally finds what speaks for the whole row.
type itemTally struct {
	failed, degraded, waiting []atoll.ItemStatus
}

func (t *itemTally) add(st atoll.ItemStatus, ready bool) {
	switch {
	case st.Error:
		t.failed = append(t.failed, st)
	case st.Health == atoll.Degraded:
		t.degraded = append(t.degraded, st)
	case !ready:
		t.waiting = append(t.waiting, st)
	}
}

func (t *itemTally) overallState(in Input) (state atoll.RowState, reason atoll.Reason, message string) {
	switch {
	case in.Removed:
		return atoll.RowRemoved, "", in.Kept
	case in.Remove && len(t.failed) > 0:
		return summarizeFirstItem(atoll.RowFailed, t.failed)
	case in.Remove:
		_, _, message = summarizeFirstItem(atoll.RowProgressing, append(t.waiting, t.degraded...))
		return atoll.RowProgressing, atoll.ReasonRemoving, message
	case len(t.failed) > 0:
		return summarizeFirstItem(atoll.RowFailed, t.failed)
	case len(t.degraded) > 0:
		return summarizeFirstItem(atoll.RowDegraded, t.degraded)
	case len(t.waiting) > 0:
		return summarizeFirstItem(atoll.RowProgressing, t.waiting)
	}
	return atoll.RowReady, "", ""
}

// summarizeFirstItem names the first of the items, and how many more there are.
func summarizeFirstItem(state atoll.RowState, items []atoll.ItemStatus) (atoll.RowState, atoll.Reason, string) {
	if len(items) == 0 {
		return state, "", ""
	}
	first := slices.MinFunc(items, func(x, y atoll.ItemStatus) int { return cmp.Compare(x.Key.String(), y.Key.String()) })
	message := fmt.Sprintf("%s %s: %s", first.Key.Kind, first.Key.Name, first.Message)
	if n := len(items) - 1; n > 0 {
		message += fmt.Sprintf(" (and %d more)", n)
	}
	return state, first.Reason, phrase.TruncateText(message, MaxMessage)
}
