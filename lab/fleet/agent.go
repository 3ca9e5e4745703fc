package fleet

import (
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"atoll.dev/atoll/internal/agent/report"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/trust"
)

// simulatedAgent is one simulated agent with its simulated member. State that only an active session
// needs, mainly the session core, exists during the session alone.
type simulatedAgent struct {
	sim   *simulator
	index int

	mu           sync.Mutex
	identity     identityLocation // length is 0 before the agent joined
	uid          string
	renewAt      int64 // Unix seconds
	certNotAfter int64 // Unix seconds
	renewing     bool

	// The state that the member stores.
	holdings             []heldBundle
	removedGenerations   map[string]int64 // removed Bundles, by the generation of their removal
	createdNamespaces    []string         // namespaces that the agent created
	position             position
	carriedOutTombstones []tombstone // completed removals

	// The state that the process keeps in memory.
	instanceCount uint32
	core          *session.Agent // nil while the agent sleeps
	lastUsed      int64          // Unix seconds
	drawCount     uint64
	ticket        trust.Ticket

	// The agent's way to the hub.
	nextHub     int // index of the hub to dial next
	redialPause time.Duration
	session     *simulatedSession
	awayUntil   int64 // Unix nanoseconds; the agent does not dial before
	dialAt      int64 // Unix nanoseconds; 0 means that no dial is planned
	dialQueued  bool  // the agent is in the dial queue

	// The agent's check-ins; unused by agents that hold a stream.
	interval             time.Duration
	checkInRest          session.CheckInPause
	resting              bool
	turnedUnhealthyEarly bool // a Bundle has turned since the session or the rest began
}

// heldBundle is the member's copy of one Bundle and the status that was reported of it.
type heldBundle struct {
	shape         *keptManifest
	generation    int64
	seq           int64
	moodSince     int64 // Unix seconds
	mood          healthMood
	acked         bool       // the hub has stored the last report
	reportPending bool       // a new report may be due
	reportedState stateIndex // the state of the last report
	objectsMark   uint32     // mark of the objects as received
	reportedHash  [16]byte   // session.StatusHash of the last report; zero before the first one
}

// stateIndex is the index of an atoll.RowState in rowStates.
type stateIndex uint8

var rowStates = []atoll.RowState{"", atoll.RowProgressing, atoll.RowReady, atoll.RowDegraded, atoll.RowFailed, atoll.RowRemoved}

func stateOf(s atoll.RowState) stateIndex { return stateIndex(slices.Index(rowStates, s)) }

// tombstone is a completed removal. It covers the whole Bundle if item is nil.
type tombstone struct {
	bundle     string
	generation int64
	item       *atoll.Tombstone
	at         int64
}

// position is the position of the hub in the protocol.
type position struct {
	chain            string
	revision, issued int64
	mac              string
}

func (a *simulatedAgent) clusterName() string { return a.sim.agentName(a.index) }

// wakeCore returns the session core. It builds the core from the member's state if the
// agent sleeps. The caller holds mu.
func (a *simulatedAgent) wakeCore() *session.Agent {
	a.lastUsed = time.Now().Unix()
	if a.core != nil {
		return a.core
	}
	memory := session.Memory{Seqs: make(map[string]int64, len(a.holdings)), RemovedAt: a.removedGenerations, Held: make([]session.Entry, 0, len(a.holdings))}
	for i := range a.holdings {
		h := &a.holdings[i]
		e := session.Entry{Bundle: h.shape.bundle, Generation: h.generation, Content: h.shape.content}
		if h.acked {
			e.Status = hex.EncodeToString(h.reportedHash[:])
		}
		memory.Held = append(memory.Held, e)
		memory.Seqs[e.Bundle] = h.seq
	}
	if p := a.position; p.chain != "" {
		memory.Position = &pb.Position{ChainId: p.chain, Revision: p.revision, Issued: p.issued, Mac: []byte(p.mac)}
	}
	a.core = session.NewAgent(session.AgentOptions{
		Version: atoll.Version, Instance: a.sim.instanceID(a.index, a.instanceCount), Object: a.objectByHash,
	}, memory)
	if a.session != nil && a.session.welcomed {
		a.core.HandleFrame(&pb.FromHub{Frame: &pb.FromHub_Welcome{Welcome: &pb.Welcome{Holding: true}}}) // the hub welcomed the agent before it slept
	}
	return a.core
}

// dropIdleCore drops the core if no work is pending. The caller holds mu.
func (a *simulatedAgent) dropIdleCore() {
	if a.core == nil || len(a.bundlesRequestedFromHub()) > 0 {
		return
	}
	for i := range a.holdings {
		if !a.holdings[i].acked {
			return
		}
	}
	a.core = nil
}

