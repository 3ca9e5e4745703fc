package history

import "time"

// Target is the state that an undo goes back to: the object before a change.
type Target struct {
	Change Change `json:"change"`
	// Absent: there was no object.
	Absent bool `json:"absent,omitempty"`
	Content
	// Whole: the object was deleted or created since, so that all fields go back.
	Whole bool `json:"whole,omitempty"`
}

// NewTarget returns the state before the first of some changes; contents are those of the changes, the
// oldest first.
func NewTarget(changes []*Change, contents []*Content) Target {
	t := Target{Change: *changes[0], Absent: changes[0].Operation == Created}
	t.Object, t.ManagedFields = contents[0].Object, contents[0].ManagedFields
	for i, c := range contents {
		if changes[i].Operation != Edited {
			t.Whole = true
			continue
		}
		t.Changed = UnionFields(t.Changed, c.Changed)
	}
	if t.Whole {
		t.Changed = nil
	}
	return t
}

// Revert returns the content that the present object gets by an undo to the target. An object that was made again
// keeps the values that belong to it, such as the address of a Service.
func (t *Target) Revert(present map[string]any) map[string]any {
	fields := t.Changed
	if t.Whole {
		fields = CompareFields(PrepareCreation(ExtractContent(t.Object)), PrepareCreation(ExtractContent(present)))
	}
	return RevertFields(present, t.Object, fields)
}

// FirstAfter returns the index of the first change after a time, of changes with the oldest first; -1: there
// is none.
func FirstAfter(changes []Change, at time.Time) int {
	for i := range changes {
		if changes[i].At.After(at) {
			return i
		}
	}
	return -1
}

// Answer lists kept changes.
type Answer struct {
	Changes []ListedChange `json:"changes"`
	// Window is how long a change can be undone; 0: changes are not kept.
	Window string `json:"window"`
}

// ListedChange is a kept change that the asker may see.
type ListedChange struct {
	Change
	// Until is when the change can no longer be undone.
	Until time.Time `json:"until"`
}
