package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"atoll.dev/atoll/internal/agent/crash"
	"atoll.dev/atoll/internal/agent/inventory"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/pause"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/wakeup"
)

// runSession dials and serves one session. It always ends with an error, errCheckedIn
// when it has come to its end.
func (l *HubLink) runSession(ctx context.Context) error {
	config, err := l.sessionTLS()
	if err != nil {
		return err
	}
	conn, err := l.dialHub(config)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, end := context.WithCancelCause(ctx)
	cancel := func() { end(nil) }
	defer cancel()
	stream, err := pb.NewSessionClient(conn).Connect(ctx)
	if err != nil {
		return fmt.Errorf("open a session with the hub at %s: %w", l.currentHub(), err)
	}
	out := newOutbox(l.budget.Unsent, func(why error) { end(why) })
	v := &sessionState{out: out, activity: make(chan struct{}, 1), tunnels: tunnels{client: pb.NewTunnelClient(conn), take: l.o.Tunnel, log: l.o.Log, most: l.budget.Tunnels}}
	l.mu.Lock()
	out.put(l.core.BeginSession())
	l.out, l.rhythm.turned, l.postponed = out, false, false
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.out = nil
		l.mu.Unlock()
		l.o.Metrics.setConnected(false)
	}()
	var sending sync.WaitGroup
	defer sending.Wait()
	defer v.tunnels.running.Wait()
	defer l.finishLeavingSession(v)
	defer cancel()
	sending.Go(func() { defer crash.RecoverContained(ctx); l.sendFrames(ctx, stream, v) })
	sending.Go(func() { defer crash.RecoverContained(ctx); l.renewCertificateLoop(ctx, out) })
	sending.Go(func() {
		defer crash.RecoverContained(ctx)
		if l.endSessionWhenOver(ctx, v) {
			cancel()
		}
	})
	err = l.receiveFrames(ctx, stream, v)
	if cause := context.Cause(ctx); errors.Is(cause, errUnsent) || errors.Is(cause, errOrdersFit) {
		err = fmt.Errorf("session with the hub at %s: %w", l.currentHub(), cause)
	}
	l.currentRoute().switchRouteOnForeignHTTP(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	if v.ended {
		return errCheckedIn
	}
	return err
}

// sendFrames sends what is in the outbox until the session ends.
func (l *HubLink) sendFrames(ctx context.Context, stream pb.Session_ConnectClient, v *sessionState) {
	for {
		frames, closed := v.out.takeFrames()
		for _, f := range frames {
			if stream.Send(f) != nil {
				return // receive reports why
			}
			l.o.Metrics.countFrame("up", f.GetFrame())
			v.out.recordActivity(f)
		}
		if closed {
			_ = stream.CloseSend() // receive reports the result
			return
		}
		wakeup.WakeReader(v.activity)
		select {
		case <-ctx.Done():
			return
		case <-v.out.wake:
		}
	}
}

// receiveFrames receives frames until the session ends.
func (l *HubLink) receiveFrames(ctx context.Context, stream pb.Session_ConnectClient, v *sessionState) error {
	for {
		l.waitForQueueSpace(ctx)
		f, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return errors.New("the hub closed the session")
		}
		if err != nil {
			return fmt.Errorf("session with the hub at %s: %w", l.currentHub(), err)
		}
		if err := session.CheckLimits(f); err != nil {
			return fmt.Errorf("the hub at %s sent a message over its bounds, which ends the session: %w", l.currentHub(), err)
		}
		l.o.Metrics.countFrame("down", f.GetFrame())
		v.out.recordActivity(nil)
		l.mu.Lock()
		if u := f.GetUpsert(); u != nil {
			l.timings.beginTiming(u, time.Now())
		}
		result := l.core.HandleFrame(f)
		if w := result.Welcome; w != nil {
			l.sendInventory(v.out, false)
			l.setCheckInInterval(v, w.GetCheckInSeconds())
			l.renewBeforeCheckIn(v, time.Now())
		}
		if i := result.Idle; i != nil {
			if v.idle.IsZero() {
				v.idle = time.Now()
			}
			l.setCheckInInterval(v, i.GetCheckInSeconds())
		}
		l.applyOutput(result, v.out)
		l.mu.Unlock()
		if err := l.applyBlockingOutput(ctx, result, v); err != nil {
			return err
		}
		wakeup.WakeReader(v.activity)
	}
}

