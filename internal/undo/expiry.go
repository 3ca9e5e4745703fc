package undo

import (
	"context"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"atoll.dev/atoll/internal/wakeup"
)

// deleteTimeout bounds the deletion of one Secret.
const deleteTimeout = 10 * time.Second

// runExpiry deletes what is no longer kept, when it is due, until ctx ends.
func (k *Keeper) runExpiry(ctx context.Context, hub *hubAccess) {
	hub.tables.Settings.Subscribe(func(string) { wakeup.WakeReader(k.wake) })
	hub.tables.Namespaces.Subscribe(k.noteNamespace)
	k.noteAllNamespaces()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		case <-timer.C:
		}
		k.dropFormerNamespaces(hub)
		k.doomExpired(hub.tables.Settings.UndoWindow())
		k.deleteDoomed(ctx, hub)
		if next, ok := k.nextDue(hub.tables.Settings.UndoWindow()); ok {
			timer.Reset(time.Until(next))
		}
	}
}

// noteNamespace notes that a namespace changed.
func (k *Keeper) noteNamespace(name string) {
	k.mu.Lock()
	holds := len(k.index.ListOfNamespace(name)) > 0
	if holds {
		k.namespaces[name] = true
	}
	k.mu.Unlock()
	if holds {
		wakeup.WakeReader(k.wake)
	}
}

// noteAllNamespaces notes the namespaces of all changes, some of which may have gone while no hub ran.
func (k *Keeper) noteAllNamespaces() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.index.ListAll() {
		k.namespaces[c.Object.Namespace] = true
	}
}

// dropFormerNamespaces dooms the changes of namespaces that are gone, or were made again.
func (k *Keeper) dropFormerNamespaces(hub *hubAccess) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name := range k.namespaces {
		if name == "" {
			continue
		}
		ns, exists := hub.tables.Namespaces.Get(name)
		for _, c := range k.index.ListOfNamespace(name) {
			if !exists || string(ns.UID) != c.NamespaceUID {
				k.doomLocked(c.ID)
			}
		}
	}
	clear(k.namespaces)
}

// doomExpired dooms the changes whose window is over.
func (k *Keeper) doomExpired(window time.Duration) {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	for c := k.index.FindOldest(); c != nil && c.IsExpired(now, window); c = k.index.FindOldest() {
		k.doomLocked(c.ID)
	}
}

// deleteDoomed deletes the Secrets whose deletion is due. One that cannot be deleted is tried again later.
func (k *Keeper) deleteDoomed(ctx context.Context, hub *hubAccess) {
	for _, id := range k.listDue() {
		dctx, cancel := context.WithTimeout(ctx, deleteTimeout)
		err := hub.secrets.DeleteSecret(dctx, id)
		cancel()
		if ctx.Err() != nil {
			return
		}
		k.mu.Lock()
		if err == nil || apierrors.IsNotFound(err) {
			delete(k.doomed, id)
		} else {
			r := k.doomed[id]
			k.doomed[id] = retry{at: time.Now().Add(r.pause), pause: min(2*r.pause, maxPause)}
		}
		k.mu.Unlock()
		if err != nil && !apierrors.IsNotFound(err) {
			k.options.Log.Warn("a former content that is no longer kept could not be deleted; it is tried again", "secret", id, "err", err)
		}
	}
}

func (k *Keeper) listDue() []string {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	due := slices.Sorted(maps.Keys(k.doomed))
	return slices.DeleteFunc(due, func(id string) bool { return k.doomed[id].at.After(now) })
}

// nextDue returns when something expires or is to be deleted next; false: nothing is kept.
func (k *Keeper) nextDue(window time.Duration) (next time.Time, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c := k.index.FindOldest(); c != nil {
		next, ok = c.At.Add(window), true
	}
	for _, r := range k.doomed {
		if !ok || r.at.Before(next) {
			next, ok = r.at, true
		}
	}
	return next, ok
}
