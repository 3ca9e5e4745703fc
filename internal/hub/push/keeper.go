package push

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/agent"
	"atoll.dev/atoll/internal/agent/crash"
	"atoll.dev/atoll/internal/inventory"
	"atoll.dev/atoll/internal/trust/handshake"
)

// keeper keeps the agent of one Cluster as it is wanted. mu guards what is below it.
type keeper struct {
	s       *Supervisor
	cluster string
	changed chan struct{} // capacity 1: Cluster or Secrets did

	mu     sync.Mutex
	reason string // that the gauge counts it under; empty: none
}

// run until there is nothing to keep, or ctx ends.
func (k *keeper) run(ctx context.Context) {
	defer k.count("")
	told := ""
	for ctx.Err() == nil {
		w, any := k.s.want(k.cluster)
		if told != "" && told != w.uid {
			k.s.o.Pushed(told, nil)
		}
		told = w.uid
		if !any {
			if k.s.leave(k.cluster) {
				return
			}
			continue
		}
		k.tidy(ctx)
		if w.runs {
			k.keep(ctx, w)
		} else {
			k.tell(w.uid, w.instead)
			k.stays(ctx, w)
		}
	}
}

// stays returns false once something else is wanted, or ctx ended.
func (k *keeper) stays(ctx context.Context, w want) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-k.changed:
		}
		if now, any := k.s.want(k.cluster); !any || now != w {
			return false
		}
	}
}

// keep an agent running until something else is wanted, or ctx ends.
func (k *keeper) keep(ctx context.Context, w want) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	over := make(chan struct{})
	go func() {
		defer close(over)
		k.restart(ctx, w)
	}()
	k.stays(ctx, w)
	end()
	<-over
}

// restart the agent, ever less often, until ctx ends.
func (k *keeper) restart(ctx context.Context, w want) {
	log := k.s.o.Log.With("cluster", k.cluster)
	for wait := backoffLeast; ; wait = min(2*wait, backoffMost) {
		if k.s.starts.Wait(ctx) != nil {
			return
		}
		begin := time.Now()
		err := k.agent(ctx, w)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begin) > backoffMost {
			wait = backoffLeast
		}
		log.Error("the agent that the hub runs for a cluster ended; it is started again", "after", wait, "err", err)
		k.tell(w.uid, failed(err))
		timer := time.NewTimer(wait/2 + rand.N(wait/2))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// agent runs it once.
func (k *keeper) agent(ctx context.Context, w want) error {
	member, err := config(w.credentials)
	if err != nil {
		return err
	}
	defer hangUp(member)
	stages := &stages{keeper: k, want: w}
	if due := warnFrom(w.credentials); !due.IsZero() {
		timer := time.AfterFunc(time.Until(due), stages.again)
		defer timer.Stop()
	}
	defer stages.end()
	pins := k.s.o.Pins()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ctx = crash.Contain(ctx, func(p *crash.Panic) { k.crashed(p); stop(p) })
	return k.contained(ctx, agent.Options{
		MemberConfig: member, HubAddress: k.s.o.Hub, CAHash: pins[0], FormerCAHashes: pins[1:],
		Token: k.s.o.Voucher(k.cluster, w.uid), Name: k.cluster, Runner: k.s.o.Runner,
		Whose: func(name, uid string) error { return k.whose(w, name, uid) },
		Log:   slog.New(quiet{k.s.o.Log.With("cluster", k.cluster).Handler()}),
		Stage: func(s agent.Stage) {
			if ctx.Err() == nil {
				stages.take(s)
			}
		},
	})
}

// whose refuses a member that is another Cluster of this hub, for which the agent would answer
// in the name of this one. One that was such a Cluster joins anew.
func (k *keeper) whose(w want, name, uid string) error {
	other, ok := k.s.o.Clusters.Get(name)
	if !ok || string(other.UID) != uid || uid == w.uid {
		return nil
	}
	return fmt.Errorf("the member at %s is cluster %s of this hub, and one member is one cluster: give this one credentials of its own member (%s), or take it out (atoll remove %s)",
		w.credentials.Server, name, joinAgain(k.cluster), k.cluster)
}

// contained runs the agent in a context that contains panics and ends by one. What is left of
// an agent that panicked is not waited for long: it may hold what the rest of it waits for.
// The Lease in the member, which nobody renews for it, keeps it from working.
func (k *keeper) contained(ctx context.Context, o agent.Options) error {
	over := make(chan error, 1)
	go func() {
		var err error
		defer func() { over <- err }()
		defer crash.Recover(ctx)
		err = k.s.o.Run(ctx, o)
	}()
	var err error
	select {
	case err = <-over:
	case <-crash.Came(ctx): // also while it ends by itself
		timer := time.NewTimer(leaveBehind)
		defer timer.Stop()
		select {
		case <-over:
		case <-timer.C:
			k.s.o.Log.Error("what is left of an agent that panicked does not end, and takes memory until the hub is started again; it does nothing to the member", "cluster", k.cluster, "after", leaveBehind)
		}
	}
	if p := crash.Of(ctx); p != nil {
		return p
	}
	return err
}

// crashed is told of a panic in the agent.
func (k *keeper) crashed(p *crash.Panic) {
	k.s.panics.Inc()
	k.s.o.Log.Error("a panic in the agent that the hub runs for a cluster: it ends, and others go on", "cluster", k.cluster, "panic", p.Value, "stack", p.Stack)
	if c, ok := k.s.o.Clusters.Get(k.cluster); ok && k.s.o.Tell != nil {
		k.s.o.Tell(c, "AgentPanicked", failed(p).Message)
	}
}

// stages of an agent, as people are told of them.
type stages struct {
	*keeper
	want want

	mu   sync.Mutex
	last agent.Stage
	told inventory.Pushed // zero: nothing as yet
	over bool
}

// take a stage.
func (s *stages) take(stage agent.Stage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.s.sister(stage.Holder) {
		s.told = inventory.Pushed{}
		s.count(ReasonStandsBy)
		s.s.o.Pushed(s.want.uid, nil)
		return
	}
	s.last = stage
	s.say()
}

// again says what the last stage means now.
func (s *stages) again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told.Reason != "" && !s.over {
		s.say()
	}
}

