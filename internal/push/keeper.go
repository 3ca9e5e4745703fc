package push

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/addressguard"
	"atoll.dev/atoll/internal/agent"
	"atoll.dev/atoll/internal/agent/crash"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/clusterstatus"
	"atoll.dev/atoll/internal/pause"
	"atoll.dev/atoll/internal/trust/handshake"
)

// agentKeeper keeps the agent of one Cluster in its desired state. mu guards what is below it.
type agentKeeper struct {
	s       *AgentSupervisor
	cluster string
	changed chan struct{} // capacity 1: Cluster or Secrets did

	mu     sync.Mutex
	reason atoll.Reason // that the gauge counts it under; empty: none
}

// run works until there is nothing to keep, or ctx ends.
func (k *agentKeeper) run(ctx context.Context) {
	defer k.setReasonMetric("")
	told := ""
	for ctx.Err() == nil {
		w, any := k.s.wantedState(k.cluster)
		if told != "" && told != w.uid {
			k.s.o.Inventory.SetPushAgentState(told, nil)
		}
		told = w.uid
		if !any {
			if k.s.removeKeeperIfUnwanted(k.cluster) {
				return
			}
			continue
		}
		k.ownSecretAndDeleteOutdated(ctx)
		if w.runs {
			k.keepRunning(ctx, w)
		} else {
			k.reportPushCondition(w.uid, w.instead)
			k.waitUntilUnwanted(ctx, w)
		}
	}
}

// waitUntilUnwanted returns false once the desired state changes, or ctx ended.
func (k *agentKeeper) waitUntilUnwanted(ctx context.Context, w wantedAgent) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-k.changed:
		}
		if now, any := k.s.wantedState(k.cluster); !any || now != w {
			return false
		}
	}
}

// keepRunning keeps an agent running until the desired state changes, or ctx ends.
func (k *agentKeeper) keepRunning(ctx context.Context, w wantedAgent) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	over := make(chan struct{})
	go func() {
		defer close(over)
		k.restartWithBackoff(ctx, w)
	}()
	k.waitUntilUnwanted(ctx, w)
	end()
	<-over
}

// restartWithBackoff restarts the agent, ever less often, until ctx ends.
func (k *agentKeeper) restartWithBackoff(ctx context.Context, w wantedAgent) {
	log := k.s.o.Log.With("cluster", k.cluster)
	for wait := backoffLeast; ; wait = min(2*wait, backoffMost) {
		if k.s.starts.Wait(ctx) != nil {
			return
		}
		begin := time.Now()
		err := k.runAgent(ctx, w)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begin) > backoffMost {
			wait = backoffLeast
		}
		log.Error("the agent that the hub runs for a cluster ended; it is started again", "after", wait, "err", err)
		k.reportPushCondition(w.uid, agentFailed(err))
		if !pause.WaitFor(ctx, wait/2+rand.N(wait/2)) {
			return
		}
	}
}

// runAgent runs the agent until it ends.
func (k *agentKeeper) runAgent(ctx context.Context, w wantedAgent) error {
	member, err := memberConfig(w.credentials, addressguard.Guard{Allowed: k.s.o.AllowedNetworks, OwnProxy: http.ProxyFromEnvironment})
	if err != nil {
		return err
	}
	defer closeIdleConnections(member)
	answers := k.s.answers.newLimit()
	defer k.s.answers.dropMember(answers)
	stages := &stageReporter{agentKeeper: k, want: w}
	if due := tokenWarningTime(w.credentials); !due.IsZero() {
		timer := time.AfterFunc(time.Until(due), stages.reportAgain)
		defer timer.Stop()
	}
	defer stages.endReports()
	pins := k.s.o.Credentials.CAPins()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ctx = crash.ContainPanics(ctx, func(p *crash.Panic) { k.handlePanic(p); stop(p) })
	return k.runAgentRecovering(ctx, agent.Options{
		MemberConfig: member, GuardAnswers: answers.guardAnswers, HubAddress: k.s.o.Hub, CAHash: pins[0], FormerCAHashes: pins[1:],
		Token: k.s.o.Credentials.NewVoucher(k.cluster, w.uid), Name: k.cluster, Runner: k.s.o.Runner,
		Whose: func(name, uid string) error { return k.checkMemberIsNotOtherCluster(w, name, uid) },
		Log:   slog.New(infoAsDebugHandler{k.s.o.Log.With("cluster", k.cluster).Handler()}),
		Stage: func(s agent.Stage) {
			if ctx.Err() == nil {
				stages.setStage(s)
			}
		},
	})
}

// checkMemberIsNotOtherCluster refuses a member that is another Cluster of this hub, for which the agent would
// answer in this one's name. One that was such a Cluster joins again.
func (k *agentKeeper) checkMemberIsNotOtherCluster(w wantedAgent, name, uid string) error {
	other, ok := k.s.o.Clusters.Get(name)
	if !ok || string(other.UID) != uid || uid == w.uid {
		return nil
	}
	return fmt.Errorf("the member at %s is cluster %s of this hub, and one member is one cluster: give this one credentials of its own member (%s), or take it out (atoll remove %s)",
		w.credentials.Server, name, rejoinCommandText(k.cluster), k.cluster)
}

