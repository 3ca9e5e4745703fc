package session

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// Agent is the agent's side of the protocol, over all sessions of one process. Its shell stores
// the manifests in Store in the member, calls ManifestStored when a manifest is stored, and
// calls ReportStatus whenever the status of a bundle changed.
type Agent struct {
	options    AgentOptions
	tree       *DigestTree
	accepted   map[string]acceptedManifest
	removedAt  map[string]int64 // bundle → generation at which it was removed
	reports    map[string]*sentReport
	seqs       map[string]int64
	incomplete map[string]*incompleteManifest
	// incompleteBytes is the memory of incomplete.
	incompleteBytes int
	position        *pb.Position
	inSession       bool // between Welcome and the end of the stream
}

// AgentOptions configure the Agent of one process.
type AgentOptions struct {
	Version string
	// Instance is random for each process.
	Instance string
	// Object returns the JSON of an object that the agent holds, by the hash of its item. It
	// must not call the Agent.
	Object func(bundle, hash string) (json.RawMessage, bool)
	// Tunnels: the agent's shell opens a tunnel when the hub dials.
	Tunnels bool
	// Leaves: the shell of the agent releases the member when the hub orders it.
	Leaves bool
	// IncompleteBytes bounds the memory of orders that wait for objects, together. Default: MaxIncompleteBytes.
	IncompleteBytes int
}

// Memory is what an agent process finds in the member when it starts.
type Memory struct {
	// Held lists the bundles that the member holds. Status may be empty when the last report is
	// not remembered.
	Held []Entry
	// Seqs are the numbers of the last reports, by bundle. An agent without them may use numbers
	// that are certainly not lower, such as the time in milliseconds.
	Seqs map[string]int64
	// RemovedAt is the generation at which each removed bundle was removed, whether or not the
	// hub has acknowledged it.
	RemovedAt map[string]int64
	// Position is the hub's position that was stored last; nil without one.
	Position *pb.Position
}

type acceptedManifest struct {
	generation int64
	content    string
	stored     bool
}

type sentReport struct {
	seq          int64
	status       atoll.RowStatus
	hash         string // of the status
	acknowledged bool
}

// incompleteManifest is an Upsert whose objects have not all arrived.
type incompleteManifest struct {
	manifest atoll.Manifest
	missing  []string
	objects  map[string]json.RawMessage
	bytes    int
}

// AgentOutput is what the agent's shell must do.
type AgentOutput struct {
	// Frames to send, in this order.
	Frames []*pb.FromAgent
	// Store these manifests, which have all objects, then call ManifestStored. A manifest
	// replaces an earlier one of the same bundle that is still being stored.
	Store []atoll.Manifest
	// StoreBytes is the memory of the manifests in Store, without what the agent held before.
	StoreBytes int
	// Postponed: an order was dropped because others wait for objects. The hub sends the order again in
	// the next session.
	Postponed bool
	// Oversized orders were dropped because each alone has more than IncompleteBytes.
	Oversized []OversizedOrder
	// Drop bundles whose removal the hub has stored. Only their generation must be kept, in
	// Memory.RemovedAt.
	Forget map[string]int64
	// Position must be stored before anything in Store. nil: unchanged.
	Position *pb.Position
	// SendAPIs: send the Inventory again, with its list of APIs.
	SendAPIs bool
	// Recall: send the tombstones that the agent has stored.
	Recall bool
	// StateChanged: the report is of a row that became Ready, Degraded, Failed or Removed. An
	// agent that checks in and has no session shortens its rest.
	StateChanged bool
	// Welcome, Renewed, Refused, Idle, Move as received.
	Welcome *pb.Welcome
	Renewed *pb.Renewed
	Refused *pb.Refused
	Idle    *pb.Idle
	Move    *pb.Move
	// Dial: open a tunnel of that id.
	Dial *pb.Dial
	// Leave: release everything in the member, and answer with Left. This Agent must not be used
	// afterwards; the next session needs a new one.
	Leave *pb.Leave
	// Rejected frames of the hub, to be logged.
	Rejected []error
}

// OversizedOrder is an order for which an agent never has memory.
type OversizedOrder struct {
	Bundle     string
	Generation int64
}

// NewAgent returns an Agent with what the process found in the member. The memory belongs
// to the Agent.
func NewAgent(o AgentOptions, m Memory) *Agent {
	o.IncompleteBytes = cmp.Or(o.IncompleteBytes, MaxIncompleteBytes)
	a := &Agent{
		options: o, tree: NewTree(m.Held), accepted: map[string]acceptedManifest{}, removedAt: m.RemovedAt,
		reports: map[string]*sentReport{}, seqs: m.Seqs, incomplete: map[string]*incompleteManifest{}, position: m.Position,
	}
	for _, e := range m.Held {
		a.accepted[e.Bundle] = acceptedManifest{e.Generation, e.Content, true}
	}
	if a.removedAt == nil {
		a.removedAt = map[string]int64{}
	}
	if a.seqs == nil {
		a.seqs = map[string]int64{}
	}
	return a
}

