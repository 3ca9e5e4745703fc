package placer

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/state"
)

// gateKey names a verdict that waits.
type gateKey struct {
	stage, name, hash, revision string
	since                       int64
}

// readGates returns the stored verdicts of a Bundle, each with the time at which this process first read it. That time
// has a reading of the monotonic clock, so that a clock that is set changes no wait.
func (x *bundleIndex) readGates(b state.Bundle, now time.Time) []rollout.GateRecord {
	if b.Status.Rollout == nil || len(b.Status.Rollout.Gates) == 0 {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	e, seen := x.ensureEntry(b.Ref.UID), map[gateKey]time.Time{}
	out := make([]rollout.GateRecord, 0, len(b.Status.Rollout.Gates))
	for _, g := range b.Status.Rollout.Gates {
		key := gateKey{g.Stage, g.Name, g.Hash, g.Revision, g.Since.Unix()}
		first, known := e.gatesSeen[key]
		if !known {
			first = now
		}
		seen[key] = first
		out = append(out, rollout.GateRecord{GateStatus: g, FirstSeen: first, Watched: now.Sub(first)})
	}
	e.gatesSeen = seen
	return out
}

// writeGates writes what the gates decided in a step. The next step reads it, and begins the stage.
func (r *PlacementReconciler) writeGates(ctx context.Context, b state.Bundle, out rollout.Output) error {
	if !out.GatesChanged || r.SetGates == nil {
		return nil
	}
	err := r.SetGates(ctx, b, out.Gates)
	if err == nil {
		r.enqueueAllRows(b.Ref.UID)
		return nil
	}
	if apierrors.IsConflict(err) { // another writer changed the Bundle
		r.index.requireAllRows(b.Ref.UID)
		r.bundleLoop.EnqueueAfter(b.Ref.UID, 100*time.Millisecond)
		return nil
	}
	return client.IgnoreNotFound(err)
}