// runAgentRecovering runs the agent in a context that contains panics and ends by one. The rest of an
// agent that panicked is awaited for a short time: it may hold what the rest waits for. The Lease
// in the member, which is not renewed for it, keeps it from working.
func (k *agentKeeper) runAgentRecovering(ctx context.Context, o agent.Options) error {
	over := make(chan error, 1)
	go func() {
		var err error
		defer func() { over <- err }()
		defer crash.RecoverContained(ctx)
		err = k.s.o.Run(ctx, o)
	}()
	var err error
	select {
	case err = <-over:
	case <-crash.PanicContained(ctx): // also while it ends by itself
		timer := time.NewTimer(leaveBehind)
		defer timer.Stop()
		select {
		case <-over:
		case <-timer.C:
			k.s.o.Log.Error("what is left of an agent that panicked does not end, and takes memory until the hub is started again; it does nothing to the member", "cluster", k.cluster, "after", leaveBehind)
		}
	}
	if p := crash.ContainedPanic(ctx); p != nil {
		return p
	}
	return err
}

// handlePanic takes a panic of the agent.
func (k *agentKeeper) handlePanic(p *crash.Panic) {
	k.s.panics.Inc()
	k.s.o.Log.Error("a panic in the agent that the hub runs for a cluster: it ends, and others go on", "cluster", k.cluster, "panic", p.Value, "stack", p.Stack)
	if c, ok := k.s.o.Clusters.Get(k.cluster); ok && k.s.o.NotifyAdmin != nil {
		k.s.o.NotifyAdmin(c, atoll.ReasonAgentPanicked, agentFailed(p).Message)
	}
}

// stageReporter reports the stages of an agent, as people see them.
type stageReporter struct {
	*agentKeeper
	want wantedAgent

	mu           sync.Mutex
	last         agent.Stage
	lastReported clusterstatus.Pushed // zero: nothing as yet
	ended        bool
}

// setStage records the agent's stage.
func (s *stageReporter) setStage(stage agent.Stage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.s.isHeldByHubOfFleet(stage.Holder) {
		s.lastReported = clusterstatus.Pushed{}
		s.setReasonMetric(atoll.ReasonStandsBy)
		s.s.o.Inventory.SetPushAgentState(s.want.uid, nil)
		return
	}
	s.last = stage
	s.reportChangedCondition()
}

// reportAgain reports the last stage again.
func (s *stageReporter) reportAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lastReported.Reason != "" && !s.ended {
		s.reportChangedCondition()
	}
}

func (s *stageReporter) endReports() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

// reportChangedCondition reports the meaning of the last stage. A blocker has one text and one start time,
// however its errors vary. The caller holds the lock.
func (s *stageReporter) reportChangedCondition() {
	now := stageCondition(s.cluster, s.want.credentials, s.last, time.Now())
	if now.Reason == s.lastReported.Reason {
		return
	}
	s.lastReported = now
	if now.OK {
		s.s.o.Log.Info(string("the agent that the hub runs for a cluster: "+now.Reason), "cluster", s.cluster, "member", s.want.credentials.Server, "message", now.Message)
	}
	s.reportPushCondition(s.want.uid, now)
}

// infoAsDebugHandler logs the daily work of an agent only at level debug.
type infoAsDebugHandler struct{ slog.Handler }

// Enabled reports whether records of that level are.
func (q infoAsDebugHandler) Enabled(ctx context.Context, level slog.Level) bool {
	if level == slog.LevelInfo {
		level = slog.LevelDebug
	}
	return q.Handler.Enabled(ctx, level)
}

// WithAttrs keeps it quiet.
func (q infoAsDebugHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return infoAsDebugHandler{q.Handler.WithAttrs(attrs)}
}

// WithGroup keeps it quiet.
func (q infoAsDebugHandler) WithGroup(name string) slog.Handler {
	return infoAsDebugHandler{q.Handler.WithGroup(name)}
}

// reportPushCondition reports how the agent fares.
func (k *agentKeeper) reportPushCondition(uid string, p clusterstatus.Pushed) {
	k.setReasonMetric(p.Reason)
	k.s.o.Inventory.SetPushAgentState(uid, &p)
}

// setReasonMetric counts the Cluster under a reason; empty: under none.
func (k *agentKeeper) setReasonMetric(reason atoll.Reason) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.reason != "" {
		k.s.gauge.WithLabelValues(string(k.reason)).Dec()
	}
	if k.reason = reason; reason != "" {
		k.s.gauge.WithLabelValues(string(reason)).Inc()
	}
}

// ownSecretAndDeleteOutdated makes the Secret's life follow its Cluster, and deletes older ones. A failure
// is retried at the next change.
func (k *agentKeeper) ownSecretAndDeleteOutdated(ctx context.Context) {
	c, ok := k.s.o.Clusters.Get(k.cluster)
	if !ok {
		return
	}
	has := k.s.chooseFor(c)
	if has.secret == nil {
		return
	}
	log := k.s.o.Log.With("cluster", k.cluster)
	if has.unowned {
		mine := has.secret.DeepCopy()
		mine.OwnerReferences = append(mine.OwnerReferences, handshake.PushOwner(c.Name, c.UID))
		if _, err := k.s.o.Secrets.Update(ctx, mine, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) && ctx.Err() == nil {
			log.Warn("credentials of a cluster cannot be bound to it; delete them by hand with it", "secret", mine.Name, "err", err)
		}
	}
	for _, old := range has.outdated {
		err := k.s.o.Secrets.Delete(ctx, old.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(old.UID))})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
			log.Warn("outdated credentials of a cluster cannot be deleted", "secret", old.Name, "err", err)
		}
	}
}
