package gatechecks

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/reconcile"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/state"
)

const (
	// workers are how many requests are under way at the same time, hostChecks those to one host, and namespaceChecks those of
	// one namespace.
	workers, hostChecks, namespaceChecks = 16, 2, 4
	// busyRetry is the time after which a measurement is tried again whose host or namespace has its part of the workers.
	busyRetry = 2 * time.Second
	// maxGates is how many gates are measured at the same time, and namespaceGates how many of one namespace.
	maxGates, namespaceGates = 2048, 512
	// postponedText is the value of a gate for which there is no room.
	postponedText = "the hub measures as many gates as it may, and measures this one after others"
	// firstSpread is within which time a gate is measured first.
	firstSpread = 3 * time.Second
)

// Bundles is the table of Bundles.
type Bundles interface {
	Get(uid string) (state.Bundle, bool)
	List() []state.Bundle
	Subscribe(fn func(uid string))
}

// Revisions is the table of Revisions.
type Revisions interface {
	LatestOfBundle(bundleUID string) (*enginev1.Revision, bool)
	Subscribe(fn func(bundleUID string))
}

// Settings are the hub's settings.
type Settings interface {
	// Freeze returns the freeze of all changes, which may have ended; nil: there is none.
	Freeze() *v1alpha1.ChangeFreeze
	Subscribe(fn func(name string))
}

// Events records Events about a Bundle. It must not block.
type Events interface {
	Warn(bundle enginev1.BundleRef, reason atoll.Reason, message string)
}

// Config of a Checker. All but Log must be set.
type Config struct {
	Bundles   Bundles
	Revisions Revisions
	Settings  Settings
	// Secrets of gates.
	Secrets client.Reader
	// AllowedNetworks are dialled although they are refused otherwise.
	AllowedNetworks []string
	// Changed is called when the verdict of a gate of a Bundle may change, or its text.
	Changed func(uid string)
	Events  Events
	// Log; nil: slog's default.
	Log *slog.Logger
}

// gateID names a stored verdict.
type gateID struct {
	uid, stage, name, hash, revision string
	since                            int64
}

func newGateID(uid string, v *v1alpha1.GateStatus) gateID {
	return gateID{uid, v.Stage, v.Name, v.Hash, v.Revision, v.Since.Unix()}
}

// trackedGate is a gate that is measured.
type trackedGate struct {
	gate            v1alpha1.RolloutGate
	host, namespace string
	tally           rollout.Tally
}

// Checker measures for gates. Make it with New.
type Checker struct {
	Config
	loop *reconcile.Loop[gateID]

	mu       sync.Mutex
	isActive bool
	tracked  map[gateID]*trackedGate
	byBundle map[string]map[gateID]bool
	// byNamespace counts what is tracked.
	byNamespace map[string]int
	// postponed are Bundles with a gate for which there was no room, and their namespaces.
	postponed map[string]string
	// measure measures a gate once.
	measure func(ctx context.Context, b state.Bundle, id gateID, g *v1alpha1.RolloutGate) rollout.Outcome
	// busy counts the requests under way, by host and by namespace.
	busy map[busyKey]int
}

type busyKey struct{ kind, name string }

// New makes a Checker and subscribes it to the tables.
func New(cfg Config) *Checker {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	c := &Checker{
		Config: cfg, tracked: map[gateID]*trackedGate{}, byBundle: map[string]map[gateID]bool{}, byNamespace: map[string]int{}, postponed: map[string]string{}, busy: map[busyKey]int{},
	}
	c.measure = c.takeMeasurement
	c.loop = reconcile.New(reconcile.Options[gateID]{
		Name: "gates", Workers: workers, Backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[gateID](time.Second, 5*time.Minute),
		Reconcile: c.measureGate,
		Failed: func(id gateID, err error) {
			c.Log.Warn("a gate could not be measured, trying again", "stage", id.stage, "gate", id.name, "err", err)
		},
	})
	cfg.Bundles.Subscribe(c.bundleChanged)
	cfg.Revisions.Subscribe(c.bundleChanged) // a hub that begins to lead may read the verdict before its revision
	cfg.Settings.Subscribe(func(string) { c.settingsChanged() })
	return c
}

// Run measures until ctx ends.
func (c *Checker) Run(ctx context.Context) error {
	c.loop.Run(ctx, func() {
		c.setActive(true)
		for _, b := range c.Bundles.List() {
			c.bundleChanged(b.Ref.UID)
		}
	})
	c.setActive(false)
	return nil
}

