package link

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"atoll.dev/atoll/internal/agent/apply"
	"atoll.dev/atoll/internal/agent/crash"
	"atoll.dev/atoll/internal/agent/inventory"
	"atoll.dev/atoll/internal/agent/membudget"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/pause"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/wakeup"
)

const (
	// Gather is how long changes of statuses are gathered before they are reported. A report before it
	// would show states that last for a moment, such as those after a restart.
	Gather = 100 * time.Millisecond
	// smallBundle is the number of items up to which a Bundle that becomes Ready is reported at once: each of its
	// changes costs a look at all of its items.
	smallBundle = 16
	// RefusedPause is how long a hub that refuses for good is left alone.
	RefusedPause = 10 * time.Minute
	// SupersededPause is how long an agent stays away whose session another one with
	// the same key took over. Two on the same member are kept apart by its lease
	// already; this is for members that are copies of each other.
	SupersededPause = time.Minute
	// unknownFirst is the first pause after a hub answered that it has no such cluster; each
	// further one is twice as long, up to RefusedPause.
	unknownFirst = 5 * time.Second
	// steady is how long a session lasts that shows that the link works.
	steady = 10 * time.Second
)

// Store is the part of the member's store that the link needs.
type Store interface {
	LoadIdentity(ctx context.Context) (*store.Identity, error)
	PutIdentity(ctx context.Context, id store.Identity) error
	PutReports(ctx context.Context, r store.Reports) error
	NextSequence(ctx context.Context) (int64, error)
	HasMemory(missed *store.MemoryFullError) bool
}

// Applier makes the member match the hub's Bundles.
type Applier interface {
	UpsertManifest(ctx context.Context, m atoll.Manifest, at store.Position) error
	ForgetRemovedBundle(ctx context.Context, bundle string, now time.Time) error
	ReleaseAll(ctx context.Context, clean bool, waits func(why string)) (left []string, err error)
}

// Holdings is what the member holds of the hub's Bundles.
type Holdings interface {
	ObjectByHash(hash string) (json.RawMessage, bool)
	StatusOf(bundle string, prev *atoll.RowStatus, now time.Time) (atoll.RowStatus, bool)
	CarriedOut(bundle string) []atoll.Tombstone
	ReceivedManifests() []apply.ReceivedManifest
	IsWantedAgain(bundle string, t *atoll.Tombstone) bool
}

// Options of a Link. Those without a default are required.
type Options struct {
	// Hub is HOST:PORT, several by commas where several hubs share one store: each
	// serves agents, and which one is dialled first depends on Name. CAHash is the pin
	// of their CA, Token and Name are for joining.
	Hub, CAHash, Token, Name string
	// FormerCAHashes are pins of the same hub by which it was joined before.
	FormerCAHashes []string
	// Admitted is called when the hub has let the agent in, and the member stores its identity: the
	// token is not needed any more. It must not block. Default: no call.
	Admitted func()
	Version  string
	// BalancerCA verifies, in PEM and beside the system's roots, load balancers that
	// terminate TLS before the hub; they are trusted with nothing else. Default: none.
	BalancerCA []byte
	Store      Store
	Inventory  func() inventory.Snapshot
	// Tunnel takes a connection on which the hub sends requests for the member's API; it closes it.
	// Default: people cannot reach the member through the hub.
	Tunnel func(net.Conn)
	// Memory bounds what is on its way between the hub and the member. Default: an agent without a memory limit.
	Memory membudget.Budget
	// RefusedPause; default: the constant of that name.
	RefusedPause time.Duration
	Metrics      *Metrics
	Log          *slog.Logger
}

// HubLink is the link to the hub.
type HubLink struct {
	o        Options
	applier  Applier
	holdings Holdings
	id       *identity
	hubs     []string
	at       int                  // of hubs; only the goroutine of Run uses it, ways and unknown
	ways     map[string]*hubRoute // by address
	// unknown is the last pause since the hub has no such cluster; 0: it has it.
	unknown time.Duration
	ticket  trust.Ticket
	budget  membudget.Budget

	manifests chan struct{} // capacity 1: there are manifests to store
	changed   chan struct{} // capacity 1: there are statuses to report
	saving    chan struct{} // capacity 1: the memory has to be stored
	stored    chan struct{} // capacity 1: fewer manifests wait to be stored
	drops     chan struct{} // capacity 1: there are removed Bundles to drop from the member's store

	mu        sync.Mutex
	core      *session.Agent
	out       *outbox // of the living session; nil without one
	pending   manifestQueue
	declined  map[string]declinedOrder // by Bundle
	postponed bool                     // the hub is to send orders of this session again
	dirty     map[string]time.Time
	// unchecked has small Bundles of dirty that may be Ready now, with the status that was reported.
	unchecked       map[string]atoll.RowStatus
	dropping        []string // removed Bundles that the member's store has to drop
	timings         applyTimings
	reportedBundles map[string]bool // reported by this process
	memory          store.Reports
	order           int64
	rhythm          checkInSchedule
}

