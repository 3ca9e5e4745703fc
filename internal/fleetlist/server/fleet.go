package server

import (
	"sync"
	"time"

	"atoll.dev/atoll/internal/fleetlist"
	"atoll.dev/atoll/internal/state"
)

// batchPause is how long changes are gathered before streams are shown them.
const batchPause = 300 * time.Millisecond

// fleet keeps the Index of the clusters up to date. The Index is built for the first request. From then on, a change costs a note
// of its cluster, and an update of one row before the next answer.
type fleet struct {
	subscribed sync.Once
	tables     *state.HubTables

	mu    sync.RWMutex
	index *fleetlist.Index
	// observers are shown each change with mu held.
	observers map[observer]struct{}

	// notes guards what follows. It is held for no longer than a note takes, because the watch of Clusters waits for it.
	notes sync.Mutex
	noted map[string]struct{} // nil before the Index is built
	// isObserved: there are observers. isTimed: a timer will show them what is noted.
	isObserved, isTimed bool
}

// observer is a stream that is shown changes.
type observer interface {
	observeChange(before, after *fleetlist.Row)
}

// noteChange notes that a cluster changed.
func (f *fleet) noteChange(cluster string) {
	f.notes.Lock()
	defer f.notes.Unlock()
	if f.noted == nil {
		return
	}
	f.noted[cluster] = struct{}{}
	if f.isObserved && !f.isTimed {
		f.isTimed = true
		time.AfterFunc(batchPause, f.showChanges)
	}
}

// showChanges shows observers what is noted.
func (f *fleet) showChanges() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.updateIndex()
}

// prepareIndex makes the Index as the tables are now.
func (f *fleet) prepareIndex(t *state.HubTables) {
	f.subscribed.Do(func() {
		f.tables = t
		f.notes.Lock()
		f.noted = map[string]struct{}{}
		f.notes.Unlock()
		t.Clusters.Subscribe(f.noteChange)
		t.Drifted.Subscribe(f.noteChange)
	})
	f.mu.RLock()
	isBuilt := f.index != nil
	f.mu.RUnlock()
	if isBuilt && !f.hasNotes() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.updateIndex()
}

func (f *fleet) hasNotes() bool {
	f.notes.Lock()
	defer f.notes.Unlock()
	return len(f.noted) > 0
}

// takeNotes returns what is noted, and empties the notes.
func (f *fleet) takeNotes() map[string]struct{} {
	f.notes.Lock()
	defer f.notes.Unlock()
	taken := f.noted
	f.noted, f.isTimed = map[string]struct{}{}, false
	return taken
}

// updateIndex puts what is noted into the Index, and shows it to observers. f.mu is held.
func (f *fleet) updateIndex() {
	noted := f.takeNotes()
	if f.index == nil {
		all := f.tables.Clusters.List()
		rows := make([]fleetlist.Row, len(all))
		for i, c := range all {
			rows[i] = fleetlist.NewRow(c, f.tables.Clusters.SetsOfCluster(c.Name))
		}
		f.index = fleetlist.NewIndex(rows)
		return
	}
	changes := make([]fleetlist.Change, 0, len(noted))
	for name := range noted {
		change := fleetlist.Change{Name: name}
		if c, exists := f.tables.Clusters.Get(name); exists {
			row := fleetlist.NewRow(c, f.tables.Clusters.SetsOfCluster(name))
			change.After = &row
		}
		changes = append(changes, change)
	}
	f.index.Apply(changes)
	for _, c := range changes {
		for o := range f.observers {
			o.observeChange(c.Before, c.After)
		}
	}
}

// addObserver shows an observer all further changes. begin sees the Index from which they go on; with an error nothing is added.
func (f *fleet) addObserver(o observer, begin func(*fleetlist.Index) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.setObserved(true)
	f.updateIndex()
	err := begin(f.index)
	if err == nil {
		if f.observers == nil {
			f.observers = map[observer]struct{}{}
		}
		f.observers[o] = struct{}{}
	}
	f.setObserved(len(f.observers) > 0)
	return err
}

func (f *fleet) removeObserver(o observer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.observers, o)
	f.setObserved(len(f.observers) > 0)
}

func (f *fleet) setObserved(isObserved bool) {
	f.notes.Lock()
	defer f.notes.Unlock()
	f.isObserved = isObserved
}
