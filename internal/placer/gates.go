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

// Measurements are what the hub measured for gates.
type Measurements interface {
	// TallyOf returns the measurements for a stored verdict.
	TallyOf(uid string, of *v1alpha1.GateStatus) rollout.Tally
}

// gateKey names a verdict that waits.
type gateKey struct {
	stage, name, hash, revision string
	since                       int64
}

func newGateKey(g v1alpha1.GateStatus) gateKey {
	return gateKey{g.Stage, g.Name, g.Hash, g.Revision, g.Since.Unix()}
}

// readGates returns the stored verdicts of a Bundle with their measurements. Each has the time at which this process first read
// it, or wrote it. The time has a reading of the monotonic clock, so that a clock that is set changes no wait.
func (x *bundleIndex) readGates(b state.Bundle, measured Measurements, now time.Time) []rollout.GateRecord {
	if b.Status.Rollout == nil || len(b.Status.Rollout.Gates) == 0 {
		return nil
	}
	gates := b.Status.Rollout.Gates
	seen := x.recordGatesSeen(b.Ref.UID, gates, now)
	out := make([]rollout.GateRecord, 0, len(gates))
	for _, g := range gates {
		first := seen[newGateKey(g)]
		record := rollout.GateRecord{GateStatus: g, FirstSeen: first, Watched: now.Sub(first)}
		if measured != nil {
			record.Tally = measured.TallyOf(b.Ref.UID, &g)
		}
		out = append(out, record)
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
		r.informOfDecidedGates(b, is.Gates)
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

// MeasurementsChanged decides about a Bundle again, since measurements may change the verdict of a gate, or its value.
func (r *PlacementReconciler) MeasurementsChanged(uid string) { r.enqueueAllRows(uid) }

// informOfDecidedGates records an Event for each gate that passes or fails now.
func (r *PlacementReconciler) informOfDecidedGates(b state.Bundle, gates []v1alpha1.GateStatus) {
	if r.Events == nil {
		return
	}
	var was []v1alpha1.GateStatus
	if b.Status.Rollout != nil {
		was = b.Status.Rollout.Gates
	}
	for _, g := range gates {
		if slices.Contains(was, g) {
			continue
		}
		gate, about := "gate "+g.Name+" of stage "+g.Stage, fmt.Sprintf(" for revision %d: %s", atoll.RevisionNumber(g.Revision), g.Value)
		switch g.State {
		case v1alpha1.GatePassed:
			r.Events.Inform(b.Ref, atoll.ReasonGatePassed, gate+" passed"+about)
		case v1alpha1.GateFailed:
			r.Events.Warn(b.Ref, atoll.ReasonGateFailed, gate+" failed"+about)
		}
	}
}
