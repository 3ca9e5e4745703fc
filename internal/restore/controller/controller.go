package controller

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
	"atoll.dev/atoll/internal/restore"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/wakeup"
)

// RestoreController turns what the gateway finds out about a store that was set back into
// writes, in order and outside of its streams.
type RestoreController struct {
	state           *state.HubTables
	servingClient   client.Client // writes also where this hub does not lead
	isLeader        func() bool
	log             *slog.Logger
	rewindReasons   chan string
	rowsAhead       chan rowAhead
	hubStateChanged chan struct{} // the HubState changed
	recalls         *recallQueue
	// agents is set before Run.
	agents AgentSessions
}

// AgentSessions is the gateway, as far as rewinds go.
type AgentSessions interface {
	ResetSessions(reason string)
	HighestReportedGeneration() int64
}

// rowAhead is a report that a cluster holds a generation above its row's.
type rowAhead struct {
	bundle, cluster string
	generation      int64
}

// New returns a Controller that follows the HubState from now on. serving writes as the hub;
// leads reports whether this hub is the leader. SetAgents is called before Run.
func New(s *state.HubTables, serving client.Client, leads func() bool, log *slog.Logger) *RestoreController {
	r := &RestoreController{
		state: s, servingClient: serving, isLeader: leads, log: log,
		rewindReasons: make(chan string, 1), rowsAhead: make(chan rowAhead, 1024), hubStateChanged: make(chan struct{}, 1),
		recalls: newRecallQueue(),
	}
	s.Hub.Subscribe(func() {
		wakeup.WakeReader(r.hubStateChanged)
	})
	return r
}

// SetAgents sets the sessions that end when a decision is made. It is called before Run.
func (r *RestoreController) SetAgents(agents AgentSessions) { r.agents = agents }

// OnRewind takes the reason why the store is known to be restored.
func (r *RestoreController) OnRewind(reason string) {
	select {
	case r.rewindReasons <- reason:
	default: // one is on its way already, and one is enough
	}
}

// OnRowAhead takes a row that must be raised. A row that does not fit in the queue is found again
// at the agent's next session.
func (r *RestoreController) OnRowAhead(bundle, cluster string, generation int64) {
	select {
	case r.rowsAhead <- rowAhead{bundle, cluster, generation}:
	default:
		r.log.Warn("more rows are behind their clusters than can be raised at once; they follow when the agent reconnects", "cluster", cluster)
	}
}

// IsRecalling reports whether members must report their recorded removals before anything is
// ordered of them.
func (r *RestoreController) IsRecalling() bool {
	return restore.IsRecalling(r.state.Hub.Get(), time.Now())
}

// handleHoldChange acts on the begin or the end of the hold.
func (r *RestoreController) handleHoldChange(ctx context.Context, holding bool) {
	leads := r.isLeader()
	switch {
	case holding && !leads:
		r.agents.ResetSessions("the hub was set back to an older state, and holds")
	case !holding && leads:
		r.resumeAfterRestore(ctx)
	case !holding:
		r.agents.ResetSessions("the hub goes on after a restore")
	}
}

// Run writes until ctx ends. Every hub may find that the store was set back; what
// follows when it goes on, and raises, are the leader's.
func (r *RestoreController) Run(ctx context.Context) error {
	holding := r.isHolding()
	for {
		select {
		case <-ctx.Done():
			return nil
		case reason := <-r.rewindReasons:
			hub, err := updateHubState(ctx, r.servingClient, func(old enginev1.HubState) enginev1.HubState {
				return restore.HoldHub(old, reason, time.Now())
			})
			if err != nil {
				r.log.Error("the hub holds, but could not record that; it holds until it is ordered otherwise or restarts", "err", err)
				continue
			}
			r.state.Hub.Put(hub)
			r.agents.ResetSessions("the hub was set back to an older state, and holds")
		case <-r.hubStateChanged:
			was := holding
			if holding = r.isHolding(); holding != was {
				r.handleHoldChange(ctx, holding)
			}
		case a := <-r.rowsAhead:
			if err := r.raiseGeneration(ctx, a); err != nil && ctx.Err() == nil {
				r.log.Warn("a row could not be raised above what its cluster holds; trying again", "cluster", a.cluster, "err", err)
				time.AfterFunc(recallRetryDelay, func() { r.OnRowAhead(a.bundle, a.cluster, a.generation) })
			}
		}
	}
}

func (r *RestoreController) isHolding() bool {
	_, holding := r.state.Hub.HoldReason()
	return holding
}

// resumeAfterRestore continues after an administrator's decision: generations start above those of
// all agents, and all sessions start again; with the members' memory where the decision is for the
// members.
func (r *RestoreController) resumeAfterRestore(ctx context.Context) {
	floor := r.agents.HighestReportedGeneration()
	hub, err := updateHubState(ctx, r.state.Client, func(old enginev1.HubState) enginev1.HubState {
		next := *old.DeepCopy()
		next.GenerationFloor = max(next.GenerationFloor, floor)
		return next
	})
	if err != nil {
		r.log.Error("the hub goes on, but could not write from where generations start; rows are raised one by one as agents report what they hold", "err", err)
	} else {
		r.state.Hub.Put(hub)
	}
	accepted := ""
	if st := r.state.Hub.Get(); st != nil && st.Rewound != nil {
		accepted = st.Rewound.Accepted
	}
	r.log.Info("the hub goes on after its restore", "accepted", accepted, "generationsAbove", floor)
	r.agents.ResetSessions("the hub goes on after a restore")
}

// raiseBackoff is how often a row is read again that others write at the same time.
func raiseBackoff() wait.Backoff {
	return wait.Backoff{Duration: 20 * time.Millisecond, Factor: 2, Steps: 8, Cap: time.Second}
}

// raiseGeneration raises the row's generation above what the cluster holds, so that the hub's
// orders count again.
func (r *RestoreController) raiseGeneration(ctx context.Context, a rowAhead) error {
	moved := func(err error) bool { return errors.Is(err, state.ErrRowsMoved) && ctx.Err() == nil }
	return retry.OnError(raiseBackoff(), moved, func() error {
		row, ok := r.state.Rows.Get(a.bundle, a.cluster)
		if !ok || row.Spec.Generation > a.generation {
			return nil
		}
		next := row.Spec
		next.Generation = a.generation + 1
		return r.state.Rows.WriteSpecs(ctx, row.Bundle, []state.Row{row}, map[string]*atoll.RowSpec{a.cluster: &next})
	})
}
