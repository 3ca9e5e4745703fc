package atoll

import (
	"bytes"
	"encoding/json"
)

// LargeStatusBytes is the size above which a status that a script joins counts as large.
const LargeStatusBytes = 1 << 10

// joinedPrefix starts a status that is reported with its fields, for a script that joins them.
var joinedPrefix = []byte(`{"s":`)

// HasLargeWholeStatus reports whether the item has a large status that a script joins.
func (s ItemStatus) HasLargeWholeStatus() bool {
	return len(s.ReflectedStatus) > LargeStatusBytes && bytes.HasPrefix(s.ReflectedStatus, joinedPrefix)
}

// leftOutStatus replaces a large status. A script gets the item as one without a status.
type leftOutStatus struct {
	Status *struct{} `json:"s"`
	Late   bool      `json:"late,omitempty"`
	// Hash of the status that is left out.
	Hash string `json:"left"`
}

// HashLargeStatuses returns the status with the hash of each large status in its place, and
// whether there was one. The argument is not changed. A second call changes nothing.
func HashLargeStatuses(s RowStatus) (RowStatus, bool) {
	found := false
	for i, it := range s.Items {
		if !it.HasLargeWholeStatus() {
			continue
		}
		if !found {
			s.Items, found = append([]ItemStatus(nil), s.Items...), true
		}
		left := leftOutStatus{}
		_ = json.Unmarshal(it.ReflectedStatus, &left) // a field that cannot be read counts as absent
		left.Status, left.Hash = nil, HashParts(it.ReflectedStatus)
		b, err := json.Marshal(left)
		if err != nil {
			continue // made of plain values
		}
		s.Items[i].ReflectedStatus = b
	}
	return s, found
}
