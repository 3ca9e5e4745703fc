package link

import (
	"context"
	"fmt"
	"time"

	"atoll.dev/atoll/internal/agent/crash"
	"atoll.dev/atoll/internal/agent/report"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/pause"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/wakeup"
)

// departRetry is the pause before letting go is tried again, where the member's store failed.
const departRetry = time.Second

// beginLeavingFleet begins to release the member, once in a session.
func (l *HubLink) beginLeavingFleet(ctx context.Context, v *sessionState, clean bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v.leaving != nil {
		return
	}
	done := make(chan struct{})
	v.leaving = done
	go func() {
		defer close(done)
		defer crash.RecoverContained(ctx)
		l.leaveFleet(ctx, v, clean)
	}()
}

// leaveFleet releases everything in the member and reports that to the hub, which then ends the
// session. The key and the certificate stay: they prove to the hub that the removed cluster is
// this one. The join token does not admit the agent again.
func (l *HubLink) leaveFleet(ctx context.Context, v *sessionState, clean bool) {
	l.o.Log.Info("the hub removes this cluster: letting go of all that it placed here", "hub", l.currentHub(), "clean", clean)
	// The reports of an earlier session are unknown, so the first one is always sent.
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
	behind, err := l.applier.ReleaseAll(ctx, clean, waits)
	for err != nil {
		if ctx.Err() != nil {
			return
		}
		waits(err.Error())
		if !pause.WaitFor(ctx, departRetry) {
			return
		}
		behind, err = l.applier.ReleaseAll(ctx, clean, waits)
	}
	for _, what := range behind {
		l.o.Log.Warn("left behind", "what", what)
	}
	// The token of the start does not admit a removed agent again.
	if used := tokenID(l.o.Token); used != "" && used != l.id.TokenID {
		l.id.TokenID = used
		if err := l.o.Store.PutIdentity(ctx, l.id.Identity); err != nil {
			l.o.Log.Warn("the agent may join again when it is restarted", "err", err)
		}
	}
	v.out.put(&pb.FromAgent{Frame: &pb.FromAgent_Left{Left: &pb.Left{Behind: shortenLeftBehind(behind)}}})
	l.o.Log.Info("nothing that the hub placed here is held any more", "hub", l.currentHub())
}

// shortenLeftBehind returns what the hub takes of a list of objects that stay: the first
// session.MaxLeftBehind texts, the last of which counts the rest.
func shortenLeftBehind(all []string) []string {
	out := make([]string, 0, min(len(all), session.MaxLeftBehind))
	for _, what := range all[:min(len(all), session.MaxLeftBehind)] {
		out = append(out, phrase.TruncateText(what, report.MaxMessage))
	}
	if rest := len(all) - len(out); rest > 0 {
		out[len(out)-1] = fmt.Sprintf("%d more: the agent's log in the member lists all", rest+1)
	}
	return out
}

// finishLeavingSession ends a session in which the agent was to leave: what it still holds is what the
// next one begins with.
func (l *HubLink) finishLeavingSession(v *sessionState) {
	l.mu.Lock()
	leaving := v.leaving
	l.mu.Unlock()
	if leaving == nil {
		return
	}
	<-leaving
	l.restartFromHeldBundles()
}

// restartFromHeldBundles starts from the held Bundles, as a starting process does.
func (l *HubLink) restartFromHeldBundles() {
	held := map[string]bool{}
	for _, h := range l.holdings.ReceivedManifests() {
		held[h.Bundle] = true
	}
	l.mu.Lock()
	for bundle := range l.memory.Last {
		if !held[bundle] {
			delete(l.memory.Last, bundle)
			delete(l.reportedBundles, bundle)
		}
	}
	l.pending.Clear()
	clear(l.declined)
	l.out = nil
	l.mu.Unlock()
	wakeup.WakeReader(l.stored)
	wakeup.WakeReader(l.saving)
	l.newSessionCore()
}

// releaseFormerHubObjects releases what another hub placed here, now that this one has accepted the
// member: what the two have in common is taken up again as it is.
func (l *HubLink) releaseFormerHubObjects(ctx context.Context) error {
	l.o.Log.Info("letting go of what another hub placed here", "cluster", l.id.Former)
	waits := func(why string) {
		if why != "" {
			l.o.Log.Warn("letting go of what another hub placed waits", "for", why)
		}
	}
	if _, err := l.applier.ReleaseAll(ctx, false, waits); err != nil {
		return err
	}
	l.mu.Lock()
	l.memory.Gone, l.memory.Tombstones, l.memory.Position = map[string]store.Gone{}, nil, store.Position{Order: l.order + 1}
	l.order++
	l.mu.Unlock()
	l.restartFromHeldBundles()
	if err := l.saveReports(ctx); err != nil {
		return err
	}
	l.id.Former = ""
	return l.o.Store.PutIdentity(ctx, l.id.Identity)
}