func (a *simulatedAgent) bundlesRequestedFromHub() []string {
	if a.session == nil {
		return nil
	}
	return a.session.requestedBundles
}

// emptyObject stands for every object: a simulated member needs no content of objects.
var emptyObject = json.RawMessage("{}")

// objectByHash returns the object with the hash, if the member has it. The caller of the
// core holds mu.
func (a *simulatedAgent) objectByHash(bundle, hash string) (json.RawMessage, bool) {
	if h := a.findHeldBundle(bundle); h != nil && h.shape.hasItemHash(hash) {
		return emptyObject, true
	}
	for i := range a.holdings {
		if a.holdings[i].shape.hasItemHash(hash) {
			return emptyObject, true
		}
	}
	return nil, false
}

func (a *simulatedAgent) findHeldBundle(bundle string) *heldBundle {
	for i := range a.holdings {
		if a.holdings[i].shape.bundle == bundle {
			return &a.holdings[i]
		}
	}
	return nil
}

// storeManifest stores a manifest in the simulated member, which applies it at once. The
// caller holds mu.
func (a *simulatedAgent) storeManifest(m *atoll.Manifest) {
	now := time.Now()
	s, mark := a.sim.shapes.acquireManifest(m)
	h := a.findHeldBundle(m.Bundle)
	if h == nil {
		a.holdings = append(a.holdings, heldBundle{})
		h = &a.holdings[len(a.holdings)-1]
		h.mood, h.moodSince = moodProgressing, now.Unix()
	}
	old := h.shape
	h.generation, h.shape, h.objectsMark, h.reportPending = m.Generation, s, mark, true
	a.addCreatedNamespaces(s)
	if old != s && !s.isRemoval {
		a.scheduleHealthy(h, now)
	}
	a.sim.shapes.releaseManifest(old)
}

// scheduleHealthy makes new content healthy after a drawn delay. The caller holds mu.
func (a *simulatedAgent) scheduleHealthy(h *heldBundle, now time.Time) {
	delay := a.drawReadyDelay()
	if delay <= minHealthyDelay {
		h.setMood(moodReady, now)
		return
	}
	h.setMood(moodProgressing, now)
	a.changeMoodLater(h, moodReady, delay)
}

// setMood sets the mood and the time of the change.
func (h *heldBundle) setMood(to healthMood, now time.Time) {
	if h.mood != to {
		h.mood, h.moodSince, h.reportPending = to, now.Unix(), true
	}
}

// minHealthyDelay is the shortest delay to Ready that an agent reports as Progressing:
// agents gather statuses for this time.
const minHealthyDelay = 100 * time.Millisecond

// changeMoodLater changes the mood of a Bundle after a delay, unless other content arrives
// before. The caller holds mu.
func (a *simulatedAgent) changeMoodLater(h *heldBundle, to healthMood, after time.Duration) {
	bundle, content := h.shape.bundle, h.shape
	a.sim.schedule.runAfter(after, func() { a.changeBundleMood(bundle, content, to) })
}

func (a *simulatedAgent) changeBundleMood(bundle string, content *keptManifest, to healthMood) {
	a.mu.Lock()
	h := a.findHeldBundle(bundle)
	if h == nil || h.shape != content || h.mood == to {
		a.mu.Unlock()
		return
	}
	h.setMood(to, time.Now())
	a.reportBundle(h)
	link := a.session
	a.mu.Unlock()
	link.flushFrames()
}

// addCreatedNamespaces records the namespaces that the agent creates: an item needs them
// and no row places them. The caller holds mu.
func (a *simulatedAgent) addCreatedNamespaces(s *keptManifest) {
	for ns := range s.namespaces {
		if ns != "" && ns != "default" && !strings.HasPrefix(ns, "kube-") && !slices.Contains(a.createdNamespaces, ns) && !a.holdsItem(namespaceKey(ns)) {
			a.createdNamespaces = append(a.createdNamespaces, ns)
		}
	}
	for _, ns := range s.deletedNamespaces {
		if s.isRemoval && !a.namespaceInUse(ns) {
			a.createdNamespaces = slices.DeleteFunc(a.createdNamespaces, func(x string) bool { return x == ns })
		}
	}
}

func namespaceKey(name string) atoll.ItemKey { return atoll.ItemKey{Kind: "Namespace", Name: name} }

// holdsItem reports whether any Bundle has the item. The caller holds mu.
func (a *simulatedAgent) holdsItem(key atoll.ItemKey) bool {
	return slices.ContainsFunc(a.holdings, func(h heldBundle) bool { return h.shape != nil && h.shape.listedKeys[key] })
}

