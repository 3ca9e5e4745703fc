package session

import (
	"slices"
	"strings"

	pb "atoll.dev/atoll/internal/session/sessionpb"
)

const (
	// queryPrefixes is how many ranges one DigestQuery asks for.
	queryPrefixes = 256
	// heldLimit is how many bundles an agent may claim to hold.
	heldLimit = 1 << 20
)

// Hub is the hub's end of one session. Make it with NewHub and give it every frame
// and every change of the cluster's rows, in the order in which they come.
type Hub struct {
	known  map[string]known
	tree   *Tree // of wants; nil when the resync is over
	asked  map[string]struct{}
	queue  []string // ranges to ask for
	open   int      // ranges asked for and not answered
	budget int      // ranges that may still be asked for

	reports   []string
	unclaimed []Entry
}

// known is what the session has settled about one bundle.
type known struct {
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
	// Needs to answer from the row's parcel, if its generation is still the row's.
	Needs []*pb.Need
	// Ahead lists bundles of which the agent holds a generation that the row must
	// be raised above.
	Ahead []Entry
	// Synced: the resync ended with this input. Unclaimed then lists what only the
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

// Order to send an Upsert.
type Order struct {
	Bundle string
	// Held: the agent holds some content of the bundle, so that objects that it
	// may have need not be sent.
	Held bool
	// Resync: found by comparing, not caused by a change now.
	Resync bool
}

// NewHub begins a session: hello as received, wants of all the cluster's rows
// (WantOf). The caller sends Welcome itself, before the frames of the output. While
// the hub holds, nothing is compared or ordered.
func NewHub(hello *pb.Hello, wants []Entry, holding bool) (*Hub, HubOutput) {
	h := &Hub{known: make(map[string]known, len(wants)), asked: map[string]struct{}{}}
	for _, w := range wants {
		h.known[w.Bundle] = known{generation: w.Generation, held: true}
	}
	var out HubOutput
	if holding {
		out.Synced = true
		return h, out
	}
	if hello.GetHeld() > heldLimit {
		out.Refused = &pb.Refused{Reason: "BadHello", Message: "the agent says that it holds more bundles than a cluster can have", Final: true}
		return h, out
	}
	h.tree = NewTree(wants)
	if string(h.tree.Digest()) == string(hello.GetDigest()) {
		return h, h.synced(out)
	}
	h.budget = fanOut + 8*max(int(hello.GetHeld()), len(wants))
	h.queue = []string{""}
	return h, h.ask(out)
}

// Synced tells whether the resync is over.
func (h *Hub) Synced() bool { return h.tree == nil }

// Changed tells that the row of want's bundle changed or came.
func (h *Hub) Changed(want Entry) HubOutput {
	if h.tree != nil {
		h.tree.Put(want)
	}
	k, ok := h.known[want.Bundle]
	if ok && k.generation == want.Generation {
		return HubOutput{}
	}
	h.known[want.Bundle] = known{want.Generation, k.held}
	return HubOutput{Orders: []Order{{Bundle: want.Bundle, Held: k.held}}}
}

// Gone tells that the bundle's row went, or that its removal is done.
func (h *Hub) Gone(bundle string) {
	delete(h.known, bundle)
	if h.tree != nil {
		h.tree.Delete(bundle)
	}
}

// Frame takes a frame of the agent.
func (h *Hub) Frame(f *pb.FromAgent) HubOutput {
	var out HubOutput
	switch v := f.GetFrame().(type) {
	case *pb.FromAgent_Digest:
		return h.digest(v.Digest)
	case *pb.FromAgent_Need:
		if _, ok := h.known[v.Need.GetBundle()]; ok {
			out.Needs = []*pb.Need{v.Need}
		}
	case *pb.FromAgent_Stored:
		return h.stored(v.Stored)
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

func (h *Hub) stored(s *pb.Stored) (out HubOutput) {
	k, ok := h.known[s.GetBundle()]
	if !ok {
		return out
	}
	if s.GetGeneration() > k.generation {
		out.Ahead = []Entry{{Bundle: s.GetBundle(), Generation: s.GetGeneration(), Content: s.GetContent()}}
	}
	k.held = true
	h.known[s.GetBundle()] = k
	return out
}

// digest takes an answer. Ranges that were not asked for are ignored.
func (h *Hub) digest(d *pb.Digest) (out HubOutput) {
	if h.tree == nil {
		return out
	}
	for _, r := range d.GetRanges() {
		if _, ok := h.asked[r.GetPrefix()]; !ok {
			continue
		}
		delete(h.asked, r.GetPrefix())
		h.open--
		ask, differ := h.tree.Compare(r)
		h.queue = append(h.queue, ask...)
		for _, d := range differ {
			h.settle(d, &out)
		}
	}
	if h.open > 0 {
		return out
	}
	return h.ask(out)
}

// settle one bundle about which the two ends differ.
func (h *Hub) settle(d Difference, out *HubOutput) {
	bundle := d.Bundle()
	switch {
	case d.Ours == nil:
		h.unclaimed = append(h.unclaimed, *d.Theirs)
	case d.Theirs == nil:
		h.known[bundle] = known{generation: d.Ours.Generation}
		out.Orders = append(out.Orders, Order{Bundle: bundle, Resync: true})
	case d.Theirs.Generation > d.Ours.Generation:
		out.Ahead = append(out.Ahead, *d.Theirs)
	case d.Theirs.Generation < d.Ours.Generation || d.Theirs.Content != d.Ours.Content:
		out.Orders = append(out.Orders, Order{Bundle: bundle, Held: true, Resync: true})
	}
	if d.Ours != nil && d.Theirs != nil && d.Theirs.Status != "" && d.Theirs.Status != d.Ours.Status {
		h.reports = append(h.reports, bundle)
	}
}

// ask for the next ranges, or end the resync when there are none.
func (h *Hub) ask(out HubOutput) HubOutput {
	if len(h.queue) == 0 {
		return h.synced(out)
	}
	n := min(len(h.queue), queryPrefixes)
	if h.budget -= n; h.budget < 0 {
		out.Refused = &pb.Refused{Reason: "BadDigest", Message: "the agent's digests do not fit what it says it holds; its version may be damaged", Final: true}
		h.tree = nil
		return out
	}
	prefixes := slices.Clone(h.queue[:n])
	h.queue = slices.Delete(h.queue, 0, n)
	for _, p := range prefixes {
		h.asked[p] = struct{}{}
	}
	h.open = n
	out.Frames = append(out.Frames, &pb.FromHub{Frame: &pb.FromHub_DigestQuery{DigestQuery: &pb.DigestQuery{Prefixes: prefixes}}})
	return out
}

func (h *Hub) synced(out HubOutput) HubOutput {
	if len(h.reports) > 0 {
		out.Frames = append(out.Frames, &pb.FromHub{Frame: &pb.FromHub_Ask{Ask: &pb.Ask{Reports: h.reports}}})
	}
	slices.SortFunc(h.unclaimed, func(a, b Entry) int { return strings.Compare(a.Bundle, b.Bundle) })
	out.Synced, out.Unclaimed = true, h.unclaimed
	h.tree, h.asked, h.queue, h.reports, h.unclaimed = nil, nil, nil, nil, nil
	return out
}
