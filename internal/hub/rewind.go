package hub

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rewind"
	"atoll.dev/atoll/internal/state"
)

// rewinds turns what the gateway finds out about a store that was set back into
// writes, in order and outside of its streams.
type rewinds struct {
	state   *state.State
	serving client.Client // writes also where this hub does not lead
	leads   func() bool
	log     *slog.Logger
	found   chan string
	ahead   chan aheadOf
	moved   chan struct{} // the HubState changed
	told    *recalls
	// fleet is what the hub's agents are told, and asked, when a decision is made.
	fleet fleet
}

// fleet is the gateway, as far as rewinds go.
type fleet interface {
	Reset(reason string)
	HighestGeneration() int64
}

// aheadOf says that a cluster holds a generation above its row's.
type aheadOf struct {
	bundle, cluster string
	generation      int64
}

func newRewinds(s *state.State, serving client.Client, leads func() bool, log *slog.Logger) *rewinds {
	r := &rewinds{
		state: s, serving: serving, leads: leads, log: log,
		found: make(chan string, 1), ahead: make(chan aheadOf, 1024), moved: make(chan struct{}, 1),
		told: newRecalls(),
	}
	s.Hub.Subscribe(func() {
		select {
		case r.moved <- struct{}{}:
		default:
		}
	})
	return r
}

// onRewind is told why the store is known to be set back.
func (r *rewinds) onRewind(reason string) {
	select {
	case r.found <- reason:
	default: // one is on its way already, and one is enough
	}
}

// onAhead is told of a row that must be raised. What does not fit in the queue is
// found again at the agent's next session.
func (r *rewinds) onAhead(bundle, cluster string, generation int64) {
	select {
	case r.ahead <- aheadOf{bundle, cluster, generation}:
	default:
		r.log.Warn("more rows are behind their clusters than can be raised at once; they follow when the agent reconnects", "cluster", cluster)
	}
}

// recalling tells whether members are asked what they remember before anything is
// ordered of them.
func (r *rewinds) recalling() bool { return rewind.Recalling(r.state.Hub.Get(), time.Now()) }

// run writes until ctx ends. Every hub may find that the store was set back; what
// follows when it goes on, and raises, are the leader's.
func (r *rewinds) run(ctx context.Context) error {
	holding := r.holding()
	for {
		select {
		case <-ctx.Done():
			return nil
		case reason := <-r.found:
			hub, err := updateHub(ctx, r.serving, func(old enginev1.HubState) enginev1.HubState {
				return rewind.Hold(old, reason, time.Now())
			})
			if err != nil {
				r.log.Error("the hub holds, but could not write that down; it holds until it is told otherwise or restarts", "err", err)
				continue
			}
			r.state.Hub.Put(hub)
			r.fleet.Reset("the hub was set back to an older state, and holds")
		case <-r.moved:
			now := r.holding()
			switch {
			case now == holding:
			case now && !r.leads():
				r.fleet.Reset("the hub was set back to an older state, and holds")
			case !now && r.leads():
				r.goOn(ctx)
			case !now:
				r.fleet.Reset("the hub goes on after a restore")
			}
			holding = now
		case a := <-r.ahead:
			if err := r.raise(ctx, a); err != nil && ctx.Err() == nil {
				r.log.Warn("a row could not be raised above what its cluster holds; trying again", "cluster", a.cluster, "err", err)
				time.AfterFunc(recallRetry, func() { r.onAhead(a.bundle, a.cluster, a.generation) })
			}
		}
	}
}

func (r *rewinds) holding() bool {
	_, holding := r.state.Hub.Holding()
	return holding
}

// goOn after an administrator decided: generations start above what any agent
// holds, and all sessions begin anew; where the members' word counts, with what they
// remember.
func (r *rewinds) goOn(ctx context.Context) {
	floor := r.fleet.HighestGeneration()
	hub, err := updateHub(ctx, r.state.Client, func(old enginev1.HubState) enginev1.HubState {
		next := *old.DeepCopy()
		next.GenerationFloor = max(next.GenerationFloor, floor)
		return next
	})
	if err != nil {
		r.log.Error("the hub goes on, but could not write from where generations start; rows are raised one by one as agents tell what they hold", "err", err)
	} else {
		r.state.Hub.Put(hub)
	}
	accepted := ""
	if st := r.state.Hub.Get(); st != nil && st.Rewound != nil {
		accepted = st.Rewound.Accepted
	}
	r.log.Info("the hub goes on after its restore", "accepted", accepted, "generationsAbove", floor)
	r.fleet.Reset("the hub goes on after a restore")
}

// raiseTries is how often a row is read again that others write at the same time.
func raiseTries() wait.Backoff {
	return wait.Backoff{Duration: 20 * time.Millisecond, Factor: 2, Steps: 8, Cap: time.Second}
}

// raise the row's generation above what the cluster holds, so that what the hub
// wants counts again.
func (r *rewinds) raise(ctx context.Context, a aheadOf) error {
	moved := func(err error) bool { return errors.Is(err, state.ErrRowsMoved) && ctx.Err() == nil }
	return retry.OnError(raiseTries(), moved, func() error {
		row, ok := r.state.Rows.Get(a.bundle, a.cluster)
		if !ok || row.Spec.Generation > a.generation {
			return nil
		}
		next := row.Spec
		next.Generation = a.generation + 1
		return r.state.Rows.WriteSpecs(ctx, row.Bundle, []state.Row{row}, map[string]*atoll.RowSpec{a.cluster: &next})
	})
}
