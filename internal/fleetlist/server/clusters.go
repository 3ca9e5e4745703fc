package server

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"atoll.dev/atoll/internal/apiserver/respond"
	"atoll.dev/atoll/internal/fleetlist"
	"atoll.dev/atoll/internal/wakeup"
)

var clustersEndpoint = endpoint{name: "fleet/clusters", parameters: append([]string{"sort", "limit", "continue", "view", "watch"}, filterParameters...), defaultLimit: fleetlist.DefaultPage, maxLimit: fleetlist.MaxPage}

// viewTiles is the value of view for clusters without their details.
const viewTiles = "tiles"

// pageAnswer is a page of clusters.
type pageAnswer struct {
	// Clusters of the page, in order. In a line of a stream, those that changed.
	Clusters []fleetlist.Cluster `json:"clusters"`
	// All counts the clusters of the fleet, Matching those that the whole filter selects, Before those of them before the page,
	// and States those that the filter selects in any state.
	All      int              `json:"all"`
	Before   int              `json:"before"`
	Matching int              `json:"matching"`
	States   fleetlist.Counts `json:"states"`
	Continue string           `json:"continue,omitempty"`
	// Order has the names of the page in order, where it is not that of the line before.
	Order []string `json:"order,omitempty"`
}

// pageQuestion is a request for a page.
type pageQuestion struct {
	question
	page  fleetlist.PageRequest
	shape fleetlist.Shape
}

// ServeClusters answers with a page of slim clusters.
func (s *Server) ServeClusters(w http.ResponseWriter, r *http.Request) {
	q, err := s.readPageQuestion(r)
	if err != nil {
		respond.WriteError(w, err)
		return
	}
	if q.watch {
		s.streamPage(w, r, q)
		return
	}
	answer, err := s.makePage(r.Context(), q, nil)
	if err != nil {
		respond.WriteError(w, err)
		return
	}
	respond.WriteJSON(w, http.StatusOK, answer)
}

func (s *Server) readPageQuestion(r *http.Request) (q pageQuestion, err error) {
	if q.question, err = s.readQuestion(r, clustersEndpoint); err != nil {
		return q, err
	}
	if err := s.authorizeList(r.Context(), q.question, resource{name: clusterResource}); err != nil {
		return q, err
	}
	filter, by, err := q.readFilter()
	if err != nil {
		return q, err
	}
	order, err := fleetlist.ParseOrder(q.values.Get("sort"))
	if err != nil {
		return q, badRequest(err)
	}
	q.page, q.shape = fleetlist.PageRequest{Filter: filter, Order: order, Limit: q.limit}, fleetlist.Shape{By: by}
	switch view := q.values.Get("view"); view {
	case "", "table":
	case viewTiles:
		q.shape.Tiles = true
	default:
		return q, badRequest(fmt.Errorf("view is table or %s", viewTiles))
	}
	if err := q.page.SetToken(q.values.Get("continue")); err != nil {
		return q, badRequest(err)
	}
	return q, nil
}

// makePage returns the page as it is now. own is the stream that sends it; nil for none.
func (s *Server) makePage(ctx context.Context, q pageQuestion, own *pageStream) (pageAnswer, error) {
	seesDrift := !q.shape.Tiles && s.seesDrift(ctx, q.question)
	end, err := s.awaitPass(ctx)
	if err != nil {
		return pageAnswer{}, err
	}
	defer end()
	s.fleet.prepareIndex(q.tables)
	s.fleet.mu.RLock()
	defer s.fleet.mu.RUnlock()
	page, complete := fleetlist.SelectPage(s.fleet.index.Rows(), q.page, s.guardPass(ctx))
	if !complete {
		return pageAnswer{}, describeEndedPass(ctx)
	}
	if own != nil {
		own.window = fleetlist.NewWindow(q.page, page) // changes are shown with the lock held for writing
	}
	out := pageAnswer{Clusters: make([]fleetlist.Cluster, len(page.Rows)), All: s.fleet.index.Len(), Before: page.Before, Matching: page.Matching, States: page.States, Continue: page.Continue}
	for i, row := range page.Rows {
		drifted := 0
		if seesDrift {
			drifted = q.tables.Drifted.CountOfCluster(row.Name())
		}
		out.Clusters[i] = row.ToCluster(q.shape, drifted)
	}
	return out, nil
}

