package session

import (
	"slices"
	"strings"

	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

const (
	// queryPrefixes is how many ranges one DigestQuery requests.
	queryPrefixes = 256
	// maxHeldBundles is how many bundles an agent may report to hold.
	maxHeldBundles = 100_000
	// maxUnclaimed is how many bundles that only the agent holds are listed.
	maxUnclaimed = 10_000
)

// HubSession is the hub's end of one session. Make it with NewHubSession, and give it every frame and
// every change of the cluster's rows in order.
type HubSession struct {
	bundles       map[string]bundleState
	tree          *DigestTree // of wants; nil when the resync is over
	queriedRanges map[string]struct{}
	unqueried     []string // ranges still to query
	openQueries   int      // ranges queried and not answered
	queryBudget   int      // ranges that may still be queried

	staleReports []string
	unclaimed    []Entry
}

// bundleState is the session's state of the agent's copy of one bundle.
type bundleState struct {
	generation int64
	held       bool // the agent holds some content of the bundle
}

// HubOutput is what the hub's shell must do, in any order.
type HubOutput struct {
	// Frames to send.
	Frames []*pb.FromHub
	// Orders: send an Upsert of each bundle, of its row as it is when sent.
	Orders []Order
	// Reports to judge, store and acknowledge.
	Reports []*pb.Report
	// Needs to answer from the row's payload, if its generation is still the row's.
	Needs []*pb.Need
	// Ahead lists bundles of which the agent holds a higher generation. The rows must be
	// raised above it.
	Ahead []Entry
	// Synced: the resync ended with this input. Unclaimed then lists the bundles that only the
	// agent holds.
	Synced    bool
	Unclaimed []Entry
	// Inventory, Renew, Remembered, Left, Leaving as received.
	Inventory  *pb.Inventory
	Renew      *pb.Renew
	Remembered *pb.Remembered
	Left       *pb.Left
	Leaving    *pb.Leaving
	// Refused: send the frame and end the session.
	Refused *pb.Refused
}

// Order is an Upsert that the shell must send.
type Order struct {
	Bundle string
	// Held: the agent holds some content of the bundle, so that objects need not be sent which
	// it may have.
	Held bool
	// Resync: found by comparing, not caused by a change now.
	Resync bool
}

// NewHubSession begins a session. hello is as received; wants has the WantedEntry of each row of
// the cluster. The caller sends Welcome before the frames of the output. While the hub
// holds, nothing is compared or ordered.
func NewHubSession(hello *pb.Hello, wants []Entry, holding bool) (*HubSession, HubOutput) {
	h := &HubSession{bundles: make(map[string]bundleState, len(wants)), queriedRanges: map[string]struct{}{}}
	for _, w := range wants {
		h.bundles[w.Bundle] = bundleState{generation: w.Generation, held: true}
	}
	var out HubOutput
	if holding {
		out.Synced = true
		return h, out
	}
	if hello.GetHeld() > maxHeldBundles {
		out.Refused = &pb.Refused{Reason: string(atoll.ReasonBadHello), Message: "the agent reports more bundles than a cluster can have", Final: true}
		return h, out
	}
	h.tree = NewTree(wants)
	if string(h.tree.RootDigest()) == string(hello.GetDigest()) {
		return h, h.finishResync(out)
	}
	// A tree of n entries has fewer than 2n ranges that a query can name.
	h.queryBudget = treeFanOut + 2*(int(hello.GetHeld())+len(wants))
	h.unqueried = []string{""}
	return h, h.queryRanges(out)
}

// IsSynced reports whether the resync is over.
func (h *HubSession) IsSynced() bool { return h.tree == nil }

// CountBundles returns how many bundles the session handles.
func (h *HubSession) CountBundles() int { return len(h.bundles) }

// RowChanged notes that the row of the ordered bundle changed or is new.
func (h *HubSession) RowChanged(want Entry) HubOutput {
	if h.tree != nil {
		h.tree.Put(want)
	}
	k, ok := h.bundles[want.Bundle]
	if ok && k.generation == want.Generation {
		return HubOutput{}
	}
	h.bundles[want.Bundle] = bundleState{want.Generation, k.held}
	return HubOutput{Orders: []Order{{Bundle: want.Bundle, Held: k.held}}}
}

// RowRemoved notes that the bundle's row is gone, or that its removal is done.
func (h *HubSession) RowRemoved(bundle string) {
	delete(h.bundles, bundle)
	if h.tree != nil {
		h.tree.Delete(bundle)
	}
}

// HandleFrame handles a frame of the agent.
func (h *HubSession) HandleFrame(f *pb.FromAgent) HubOutput {
	var out HubOutput
	switch v := f.GetFrame().(type) {
	case *pb.FromAgent_Digest:
		return h.handleDigest(v.Digest)
	case *pb.FromAgent_Need:
		if _, ok := h.bundles[v.Need.GetBundle()]; ok {
			out.Needs = []*pb.Need{v.Need}
		}
	case *pb.FromAgent_Stored:
		return h.handleStored(v.Stored)
	case *pb.FromAgent_Report:
		out.Reports = []*pb.Report{v.Report}
	case *pb.FromAgent_Inventory:
		out.Inventory = v.Inventory
	case *pb.FromAgent_Renew:
		out.Renew = v.Renew
	case *pb.FromAgent_Remembered:
		out.Remembered = v.Remembered
	case *pb.FromAgent_Left:
		out.Left = v.Left
	case *pb.FromAgent_Leaving:
		out.Leaving = v.Leaving
	}
	return out
}

// handleStored records that the agent holds the bundle; a higher generation than the row's is
// reported in Ahead.
func (h *HubSession) handleStored(s *pb.Stored) (out HubOutput) {
	k, ok := h.bundles[s.GetBundle()]
	if !ok {
		return out
	}
	if s.GetGeneration() > k.generation {
		out.Ahead = []Entry{{Bundle: s.GetBundle(), Generation: s.GetGeneration(), Content: s.GetContent()}}
	}
	k.held = true
	h.bundles[s.GetBundle()] = k
	return out
}

// handleDigest handles an answer to a query. Ranges that were not queried are ignored.
func (h *HubSession) handleDigest(d *pb.Digest) (out HubOutput) {
	if h.tree == nil {
		return out
	}
	for _, r := range d.GetRanges() {
		if _, ok := h.queriedRanges[r.GetPrefix()]; !ok {
			continue
		}
		delete(h.queriedRanges, r.GetPrefix())
		h.openQueries--
		ask, differ := h.tree.CompareRange(r)
		h.unqueried = append(h.unqueried, ask...)
		for _, d := range differ {
			h.resolveDifference(d, &out)
		}
	}
	if h.openQueries > 0 {
		return out
	}
	return h.queryRanges(out)
}

// resolveDifference decides what follows from one bundle that differs.
func (h *HubSession) resolveDifference(d Difference, out *HubOutput) {
	bundle := d.BundleUID()
	switch {
	case d.Ours == nil:
		if len(h.unclaimed) < maxUnclaimed {
			h.unclaimed = append(h.unclaimed, *d.Theirs)
		}
	case d.Theirs == nil:
		h.bundles[bundle] = bundleState{generation: d.Ours.Generation}
		out.Orders = append(out.Orders, Order{Bundle: bundle, Resync: true})
	case d.Theirs.Generation > d.Ours.Generation:
		out.Ahead = append(out.Ahead, *d.Theirs)
	case d.Theirs.Generation < d.Ours.Generation || d.Theirs.Content != d.Ours.Content:
		out.Orders = append(out.Orders, Order{Bundle: bundle, Held: true, Resync: true})
	}
	if d.Ours != nil && d.Theirs != nil && d.Theirs.Status != "" && d.Theirs.Status != d.Ours.Status {
		h.staleReports = append(h.staleReports, bundle)
	}
}

// queryRanges queries the next ranges, or ends the resync when there are none.
func (h *HubSession) queryRanges(out HubOutput) HubOutput {
	if len(h.unqueried) == 0 {
		return h.finishResync(out)
	}
	n := min(len(h.unqueried), queryPrefixes)
	if h.queryBudget -= n; h.queryBudget < 0 {
		out.Refused = &pb.Refused{Reason: string(atoll.ReasonBadDigest), Message: "the agent's digests do not match its number of bundles; its version may be damaged", Final: true}
		h.tree = nil
		return out
	}
	prefixes := slices.Clone(h.unqueried[:n])
	h.unqueried = slices.Delete(h.unqueried, 0, n)
	for _, p := range prefixes {
		h.queriedRanges[p] = struct{}{}
	}
	h.openQueries = n
	out.Frames = append(out.Frames, &pb.FromHub{Frame: &pb.FromHub_DigestQuery{DigestQuery: &pb.DigestQuery{Prefixes: prefixes}}})
	return out
}

func (h *HubSession) finishResync(out HubOutput) HubOutput {
	if len(h.staleReports) > 0 {
		out.Frames = append(out.Frames, &pb.FromHub{Frame: &pb.FromHub_Ask{Ask: &pb.Ask{Reports: h.staleReports}}})
	}
	slices.SortFunc(h.unclaimed, func(a, b Entry) int { return strings.Compare(a.Bundle, b.Bundle) })
	out.Synced, out.Unclaimed = true, h.unclaimed
	h.tree, h.queriedRanges, h.unqueried, h.staleReports, h.unclaimed = nil, nil, nil, nil, nil
	return out
}