// New returns a Link with the contents of the store. Its Applier and Holdings come with Run.
func New(o Options, stored store.StoredContents) *HubLink {
	if o.RefusedPause == 0 {
		o.RefusedPause = RefusedPause
	}
	l := &HubLink{
		o: o, hubs: session.OrderHubs(o.Name, strings.Split(o.Hub, ",")), manifests: make(chan struct{}, 1), changed: make(chan struct{}, 1), saving: make(chan struct{}, 1), stored: make(chan struct{}, 1), drops: make(chan struct{}, 1),
		dirty: map[string]time.Time{}, unchecked: map[string]atoll.RowStatus{}, reportedBundles: map[string]bool{}, declined: map[string]declinedOrder{}, memory: stored.Reports, order: stored.Position.Order,
		budget: cmp.Or(o.Memory, membudget.DivideLimit(0)), ways: map[string]*hubRoute{}, rhythm: checkInSchedule{hasten: make(chan struct{}, 1)},
	}
	l.memory.Position = stored.Position
	if l.memory.Last == nil {
		l.memory.Last = map[string]atoll.RowStatus{}
	}
	if l.memory.Gone == nil {
		l.memory.Gone = map[string]store.Gone{}
	}
	return l
}

// BundleStatusChanged reports that the status of a Bundle may have changed.
func (l *HubLink) BundleStatusChanged(bundle string) {
	l.mu.Lock()
	if _, waits := l.dirty[bundle]; !waits {
		l.dirty[bundle] = time.Now()
	}
	if last := l.memory.Last[bundle]; l.reportedBundles[bundle] && last.State != atoll.RowReady && last.Total <= smallBundle {
		l.unchecked[bundle] = last
	}
	if len(l.timings) > 0 {
		l.timings.recordLatestStatusChange(bundle, time.Now())
	}
	l.mu.Unlock()
	wakeup.WakeReader(l.changed)
}

// InventoryChanged reports that the inventory has something new.
func (l *HubLink) InventoryChanged() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out != nil {
		l.sendInventory(l.out, false)
	}
}

// Run serves the hub until ctx ends. It returns an error only when the member's
// store cannot give or take the agent's identity.
func (l *HubLink) Run(ctx context.Context, applier Applier, holdings Holdings) error {
	l.applier, l.holdings = applier, holdings
	l.newSessionCore()
	var running sync.WaitGroup
	defer running.Wait()
	defer crash.RecoverContained(ctx) // before what runs is waited for: it is to end
	running.Go(func() { defer crash.RecoverContained(ctx); l.storeManifestsLoop(ctx) })
	running.Go(func() { defer crash.RecoverContained(ctx); l.reportLoop(ctx) })
	running.Go(func() { defer crash.RecoverContained(ctx); l.saveReportsLoop(ctx) })
	running.Go(func() { defer crash.RecoverContained(ctx); l.dropRemovedLoop(ctx) })
	var err error
	if l.id, err = l.loadOrGenerateIdentity(ctx); err != nil {
		return err
	}
	if l.id.cert != nil {
		l.o.Metrics.certificate.Set(float64(l.id.cert.NotAfter.Unix()))
	}
	l.connectLoop(ctx)
	return nil
}

// newSessionCore makes the core from what is held.
func (l *HubLink) newSessionCore() {
	now := time.Now()
	memory := session.Memory{Seqs: map[string]int64{}, RemovedAt: map[string]int64{}}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, held := range l.holdings.ReceivedManifests() {
		entry := session.Entry{Bundle: held.Bundle, Generation: held.Generation, Content: held.Content}
		if last, ok := l.memory.Last[held.Bundle]; ok {
			entry.Status = session.StatusHash(last)
			memory.Seqs[held.Bundle] = last.Seq
		}
		memory.Held = append(memory.Held, entry)
		l.dirty[held.Bundle] = time.Now()
	}
	l.dropOldRemovals(now)
	for uid, gone := range l.memory.Gone {
		memory.RemovedAt[uid] = gone.Generation
	}
	if p := l.memory.Position; p.Chain != "" {
		memory.Position = &pb.Position{ChainId: p.Chain, Revision: p.Revision, Issued: p.Issued, Mac: p.MAC}
	}
	l.core = session.NewAgent(session.AgentOptions{
		Version: l.o.Version, Instance: rand.Text(), Object: l.objectByHash, Tunnels: l.o.Tunnel != nil, Leaves: true,
		IncompleteBytes: l.budget.Incomplete,
	}, memory)
	wakeup.WakeReader(l.changed)
}

// objectByHash looks in what is held and in what is about to be stored. The caller holds
// mu.
func (l *HubLink) objectByHash(_, hash string) (json.RawMessage, bool) {
	if part, ok := l.pending.FindPart(hash); ok {
		return part, true
	}
	return l.holdings.ObjectByHash(hash)
}