func (s *stages) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}

// say what the last stage means. What keeps an agent has one text and one beginning, however
// its errors vary. The caller holds the lock.
func (s *stages) say() {
	now := told(s.cluster, s.want.credentials, s.last, time.Now())
	if now.Reason == s.told.Reason {
		return
	}
	s.told = now
	if now.OK {
		s.s.o.Log.Info("the agent that the hub runs for a cluster: "+now.Reason, "cluster", s.cluster, "member", s.want.credentials.Server, "message", now.Message)
	}
	s.tell(s.want.uid, now)
}

// quiet lets what an agent has to say of its daily work be told only where debugging is.
type quiet struct{ slog.Handler }

// Enabled tells whether records of that level are.
func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	if level == slog.LevelInfo {
		level = slog.LevelDebug
	}
	return q.Handler.Enabled(ctx, level)
}

// WithAttrs keeps it quiet.
func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

// WithGroup keeps it quiet.
func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }

// tell how the agent fares.
func (k *keeper) tell(uid string, p inventory.Pushed) {
	k.count(p.Reason)
	k.s.o.Pushed(uid, &p)
}

// count the Cluster under a reason; empty: under none.
func (k *keeper) count(reason string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.reason != "" {
		k.s.gauge.WithLabelValues(k.reason).Dec()
	}
	if k.reason = reason; reason != "" {
		k.s.gauge.WithLabelValues(reason).Inc()
	}
}

// tidy sees to it that the Secret goes with its Cluster, and that older ones are gone.
// What fails is tried again when something changes.
func (k *keeper) tidy(ctx context.Context) {
	c, ok := k.s.o.Clusters.Get(k.cluster)
	if !ok {
		return
	}
	has := k.s.choice(c)
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
