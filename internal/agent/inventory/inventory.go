// Package inventory reports facts of the member: its version, the APIs that it serves, its nodes
// and the requested resources. It never keeps or sends nodes or pods, only their sums.
//
// Contract:
//
//   - Nothing is reported before everything was read once, so that a starting agent takes no
//     earlier report back: APIs and version, nodes and pods that the
//     agent may list, ClusterProperties where they are served. An unreachable member
//     is reported at once, and alone. A read that fails for a minute is not awaited:
//     the rest is reported, and Trouble names the missing part.
//   - Changed is called when CurrentSnapshot returns something new, at most every Quiet.
//     A node that turns ready or not is new at once, sums of requests only when
//     their first two digits change.
//   - Free capacity of nodes is reported in at most 32 classes, whatever the number
//     of nodes, and rounded down. A change of an eighth of some resource, or of the
//     number of nodes, is reported within 5 s, a smaller lasting one within 30 s.
//   - Nodes are reported in at most 12 groups by taints and labels, in at most 4 KiB. Labels
//     that would take more, or make free capacity less exact, are left out. Their names are reported.
//   - Served is called after each discovery that returned other APIs than before.
//     Discovery runs when CRDs or API services of the member change, and when the
//     member is reachable again.
//   - Properties report the values of stated node labels, at most 12, with the nodes and the allocatable
//     CPU and memory of each. Without stated keys there are none.
//   - What is kept of a member has bounds. Objects over them are not counted, and Trouble names
//     them.
//   - Safe for concurrent use. Run is called once.
package inventory

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/agent/crash"
	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/freecapacity"
	"atoll.dev/atoll/internal/pause"
	"atoll.dev/atoll/internal/session"
	"atoll.dev/atoll/internal/wakeup"
)

// Quiet is how long changes are gathered before they are reported.
const Quiet = time.Second

// Patience is how long an agent that starts waits for all parts of the member that it reports.
const Patience = time.Minute

// Snapshot of the member. Read-only.
type Snapshot struct {
	// Version of Kubernetes; empty: the member was not read yet, and what follows is empty,
	// too, but for Answers and Trouble.
	Version string
	// APIs are "group/version/Kind", sorted, and APIsHash identifies them.
	APIs     []string
	APIsHash string
	Nodes    int
	Ready    int
	// Allocatable of all nodes, and Requested by pods that are not finished, which are counted
	// among it.
	Allocatable, Requested map[string]string
	// Room that nodes have left, in lines of freecapacity.Classes; nil: not counted yet.
	Room []string
	// Groups of the nodes by taints and labels.
	Groups ReportedGroups
	// Properties of the member by name, see properties.go.
	Properties map[string]string
	// Answers: the member's API answers the agent; Trouble is why not, or what of the member
	// could not be read though it does.
	Answers bool
	Trouble string
}

// Options of an Inventory. All are required.
type Options struct {
	Config *rest.Config
	Client *member.Client
	// Changed and Served must not block.
	Changed func()
	Served  func()
	Log     *slog.Logger
}

// Inventory of one member.
type Inventory struct {
	o      Options
	core   rest.Interface
	wake   chan struct{}
	rescan chan struct{}
	// served receives when the member serves other APIs than before.
	served chan struct{}

	mu      sync.Mutex
	version string
	// apis is the hash of those that were served at the last discovery.
	apis        string
	trouble     string
	nodes       map[string]node
	groups      nodeGroups
	groupsStale bool // the nodes changed since they were grouped
	groupLimit  int  // index in groupLimits
	groupedAt   time.Time
	// labelKeys are the keys of reported labels since the nodes were listed last, nextLabelKeys those from the next list
	// on. relistNodes lists the nodes again; nil: they are not watched yet.
	labelKeys, nextLabelKeys []string
	relistNodes              func()
	pods                     map[string]pod
	used                     map[string]*use   // by node
	total                    resourceAmounts   // allocatable
	requested                resourceAmounts   // requested
	stated                   map[string]string // by ClusterProperty objects
	lastSnapshot             Snapshot
	// counted are the listed kinds. read are these, and the kinds that may not be listed or are
	// not served.
	counted map[string]bool
	read    map[string]bool
	// failed is the last error of each unread part; impatient: the inventory waits for no part any
	// more.
	failed map[string]string
	// excess is, by kind, what is not counted because there is too much of it.
	excess    map[string]string
	patience  time.Duration
	impatient bool
	toldRoom  freecapacity.NodeClasses
	toldAt    time.Time
	again     *time.Timer
}

