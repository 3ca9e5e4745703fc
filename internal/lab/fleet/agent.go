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

// agent is one simulated agent and its imagined member. What it needs only while
// something happens, the session core above all, is made then and dropped after.
type agent struct {
	sim   *sim
	index int

	mu       sync.Mutex
	identity place // of length 0 before it joined
	uid      string
	renew    int64 // when its certificate is to be renewed, Unix seconds
	until    int64 // and when it ends
	renewing bool

	// What the member stores.
	holdings []holding
	gone     map[string]int64 // removed Bundles, by the generation that removed them
	made     []string         // namespaces that the agent made
	position position
	buried   []tombstone // removals that are carried out

	// What the process has in memory.
	instance uint32
	core     *session.Agent // nil while it sleeps
	used     int64          // when the core was used last, Unix seconds
	draws    uint64
	ticket   trust.Ticket

	// Its way to the hub.
	hub     int // that is dialled next
	wait    time.Duration
	link    *link
	away    int64 // no dialling before, Unix nanoseconds
	due     int64 // when it dials, Unix nanoseconds; 0: it does not
	waiting bool  // in the line of those that dial

	// How it checks in, if it does.
	interval time.Duration
	rest     session.Rest
	resting  bool
	turned   bool // a Bundle has turned since the session began, or since it rests
}

// holding is what a member stores of one Bundle, and what was reported of it.
type holding struct {
	shape      *shape
	generation int64
	seq        int64
	since      int64 // when mood began, Unix seconds
	mood       mood
	acked      bool     // the hub has stored what was told last
	fresh      bool     // there may be something new to tell
	state      state    // as told last
	mark       uint32   // of the objects as they came
	told       [16]byte // session.StatusHash of what was told last; zero before
}

// state is atoll.RowState in a byte.
type state uint8

var states = []atoll.RowState{"", atoll.RowProgressing, atoll.RowReady, atoll.RowDegraded, atoll.RowFailed, atoll.RowRemoved}

func stateOf(s atoll.RowState) state { return state(slices.Index(states, s)) }

// tombstone that was carried out; of the whole Bundle where which is nil.
type tombstone struct {
	bundle     string
	generation int64
	which      *atoll.Tombstone
	at         int64
}

// position of the hub, as the protocol has it.
type position struct {
	chain            string
	revision, issued int64
	mac              string
}

func (a *agent) name() string { return a.sim.name(a.index) }

// awake gives the session core, made from what the member stores where it slept. The
// caller holds mu.
func (a *agent) awake() *session.Agent {
	a.used = time.Now().Unix()
	if a.core != nil {
		return a.core
	}
	memory := session.Memory{Seqs: make(map[string]int64, len(a.holdings)), Gone: a.gone, Held: make([]session.Entry, 0, len(a.holdings))}
	for i := range a.holdings {
		h := &a.holdings[i]
		e := session.Entry{Bundle: h.shape.bundle, Generation: h.generation, Content: h.shape.content}
		if h.acked {
			e.Status = hex.EncodeToString(h.told[:])
		}
		memory.Held = append(memory.Held, e)
		memory.Seqs[e.Bundle] = h.seq
	}
	if p := a.position; p.chain != "" {
		memory.Position = &pb.Position{ChainId: p.chain, Revision: p.revision, Issued: p.issued, Mac: []byte(p.mac)}
	}
	a.core = session.NewAgent(session.AgentOptions{
		Version: atoll.Version, Instance: a.sim.instance(a.index, a.instance), Object: a.object,
	}, memory)
	if a.link != nil && a.link.welcomed {
		a.core.Frame(&pb.FromHub{Frame: &pb.FromHub_Welcome{Welcome: &pb.Welcome{Holding: true}}}) // it was welcome before it slept
	}
	return a.core
}

// sleep drops the core where nothing is under way. The caller holds mu.
func (a *agent) sleep() {
	if a.core == nil || len(a.needs()) > 0 {
		return
	}
	for i := range a.holdings {
		if !a.holdings[i].acked {
			return
		}
	}
	a.core = nil
}

