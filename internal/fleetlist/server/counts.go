package server

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"atoll.dev/atoll/internal/apiserver/respond"
	"atoll.dev/atoll/internal/fleetlist"
	"atoll.dev/atoll/internal/wakeup"
)

// maxStreamGroups bounds the groups that a stream of counts keeps.
const maxStreamGroups = 2000

var countsEndpoint = endpoint{name: "fleet/counts", parameters: append([]string{"limit", "watch"}, filterParameters...), defaultLimit: defaultGroups, maxLimit: maxGroups}

// ServeCounts answers with the number of clusters by state, and by the values of a property.
func (s *Server) ServeCounts(w http.ResponseWriter, r *http.Request) {
	q, err := s.readQuestion(r, countsEndpoint)
	if err == nil {
		err = s.authorizeList(r.Context(), q, resource{name: clusterResource})
	}
	if err != nil {
		respond.WriteError(w, err)
		return
	}
	filter, by, err := q.readFilter()
	if err != nil {
		respond.WriteError(w, err)
		return
	}
	tally := fleetlist.NewTally(filter, by)
	if q.watch {
		s.streamCounts(w, r, q, tally)
		return
	}
	answer, err := s.countOnce(r.Context(), q, tally)
	if err != nil {
		respond.WriteError(w, err)
		return
	}
	respond.WriteJSON(w, http.StatusOK, answer)
}

// countOnce counts the fleet as it is now.
func (s *Server) countOnce(ctx context.Context, q question, tally *fleetlist.Tally) (fleetlist.Answer, error) {
	end, err := s.awaitPass(ctx)
	if err != nil {
		return fleetlist.Answer{}, err
	}
	defer end()
	s.fleet.prepareIndex(q.tables)
	s.fleet.mu.RLock()
	defer s.fleet.mu.RUnlock()
	if err := s.countAll(ctx, s.fleet.index, tally); err != nil {
		return fleetlist.Answer{}, err
	}
	return tally.Answer(s.fleet.index.Len(), q.limit), nil
}

func (s *Server) countAll(ctx context.Context, x *fleetlist.Index, tally *fleetlist.Tally) error {
	if !x.CountAll(tally, s.guardPass(ctx)) {
		return describeEndedPass(ctx)
	}
	return nil
}

// countStream keeps the counts of a stream. A change of a cluster costs the two rows. fleet.mu guards the tally.
type countStream struct {
	tally *fleetlist.Tally
	wake  chan struct{}
}

func (c *countStream) observeChange(before, after *fleetlist.Row) {
	isCounted := c.tally.Change(before, after)
	if isCounted || before == nil || after == nil { // the size of the fleet is counted, too
		wakeup.WakeReader(c.wake)
	}
}

// countsLine is one line of a stream of counts.
type countsLine struct {
	Type   string            `json:"type"`
	Counts *fleetlist.Answer `json:"counts"`
}

// streamCounts sends the counts, and sends them again when they have changed.
func (s *Server) streamCounts(w http.ResponseWriter, r *http.Request, q question, tally *fleetlist.Tally) {
	release, err := s.slots.takeSlot(q.user.GetName())
	if err != nil {
		respond.WriteError(w, err)
		return
	}
	defer release()
	ctx, cancel := context.WithTimeout(r.Context(), streamTime)
	defer cancel()
	own := &countStream{tally: tally, wake: make(chan struct{}, 1)}
	if err := s.beginCounts(ctx, q, own); err != nil {
		respond.WriteError(w, err)
		return
	}
	defer s.fleet.removeObserver(own)
	lines := respond.NewLineWriter(w)
	var sent fleetlist.Answer
	for isFirst := true; ; isFirst = false {
		begin := time.Now()
		answer, err := s.nextCounts(ctx, q, own)
		pause := pauseAfter(time.Since(begin)) // the client may take its time to read
		if err != nil {
			_ = lines.WriteLine(errorLine{"ERROR", respond.StatusOf(err)}) // the client may be gone
			return
		}
		if isFirst || !reflect.DeepEqual(sent, answer) {
			if lines.WriteLine(countsLine{"COUNTS", &answer}) != nil {
				return
			}
			sent = answer
		}
		if !respond.AwaitWake(ctx, own.wake, pause) {
			return
		}
	}
}

// beginCounts counts the fleet, and has further changes counted.
func (s *Server) beginCounts(ctx context.Context, q question, own *countStream) error {
	end, err := s.awaitPass(ctx)
	if err != nil {
		return err
	}
	defer end()
	s.fleet.prepareIndex(q.tables)
	return s.fleet.addObserver(own, func(x *fleetlist.Index) error { return s.countAll(ctx, x, own.tally) })
}

// nextCounts returns the present counts, if the user still may list clusters and there are few groups.
func (s *Server) nextCounts(ctx context.Context, q question, own *countStream) (fleetlist.Answer, error) {
	if err := s.authorizeList(ctx, q, resource{name: clusterResource}); err != nil {
		return fleetlist.Answer{}, err
	}
	s.fleet.mu.RLock()
	defer s.fleet.mu.RUnlock()
	if own.tally.Len() > maxStreamGroups {
		return fleetlist.Answer{}, badRequest(fmt.Errorf("the clusters have more than %d values of this property, and a stream counts no more: filter them, or request the counts once", maxStreamGroups))
	}
	return own.tally.Answer(s.fleet.index.Len(), q.limit), nil
}