// The counted nodes and pods.
const (
	countNodes      = "nodes"
	countPods       = "pods"
	countProperties = "clusterproperties"
)

// New returns an empty Inventory.
func New(o Options) (*Inventory, error) {
	core, err := member.TypedClient(o.Config, "")
	if err != nil {
		return nil, err
	}
	return &Inventory{
		o: o, core: core, wake: make(chan struct{}, 1), rescan: make(chan struct{}, 1), served: make(chan struct{}, 1),
		nodes: map[string]node{}, pods: map[string]pod{}, used: map[string]*use{}, total: resourceAmounts{}, requested: resourceAmounts{},
		stated: map[string]string{}, counted: map[string]bool{}, read: map[string]bool{}, failed: map[string]string{}, excess: map[string]string{}, patience: Patience,
	}, nil
}

// CurrentSnapshot returns the current snapshot.
func (i *Inventory) CurrentSnapshot() Snapshot {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.lastSnapshot
}

// ReportAPIAnswer takes each result of a request to the member's API. back is true when the API
// answers and did not before.
func (i *Inventory) ReportAPIAnswer(err error) (back bool) {
	i.mu.Lock()
	was := i.trouble
	i.trouble = ""
	if err != nil {
		i.trouble = "the member's API does not answer the agent: " + err.Error()
		if apierrors.IsUnauthorized(err) {
			i.trouble = "the member's API does not accept the agent's credentials: " + err.Error()
		}
	}
	back = was != "" && i.trouble == ""
	changed := (was == "") != (i.trouble == "")
	i.mu.Unlock()
	if back {
		wakeup.WakeReader(i.rescan)
	}
	if changed {
		wakeup.WakeReader(i.wake)
	}
	return back
}

// Run works until ctx ends.
func (i *Inventory) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	defer crash.RecoverContained(ctx) // before what runs is waited for: it is to end
	running.Go(func() { defer crash.RecoverContained(ctx); i.watchNodes(ctx) })
	running.Go(func() { defer crash.RecoverContained(ctx); i.watchPods(ctx) })
	for _, kind := range definitions {
		running.Go(func() { defer crash.RecoverContained(ctx); i.watchAPIDefinitions(ctx, kind) })
	}
	running.Go(func() { defer crash.RecoverContained(ctx); i.watchPropertiesWhileServed(ctx) })
	running.Go(func() { defer crash.RecoverContained(ctx); i.discoverPeriodically(ctx) })
	lost := time.AfterFunc(i.patience, func() {
		i.mu.Lock()
		i.impatient = true
		i.mu.Unlock()
		wakeup.WakeReader(i.wake)
	})
	defer lost.Stop()
	defer func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.again != nil {
			i.again.Stop()
		}
	}()
	wakeup.WakeReader(i.rescan)
	for {
		select {
		case <-ctx.Done():
			return
		case <-i.wake:
		}
		if i.updateSnapshot() {
			i.o.Changed()
		}
		if i.CurrentSnapshot().Version == "" {
			continue // what is still missing may come at once
		}
		if !pause.WaitFor(ctx, Quiet) {
			return
		}
	}
}

// unreadReason returns what was not read of the member yet; empty: all was. The caller holds mu.
func (i *Inventory) unreadReason() string {
	for _, what := range []string{countNodes, countPods, countProperties} {
		if !i.read[what] {
			return "the agent cannot read the member's " + what + " and counts none: " + cmp.Or(i.failed[what], "no answer came yet")
		}
	}
	return ""
}

// updateSnapshot takes a new snapshot and reports whether it differs from the last.
func (i *Inventory) updateSnapshot() bool {
	apis := i.o.Client.APIs()
	i.mu.Lock()
	defer i.mu.Unlock()
	unread := i.unreadReason()
	if i.version == "" || unread != "" && !i.impatient {
		old := i.lastSnapshot
		i.lastSnapshot = Snapshot{Answers: i.trouble == "", Trouble: i.trouble}
		return i.lastSnapshot.Trouble != old.Trouble
	}
	s := Snapshot{
		Version: i.version, Nodes: len(i.nodes), Answers: i.trouble == "", Trouble: cmp.Or(i.trouble, unread, i.excess[countNodes], i.excess[countPods], i.excess[countProperties]),
		Allocatable: i.total.formatQuantities(0), Requested: i.totalRequested(),
	}
	if apis != nil {
		s.APIs = apis.ListKinds()
		s.APIsHash = i.lastSnapshot.APIsHash
		if !slices.Equal(s.APIs, i.lastSnapshot.APIs) || s.APIsHash == "" {
			s.APIsHash = session.APIsHash(s.APIs)
		}
	}
	for _, n := range i.nodes {
		if n.ready {
			s.Ready++
		}
	}
	var again time.Duration
	if s.Room, s.Groups, again = i.chooseCapacityToReport(time.Now()); again > 0 && i.again == nil {
		i.again = time.AfterFunc(again, func() {
			i.mu.Lock()
			i.again = nil
			i.mu.Unlock()
			wakeup.WakeReader(i.wake)
		})
	}
	s.Properties = i.currentProperties()
	old := i.lastSnapshot
	i.lastSnapshot = s
	return s.differsFrom(old)
}