// namespaceInUse reports whether any placed item is in the namespace. The caller holds mu.
func (a *simulatedAgent) namespaceInUse(ns string) bool {
	return slices.ContainsFunc(a.holdings, func(h heldBundle) bool { return h.shape != nil && h.shape.namespaces[ns] })
}

// bundleStatus returns the present status of a Bundle. The caller holds mu.
func (a *simulatedAgent) bundleStatus(h *heldBundle) atoll.RowStatus {
	in := report.Input{Generation: h.generation}
	for i := range h.shape.tombstones {
		t := &h.shape.tombstones[i]
		if len(t.MovedTo) == 0 || a.hasMoveTarget(t) {
			in.Gone = append(in.Gone, t.ID())
		} else {
			in.Items = append(in.Items, report.Item{
				Key: t.Key, Extra: true, Observed: true, Health: atoll.Progressing, Why: "Moving", Text: "kept for the bundle that takes it over",
			})
		}
	}
	if h.shape.isRemoval {
		in.Removed = true
		in.Vacant = a.leavesEmptyNamespace(h.shape)
	}
	return h.shape.rowStatusInMood(h.mood, in, h.moodSince)
}

// hasMoveTarget reports whether the target Bundle of a moved item is in the member, or was
// there and has been removed. The caller holds mu.
func (a *simulatedAgent) hasMoveTarget(t *atoll.Tombstone) bool {
	for _, to := range t.MovedTo {
		if h := a.findHeldBundle(to); h != nil && (h.shape.listedKeys[t.Key] || h.shape.isRemoval) {
			return true
		}
		if _, was := a.removedGenerations[to]; was {
			return true
		}
	}
	return false
}

// leavesEmptyNamespace reports whether the namespace of a removed Bundle remains without
// placed items. The caller holds mu.
func (a *simulatedAgent) leavesEmptyNamespace(s *keptManifest) bool {
	return s.namespace != "" && !slices.Contains(s.deletedNamespaces, s.namespace) &&
		slices.Contains(a.createdNamespaces, s.namespace) && !a.namespaceInUse(s.namespace) && !a.holdsItem(namespaceKey(s.namespace))
}

// reportBundle reports a Bundle if its status changed. Without a session the next session
// reports it. The caller holds mu and flushes the session afterwards.
func (a *simulatedAgent) reportBundle(h *heldBundle) {
	if a.session == nil || !a.session.welcomed {
		if a.interval > 0 && h.mood != moodProgressing {
			a.hastenCheckIn()
		}
		return
	}
	if !h.reportPending {
		return
	}
	h.reportPending = false
	s := a.bundleStatus(h)
	hash := h.shape.statusHash(h, &s)
	if h.acked && hash == h.reportedHash {
		return
	}
	a.recordReportedTombstones(h, &s)
	out := a.wakeCore().ReportStatus(h.shape.bundle, s, 0)
	a.turnedUnhealthyEarly = a.turnedUnhealthyEarly || out.StateChanged
	h.reportedHash, h.acked, h.reportedState = hash, false, stateOf(s.State)
	h.seq = a.core.LastSeq(h.shape.bundle)
	a.session.send(out.Frames...)
}

// recordReportedTombstones stores the tombstones that the status reports as carried out. The caller
// holds mu.
func (a *simulatedAgent) recordReportedTombstones(h *heldBundle, s *atoll.RowStatus) {
	for i := range h.shape.tombstones {
		t := &h.shape.tombstones[i]
		if s.AllTombstonesDone || slices.Contains(s.DoneTombstones, t.ID()) {
			a.addTombstone(tombstone{h.shape.bundle, h.generation, t, h.moodSince})
		}
	}
	if s.State == atoll.RowRemoved {
		a.addTombstone(tombstone{h.shape.bundle, h.generation, nil, h.moodSince})
	}
}

// rememberMost bounds the removals that one agent keeps; the oldest are dropped first.
const rememberMost = 500

func (a *simulatedAgent) addTombstone(t tombstone) {
	i := slices.IndexFunc(a.carriedOutTombstones, func(o tombstone) bool {
		return o.bundle == t.bundle && (o.item == nil) == (t.item == nil) && (t.item == nil || o.item.ID() == t.item.ID())
	})
	switch {
	case i >= 0 && a.carriedOutTombstones[i].generation >= t.generation:
		return
	case i >= 0:
		a.carriedOutTombstones[i] = t
		return
	case len(a.carriedOutTombstones) >= rememberMost:
		a.carriedOutTombstones = slices.Delete(a.carriedOutTombstones, 0, 1)
	}
	a.carriedOutTombstones = append(a.carriedOutTombstones, t)
}

// becomeNewInstance makes the agent an instance of another process. The caller holds mu.
func (a *simulatedAgent) becomeNewInstance() {
	a.instanceCount++
	a.core = nil
	a.ticket.DropTicket()
}
