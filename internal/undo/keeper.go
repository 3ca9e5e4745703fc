package undo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/cache"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/metrictable"
	"atoll.dev/atoll/internal/undo/history"
	"atoll.dev/atoll/internal/wakeup"
)

// AdmissionName is the name of the admission plugin.
const AdmissionName = "AtollUndo"

// Options of a Keeper.
type Options struct {
	// Own reports whether a user is the hub itself, whose writes are no edits.
	Own func(user.Info) bool
	// MayGet reports whether a user may get an object, or, without a name, all of its kind in the namespace.
	MayGet func(context.Context, user.Info, atoll.ItemKey) bool
	// ReserveMemory counts the bytes that a user's request is about to take, until release is called.
	ReserveMemory func(user, what string, n int64) (release func(), err error)
	Metrics       prometheus.Registerer
	Log           *slog.Logger
}

// Tables of the hub that a Keeper reads.
type Tables struct {
	Settings   Settings
	Namespaces Namespaces
	Templates  Templates
}

// Settings of the hub.
type Settings interface {
	// UndoWindow returns how long changes are kept; 0: they are not.
	UndoWindow() time.Duration
	Subscribe(fn func(name string))
}

// Namespaces of the hub.
type Namespaces interface {
	Get(name string) (*corev1.Namespace, bool)
	Subscribe(fn func(name string))
}

// Templates of the hub.
type Templates interface {
	Get(key atoll.ItemKey) (*unstructured.Unstructured, bool)
}

// hubAccess is what a Keeper reads and writes of the hub, once that is there.
type hubAccess struct {
	tables  Tables
	secrets secretStore
	api     objectReader
}

// Keeper keeps changes. Make it with New.
type Keeper struct {
	options Options
	hub     atomic.Pointer[hubAccess]
	wake    chan struct{}
	notKept prometheus.Counter

	mu    sync.Mutex
	index *history.Index
	// loaded: the index has the first list.
	loaded bool
	// doomed changes are no longer kept, and their Secrets are not deleted yet.
	doomed map[string]retry
	// namespaces that changed and are not looked at yet.
	namespaces map[string]bool
}

var _ admission.ValidationInterface = &Keeper{}

// retry is a deletion that is due at a time.
type retry struct {
	at    time.Time
	pause time.Duration
}

const (
	firstPause = time.Second
	maxPause   = time.Minute
)

// New returns a Keeper that keeps nothing before it is attached to the hub.
func New(o Options) *Keeper {
	k := &Keeper{
		options: o, wake: make(chan struct{}, 1), index: history.NewIndex(), doomed: map[string]retry{}, namespaces: map[string]bool{},
		notKept: metrictable.UndoNotKept.NewCounter(),
	}
	if o.Metrics != nil {
		o.Metrics.MustRegister(k.notKept,
			metrictable.UndoChanges.NewGaugeFunc(func() float64 { return float64(readIndex(k, (*history.Index).Len)) }),
			metrictable.UndoBytes.NewGaugeFunc(func() float64 { return float64(readIndex(k, (*history.Index).Bytes)) }))
	}
	return k
}

func readIndex[T any](k *Keeper, read func(*history.Index) T) T {
	k.mu.Lock()
	defer k.mu.Unlock()
	return read(k.index)
}

func (k *Keeper) currentHub() *hubAccess { return k.hub.Load() }

// readWindow returns how long changes are kept; 0: they are not, or the hub is not there.
func (k *Keeper) readWindow() time.Duration {
	if hub := k.currentHub(); hub != nil {
		return hub.tables.Settings.UndoWindow()
	}
	return 0
}

// namespaceUID returns the UID of a namespace; empty: there is none, or it is unknown.
func (k *Keeper) namespaceUID(name string) string {
	if hub := k.currentHub(); hub != nil && name != "" {
		if ns, ok := hub.tables.Namespaces.Get(name); ok {
			return string(ns.UID)
		}
	}
	return ""
}

