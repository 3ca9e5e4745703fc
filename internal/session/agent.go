package session

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// Agent is the agent's end, over all sessions of one process. Its shell stores what
// Store lists in the member, calls Stored when it lies there, and Report whenever a
// bundle's status changed.
type Agent struct {
	options  AgentOptions
	tree     *Tree
	accepted map[string]accepted
	gone     map[string]int64 // bundle → generation at which it was removed
	reports  map[string]*report
	seqs     map[string]int64
	waiting  map[string]*waiting
	position *pb.Position
	live     bool // between Welcome and the end of the stream
}

// AgentOptions of an agent process.
type AgentOptions struct {
	Version string
	// Instance is random for each process.
	Instance string
	// Object gives the JSON of an object that the agent holds, by the hash of its
	// item. It must not call the Agent.
	Object func(bundle, hash string) (json.RawMessage, bool)
	// Tunnels: the agent's shell opens a tunnel when the hub dials.
	Tunnels bool
	// Leaves: the agent's shell lets go of the member when the hub tells it to.
	Leaves bool
}

// Memory is what an agent process finds in the member when it starts.
type Memory struct {
	// Held bundles. Status may be empty where the last report is not remembered.
	Held []Entry
	// Seqs of the last reports. An agent that does not remember them may give
	// numbers that surely are not lower, such as the time in milliseconds.
	Seqs map[string]int64
	// Gone tells at which generation bundles were removed that are not held any
	// more, whether or not the hub has acknowledged it.
	Gone map[string]int64
	// Position of the hub that was stored last; nil without one.
	Position *pb.Position
}

type accepted struct {
	generation int64
	content    string
	stored     bool
}

type report struct {
	seq    int64
	status atoll.RowStatus
	hash   string // of the status
	acked  bool
}

// waiting is an Upsert of which objects are still to come.
type waiting struct {
	manifest atoll.Manifest
	missing  []string
	objects  map[string]json.RawMessage
}

// AgentOutput is what the agent's shell must do.
type AgentOutput struct {
	// Frames to send, in this order.
	Frames []*pb.FromAgent
	// Store these manifests, all objects filled in, then call Stored. A manifest
	// of a bundle replaces one of the same bundle that is still being stored.
	Store []atoll.Manifest
	// Forget bundles whose removal the hub has stored: only their generation is to
	// be remembered, in Memory.Gone.
	Forget map[string]int64
	// Position to remember before anything that Store lists; nil: as before.
	Position *pb.Position
	// SendAPIs: send the Inventory again, with its list of APIs.
	SendAPIs bool
	// Recall: send what is remembered of tombstones.
	Recall bool
	// Turned: the report is of a row that became Ready, Degraded, Failed or Removed.
	// An agent that checks in and has no session hastens its rest for it.
	Turned bool
	// Welcome, Renewed, Refused, Idle, Move as received.
	Welcome *pb.Welcome
	Renewed *pb.Renewed
	Refused *pb.Refused
	Idle    *pb.Idle
	Move    *pb.Move
	// Dial: open a tunnel of that id.
	Dial *pb.Dial
	// Leave: let go of all that is held, and answer with Left. What the core knows is of no
	// use then: the next session begins with a new one.
	Leave *pb.Leave
	// Rejected frames of the hub, to be logged.
	Rejected []error
}

// NewAgent of what the process found in the member. The memory belongs to it.
func NewAgent(o AgentOptions, m Memory) *Agent {
	a := &Agent{
		options: o, tree: NewTree(m.Held), accepted: map[string]accepted{}, gone: m.Gone,
		reports: map[string]*report{}, seqs: m.Seqs, waiting: map[string]*waiting{}, position: m.Position,
	}
	for _, e := range m.Held {
		a.accepted[e.Bundle] = accepted{e.Generation, e.Content, true}
	}
	if a.gone == nil {
		a.gone = map[string]int64{}
	}
	if a.seqs == nil {
		a.seqs = map[string]int64{}
	}
	return a
}

// Hello begins a session: the first frame of a new stream. Orders of the last
// stream that wait for objects are forgotten, the hub will send them again; those
// that are being stored stay so.
func (a *Agent) Hello() *pb.FromAgent {
	a.live = false
	a.waiting = map[string]*waiting{}
	highest := int64(0)
	for _, e := range a.accepted {
		highest = max(highest, e.generation)
	}
	for _, g := range a.gone {
		highest = max(highest, g)
	}
	return &pb.FromAgent{Frame: &pb.FromAgent_Hello{Hello: &pb.Hello{
		AgentVersion: a.options.Version, Protocol: ProtocolVersion, Instance: a.options.Instance,
		Digest: a.tree.Digest(), Held: uint32(a.tree.Len()), Position: a.position, Highest: highest,
		Tunnels: a.options.Tunnels, Leaves: a.options.Leaves,
	}}}
}

