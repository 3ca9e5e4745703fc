package delivery

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"atoll.dev/atoll/internal/delivery/payloads"
	"atoll.dev/atoll/internal/quarantine"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/state"
)

// sendQueued sends what waits, until nothing does or the session is over. gRPC's flow
// control slows it down to what the agent reads.
func (s *agentSession) sendQueued() (isOver bool, err error) {
	for {
		t, ok, isOver := s.takeSendTask(s.areOrdersHeld())
		if isOver || !ok {
			return isOver, nil
		}
		switch {
		case t.frame != nil:
			err = s.send(t.frame)
		case t.need != nil:
			err = s.answerNeed(t.need)
		default:
			err = s.sendOrder(*t.order)
		}
		if err != nil {
			return false, err
		}
	}
}

// takeSendTask takes what is to be sent next. Without a task the sender ends. A session that is over
// has none.
func (s *agentSession) takeSendTask(holding bool) (t sendTask, ok, isOver bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return t, false, true
	}
	s.processChangedRows()
	t, ok = s.queue.nextTask(holding)
	if !ok && !holding {
		t, ok = s.nextLeaveFrame()
	}
	if !ok {
		t, ok = s.nextIdleFrame()
	}
	s.senderRunning = ok
	return t, ok, false
}

// processChangedRows passes changed rows to the core. The caller holds the lock.
func (s *agentSession) processChangedRows() {
	if s.core == nil {
		return
	}
	for bundle := range s.queue.changedRows {
		delete(s.queue.changedRows, bundle)
		row, ok := s.ownRow(bundle)
		if ok {
			s.dropUnclaimedBundle(bundle)
			s.releaseEarlyReport(bundle)
			want, wanted := session.WantedEntry(bundle, row.Spec, reportedStatus(row))
			if wanted {
				for _, o := range s.core.RowChanged(want).Orders {
					s.queue.queueOrder(o)
				}
				continue
			}
		}
		s.core.RowRemoved(bundle)
		delete(s.bases, bundle)
		delete(s.queue.orders, bundle)
		delete(s.queue.retries, bundle)
	}
}

// ownRow returns the row of the bundle in this very Cluster. A row of another Cluster of
// the same name is not returned.
func (s *agentSession) ownRow(bundle string) (state.Row, bool) {
	r, ok := s.gateway.options.Rows.Get(bundle, s.cluster)
	return r, ok && r.Spec.UID == s.id.uid
}

// orderedRow is ownRow of a row that orders something. The row may have changed since its order was queued.
func (s *agentSession) orderedRow(bundle string) (state.Row, bool) {
	r, ok := s.ownRow(bundle)
	return r, ok && !r.Spec.Phase.OrdersNothing()
}

// sendOrder sends an Upsert of the present row.
func (s *agentSession) sendOrder(o session.Order) error {
	row, ok := s.orderedRow(o.Bundle)
	if !ok {
		return nil
	}
	trace := s.beginTrace(row)
	p, err := s.gateway.payloads.GetOrRender(row)
	if err != nil {
		trace.renderFailed()
		s.retryOrderLater(o, err)
		return nil
	}
	s.mu.Lock()
	b, known := s.bases[o.Bundle]
	s.mu.Unlock()
	if !known && o.Held {
		b = payloads.UnknownBase()
	}
	b.ListsAssessments = s.listsAssessments
	body, err := p.EncodeFor(b)
	if err != nil {
		return s.handleUnsentOrder(o, row, err)
	}
	if s.areOrdersHeld() {
		s.mu.Lock()
		s.queue.queueOrder(o)
		s.mu.Unlock()
		return nil
	}
	trace.orderSent()
	err = s.send(&pb.FromHub{Frame: &pb.FromHub_Upsert{Upsert: &pb.Upsert{
		Bundle: o.Bundle, Generation: row.Spec.Generation, Manifest: body, Position: s.gateway.currentPosition(), Timing: trace.tracer != nil,
	}}})
	if tooLarge := (*session.OrderTooLargeError)(nil); errors.As(err, &tooLarge) {
		return s.handleUnsentOrder(o, row, err)
	}
	s.mu.Lock()
	put(&s.bases, o.Bundle, payloads.Base{Content: p.Content, Hashes: p.Hashes})
	delete(s.queue.retries, o.Bundle)
	s.mu.Unlock()
	return err
}

// handleUnsentOrder refuses an order that no agent takes, and queues any other one again. The session goes on.
func (s *agentSession) handleUnsentOrder(o session.Order, row state.Row, err error) error {
	if tooLarge := (*session.OrderTooLargeError)(nil); errors.As(err, &tooLarge) {
		s.refuseOrder(row, tooLarge)
	} else {
		s.retryOrderLater(o, err)
	}
	return nil
}