// lastChange returns the newest kept change of an object; nil: there is none.
func (k *Keeper) lastChange(key atoll.ItemKey) *history.Change {
	k.mu.Lock()
	defer k.mu.Unlock()
	if all := k.index.ListOfObject(key); len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// CountDropped counts the kept changes that another window would drop.
func (k *Keeper) CountDropped(window time.Duration) (n int) {
	now := time.Now()
	for _, c := range readIndex(k, (*history.Index).ListAll) {
		if c.IsExpired(now, window) {
			n++
		}
	}
	return n
}

// FindLatest returns the latest kept change of an object that is there now, and until when it can be taken back.
func (k *Keeper) FindLatest(key atoll.ItemKey) (c history.Change, until time.Time, ok bool) {
	last, window := k.lastChange(key), k.readWindow()
	if last == nil || last.IsExpired(time.Now(), window) || last.NamespaceUID != k.namespaceUID(key.Namespace) {
		return c, until, false
	}
	return *last, last.At.Add(window), true
}

// keepWriters is how many changes of one request are written at a time.
const keepWriters = 8

// keepCaptures keeps what a request has changed.
func (k *Keeper) keepCaptures(ctx context.Context, all []*capture) {
	var (
		writing sync.WaitGroup
		failed  notKept
		slots   = make(chan struct{}, keepWriters)
	)
	for _, c := range all {
		slots <- struct{}{}
		writing.Go(func() {
			defer func() { <-slots }()
			if err := k.keepCapture(ctx, c); err != nil {
				failed.addFailure(c.change.Object, err)
			}
		})
	}
	writing.Wait()
	if failed.count > 0 {
		k.noteNotKept(failed.object, failed.count, failed.err)
	}
}

// notKept are the changes of one request that could not be kept, with the first object and its error.
type notKept struct {
	mu     sync.Mutex
	count  int
	object atoll.ItemKey
	err    error
}

func (n *notKept) addFailure(object atoll.ItemKey, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.count++; n.count == 1 {
		n.object, n.err = object, err
	}
}

// noteNotKept counts and logs changes of one request that cannot be undone.
func (k *Keeper) noteNotKept(first atoll.ItemKey, count int, err error) {
	k.notKept.Add(float64(count))
	k.options.Log.Warn("changes cannot be undone, because their former content is not kept", "object", first.String(), "changes", count, "err", err)
}

func (k *Keeper) keepCapture(ctx context.Context, c *capture) error {
	hub := k.currentHub()
	if hub == nil {
		return errors.New("the hub is starting")
	}
	if c.change.Object.Namespace != "" && c.change.NamespaceUID == "" {
		uid, err := hub.api.GetNamespaceUID(ctx, c.change.Object.Namespace)
		if err != nil {
			return fmt.Errorf("read the namespace: %w", err)
		}
		c.change.NamespaceUID = uid
	}
	c.change.ID = idOf(c)
	secret, change, err := encodeSecret(c)
	if err != nil {
		return err
	}
	if !k.addChange(change) {
		return history.ErrTooLarge
	}
	if err := hub.secrets.CreateSecret(ctx, secret); err != nil {
		k.mu.Lock()
		k.index.Remove(change.ID)
		k.mu.Unlock()
		return err
	}
	return nil
}

// addChange adds a change to the index, and dooms what it displaces. It reports whether the change itself stays.
func (k *Keeper) addChange(c *history.Change) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, going := k.doomed[c.ID]; going {
		return false
	}
	for _, d := range k.index.Add(c) {
		k.doomLocked(d.ID)
	}
	wakeup.WakeReader(k.wake)
	return k.index.Has(c.ID)
}

// doomLocked takes a change out of the index and has its Secret deleted.
func (k *Keeper) doomLocked(id string) {
	k.index.Remove(id)
	if _, going := k.doomed[id]; !going {
		k.doomed[id] = retry{at: time.Now(), pause: firstPause}
	}
}

// removeChange notes that a Secret is gone.
func (k *Keeper) removeChange(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.index.Remove(id)
	delete(k.doomed, id)
}

// isLoaded reports whether the index has all that is kept.
func (k *Keeper) isLoaded() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.loaded
}

// secretStore writes and reads the Secrets of changes.
type secretStore interface {
	CreateSecret(ctx context.Context, s *corev1.Secret) error
	GetSecret(ctx context.Context, name string) (*corev1.Secret, error)
	DeleteSecret(ctx context.Context, name string) error
	// WatchSecrets returns the source of all of them.
	WatchSecrets() cache.ListerWatcher
}

// objectReader reads of the API as it is now.
type objectReader interface {
	// GetNamespaceUID returns the UID of a namespace.
	GetNamespaceUID(ctx context.Context, name string) (string, error)
	// IsDeleted reports whether the object of a path is gone, or goes.
	IsDeleted(ctx context.Context, path, name, uid string) bool
}