// Frame takes a frame of the hub.
func (a *Agent) Frame(f *pb.FromHub) AgentOutput {
	var out AgentOutput
	switch v := f.GetFrame().(type) {
	case *pb.FromHub_Welcome:
		out.Welcome = v.Welcome
		a.welcome(v.Welcome, &out)
	case *pb.FromHub_DigestQuery:
		out.Frames = append(out.Frames, &pb.FromAgent{Frame: &pb.FromAgent_Digest{Digest: a.tree.Answer(v.DigestQuery)}})
	case *pb.FromHub_Upsert:
		a.upsert(v.Upsert, &out)
	case *pb.FromHub_Objects:
		a.objects(v.Objects, &out)
	case *pb.FromHub_ReportStored:
		a.reportStored(v.ReportStored, &out)
	case *pb.FromHub_Ask:
		out.SendAPIs = v.Ask.GetApis()
		a.again(v.Ask.GetReports(), &out)
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
	return out
}

// welcome sends what the hub has not acknowledged yet.
func (a *Agent) welcome(w *pb.Welcome, out *AgentOutput) {
	a.live = true
	if !w.GetHolding() {
		a.seen(w.GetPosition(), out)
	}
	for _, bundle := range slices.Sorted(maps.Keys(a.reports)) {
		if r := a.reports[bundle]; !r.acked {
			out.Frames = append(out.Frames, r.frame(bundle))
		}
	}
}

// again sends reports that were believed stored; one that this process has not made
// yet goes out when it is made, and one that is on its way needs nothing.
func (a *Agent) again(bundles []string, out *AgentOutput) {
	for _, bundle := range bundles {
		if r := a.reports[bundle]; r != nil && r.acked {
			r.acked = false
			out.Frames = append(out.Frames, r.frame(bundle))
		} else if e, held := a.tree.Get(bundle); held && r == nil {
			e.Status = ""
			a.tree.Put(e)
		}
	}
}

func (a *Agent) seen(p *pb.Position, out *AgentOutput) {
	if p.GetChainId() != "" {
		a.position, out.Position = p, p
	}
}

func (a *Agent) upsert(u *pb.Upsert, out *AgentOutput) {
	bundle, generation := u.GetBundle(), u.GetGeneration()
	m, err := decodeManifest(u)
	if err != nil || bundle == "" || generation <= 0 {
		out.Rejected = append(out.Rejected, fmt.Errorf("refuse an order of generation %d for bundle %q, which changes nothing: %w", generation, bundle, err))
		return
	}
	acc, held := a.accepted[bundle]
	if generation < acc.generation {
		if acc.stored { // otherwise Stored follows by itself
			out.Frames = append(out.Frames, storedFrame(bundle, acc.generation, acc.content))
		}
		return
	}
	if g, ok := a.gone[bundle]; ok && !m.Remove && generation <= g {
		out.Frames = append(out.Frames, storedFrame(bundle, g, ""))
		return
	}
	if held && generation == acc.generation && m.Content == acc.content {
		a.seen(u.GetPosition(), out)
		if acc.stored {
			out.Frames = append(out.Frames, storedFrame(bundle, generation, m.Content))
		}
		return
	}
	if w := a.waiting[bundle]; w != nil && w.manifest.Generation > generation {
		return
	}
	delete(a.waiting, bundle)
	a.seen(u.GetPosition(), out)
	missing := fill(&m, func(hash string) (json.RawMessage, bool) {
		if a.options.Object == nil {
			return nil, false
		}
		return a.options.Object(bundle, hash)
	})
	if len(missing) == 0 {
		a.store(m, out)
		return
	}
	a.waiting[bundle] = &waiting{m, missing, map[string]json.RawMessage{}}
	out.Frames = append(out.Frames, &pb.FromAgent{Frame: &pb.FromAgent_Need{Need: &pb.Need{Bundle: bundle, Generation: generation, Hashes: missing}}})
}

func (a *Agent) objects(o *pb.Objects, out *AgentOutput) {
	w := a.waiting[o.GetBundle()]
	if w == nil || w.manifest.Generation != o.GetGeneration() {
		return
	}
	for hash, object := range o.GetObjects() {
		if _, ok := slices.BinarySearch(w.missing, hash); ok {
			w.objects[hash] = object
		}
	}
	if len(w.objects) < len(w.missing) {
		return
	}
	m := w.manifest
	if still := fill(&m, func(hash string) (json.RawMessage, bool) { v, ok := w.objects[hash]; return v, ok }); len(still) > 0 {
		return
	}
	delete(a.waiting, o.GetBundle())
	a.store(m, out)
}

func (a *Agent) store(m atoll.Manifest, out *AgentOutput) {
	a.accepted[m.Bundle] = accepted{m.Generation, m.Content, false}
	out.Store = append(out.Store, m)
}

// Stored tells that a manifest that Store listed lies in the member.
func (a *Agent) Stored(bundle string, generation int64, content string) AgentOutput {
	var out AgentOutput
	acc := a.accepted[bundle]
	if acc.generation != generation || acc.content != content {
		return out // a newer one is on its way into the store
	}
	a.accepted[bundle] = accepted{generation, content, true}
	e, _ := a.tree.Get(bundle)
	a.tree.Put(Entry{bundle, generation, content, e.Status})
	if a.live {
		out.Frames = append(out.Frames, storedFrame(bundle, generation, content))
	}
	return out
}

// Report a bundle's status. Seq of the status is set here; reports that say the
// same as the last one cost nothing. atLeast raises the seq, for agents that number
// by time; 0: count.
func (a *Agent) Report(bundle string, s atoll.RowStatus, atLeast int64) AgentOutput {
	var out AgentOutput
	hash := StatusHash(s)
	was := a.reports[bundle]
	if was != nil && was.hash == hash {
		return out
	}
	a.seqs[bundle] = max(a.seqs[bundle]+1, atLeast)
	s.Seq = a.seqs[bundle]
	r := &report{seq: s.Seq, status: s, hash: hash}
	e, held := a.tree.Get(bundle)
	r.acked = held && e.Status == hash // the hub may know it from the process before
	a.reports[bundle] = r
	out.Turned = !r.acked && s.State != atoll.RowProgressing && (was == nil || was.status.State != s.State || was.status.Generation != s.Generation)
	if s.State == atoll.RowRemoved {
		a.tree.Delete(bundle)
	} else if held {
		e.Status = hash
		a.tree.Put(e)
	}
	if a.live && !r.acked {
		out.Frames = append(out.Frames, r.frame(bundle))
	}
	return out
}

func (a *Agent) reportStored(s *pb.ReportStored, out *AgentOutput) {
	bundle := s.GetBundle()
	r := a.reports[bundle]
	if r == nil || s.GetSeq() < r.seq {
		return
	}
	if s.GetSeq() > r.seq {
		a.seqs[bundle] = s.GetSeq() + 1
		r.seq, r.status.Seq, r.acked = a.seqs[bundle], a.seqs[bundle], false
		out.Frames = append(out.Frames, r.frame(bundle))
		return
	}
	r.acked = true
	acc := a.accepted[bundle]
	if r.status.State != atoll.RowRemoved || acc.generation > r.status.Generation {
		return
	}
	a.gone[bundle] = r.status.Generation
	delete(a.accepted, bundle)
	delete(a.reports, bundle)
	delete(a.seqs, bundle)
	out.Forget = map[string]int64{bundle: r.status.Generation}
}

// Seq is the highest that was given to a report of the bundle; 0 without one.
func (a *Agent) Seq(bundle string) int64 { return a.seqs[bundle] }

// Unacknowledged tells how many reports the hub has not stored yet.
func (a *Agent) Unacknowledged() int {
	n := 0
	for _, r := range a.reports {
		if !r.acked {
			n++
		}
	}
	return n
}

func (r *report) frame(bundle string) *pb.FromAgent {
	b, err := json.Marshal(r.status)
	if err != nil {
		panic(fmt.Sprintf("session: a status is made of plain values: %v", err))
	}
	return &pb.FromAgent{Frame: &pb.FromAgent_Report{Report: &pb.Report{Bundle: bundle, Seq: r.seq, Status: b}}}
}

func storedFrame(bundle string, generation int64, content string) *pb.FromAgent {
	return &pb.FromAgent{Frame: &pb.FromAgent_Stored{Stored: &pb.Stored{Bundle: bundle, Generation: generation, Content: content}}}
}