// BeginSession returns Hello, the first frame of a new stream. Orders of the last stream
// that wait for objects are forgotten, since the hub sends them again. Orders that are
// being stored stay.
func (a *Agent) BeginSession() *pb.FromAgent {
	a.inSession = false
	a.incomplete, a.incompleteBytes = map[string]*incompleteManifest{}, 0
	highest := int64(0)
	for _, e := range a.accepted {
		highest = max(highest, e.generation)
	}
	for _, g := range a.removedAt {
		highest = max(highest, g)
	}
	return &pb.FromAgent{Frame: &pb.FromAgent_Hello{Hello: &pb.Hello{
		AgentVersion: a.options.Version, Protocol: ProtocolVersion, Instance: a.options.Instance,
		Digest: a.tree.RootDigest(), Held: uint32(a.tree.Len()), Position: a.position, Highest: highest,
		Tunnels: a.options.Tunnels, Leaves: a.options.Leaves, ListsAssessments: true,
	}}}
}

// HandleFrame handles a frame of the hub.
func (a *Agent) HandleFrame(f *pb.FromHub) AgentOutput {
	var out AgentOutput
	switch v := f.GetFrame().(type) {
	case *pb.FromHub_Welcome:
		out.Welcome = v.Welcome
		a.handleWelcome(v.Welcome, &out)
	case *pb.FromHub_DigestQuery:
		out.Frames = append(out.Frames, &pb.FromAgent{Frame: &pb.FromAgent_Digest{Digest: a.tree.AnswerQuery(v.DigestQuery)}})
	case *pb.FromHub_Upsert:
		a.handleUpsert(v.Upsert, &out)
	case *pb.FromHub_Objects:
		a.handleObjects(v.Objects, &out)
	case *pb.FromHub_ReportStored:
		a.handleReportStored(v.ReportStored, &out)
	case *pb.FromHub_Ask:
		out.SendAPIs = v.Ask.GetApis()
		a.resendReports(v.Ask.GetReports(), &out)
	default:
		a.outputUnhandledFrame(f, &out)
	}
	return out
}

// outputUnhandledFrame adds the frames that only the agent's shell handles to its output.
func (a *Agent) outputUnhandledFrame(f *pb.FromHub, out *AgentOutput) {
	switch v := f.GetFrame().(type) {
	case *pb.FromHub_Recall:
		out.Recall = true
	case *pb.FromHub_Renewed:
		out.Renewed = v.Renewed
	case *pb.FromHub_Refused:
		out.Refused = v.Refused
	case *pb.FromHub_Idle:
		out.Idle = v.Idle
	case *pb.FromHub_Move:
		out.Move = v.Move
	case *pb.FromHub_Dial:
		if a.options.Tunnels && v.Dial.GetId() != "" {
			out.Dial = v.Dial
		}
	case *pb.FromHub_Leave:
		if a.options.Leaves {
			out.Leave = v.Leave
		}
	}
}

// handleWelcome sends the reports that the hub has not acknowledged.
func (a *Agent) handleWelcome(w *pb.Welcome, out *AgentOutput) {
	a.inSession = true
	if !w.GetHolding() {
		a.recordPosition(w.GetPosition(), out)
	}
	for _, bundle := range slices.Sorted(maps.Keys(a.reports)) {
		if r := a.reports[bundle]; !r.acknowledged {
			out.Frames = append(out.Frames, r.reportFrame(bundle))
		}
	}
}

// resendReports sends reports again that the hub has lost. A report that this process has not
// made yet is sent when it is made. A report that is not acknowledged yet is not sent again.
func (a *Agent) resendReports(bundles []string, out *AgentOutput) {
	for _, bundle := range bundles {
		if r := a.reports[bundle]; r != nil && r.acknowledged {
			r.acknowledged = false
			out.Frames = append(out.Frames, r.reportFrame(bundle))
		} else if e, held := a.tree.Get(bundle); held && r == nil {
			e.Status = ""
			a.tree.Put(e)
		}
	}
}

func (a *Agent) recordPosition(p *pb.Position, out *AgentOutput) {
	if p.GetChainId() != "" {
		a.position, out.Position = p, p
	}
}