// retryOrderLater queues an order that cannot be made now after a pause. The order of a quarantined
// Bundle waits for the end of the quarantine, and its log has one line for all clusters.
func (s *agentSession) retryOrderLater(o session.Order, err error) {
	s.mu.Lock()
	after := s.queue.nextRetryDelay(o.Bundle)
	s.mu.Unlock()
	if aside := (*quarantine.Error)(nil); errors.As(err, &aside) {
		after = max(after, min(time.Until(aside.Until), maxQuarantineDelay))
	} else if after == minRetryDelay || after == maxRetryDelay {
		s.sessionLog().Error("cannot make the order of a bundle; the member keeps what it has, and the hub tries again", "bundle", o.Bundle, "after", after, "err", err)
	}
	time.AfterFunc(after, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.queue.queueOrder(o)
		s.wakeSender()
	})
}

// answerNeed sends objects that the agent lacks, if they still belong to the row.
// Otherwise an Upsert of a newer generation is about to be sent.
func (s *agentSession) answerNeed(need *pb.Need) error {
	row, ok := s.orderedRow(need.GetBundle())
	if !ok || row.Spec.Generation != need.GetGeneration() {
		return nil
	}
	p, err := s.gateway.payloads.GetOrRender(row)
	if err != nil {
		s.retryOrderLater(session.Order{Bundle: need.GetBundle(), Held: true, Resync: true}, err)
		return nil
	}
	frames := p.AnswerNeed(need)
	for _, f := range frames {
		if err := s.send(f); err != nil {
			if tooLarge := (*session.OrderTooLargeError)(nil); errors.As(err, &tooLarge) {
				s.refuseOrder(row, tooLarge)
				return nil
			}
			return err
		}
	}
	if len(frames) == 0 {
		s.mu.Lock()
		delete(s.bases, need.GetBundle())
		s.mu.Unlock()
		s.retryOrderLater(session.Order{Bundle: need.GetBundle(), Resync: true}, errors.New("the agent needs objects that its order does not name"))
	}
	return nil
}

// lockAndReportGenerationAhead is reportGenerationAhead for a caller that does not hold the lock.
func (s *agentSession) lockAndReportGenerationAhead(bundle string, generation int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reportGenerationAhead(bundle, generation)
}

// reportGenerationAhead reports that the member will ignore the row at its present
// generation. The caller holds the lock.
func (s *agentSession) reportGenerationAhead(bundle string, generation int64) {
	if _, ok := s.ownRow(bundle); !ok || generation >= generationLimit || s.aheadReported[bundle] >= generation {
		return
	}
	put(&s.aheadReported, bundle, generation)
	if s.aheadWaiting[bundle] {
		return // its turn reports the last one
	}
	wait := s.gateway.allowances.reserveTurn(s.id.uid, time.Now())
	if wait == 0 {
		s.requestHigherGeneration(bundle)
		return
	}
	put(&s.aheadWaiting, bundle, true)
	time.AfterFunc(wait, func() { s.runContainingPanics(func() { s.requestWaitingHigherGeneration(bundle) }) })
}

// requestWaitingHigherGeneration raises a row whose turn has come. The next session compares again.
func (s *agentSession) requestWaitingHigherGeneration(bundle string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.aheadWaiting, bundle)
	if !s.done {
		s.requestHigherGeneration(bundle)
	}
}

// requestHigherGeneration requests that a row is raised above the generation that was reported last. The caller
// holds the lock.
func (s *agentSession) requestHigherGeneration(bundle string) {
	generation := s.aheadReported[bundle]
	s.sessionLog().Warn("the member holds a generation above its row's; the row is raised above it", "bundle", bundle, "generation", generation)
	s.gateway.options.Store.OnRowAhead(bundle, s.cluster, generation)
}

// recordUnclaimedBundles records the bundles that only the agent holds. The caller holds the
// lock.
func (s *agentSession) recordUnclaimedBundles(entries []session.Entry) {
	for _, e := range entries {
		if _, ok := s.ownRow(e.Bundle); !ok {
			put(&s.unclaimed, e.Bundle, struct{}{})
		}
	}
	if len(s.unclaimed) == 0 {
		s.gateway.options.Inventory.RecordUnclaimed(s.id.uid, nil)
		return
	}
	s.publishUnclaimedBundles()
}

// dropUnclaimedBundle takes a bundle off the list. The caller holds the lock.
func (s *agentSession) dropUnclaimedBundle(bundle string) {
	if _, ok := s.unclaimed[bundle]; ok {
		delete(s.unclaimed, bundle)
		s.publishUnclaimedBundles()
	}
}

func (s *agentSession) publishUnclaimedBundles() {
	bundles := slices.Sorted(maps.Keys(s.unclaimed))
	if n := len(bundles); n > 0 {
		s.sessionLog().Warn("the member holds bundles without a row; the bundles are kept, and listed in the Cluster's condition Unclaimed",
			"count", n, "bundles", strings.Join(bundles[:min(n, 20)], ","))
	}
	s.gateway.options.Inventory.RecordUnclaimed(s.id.uid, bundles)
	s.gateway.metrics.unclaimed.Add(float64(len(bundles) - s.unclaimedCounted))
	s.unclaimedCounted = len(bundles)
}