func (a *agent) needs() []string {
	if a.link == nil {
		return nil
	}
	return a.link.needs
}

// held already: an imagined member needs no object, only that it has it.
var held = json.RawMessage("{}")

// object of a hash. The caller of the core holds mu.
func (a *agent) object(bundle, hash string) (json.RawMessage, bool) {
	if h := a.holding(bundle); h != nil && h.shape.has(hash) {
		return held, true
	}
	for i := range a.holdings {
		if a.holdings[i].shape.has(hash) {
			return held, true
		}
	}
	return nil, false
}

func (a *agent) holding(bundle string) *holding {
	for i := range a.holdings {
		if a.holdings[i].shape.bundle == bundle {
			return &a.holdings[i]
		}
	}
	return nil
}

// store a manifest in the imagined member, which applies it at once. The caller
// holds mu.
func (a *agent) store(m *atoll.Manifest) {
	now := time.Now()
	s, mark := a.sim.shapes.hold(m)
	h := a.holding(m.Bundle)
	if h == nil {
		a.holdings = append(a.holdings, holding{})
		h = &a.holdings[len(a.holdings)-1]
		h.mood, h.since = moodProgressing, now.Unix()
	}
	old := h.shape
	h.generation, h.shape, h.mark, h.fresh = m.Generation, s, mark, true
	a.namespaces(s)
	if old != s && !s.remove {
		a.ripen(h, now)
	}
	a.sim.shapes.release(old)
}

// ripen a new content: it is healthy after a while. The caller holds mu.
func (a *agent) ripen(h *holding, now time.Time) {
	delay := a.delay()
	if delay <= quick {
		h.turn(moodReady, now)
		return
	}
	h.turn(moodProgressing, now)
	a.turnLater(h, moodReady, delay)
}

// turn the mood.
func (h *holding) turn(to mood, now time.Time) {
	if h.mood != to {
		h.mood, h.since, h.fresh = to, now.Unix(), true
	}
}

// quick is the delay to Ready in which nobody would have reported Progressing:
// agents gather statuses for as long.
const quick = 100 * time.Millisecond

// turnLater changes the mood of a Bundle, unless another content came meanwhile. The
// caller holds mu.
func (a *agent) turnLater(h *holding, to mood, after time.Duration) {
	bundle, content := h.shape.bundle, h.shape
	a.sim.schedule.in(after, func() { a.turn(bundle, content, to) })
}

func (a *agent) turn(bundle string, content *shape, to mood) {
	a.mu.Lock()
	h := a.holding(bundle)
	if h == nil || h.shape != content || h.mood == to {
		a.mu.Unlock()
		return
	}
	h.turn(to, time.Now())
	a.report(h)
	link := a.link
	a.mu.Unlock()
	link.flush()
}

// namespaces that the agent made: those that something placed needed and nobody
// placed. The caller holds mu.
func (a *agent) namespaces(s *shape) {
	for ns := range s.namespaces {
		if ns != "" && ns != "default" && !strings.HasPrefix(ns, "kube-") && !slices.Contains(a.made, ns) && !a.lists(namespaceKey(ns)) {
			a.made = append(a.made, ns)
		}
	}
	for _, ns := range s.deletedNamespaces {
		if s.remove && !a.inside(ns) {
			a.made = slices.DeleteFunc(a.made, func(x string) bool { return x == ns })
		}
	}
}

func namespaceKey(name string) atoll.ItemKey { return atoll.ItemKey{Kind: "Namespace", Name: name} }

// lists tells whether any Bundle has the item. The caller holds mu.
func (a *agent) lists(key atoll.ItemKey) bool {
	return slices.ContainsFunc(a.holdings, func(h holding) bool { return h.shape != nil && h.shape.listed[key] })
}