// setActive begins or ends the life of all tallies.
func (c *Checker) setActive(active bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isActive = active
	clear(c.tracked)
	clear(c.byBundle)
	clear(c.byNamespace)
	clear(c.postponed)
}

// TallyOf returns the measurements for a stored verdict.
func (c *Checker) TallyOf(uid string, of *v1alpha1.GateStatus) rollout.Tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.tracked[newGateID(uid, of)]; g != nil {
		return g.tally
	}
	if _, is := c.postponed[uid]; is {
		return rollout.Tally{Value: postponedText}
	}
	return rollout.Tally{}
}

// bundleChanged begins and ends measurements for the gates of a Bundle.
func (c *Checker) bundleChanged(uid string) {
	if c.trackBundle(uid) { // its text changes
		c.Changed(uid)
	}
}

// trackBundle begins and ends measurements for the gates of a Bundle. It reports whether one of them is postponed now.
func (c *Checker) trackBundle(uid string) (isPostponed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isActive {
		return false
	}
	wanted, b := c.listWanted(uid) // under the lock, so that the last call has the newest state
	_, wasPostponed := c.postponed[uid]
	if len(wanted) == 0 && len(c.byBundle[uid]) == 0 && !wasPostponed {
		return false
	}
	dropped := false
	for id := range c.byBundle[uid] {
		if _, is := wanted[id]; !is {
			c.untrackGate(id)
			dropped = true
		}
	}
	delete(c.postponed, uid)
	for id, g := range wanted {
		c.trackGate(id, g, b.Ref.Namespace)
	}
	if c.isHalted(&b) {
		c.dropTallies(uid)
	}
	if dropped {
		c.admitPostponed()
	}
	_, isPostponed = c.postponed[uid]
	return isPostponed && !wasPostponed
}

// settingsChanged drops what was counted before a freeze.
func (c *Checker) settingsChanged() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid := range c.byBundle {
		if b, ok := c.Bundles.Get(uid); ok && c.isHalted(&b) {
			c.dropTallies(uid)
		}
	}
}

// isHalted reports whether the rollout of a Bundle is halted now.
func (c *Checker) isHalted(b *state.Bundle) bool {
	return rollout.NewHalt(&b.Spec, c.Settings.Freeze(), time.Now()).IsHalted()
}

// dropTallies drops what was counted for the gates of a Bundle, but for those that failed. The caller holds the lock.
func (c *Checker) dropTallies(uid string) {
	for id := range c.byBundle[uid] {
		if g := c.tracked[id]; !g.tally.IsOver(&g.gate) {
			g.tally = rollout.Tally{}
		}
	}
}

// listWanted returns the gates of a Bundle whose verdicts wait for measurements.
func (c *Checker) listWanted(uid string) (out map[gateID]v1alpha1.RolloutGate, b state.Bundle) {
	b, ok := c.Bundles.Get(uid)
	if !ok || b.Status.Rollout == nil || len(b.Status.Rollout.Gates) == 0 || b.Meta.DeletionTimestamp != nil {
		return nil, b
	}
	latest, ok := c.Revisions.LatestOfBundle(uid)
	if !ok {
		return nil, b
	}
	out = map[gateID]v1alpha1.RolloutGate{}
	for _, m := range rollout.ListMeasuredGates(b.Spec.Rollout, b.Status.Rollout.Gates, latest.Name) {
		out[newGateID(uid, &m.Status)] = m.Gate
	}
	return out, b
}

// trackGate begins to measure a gate. The caller holds the lock.
func (c *Checker) trackGate(id gateID, g v1alpha1.RolloutGate, namespace string) {
	if c.tracked[id] != nil {
		return
	}
	if !c.hasRoom(namespace) {
		c.postponed[id.uid] = namespace
		return
	}
	c.tracked[id] = &trackedGate{gate: g, host: hostOf(&g), namespace: namespace}
	c.byNamespace[namespace]++
	if c.byBundle[id.uid] == nil {
		c.byBundle[id.uid] = map[gateID]bool{}
	}
	c.byBundle[id.uid][id] = true
	c.loop.EnqueueAfter(id, rand.N(firstSpread))
}

// untrackGate ends the measurements for a gate. The caller holds the lock.
func (c *Checker) untrackGate(id gateID) {
	g := c.tracked[id]
	if g == nil {
		return
	}
	delete(c.tracked, id)
	if c.byNamespace[g.namespace]--; c.byNamespace[g.namespace] <= 0 {
		delete(c.byNamespace, g.namespace)
	}
	if delete(c.byBundle[id.uid], id); len(c.byBundle[id.uid]) == 0 {
		delete(c.byBundle, id.uid)
	}
}

