package link

import (
	"encoding/json"
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// manifestQueue holds manifests that are not stored yet: at most one of each Bundle, and beside it the first
// one, which is being stored. The zero value is empty.
type manifestQueue struct {
	list  []queuedManifest
	of    map[string]int // manifests in list, by Bundle
	bytes int            // of all
}

type queuedManifest struct {
	atoll.Manifest
	bytes int
}

// PutLatest adds a manifest of so many bytes at the end, and removes an earlier one of its Bundle unless that one is the first.
func (q *manifestQueue) PutLatest(m atoll.Manifest, bytes int) {
	if q.of == nil {
		q.of = map[string]int{}
	}
	if n := q.of[m.Bundle]; n > 1 || n == 1 && q.list[0].Bundle != m.Bundle {
		at := 1 + slices.IndexFunc(q.list[1:], func(p queuedManifest) bool { return p.Bundle == m.Bundle })
		q.bytes -= q.list[at].bytes
		q.list = slices.Delete(q.list, at, at+1)
		q.of[m.Bundle]--
	}
	q.list = append(q.list, queuedManifest{m, bytes})
	q.bytes += bytes
	q.of[m.Bundle]++
}

// First returns the manifest that is to be stored next; false where there is none.
func (q *manifestQueue) First() (atoll.Manifest, bool) {
	if len(q.list) == 0 {
		return atoll.Manifest{}, false
	}
	return q.list[0].Manifest, true
}

// RemoveIfFirst removes the first manifest, which is stored, unless the queue was emptied since.
func (q *manifestQueue) RemoveIfFirst(m *atoll.Manifest) {
	if len(q.list) == 0 || q.list[0].Bundle != m.Bundle || q.list[0].Generation != m.Generation || q.list[0].Content != m.Content {
		return
	}
	q.bytes -= q.list[0].bytes
	q.list[0] = queuedManifest{} // the array keeps nothing of it
	q.list = q.list[1:]
	if q.of[m.Bundle]--; q.of[m.Bundle] == 0 {
		delete(q.of, m.Bundle)
	}
}

// Clear empties the queue.
func (q *manifestQueue) Clear() { *q = manifestQueue{} }

// FindPart returns the part of that hash in a manifest of the queue.
func (q *manifestQueue) FindPart(hash string) (json.RawMessage, bool) {
	for i := range q.list {
		if part, ok := q.list[i].FindPart(hash); ok {
			return part, true
		}
	}
	return nil, false
}
