package push

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/agent"
	"atoll.dev/atoll/internal/inventory"
	"atoll.dev/atoll/internal/trust/handshake"
)

// keeper keeps the agent of one Cluster as it is wanted. All but changed is its
// goroutine's own.
type keeper struct {
	s       *Supervisor
	cluster string
	changed chan struct{} // capacity 1: Cluster or Secrets did
	reason  string        // that the gauge counts it under; empty: none
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
		if w.runs() {
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
	var last inventory.Pushed
	pins := k.s.o.Pins()
	return k.s.o.Run(ctx, agent.Options{
		MemberConfig: member, HubAddress: k.s.o.Hub, CAHash: pins[0], FormerCAHashes: pins[1:],
		Token: k.s.o.Voucher(k.cluster, w.uid), Name: k.cluster,
		Log: slog.New(quiet{k.s.o.Log.With("cluster", k.cluster).Handler()}),
		Stage: func(s agent.Stage) {
			// What keeps an agent has one text and one beginning, however its errors vary.
			now := told(k.cluster, w.credentials, s, time.Now())
			if now.Reason == last.Reason {
				return
			}
			last = now
			if now.OK {
				k.s.o.Log.Info("the agent that the hub runs for a cluster: "+now.Reason, "cluster", k.cluster, "member", w.credentials.Server, "message", now.Message)
			}
			k.tell(w.uid, now)
		},
	})
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