// hasRoom reports whether one more gate of a namespace is measured. The caller holds the lock.
func (c *Checker) hasRoom(namespace string) bool {
	return len(c.tracked) < maxGates && c.byNamespace[namespace] < namespaceGates
}

// admitPostponed begins to measure gates for which there is room now. The caller holds the lock.
func (c *Checker) admitPostponed() {
	for uid, namespace := range c.postponed {
		if len(c.tracked) >= maxGates {
			return
		}
		if !c.hasRoom(namespace) {
			continue
		}
		delete(c.postponed, uid)
		wanted, _ := c.listWanted(uid)
		for id, g := range wanted {
			c.trackGate(id, g, namespace)
		}
	}
}

func hostOf(g *v1alpha1.RolloutGate) string {
	text := ""
	switch {
	case g.Prometheus != nil:
		text = g.Prometheus.Server
	case g.Webhook != nil:
		text = g.Webhook.URL
	}
	u, err := url.Parse(text)
	if err != nil { // admission refuses it
		return ""
	}
	return strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
}

// measureGate measures a gate once, and returns the time until the next measurement.
func (c *Checker) measureGate(ctx context.Context, id gateID) (again time.Duration, err error) {
	g, bundle, isFree := c.beginMeasurement(id)
	if !isFree {
		return busyRetry + rand.N(busyRetry), nil
	}
	if g == nil {
		return 0, nil
	}
	defer c.endMeasurement(g.host, bundle.Ref.Namespace)
	if c.isHalted(&bundle) {
		return c.recordHalt(id), nil
	}
	outcome := c.measure(ctx, bundle, id, &g.gate)
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if now, ok := c.Bundles.Get(id.uid); ok && c.isHalted(&now) { // since the request began
		return c.recordHalt(id), nil
	}
	again, isNews := c.recordOutcome(id, outcome)
	if isNews {
		c.Changed(id.uid)
	}
	if outcome.Kind == rollout.OutcomeFailure && again != gone {
		c.Events.Warn(bundle.Ref, atoll.ReasonMeasurementFailed, "gate "+id.name+" of stage "+id.stage+" measured a failure: "+cutText(outcome.Text))
	}
	return max(again, 0), nil
}

// beginMeasurement returns a gate that is to be measured now, with its Bundle; nil: it is none any more. isFree is false while its
// host or its namespace has its part of the workers.
func (c *Checker) beginMeasurement(id gateID) (g *trackedGate, b state.Bundle, isFree bool) {
	b, ok := c.Bundles.Get(id.uid)
	c.mu.Lock()
	defer c.mu.Unlock()
	is := c.tracked[id]
	if is == nil || !ok || is.tally.IsOver(&is.gate) {
		return nil, b, true
	}
	host, namespace := busyKey{"host", is.host}, busyKey{"namespace", b.Ref.Namespace}
	if c.busy[host] >= hostChecks || c.busy[namespace] >= namespaceChecks {
		return nil, b, false
	}
	c.busy[host]++
	c.busy[namespace]++
	snapshot := *is
	return &snapshot, b, true
}

func (c *Checker) endMeasurement(host, namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range [...]busyKey{{"host", host}, {"namespace", namespace}} {
		if c.busy[key]--; c.busy[key] <= 0 {
			delete(c.busy, key)
		}
	}
}

// gone is the time until the next measurement of a gate that is not measured any more.
const gone time.Duration = -1

// recordOutcome adds an outcome to the tally of a gate. isNews reports whether the verdict or its text may change.
func (c *Checker) recordOutcome(id gateID, o rollout.Outcome) (again time.Duration, isNews bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.tracked[id]
	if g == nil {
		return gone, false
	}
	now := time.Now()
	was := g.tally
	g.tally = was.AddOutcome(&g.gate, o, now)
	isNews = was.At.IsZero() || !g.tally.IsSameVerdict(&was, &g.gate, now)
	if g.tally.IsOver(&g.gate) {
		return 0, isNews
	}
	return addJitter(g.tally.NextMeasurement(&g.gate)), isNews
}

// recordHalt drops what was counted of a gate before a halt, and returns the time until the next look.
func (c *Checker) recordHalt(id gateID) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.tracked[id]
	if g == nil {
		return 0
	}
	g.tally = rollout.Tally{}
	return addJitter(g.tally.NextMeasurement(&g.gate))
}

// addJitter returns a time that is up to a tenth longer.
func addJitter(d time.Duration) time.Duration { return d + rand.N(d/10+1) }