// applyOutput carries out the core's output that needs no waiting. The caller holds mu.
func (l *HubLink) applyOutput(result session.AgentOutput, out *outbox) {
	if p := result.Position; p != nil {
		l.memory.Position = store.Position{Chain: p.GetChainId(), Revision: p.GetRevision(), Issued: p.GetIssued(), MAC: p.GetMac(), Order: l.order + 1}
		l.order++
	}
	if out != nil {
		l.timings.addTimings(result.Frames, time.Now())
		if result.Welcome != nil {
			out.putWelcomeFrames(result.Frames...)
		} else {
			out.put(result.Frames...)
		}
		if result.SendAPIs {
			l.sendInventory(out, true)
		}
		if result.Recall {
			out.put(l.rememberedTombstoneFrames()...)
		}
	}
	for _, m := range result.Store { // at most one
		l.pending.PutLatest(m, result.StoreBytes)
	}
	l.postponed = l.postponed || result.Postponed
	l.declineOversized(result.Oversized)
	if len(result.Store) > 0 || result.Postponed {
		wakeup.WakeReader(l.manifests)
	}
}

// waitForQueueSpace waits until few enough manifests wait to be stored, or ctx ends.
func (l *HubLink) waitForQueueSpace(ctx context.Context) {
	for ctx.Err() == nil {
		l.mu.Lock()
		full := l.pending.bytes > l.budget.Queued
		l.mu.Unlock()
		if !full {
			return
		}
		select {
		case <-ctx.Done():
		case <-l.stored:
		}
	}
}

// applyBlockingOutput carries out what takes time, or ends the session.
func (l *HubLink) applyBlockingOutput(ctx context.Context, result session.AgentOutput, v *sessionState) error {
	l.logRejectedOrders(v, result.Rejected)
	if w := result.Welcome; w != nil {
		l.o.Metrics.setConnected(true)
		l.notifyAdmittedIfStored()
		level := slog.LevelInfo
		if w.GetCheckInSeconds() > 0 {
			level = slog.LevelDebug // "checked in" follows
		}
		l.o.Log.Log(ctx, level, "linked to the hub", "hub", l.currentHub(), "version", w.GetHubVersion(), "cluster", w.GetClusterName(), "holding", w.GetHolding())
	}
	if r := result.Renewed; r != nil {
		if err := l.acceptCertificate(ctx, r.GetCertificate(), r.GetHubCa()); err != nil {
			l.o.Log.Error("the renewed certificate cannot be stored in the member; trying on", "err", err)
		} else {
			l.o.Log.Info("certificate renewed", "until", l.id.cert.NotAfter)
			l.o.Metrics.renewals.Inc()
			l.notifyAdmittedIfStored()
		}
		l.mu.Lock()
		v.renewing = false
		l.mu.Unlock()
	}
	if len(result.Forget) > 0 {
		l.dropStoredRemovals(result.Forget)
	}
	if r := result.Leave; r != nil {
		l.beginLeavingFleet(ctx, v, r.GetClean())
	}
	if d := result.Dial; d != nil {
		v.tunnels.open(ctx, d.GetId())
	}
	if m := result.Move; m != nil {
		return &movedError{hub: m.GetHub()}
	}
	if r := result.Refused; r != nil {
		return &refusedError{r.GetReason(), r.GetMessage(), r.GetFinal()}
	}
	return nil
}