// inside tells whether anything placed is in the namespace. The caller holds mu.
func (a *agent) inside(ns string) bool {
	return slices.ContainsFunc(a.holdings, func(h holding) bool { return h.shape != nil && h.shape.namespaces[ns] })
}

// status of a Bundle now. The caller holds mu.
func (a *agent) status(h *holding) atoll.RowStatus {
	in := report.Input{Generation: h.generation}
	for i := range h.shape.tombstones {
		t := &h.shape.tombstones[i]
		if len(t.MovedTo) == 0 || a.moved(t) {
			in.Gone = append(in.Gone, t.ID())
		} else {
			in.Items = append(in.Items, report.Item{
				Key: t.Key, Extra: true, Observed: true, Health: atoll.Progressing, Why: "Moving", Text: "kept for the bundle that takes it over",
			})
		}
	}
	if h.shape.remove {
		in.Removed = true
		in.Vacant = a.vacant(h.shape)
	}
	return h.shape.status(h.mood, in, h.since)
}

// moved tells whether a Bundle that the item went to has it here, or has been and
// gone. The caller holds mu.
func (a *agent) moved(t *atoll.Tombstone) bool {
	for _, to := range t.MovedTo {
		if h := a.holding(to); h != nil && (h.shape.listed[t.Key] || h.shape.remove) {
			return true
		}
		if _, was := a.gone[to]; was {
			return true
		}
	}
	return false
}

// vacant tells whether the namespace of a removed Bundle stays with nothing placed
// in it. The caller holds mu.
func (a *agent) vacant(s *shape) bool {
	return s.namespace != "" && !slices.Contains(s.deletedNamespaces, s.namespace) &&
		slices.Contains(a.made, s.namespace) && !a.inside(s.namespace) && !a.lists(namespaceKey(s.namespace))
}

// report a Bundle, if that says something new; without a session it is reported when
// one begins. The caller holds mu, and flushes the link after.
func (a *agent) report(h *holding) {
	if a.link == nil || !a.link.welcomed {
		if a.interval > 0 && h.mood != moodProgressing {
			a.hasten()
		}
		return
	}
	if !h.fresh {
		return
	}
	h.fresh = false
	s := a.status(h)
	told := h.shape.hash(h, &s)
	if h.acked && told == h.told {
		return
	}
	a.bury(h, &s)
	out := a.awake().Report(h.shape.bundle, s, 0)
	a.turned = a.turned || out.Turned
	h.told, h.acked, h.state = told, false, stateOf(s.State)
	h.seq = a.core.Seq(h.shape.bundle)
	a.link.send(out.Frames...)
}

// bury remembers the removals that the status tells. The caller holds mu.
func (a *agent) bury(h *holding, s *atoll.RowStatus) {
	for i := range h.shape.tombstones {
		t := &h.shape.tombstones[i]
		if s.AllGone || slices.Contains(s.Gone, t.ID()) {
			a.remember(tombstone{h.shape.bundle, h.generation, t, h.since})
		}
	}
	if s.State == atoll.RowRemoved {
		a.remember(tombstone{h.shape.bundle, h.generation, nil, h.since})
	}
}

// rememberMost bounds what one agent remembers of removals; the oldest go first.
const rememberMost = 500

func (a *agent) remember(t tombstone) {
	i := slices.IndexFunc(a.buried, func(o tombstone) bool {
		return o.bundle == t.bundle && (o.which == nil) == (t.which == nil) && (t.which == nil || o.which.ID() == t.which.ID())
	})
	switch {
	case i >= 0 && a.buried[i].generation >= t.generation:
		return
	case i >= 0:
		a.buried[i] = t
		return
	case len(a.buried) >= rememberMost:
		a.buried = slices.Delete(a.buried, 0, 1)
	}
	a.buried = append(a.buried, t)
}

// newInstance as another process of the agent has it. The caller holds mu.
func (a *agent) newInstance() {
	a.instance++
	a.core = nil
	a.ticket.Drop()
}
