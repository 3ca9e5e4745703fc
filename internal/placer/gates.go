package placer

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/state"
)

// gateKey names a verdict that waits.
type gateKey struct {
	stage, name, hash, revision string
	since                       int64
}

func newGateKey(g v1alpha1.GateStatus) gateKey {
	return gateKey{g.Stage, g.Name, g.Hash, g.Revision, g.Since.Unix()}
}

// readGates returns the stored verdicts of a Bundle, each with the time at which this process first read it, or wrote it. The
// time has a reading of the monotonic clock, so that a clock that is set changes no wait.
func (x *bundleIndex) readGates(b state.Bundle, now time.Time) []rollout.GateRecord {
	if b.Status.Rollout == nil || len(b.Status.Rollout.Gates) == 0 {
		return nil
	}
	gates := b.Status.Rollout.Gates
	seen := x.recordGatesSeen(b.Ref.UID, gates, now)
	out := make([]rollout.GateRecord, 0, len(gates))
	for _, g := range gates {
		first := seen[newGateKey(g)]
		out = append(out, rollout.GateRecord{GateStatus: g, FirstSeen: first, Watched: now.Sub(first)})
	}
	return out
}

// recordGatesSeen records that this process has seen verdicts, and returns since when it has. It drops others.
func (x *bundleIndex) recordGatesSeen(uid string, gates []v1alpha1.GateStatus, now time.Time) map[gateKey]time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, seen := x.ensureEntry(uid), map[gateKey]time.Time{}
	for _, g := range gates {
		key := newGateKey(g)
		if seen[key] = now; !e.gatesSeen[key].IsZero() {
			seen[key] = e.gatesSeen[key]
		}
	}
	e.gatesSeen = seen
	return seen
}

// writeRollout writes what the gates decided in a step, a rollback, and a cut into stages. The next step reads it, and begins the
// stage, or returns rows.
func (r *PlacementReconciler) writeRollout(ctx context.Context, b state.Bundle, out rollout.Output, now time.Time) error {
	if !out.GatesChanged && !out.RollbackChanged && out.StageCut == nil || r.SetRollout == nil {
		return nil
	}
	is := decideRollout(b.Status.Rollout, out)
	err := r.SetRollout(ctx, b, is)
	if err == nil {
		r.index.recordGatesSeen(b.Ref.UID, is.Gates, now)
		r.informOfPassedGates(b, is.Gates)
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

// decideRollout returns the status of a rollout with what a step decided.
func decideRollout(was *v1alpha1.RolloutStatus, out rollout.Output) (is v1alpha1.RolloutStatus) {
	if was != nil {
		is = *was
	}
	if out.GatesChanged {
		is.Gates = out.Gates
	}
	if out.RollbackChanged {
		is.Rollback = out.Rollback
	}
	if out.StageCut != nil {
		is.StageCut = out.StageCut
	}
	return is
}

// informOfPassedGates records an Event for each gate that passes now.
func (r *PlacementReconciler) informOfPassedGates(b state.Bundle, gates []v1alpha1.GateStatus) {
	if r.Events == nil {
		return
	}
	var was []v1alpha1.GateStatus
	if b.Status.Rollout != nil {
		was = b.Status.Rollout.Gates
	}
	for _, g := range gates {
		if g.State == v1alpha1.GatePassed && !slices.Contains(was, g) {
			r.Events.Inform(b.Ref, atoll.ReasonGatePassed, fmt.Sprintf("gate %s of stage %s passed for revision %d: %s", g.Name, g.Stage, atoll.RevisionNumber(g.Revision), g.Value))
		}
	}
}
