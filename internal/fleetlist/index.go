package fleetlist

import (
	"slices"
	"sort"
)

// Index has the rows of all clusters, by name.
type Index struct{ rows []Row }

// NewIndex returns an Index of the rows, which it takes over.
func NewIndex(rows []Row) *Index {
	slices.SortFunc(rows, compareRows)
	return &Index{rows: rows}
}

// Rows returns all rows by name. They are valid until the Index changes.
func (x *Index) Rows() []Row { return x.rows }

// Len returns the number of clusters.
func (x *Index) Len() int { return len(x.rows) }

// findPlace returns the place of a name, and whether a row is there.
func (x *Index) findPlace(name string) (int, bool) {
	at := sort.Search(len(x.rows), func(i int) bool { return compareNatural(x.rows[i].Name(), name) >= 0 })
	return at, at < len(x.rows) && x.rows[at].Name() == name
}

// Change is the change of one cluster: After is nil for one that is gone.
type Change struct {
	Name          string
	Before, After *Row
}

// Apply puts the rows of changes into the Index, and sets what was there before. A name occurs once. Clusters that come or go cost
// one copy of the rows, however many they are.
func (x *Index) Apply(changes []Change) {
	var added []Row
	gone := map[string]bool{}
	for i := range changes {
		c := &changes[i]
		at, found := x.findPlace(c.Name)
		if found {
			old := x.rows[at]
			c.Before = &old
		}
		switch {
		case found && c.After != nil:
			x.rows[at] = *c.After
		case found:
			gone[c.Name] = true
		case c.After != nil:
			added = append(added, *c.After)
		}
	}
	if len(added)+len(gone) > 0 {
		x.rows = mergeRows(x.rows, added, gone)
	}
}

// mergeRows returns the rows by name, with those that are added, and without those that are gone.
func mergeRows(rows, added []Row, gone map[string]bool) []Row {
	slices.SortFunc(added, compareRows)
	out := make([]Row, 0, len(rows)+len(added)-len(gone))
	for _, r := range rows {
		for len(added) > 0 && compareRows(added[0], r) < 0 {
			out, added = append(out, added[0]), added[1:]
		}
		if !gone[r.Name()] {
			out = append(out, r)
		}
	}
	return append(out, added...)
}

func compareRows(a, b Row) int { return compareNatural(a.Name(), b.Name()) }

// CountAll adds all rows to a Tally. keepOn is called now and then; the result is not complete when it has returned false.
func (x *Index) CountAll(t *Tally, keepOn func() bool) (complete bool) {
	for i := range x.rows {
		if i%passStep == passStep-1 && !keepOn() {
			return false
		}
		t.Change(nil, &x.rows[i])
	}
	return true
}
