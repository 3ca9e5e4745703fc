package link

import (
	"context"
	"time"

	"atoll.dev/atoll/internal/agent/crash"
	"atoll.dev/atoll/internal/agent/pause"
	"atoll.dev/atoll/internal/agent/store"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// departRetry is the pause before letting go is tried again, where the member's store failed.
const departRetry = time.Second

// leaves begins to let go of the member, once in a session.
func (l *Link) leaves(ctx context.Context, v *visit, clean bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v.leaving != nil {
		return
	}
	done := make(chan struct{})
	v.leaving = done
	go func() {
		defer close(done)
		defer crash.Recover(ctx)
		l.depart(ctx, v, clean)
	}()
}

// depart lets go of all that is held and tells the hub, which then ends the session. The
// key and the certificate stay: by them the hub knows, and tells, that the cluster was
// removed, and the token by which it joined does not let it in again.
func (l *Link) depart(ctx context.Context, v *visit, clean bool) {
	l.o.Log.Info("the hub removes this cluster: letting go of all that it placed here", "hub", l.hub(), "clean", clean)
	// What the hub was told in an earlier session is not known, so that the first word is news.
	told, said := "", false
	waits := func(why string) {
		if said && why == told {
			return
		}
		if told, said = why, true; why != "" {
			l.o.Log.Warn("letting go of everything waits", "for", why)
		}
		v.out.put(&pb.FromAgent{Frame: &pb.FromAgent_Leaving{Leaving: &pb.Leaving{Waits: why, Since: time.Now().Unix()}}})
	}
	behind, err := l.engine.Leave(ctx, clean, waits)
	for err != nil {
		if ctx.Err() != nil {
			return
		}
		waits(err.Error())
		if !pause.For(ctx, departRetry) {
			return
		}
		behind, err = l.engine.Leave(ctx, clean, waits)
	}
	for _, what := range behind {
		l.o.Log.Warn("left behind", "what", what)
	}
	// Whatever token it was started with lets nobody in again who was removed.
	if used := tokenID(l.o.Token); used != "" && used != l.id.TokenID {
		l.id.TokenID = used
		if err := l.o.Store.PutIdentity(ctx, l.id.Identity); err != nil {
			l.o.Log.Warn("the agent may join again when it is started anew", "err", err)
		}
	}
	v.out.put(&pb.FromAgent{Frame: &pb.FromAgent_Left{Left: &pb.Left{Behind: behind}}})
	l.o.Log.Info("nothing that the hub placed here is held any more", "hub", l.hub())
}

// departed ends a session in which the agent was to leave: what it still holds is what the
// next one begins with.
func (l *Link) departed(v *visit) {
	l.mu.Lock()
	leaving := v.leaving
	l.mu.Unlock()
	if leaving == nil {
		return
	}
	<-leaving
	l.anew()
}

// anew begins with what is held, as a process that starts does.
func (l *Link) anew() {
	held := map[string]bool{}
	for _, h := range l.engine.Held() {
		held[h.Bundle] = true
	}
	l.mu.Lock()
	for bundle := range l.memory.Last {
		if !held[bundle] {
			delete(l.memory.Last, bundle)
			delete(l.told, bundle)
		}
	}
	l.pending, l.out = nil, nil
	l.mu.Unlock()
	signal(l.saving)
	l.begin()
}

// leaveFormer lets go of what another hub placed here, now that this one has accepted the
// member: what the two have in common is taken up again as it is.
func (l *Link) leaveFormer(ctx context.Context) error {
	l.o.Log.Info("letting go of what another hub placed here", "cluster", l.id.Former)
	waits := func(why string) {
		if why != "" {
			l.o.Log.Warn("letting go of what another hub placed waits", "for", why)
		}
	}
	if _, err := l.engine.Leave(ctx, false, waits); err != nil {
		return err
	}
	l.mu.Lock()
	l.memory.Gone, l.memory.Tombstones, l.memory.Position = map[string]store.Gone{}, nil, store.Position{Order: l.order + 1}
	l.order++
	l.mu.Unlock()
	l.anew()
	if err := l.save(ctx); err != nil {
		return err
	}
	l.id.Former = ""
	return l.o.Store.PutIdentity(ctx, l.id.Identity)
}
