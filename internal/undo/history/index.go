package history

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"atoll.dev/atoll/internal/atoll"
)

// The bounds of what is kept.
const (
	MaxObjectChanges    = 10
	MaxObjectBytes      = 1 << 20
	MaxNamespaceChanges = 2000
	MaxNamespaceBytes   = 4 << 20
	MaxBytes            = 32 << 20

	// changeOverhead is about what a kept change takes beside its content and description.
	changeOverhead = 512
)

// Index holds the kept changes without their contents.
type Index struct {
	byID       map[string]*Change
	namespaces map[string]*namespaceChanges
	byTime     timeQueue
	bytes      int64
}

// namespaceChanges are the changes of one namespace, or of the objects without one.
type namespaceChanges struct {
	objects map[atoll.ItemKey]*objectChanges
	changes int
	bytes   int64
}

// objectChanges are the changes of one object, the oldest first.
type objectChanges struct {
	changes []*Change
	bytes   int64
}

// NewIndex returns an empty index.
func NewIndex() *Index {
	return &Index{byID: map[string]*Change{}, namespaces: map[string]*namespaceChanges{}}
}

// Len counts the kept changes.
func (x *Index) Len() int { return len(x.byID) }

// Bytes returns the bytes of the kept changes.
func (x *Index) Bytes() int64 { return x.bytes }

// Has reports whether a change is kept.
func (x *Index) Has(id string) bool { return x.byID[id] != nil }

// Add adds a change, which must not be changed any more, and returns the changes that it displaces. The
// change itself may be among them. A change that is kept already displaces nothing.
func (x *Index) Add(c *Change) (displaced []*Change) {
	if x.Has(c.ID) {
		return nil
	}
	ns := x.namespaces[c.Object.Namespace]
	if ns == nil {
		ns = &namespaceChanges{objects: map[atoll.ItemKey]*objectChanges{}}
		x.namespaces[c.Object.Namespace] = ns
	}
	own := ns.objects[c.Object]
	if own == nil {
		own = &objectChanges{}
		ns.objects[c.Object] = own
	}
	at, _ := slices.BinarySearchFunc(own.changes, c, compareChanges)
	own.changes = slices.Insert(own.changes, at, c)
	x.byID[c.ID] = c
	x.noteTime(c)
	own.bytes, ns.bytes, x.bytes, ns.changes = own.bytes+c.Bytes, ns.bytes+c.Bytes, x.bytes+c.Bytes, ns.changes+1
	drop := func(c *Change) {
		x.Remove(c.ID)
		displaced = append(displaced, c)
	}
	for len(own.changes) > MaxObjectChanges || own.bytes > MaxObjectBytes {
		drop(own.changes[0])
	}
	for ns.changes > MaxNamespaceChanges || ns.bytes > MaxNamespaceBytes {
		drop(ns.chooseDisplaced(own))
	}
	for x.bytes > MaxBytes {
		drop(x.chooseDisplaced(c.Object))
	}
	return displaced
}

// chooseDisplaced returns the change that goes first when the namespace is full: the oldest one of the object
// that changed, as long as that has a newer one, and then of the largest holder.
func (n *namespaceChanges) chooseDisplaced(own *objectChanges) *Change {
	if len(own.changes) > 1 {
		return own.changes[0]
	}
	return n.largestHolder(own).changes[0]
}

// largestHolder returns the object, other than the given one, with most of what is short. Objects with a
// single change come last, the oldest of them first.
func (n *namespaceChanges) largestHolder(except *objectChanges) *objectChanges {
	weigh := func(o *objectChanges) int64 {
		if n.changes > MaxNamespaceChanges {
			return int64(len(o.changes))
		}
		return o.bytes
	}
	var found *objectChanges
	for _, o := range n.objects {
		if o != except && (found == nil || isDisplacedBefore(o, found, weigh)) {
			found = o
		}
	}
	return cmp.Or(found, except)
}

func isDisplacedBefore(a, b *objectChanges, weigh func(*objectChanges) int64) bool {
	if several := len(a.changes) > 1; several != (len(b.changes) > 1) {
		return several
	}
	if len(a.changes) > 1 && weigh(a) != weigh(b) {
		return weigh(a) > weigh(b)
	}
	return cmp.Or(a.changes[0].At.Compare(b.changes[0].At), cmp.Compare(a.changes[0].ID, b.changes[0].ID)) < 0
}

// chooseDisplaced returns the change that goes first when the index is full. A namespace that holds more than
// an equal share displaces its own changes; another one takes from the namespace that holds most.
func (x *Index) chooseDisplaced(key atoll.ItemKey) *Change {
	own := x.namespaces[key.Namespace]
	if own != nil && own.bytes*int64(len(x.namespaces)) > MaxBytes {
		if o := own.objects[key]; o != nil {
			return own.chooseDisplaced(o)
		}
		return own.largestHolder(nil).changes[0]
	}
	largest := key.Namespace
	for name, ns := range x.namespaces {
		if most := x.namespaces[largest]; most == nil || ns.bytes > most.bytes || ns.bytes == most.bytes && name < largest {
			largest = name
		}
	}
	return x.namespaces[largest].largestHolder(nil).changes[0]
}

// Remove removes a change.
func (x *Index) Remove(id string) {
	c := x.byID[id]
	if c == nil {
		return
	}
	delete(x.byID, id)
	ns := x.namespaces[c.Object.Namespace]
	own := ns.objects[c.Object]
	own.changes = slices.DeleteFunc(own.changes, func(o *Change) bool { return o == c })
	own.bytes, ns.bytes, x.bytes, ns.changes = own.bytes-c.Bytes, ns.bytes-c.Bytes, x.bytes-c.Bytes, ns.changes-1
	if len(own.changes) == 0 {
		delete(ns.objects, c.Object)
	}
	if ns.changes == 0 {
		delete(x.namespaces, c.Object.Namespace)
	}
}

// ListOfObject lists the changes of an object, the oldest first.
func (x *Index) ListOfObject(key atoll.ItemKey) []*Change {
	if ns := x.namespaces[key.Namespace]; ns != nil && ns.objects[key] != nil {
		return slices.Clone(ns.objects[key].changes)
	}
	return nil
}

// ListOfNamespace lists the changes of a namespace, or of the objects without one, the newest first.
func (x *Index) ListOfNamespace(namespace string) (out []*Change) {
	ns := x.namespaces[namespace]
	if ns == nil {
		return nil
	}
	for _, o := range ns.objects {
		out = append(out, o.changes...)
	}
	slices.SortFunc(out, func(a, b *Change) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.ID, b.ID)) })
	return out
}

// ListAll lists all changes, in no order.
func (x *Index) ListAll() []*Change { return slices.Collect(maps.Values(x.byID)) }

// IsExpired reports whether the window of a change is over.
func (c *Change) IsExpired(now time.Time, window time.Duration) bool {
	return !now.Before(c.At.Add(window))
}
