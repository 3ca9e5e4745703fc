package gateway

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/state"
)

// sendAll sends what waits, until nothing does or the session is over. gRPC's flow
// control slows it down to what the agent reads.
func (s *stream) sendAll() (over bool, err error) {
	for {
		holding := s.held()
		s.mu.Lock()
		if s.done {
			s.mu.Unlock()
			return true, nil
		}
		s.settleTouched()
		t, ok := s.queue.next(holding)
		if !ok && !holding {
			t, ok = s.lastOrder()
		}
		if !ok {
			t, ok = s.nothingMore()
		}
		s.sending = ok
		s.mu.Unlock()
		if !ok {
			return false, nil
		}
		switch {
		case t.frame != nil:
			err = s.send(t.frame)
		case t.need != nil:
			err = s.answer(t.need)
		default:
			err = s.order(*t.order)
		}
		if err != nil {
			return false, err
		}
	}
}

// settleTouched gives changed rows to the core. The caller holds the lock.
func (s *stream) settleTouched() {
	if s.core == nil {
		return
	}
	for bundle := range s.queue.touched {
		delete(s.queue.touched, bundle)
		row, ok := s.row(bundle)
		if ok {
			s.claimed(bundle)
			s.takeEarly(bundle)
			want, wanted := session.WantOf(bundle, row.Spec, reported(row))
			if wanted {
				for _, o := range s.core.Changed(want).Orders {
					s.queue.order(o)
				}
				continue
			}
		}
		s.core.Gone(bundle)
		delete(s.bases, bundle)
		delete(s.queue.orders, bundle)
		delete(s.queue.retries, bundle)
	}
}

// row of the bundle in this very cluster: a row of another Cluster that had the
// name is none.
func (s *stream) row(bundle string) (state.Row, bool) {
	r, ok := s.g.o.Rows.Get(bundle, s.cluster)
	return r, ok && r.Spec.UID == s.id.uid
}

// order sends an Upsert of the row as it is now.
func (s *stream) order(o session.Order) error {
	row, ok := s.row(o.Bundle)
	if !ok {
		return nil
	}
	p, err := s.g.parcels.of(row)
	if err != nil {
		s.postpone(o, err)
		return nil
	}
	s.mu.Lock()
	b, known := s.bases[o.Bundle]
	s.mu.Unlock()
	if !known && o.Held {
		b = base{content: thin}
	}
	body, err := p.encode(b)
	if err != nil {
		s.postpone(o, err)
		return nil
	}
	if s.held() {
		s.mu.Lock()
		s.queue.order(o)
		s.mu.Unlock()
		return nil
	}
	err = s.send(&pb.FromHub{Frame: &pb.FromHub_Upsert{Upsert: &pb.Upsert{
		Bundle: o.Bundle, Generation: row.Spec.Generation, Manifest: body, Position: s.g.position(),
	}}})
	s.mu.Lock()
	put(&s.bases, o.Bundle, base{p.Content, p.Hashes})
	delete(s.queue.retries, o.Bundle)
	s.mu.Unlock()
	return err
}

// postpone an order that cannot be made now.
func (s *stream) postpone(o session.Order, err error) {
	s.mu.Lock()
	after := s.queue.retryAfter(o.Bundle)
	s.mu.Unlock()
	if after == retryFirst || after == retryMost {
		s.log().Error("cannot make the order of a bundle; the member keeps what it has, and the hub tries again", "bundle", o.Bundle, "after", after, "err", err)
	}
	time.AfterFunc(after, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.queue.order(o)
		s.poke()
	})
}

// answer sends objects that the agent lacks, if they still belong to the row. An
// Upsert of a newer generation is on its way where they do not.
func (s *stream) answer(need *pb.Need) error {
	row, ok := s.row(need.GetBundle())
	if !ok || row.Spec.Generation != need.GetGeneration() {
		return nil
	}
	p, err := s.g.parcels.of(row)
	if err != nil {
		s.postpone(session.Order{Bundle: need.GetBundle(), Held: true, Resync: true}, err)
		return nil
	}
	frames := p.Answer(need)
	for _, f := range frames {
		if err := s.send(f); err != nil {
			return err
		}
	}
	if len(frames) == 0 {
		s.mu.Lock()
		delete(s.bases, need.GetBundle())
		s.mu.Unlock()
		s.postpone(session.Order{Bundle: need.GetBundle(), Resync: true}, errors.New("the agent needs objects that its order does not name"))
	}
	return nil
}

// ahead tells the hub that the member will not obey the row as it is. The caller
// holds the lock.
func (s *stream) ahead(bundle string, generation int64) {
	if _, ok := s.row(bundle); !ok || generation >= generationLimit || s.aheadTold[bundle] >= generation {
		return
	}
	put(&s.aheadTold, bundle, generation)
	s.log().Warn("the member holds a generation above its row's; the row is raised above it", "bundle", bundle, "generation", generation)
	s.g.o.OnAhead(bundle, s.cluster, generation)
}

// noteUnclaimed keeps and shows what only the agent holds. The caller holds the lock.
func (s *stream) noteUnclaimed(entries []session.Entry) {
	for _, e := range entries {
		if _, ok := s.row(e.Bundle); !ok {
			put(&s.unclaimed, e.Bundle, struct{}{})
		}
	}
	if len(s.unclaimed) == 0 {
		s.g.o.Inventory.Unclaimed(s.id.uid, nil)
		return
	}
	s.tellUnclaimed()
}

// claimed takes a bundle off the list. The caller holds the lock.
func (s *stream) claimed(bundle string) {
	if _, ok := s.unclaimed[bundle]; ok {
		delete(s.unclaimed, bundle)
		s.tellUnclaimed()
	}
}

func (s *stream) tellUnclaimed() {
	bundles := slices.Sorted(maps.Keys(s.unclaimed))
	if n := len(bundles); n > 0 {
		s.log().Warn("the member holds bundles that no row asks for; they are kept, and listed at the Cluster's condition Unclaimed",
			"count", n, "bundles", strings.Join(bundles[:min(n, 20)], ","))
	}
	s.g.o.Inventory.Unclaimed(s.id.uid, bundles)
	s.g.metrics.unclaimed.Add(float64(len(bundles) - s.counted))
	s.counted = len(bundles)
}
