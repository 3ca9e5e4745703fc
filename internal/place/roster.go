package place

import (
	"maps"
	"slices"
	"strings"

	"atoll.dev/atoll/internal/schedule"
)

// roster is all clusters in the order of their names, brought up to date when somebody
// asks: who asks looks at all of them anyway.
type roster struct {
	order []schedule.Cluster // shared with who asked; never changed
	news  map[string]struct{}
	// version counts up with each other order.
	version uint64
}

// changed notes that a cluster came, changed or went.
func (f *roster) changed(name string) {
	if f.news == nil {
		f.news = map[string]struct{}{}
	}
	f.news[name] = struct{}{}
}

// search clusters in the order of their names.
func search(order []schedule.Cluster, name string) (at int, there bool) {
	return slices.BinarySearchFunc(order, name, func(c schedule.Cluster, name string) int { return strings.Compare(c.Name, name) })
}

// all of known, in order; not to be changed.
func (f *roster) all(known map[string]schedule.Cluster) []schedule.Cluster {
	if len(f.news) == 0 {
		return f.order
	}
	next, old := make([]schedule.Cluster, 0, len(known)), f.order
	for _, name := range slices.Sorted(maps.Keys(f.news)) {
		i, has := search(old, name)
		if next, old = append(next, old[:i]...), old[i:]; has {
			old = old[1:]
		}
		if c, ok := known[name]; ok {
			next = append(next, c)
		}
	}
	f.order, f.news = append(next, old...), nil
	f.version++
	return f.order
}