func (a *Agent) handleUpsert(u *pb.Upsert, out *AgentOutput) {
	bundle, generation := u.GetBundle(), u.GetGeneration()
	m, err := decodeManifest(u)
	switch _, held := a.accepted[bundle]; {
	case err != nil:
	case generation <= 0:
		err = errors.New("its generation is not positive")
	case !held && len(a.accepted)+len(a.incomplete) >= maxHeldBundles:
		err = fmt.Errorf("an agent holds at most %d bundles", maxHeldBundles)
	}
	if err != nil {
		out.Rejected = append(out.Rejected, fmt.Errorf("refuse an order of generation %d for bundle %q, which changes nothing: %w", generation, bundle, err))
		return
	}
	if a.answerKnownOrder(u, &m, out) {
		return
	}
	if w := a.incomplete[bundle]; w != nil && w.manifest.Generation > generation {
		return
	}
	a.dropIncomplete(bundle)
	a.recordPosition(u.GetPosition(), out)
	missing := fillObjects(&m, func(hash string) (json.RawMessage, bool) {
		if a.options.Object == nil {
			return nil, false
		}
		return a.options.Object(bundle, hash)
	})
	if len(missing) == 0 {
		a.acceptManifest(m, manifestMemory(u.GetManifest()), out)
		return
	}
	a.incomplete[bundle] = &incompleteManifest{manifest: m, missing: missing, objects: map[string]json.RawMessage{}}
	if !a.addIncompleteBytes(bundle, manifestMemory(u.GetManifest()), out) {
		return
	}
	out.Frames = append(out.Frames, &pb.FromAgent{Frame: &pb.FromAgent_Need{Need: &pb.Need{Bundle: bundle, Generation: generation, Hashes: missing}}})
}

// answerKnownOrder handles an order that changes nothing: an older one than the agent has accepted, one
// before a removal, or the accepted one again. It reports whether the order was such.
func (a *Agent) answerKnownOrder(u *pb.Upsert, m *atoll.Manifest, out *AgentOutput) bool {
	bundle, generation := u.GetBundle(), u.GetGeneration()
	acc, held := a.accepted[bundle]
	if generation < acc.generation {
		if acc.stored { // otherwise Stored follows anyway
			out.Frames = append(out.Frames, storedFrame(bundle, acc.generation, acc.content))
		}
		return true
	}
	if g, ok := a.removedAt[bundle]; ok && !m.Remove && generation <= g {
		out.Frames = append(out.Frames, storedFrame(bundle, g, ""))
		return true
	}
	if !held || generation != acc.generation || m.Content != acc.content {
		return false
	}
	a.recordPosition(u.GetPosition(), out)
	if acc.stored {
		out.Frames = append(out.Frames, storedFrame(bundle, generation, m.Content))
	}
	return true
}

func (a *Agent) handleObjects(o *pb.Objects, out *AgentOutput) {
	w := a.incomplete[o.GetBundle()]
	if w == nil || w.manifest.Generation != o.GetGeneration() {
		return
	}
	bytes := 0
	for hash, object := range o.GetObjects() {
		if _, ok := slices.BinarySearch(w.missing, hash); ok {
			bytes += len(object) - len(w.objects[hash])
			w.objects[hash] = object
		}
	}
	if !a.addIncompleteBytes(o.GetBundle(), bytes, out) || len(w.objects) < len(w.missing) {
		return
	}
	m := w.manifest
	if still := fillObjects(&m, func(hash string) (json.RawMessage, bool) { v, ok := w.objects[hash]; return v, ok }); len(still) > 0 {
		return
	}
	a.dropIncomplete(o.GetBundle())
	a.acceptManifest(m, w.bytes, out)
}

// addIncompleteBytes counts the memory of an order that waits for objects. It drops the order, and returns false,
// where the order alone, or with the others, takes more than IncompleteBytes.
func (a *Agent) addIncompleteBytes(bundle string, bytes int, out *AgentOutput) bool {
	w := a.incomplete[bundle]
	w.bytes += bytes
	a.incompleteBytes += bytes
	switch {
	case w.bytes > a.options.IncompleteBytes:
		out.Oversized = append(out.Oversized, OversizedOrder{bundle, w.manifest.Generation})
	case a.incompleteBytes > a.options.IncompleteBytes:
		out.Postponed = true
	default:
		return true
	}
	a.dropIncomplete(bundle)
	return false
}

func (a *Agent) dropIncomplete(bundle string) {
	if w := a.incomplete[bundle]; w != nil {
		a.incompleteBytes -= w.bytes
		delete(a.incomplete, bundle)
	}
}

// CountIncomplete returns how many orders wait for objects.
func (a *Agent) CountIncomplete() int { return len(a.incomplete) }

// acceptManifest records the manifest as accepted and outputs it for storing; ManifestStored
// acknowledges it later.
func (a *Agent) acceptManifest(m atoll.Manifest, bytes int, out *AgentOutput) {
	a.accepted[m.Bundle] = acceptedManifest{m.Generation, m.Content, false}
	out.Store = append(out.Store, m)
	out.StoreBytes += bytes
}