// connectLoop joins, if need be, and keeps sessions until ctx ends.
func (l *HubLink) connectLoop(ctx context.Context) {
	wait, told := &backoff{}, ""
	for ctx.Err() == nil {
		if !l.joinAndReleaseFormerHub(ctx) {
			pause.WaitFor(ctx, wait.next(session.CheckInSchedule{}))
			continue
		}
		begin := time.Now()
		err := l.runSession(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errCheckedIn) {
			wait.reset()
			told = ""
			l.restUntilCheckIn(ctx, time.Since(begin))
			continue
		}
		l.mu.Lock()
		rhythm := l.rhythm.CheckInSchedule
		l.mu.Unlock()
		if rhythm.HasLasted(time.Since(begin), steady) {
			l.unknown = 0
			wait.reset()
			told = ""
		}
		var moved *movedError
		var refused *refusedError
		if errors.As(err, &moved) {
			l.switchHub(moved)
			if time.Since(begin) > steady {
				continue
			}
		}
		d := wait.next(rhythm)
		switch {
		case moved != nil: // by a hub that it has hardly come to
		case errors.Is(err, errOrdersFit):
			l.o.Log.Info("a new session with the hub begins", "why", err)
		case errors.As(err, &refused):
			d = l.handleSessionRefusal(refused, d)
		default:
			told = l.handleLostLink(err, told, wait)
			l.switchToNextHub()
		}
		pause.WaitFor(ctx, d)
	}
}

// joinAndReleaseFormerHub joins and leaves the former hub, where that is due. It reports whether a session
// can start.
func (l *HubLink) joinAndReleaseFormerHub(ctx context.Context) bool {
	if !l.id.isValidAt(time.Now()) {
		if err := l.joinUntilAccepted(ctx); err != nil {
			if ctx.Err() == nil {
				l.o.Log.Error("cannot keep the identity that the hub gave; trying on", "err", err)
			}
			return false
		}
	}
	if l.id.Former != "" {
		if err := l.releaseFormerHubObjects(ctx); err != nil {
			if ctx.Err() == nil {
				l.o.Log.Warn("what another hub placed here cannot be released yet; trying on", "err", err)
			}
			return false
		}
	}
	return true
}

// handleLostLink logs a new reason why there is no session, and returns the reason that is logged
// last. A failure of trust that lasts makes the agent request a new certificate.
func (l *HubLink) handleLostLink(err error, told string, wait *backoff) string {
	switch {
	case isTrustError(err) && wait.current >= backoffMost/2:
		l.o.Log.Warn("hub and agent do not trust each other's certificates any more; requesting a new one from the hub", "hub", l.currentHub(), "err", err)
		l.id.cert = nil
		l.id.accepted = true
	case told != err.Error():
		told = err.Error()
		l.o.Log.Warn("no link to the hub; what is placed here is kept as it is; trying on", "hub", l.currentHub(), "err", err)
	}
	return told
}

// currentHub is the address to dial now.
func (l *HubLink) currentHub() string { return l.hubs[l.at] }

// switchToNextHub goes on to the next address, since this one does not serve.
func (l *HubLink) switchToNextHub() { l.at = (l.at + 1) % len(l.hubs) }

// switchHub goes on to the hub that the one before has named.
func (l *HubLink) switchHub(m *movedError) {
	if at := slices.Index(l.hubs, m.hub); at >= 0 {
		l.at = at
	} else {
		l.switchToNextHub()
	}
	l.o.Log.Info("the hub has more agents than its share, and sends this one on to another", "hub", l.currentHub())
}

// handleSessionRefusal decides how long to wait after the hub refused a session.
func (l *HubLink) handleSessionRefusal(r *refusedError, d time.Duration) time.Duration {
	if (r.reason == "Unknown" || r.reason == "Replaced") && l.hasNewToken() {
		l.o.Log.Info("the hub has removed this cluster; joining again by the new token", "hub", l.currentHub())
		l.id.cert, l.id.accepted = nil, false
		return d
	}
	switch {
	case r.final:
		d = l.o.RefusedPause
	case r.reason == "Unknown":
		// Usually the cluster was removed, and a person must uninstall this agent; but a hub may read of
		// the cluster later.
		d = min(max(2*l.unknown, unknownFirst), l.o.RefusedPause)
		l.unknown = d
	case r.reason == "Superseded":
		d = SupersededPause
	default:
		d = max(d, 5*time.Second)
	}
	l.o.Log.Error("the hub refuses this agent; what is placed here is kept as it is", "hub", l.currentHub(),
		"reason", r.reason, "message", r.message, "nextTry", d.String())
	return d
}

// hasNewToken reports whether the agent has a token with which it has not joined.
func (l *HubLink) hasNewToken() bool { return l.o.Token != "" && tokenID(l.o.Token) != l.id.TokenID }

// isTrustError reports whether TLS failed because one side does not trust the other.
func isTrustError(err error) bool {
	text := err.Error()
	return status.Code(err) == codes.Unauthenticated || strings.Contains(text, "remote error: tls:") || strings.Contains(text, "x509:")
}

// tokenID is the part of a token that is no secret.
func tokenID(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	return parts[1]
}

// movedError is a Move frame.
type movedError struct{ hub string }

func (m *movedError) Error() string { return "the hub sends this agent on to the hub at " + m.hub }

// refusedError is a Refused frame.
type refusedError struct {
	reason, message string
	final           bool
}

func (r *refusedError) Error() string { return r.reason + ": " + r.message }
