package state

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/reconcile"
)

// tableQueue is the name by which the panics of tables are counted.
const tableQueue = "tables"

// panicSafeTable passes the events of one kind to its table. An object whose event panics is
// unreadable, and does not end the hub: the table keeps what it had, and other objects go on. The
// event is handled again after a pause, unless a later event of the object comes first.
//
// An object of the first list whose event panics is not in the table. The table then does not count
// as synced, because the absence of an object means nothing before.
type panicSafeTable struct {
	kind      string
	put, drop func(obj any)
	log       *slog.Logger

	mu         sync.Mutex // is held while an event is handled
	unreadable map[types.NamespacedName]*unreadableObject
	unsynced   map[types.NamespacedName]struct{} // objects of the first list that are not in the table
	// unsyncedCount is the length of unsynced, for subscribers that an event calls.
	unsyncedCount atomic.Int64
}

// unreadableObject is an object whose last event panicked.
type unreadableObject struct{ pause time.Duration }

func newPanicSafeTable(kind string, put, drop func(obj any), log *slog.Logger) *panicSafeTable {
	return &panicSafeTable{kind: kind, put: put, drop: drop, log: log, unreadable: map[types.NamespacedName]*unreadableObject{}, unsynced: map[types.NamespacedName]struct{}{}}
}

// wrapEventTable returns the table of a kind with typed objects.
func wrapEventTable(kind string, t eventTable, log *slog.Logger) *panicSafeTable {
	return newPanicSafeTable(kind, func(o any) { t.put(o.(client.Object)) }, func(o any) {
		if obj, ok := o.(client.Object); ok {
			t.removeObject(obj)
		}
	}, log)
}

// eventHandler returns the handler for an informer. No event is handled again after the end of ctx.
func (c *panicSafeTable) eventHandler(ctx context.Context) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(o any, isInitial bool) { c.handleEvent(ctx, c.put, o, isInitial) },
		UpdateFunc: func(_, o any) { c.handleEvent(ctx, c.put, o, false) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			c.handleEvent(ctx, c.drop, o, false)
		},
	}
}

// syncedAfter returns whether the table has every object of the first list. listed reports whether
// each event of the first list was handled.
func (c *panicSafeTable) syncedAfter(listed toolscache.InformerSynced) toolscache.InformerSynced {
	return func() bool { return listed() && c.unsyncedCount.Load() == 0 }
}

// handleEvent handles an event of the informer.
func (c *panicSafeTable) handleEvent(ctx context.Context, handle func(any), o any, isInitial bool) {
	obj, ok := o.(client.Object)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := client.ObjectKeyFromObject(obj)
	if isInitial {
		c.unsynced[key] = struct{}{}
		c.unsyncedCount.Store(int64(len(c.unsynced)))
	}
	u := &unreadableObject{}
	if last := c.unreadable[key]; last != nil {
		u.pause = last.pause // the event that waits is not handled any more
	}
	c.tryEvent(ctx, handle, obj, u)
}

// tryEvent handles an event, and again after a pause when that panics. The caller holds the lock.
func (c *panicSafeTable) tryEvent(ctx context.Context, handle func(any), obj client.Object, u *unreadableObject) {
	key := client.ObjectKeyFromObject(obj)
	p := reconcile.ContainPanicCounted(tableQueue, func() { handle(obj) })
	if p == nil {
		delete(c.unreadable, key)
		delete(c.unsynced, key)
		c.unsyncedCount.Store(int64(len(c.unsynced)))
		return
	}
	p.IsRepeated = u.pause > 0
	u.pause = reconcile.NextPanicPause(u.pause)
	c.unreadable[key] = u
	c.log.Error("an object cannot be read; other objects go on, and this one is tried again", "kind", c.kind, "object", key.String(), "version", obj.GetResourceVersion(), "after", u.pause, "err", p)
	time.AfterFunc(u.pause, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.unreadable[key] == u && ctx.Err() == nil {
			c.tryEvent(ctx, handle, obj, u)
		}
	})
}