// ManifestStored notes that a manifest in Store is stored in the member.
func (a *Agent) ManifestStored(bundle string, generation int64, content string) AgentOutput {
	var out AgentOutput
	acc := a.accepted[bundle]
	if acc.generation != generation || acc.content != content {
		return out // a newer one is being stored
	}
	a.accepted[bundle] = acceptedManifest{generation, content, true}
	e, _ := a.tree.Get(bundle)
	a.tree.Put(Entry{bundle, generation, content, e.Status})
	if a.inSession {
		out.Frames = append(out.Frames, storedFrame(bundle, generation, content))
	}
	return out
}

// ManifestRefused notes that the member does not store a manifest in Store: the stored one, if any, is what the
// agent holds of the bundle.
func (a *Agent) ManifestRefused(bundle string, generation int64, content string) {
	acc := a.accepted[bundle]
	if acc.generation != generation || acc.content != content {
		return // a newer one is being stored
	}
	if e, held := a.tree.Get(bundle); held {
		a.accepted[bundle] = acceptedManifest{e.Generation, e.Content, true}
	} else {
		delete(a.accepted, bundle)
	}
}

// ForgetRemovals drops the records that the bundles were removed.
func (a *Agent) ForgetRemovals(bundles []string) {
	for _, bundle := range bundles {
		delete(a.removedAt, bundle)
	}
}

// ReportStatus reports a bundle's status. Seq of the status is set here. A report equal to
// the last one is not sent. atLeast raises the seq, for agents that number by time; 0:
// count.
func (a *Agent) ReportStatus(bundle string, s atoll.RowStatus, atLeast int64) AgentOutput {
	var out AgentOutput
	hash := StatusHash(s)
	was := a.reports[bundle]
	if was != nil && was.hash == hash {
		return out
	}
	a.seqs[bundle] = max(a.seqs[bundle]+1, atLeast)
	s.Seq = a.seqs[bundle]
	r := &sentReport{seq: s.Seq, status: s, hash: hash}
	e, held := a.tree.Get(bundle)
	r.acknowledged = held && e.Status == hash // an earlier process may have reported it
	a.reports[bundle] = r
	out.StateChanged = !r.acknowledged && s.State != atoll.RowProgressing && (was == nil || was.status.State != s.State || was.status.Generation != s.Generation)
	if s.State == atoll.RowRemoved {
		a.tree.Delete(bundle)
	} else if held {
		e.Status = hash
		a.tree.Put(e)
	}
	if a.inSession && !r.acknowledged {
		out.Frames = append(out.Frames, r.reportFrame(bundle))
	}
	return out
}

func (a *Agent) handleReportStored(s *pb.ReportStored, out *AgentOutput) {
	bundle := s.GetBundle()
	r := a.reports[bundle]
	if r == nil || s.GetSeq() < r.seq {
		return
	}
	if s.GetSeq() > r.seq {
		a.seqs[bundle] = s.GetSeq() + 1
		r.seq, r.status.Seq, r.acknowledged = a.seqs[bundle], a.seqs[bundle], false
		out.Frames = append(out.Frames, r.reportFrame(bundle))
		return
	}
	r.acknowledged = true
	acc := a.accepted[bundle]
	if r.status.State != atoll.RowRemoved || acc.generation > r.status.Generation {
		return
	}
	a.removedAt[bundle] = r.status.Generation
	delete(a.accepted, bundle)
	delete(a.reports, bundle)
	delete(a.seqs, bundle)
	out.Forget = map[string]int64{bundle: r.status.Generation}
}

// LastSeq is the highest seq of a report of the bundle; 0 without one.
func (a *Agent) LastSeq(bundle string) int64 { return a.seqs[bundle] }

// CountUnacknowledged returns how many reports the hub has not stored yet.
func (a *Agent) CountUnacknowledged() int {
	n := 0
	for _, r := range a.reports {
		if !r.acknowledged {
			n++
		}
	}
	return n
}

func (r *sentReport) reportFrame(bundle string) *pb.FromAgent {
	b, err := json.Marshal(r.status)
	if err != nil {
		panic(fmt.Sprintf("session: a status is made of plain values: %v", err))
	}
	return &pb.FromAgent{Frame: &pb.FromAgent_Report{Report: &pb.Report{Bundle: bundle, Seq: r.seq, Status: b}}}
}

func storedFrame(bundle string, generation int64, content string) *pb.FromAgent {
	return &pb.FromAgent{Frame: &pb.FromAgent_Stored{Stored: &pb.Stored{Bundle: bundle, Generation: generation, Content: content}}}
}