// differsFrom reports whether the hub has to get the snapshot after the old one.
func (s Snapshot) differsFrom(old Snapshot) bool {
	return s.Version != old.Version || s.APIsHash != old.APIsHash || s.Nodes != old.Nodes || s.Ready != old.Ready ||
		s.Answers != old.Answers || (s.Trouble == "") != (old.Trouble == "") || !maps.Equal(s.Allocatable, old.Allocatable) || !maps.Equal(s.Requested, old.Requested) ||
		(s.Room == nil) != (old.Room == nil) || !slices.Equal(s.Room, old.Room) || !s.Groups.equal(old.Groups) || !maps.Equal(s.Properties, old.Properties)
}

// lookAgain are the times after a change of definitions at which the agent reads what the member
// serves: it takes a moment until its answer has the change.
var lookAgain = []time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second}

// failedAgain is the time after which a failed discovery is repeated.
const failedAgain = 10 * time.Second

// discoverPeriodically discovers version and APIs after each request for a rescan, and again after
// a failure.
func (i *Inventory) discoverPeriodically(ctx context.Context) {
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-i.rescan:
		case <-again:
		}
		failed := again != nil
		again = nil
		for _, wait := range lookAgain {
			if !pause.WaitFor(ctx, wait) {
				return
			}
			changed, err := i.discoverOnce(ctx)
			again = nil
			if err != nil {
				again = time.After(failedAgain)
				if !failed {
					i.o.Log.Warn("cannot find out what the member serves; trying on", "err", err)
				}
				failed = true
			}
			if changed {
				i.o.Served()
				wakeup.WakeReader(i.served)
				wakeup.WakeReader(i.wake)
			}
		}
	}
}

// discoverOnce discovers once; true when the member serves other APIs, or is of another version,
// than before.
func (i *Inventory) discoverOnce(ctx context.Context) (changed bool, err error) {
	if _, err := i.o.Client.DiscoverAPIs(ctx); err != nil {
		return false, err
	}
	version, err := i.o.Client.ServerVersion(ctx)
	// Others discover too: a change that they were the first to see is one all the same.
	apis := i.o.Client.APIs().KindListHash()
	i.mu.Lock()
	defer i.mu.Unlock()
	changed = apis != i.apis || i.lastSnapshot.APIsHash == ""
	i.apis = apis
	if err != nil {
		return changed, err
	}
	changed = changed || version != i.version
	i.version = version
	return changed, nil
}

// resourceAmounts has amounts of resources: cpu in thousandths, everything else in units.
type resourceAmounts map[corev1.ResourceName]int64

func amountsOf(list corev1.ResourceList) resourceAmounts {
	out := make(resourceAmounts, len(list))
	for name, q := range list {
		out[name] = quantityAmount(name, q)
	}
	return out
}

func quantityAmount(name corev1.ResourceName, q resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

func (a resourceAmounts) add(b resourceAmounts, sign int64) {
	for name, v := range b {
		if a[name] += sign * v; a[name] == 0 {
			delete(a, name)
		}
	}
}

// formatQuantities returns the quantities as text, rounded up to so many digits (0: exact).
func (a resourceAmounts) formatQuantities(digits int) map[string]string {
	out := make(map[string]string, len(a))
	for name, v := range a {
		if digits > 0 {
			v = roundUp(v, digits)
		}
		q := resource.NewQuantity(v, resource.DecimalSI)
		if name == corev1.ResourceCPU {
			q = resource.NewMilliQuantity(v, resource.DecimalSI)
		} else if digits == 0 && v%1024 == 0 && v != 0 {
			q = resource.NewQuantity(v, resource.BinarySI)
		}
		out[string(name)] = q.String()
	}
	return out
}

// roundUp rounds up to so many significant decimal digits.
func roundUp(v int64, digits int) int64 {
	unit := int64(1)
	limit := int64(1)
	for range digits {
		limit *= 10
	}
	for v/unit >= limit {
		unit *= 10
	}
	return (v + unit - 1) / unit * unit
}