const (
	// maxRejectedLogged is the number of refused orders of a session that are logged.
	maxRejectedLogged = 20
	maxRejectedText   = 1 << 10
)

// logRejectedOrders logs orders of the hub that cannot be followed: the first ones of a session.
func (l *HubLink) logRejectedOrders(v *sessionState, rejected []error) {
	for _, err := range rejected {
		switch v.rejected++; {
		case v.rejected <= maxRejectedLogged:
			l.o.Log.Warn("the hub sent something that cannot be used", "err", phrase.TruncateText(err.Error(), maxRejectedText))
		case v.rejected == maxRejectedLogged+1:
			l.o.Log.Warn("the hub sent more that cannot be used, which is not logged any more in this session", "most", maxRejectedLogged)
		}
	}
}

// isInventoryKnown: something is known of the member, if only that it does not answer.
func isInventoryKnown(s inventory.Snapshot) bool { return s.Version != "" || s.Trouble != "" }

// sendInventory sends the member's inventory. Nothing is sent before the first read, because an empty
// inventory would mean a member without nodes, properties and APIs. The caller holds mu.
func (l *HubLink) sendInventory(out *outbox, withAPIs bool) {
	s := l.o.Inventory()
	if !isInventoryKnown(s) {
		return
	}
	inv := &pb.Inventory{
		KubernetesVersion: s.Version, AgentVersion: l.o.Version, ApisHash: s.APIsHash,
		NodesTotal: int32(s.Nodes), NodesReady: int32(s.Ready),
		Allocatable: s.Allocatable, Requested: s.Requested,
		MemberReady: s.Answers, MemberMessage: s.Trouble, Properties: s.Properties,
	}
	if s.Room != nil {
		inv.Room = reportedRoom(s)
	}
	if withAPIs {
		inv.Apis = s.APIs
	}
	out.put(&pb.FromAgent{Frame: &pb.FromAgent_Inventory{Inventory: inv}})
}

func reportedRoom(s inventory.Snapshot) *pb.Room {
	g := &s.Groups
	room := &pb.Room{Classes: s.Room, ClassGroups: g.OfClasses, SharedLabels: g.Shared, UnreportedLabels: g.Unreported}
	for i, size := range g.Sizes {
		room.Groups = append(room.Groups, &pb.NodeGroup{Size: size, Labels: g.Labels[i]})
	}
	return room
}

// storeManifestsLoop puts manifests into the member and acknowledges them.
func (l *HubLink) storeManifestsLoop(ctx context.Context) {
	wait := &backoff{}
	for {
		l.mu.Lock()
		m, waits := l.pending.First()
		at := l.memory.Position
		l.mu.Unlock()
		if !waits {
			l.endSessionIfOrdersFit()
			select {
			case <-ctx.Done():
				return
			case <-l.manifests:
			}
			continue
		}
		err := l.applier.UpsertManifest(ctx, m, at)
		if full := (*store.MemoryFullError)(nil); errors.As(err, &full) {
			l.declineManifest(&m, full)
			wakeup.WakeReader(l.stored)
			continue
		}
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			l.o.Log.Warn("a manifest cannot be stored in the member; trying on", "bundle", m.Bundle, "err", err)
			if !pause.WaitFor(ctx, wait.next(session.CheckInSchedule{})) {
				return
			}
			continue
		}
		wait.reset()
		l.o.Log.Info("took over", "bundle", m.Bundle, "name", m.Namespace+"/"+m.Name, "generation", m.Generation, "items", len(m.Items), "remove", m.Remove)
		l.mu.Lock()
		l.pending.RemoveIfFirst(&m)
		if l.declined[m.Bundle].generation <= m.Generation {
			delete(l.declined, m.Bundle)
		}
		l.applyOutput(l.core.ManifestStored(m.Bundle, m.Generation, m.Content), l.out)
		l.mu.Unlock()
		wakeup.WakeReader(l.stored)
	}
}