// seesDrift reports whether the user may list the applications that drift is counted of.
func (s *Server) seesDrift(ctx context.Context, q question) bool {
	return s.hasRight(ctx, q.user, "list", resource{name: "bundles"}) && s.hasRight(ctx, q.user, "list", resource{name: "clusterbundles"})
}

// pageStream is a stream of one page. fleet.mu guards the window.
type pageStream struct {
	window fleetlist.Window
	wake   chan struct{}
}

func (p *pageStream) observeChange(before, after *fleetlist.Row) {
	if p.window.Concerns(before, after) {
		wakeup.WakeReader(p.wake)
	}
}

// pageLine is one line of a stream: the whole page at first, then what changed of it.
type pageLine struct {
	Type string     `json:"type"`
	Page pageAnswer `json:"page"`
}

// streamPage sends the page, and its changes until the client goes, the time is over or the right ends.
func (s *Server) streamPage(w http.ResponseWriter, r *http.Request, q pageQuestion) {
	release, err := s.slots.takeSlot(q.user.GetName())
	if err != nil {
		respond.WriteError(w, err)
		return
	}
	defer release()
	ctx, cancel := context.WithTimeout(r.Context(), streamTime)
	defer cancel()
	own := &pageStream{window: fleetlist.NewWindow(q.page, fleetlist.Page{}), wake: make(chan struct{}, 1)}
	s.fleet.prepareIndex(q.tables)
	// A change before the first page is in it, and one after it wakes.
	if err := s.fleet.addObserver(own, func(*fleetlist.Index) error { return nil }); err != nil {
		respond.WriteError(w, err)
		return
	}
	defer s.fleet.removeObserver(own)
	lines := pageWriter{LineWriter: respond.NewLineWriter(w)}
	for {
		begin := time.Now()
		err := s.authorizeList(ctx, q.question, resource{name: clusterResource})
		var page pageAnswer
		if err == nil {
			page, err = s.makePage(ctx, q, own)
		}
		pause := pauseAfter(time.Since(begin)) // the client may take its time to read
		if err != nil {
			_ = lines.WriteLine(errorLine{"ERROR", respond.StatusOf(err)}) // the client may be gone
			return
		}
		if !lines.writePage(page) || !respond.AwaitWake(ctx, own.wake, pause) {
			return
		}
	}
}

// pageWriter writes the lines of a stream, with what changed since the line before.
type pageWriter struct {
	*respond.LineWriter
	sent  map[string][sha256.Size]byte // of the encoded clusters, by name; nil before the first line
	order []string
}

// writePage writes the page, or what changed of it. It returns false when the client is gone.
func (l *pageWriter) writePage(page pageAnswer) bool {
	next, order, changed := make(map[string][sha256.Size]byte, len(page.Clusters)), make([]string, len(page.Clusters)), []fleetlist.Cluster{}
	for i := range page.Clusters {
		c := &page.Clusters[i]
		text, _ := json.Marshal(c) // texts, finite numbers and times of four digits always encode
		order[i], next[c.Name] = c.Name, sha256.Sum256(text)
		if l.sent[c.Name] != next[c.Name] {
			changed = append(changed, *c)
		}
	}
	line := pageLine{"CHANGED", page}
	switch {
	case l.sent == nil || len(order) == 0 && len(l.order) > 0:
		line.Type = "PAGE" // an empty order in a line of changes would be no order
	case len(changed) == 0 && slices.Equal(order, l.order):
		return true
	default:
		line.Page.Clusters = changed
		if !slices.Equal(order, l.order) {
			line.Page.Order = order
		}
	}
	l.sent, l.order = next, order
	return l.WriteLine(line) == nil
}
