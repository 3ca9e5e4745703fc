package rollout

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// Patience is how long a row waits for its replacements before it asks; for one that
// checks in it is PatientCheckIns of its intervals where that is more.
const (
	Patience        = 10 * time.Minute
	PatientCheckIns = 3
)

// Row as it is stored, and whether its cluster can be reached.
type Row struct {
	Spec atoll.RowSpec
	// Status as last reported; nil: never.
	Status *atoll.RowStatus
	// Online: the cluster holds a stream, or checks in and keeps to it.
	Online bool
	// CheckIn is how often the cluster checks in; 0: it holds a stream.
	CheckIn time.Duration
}

// patience with the row before others ask.
func (r Row) patience() time.Duration { return max(Patience, PatientCheckIns*r.CheckIn) }

// ready: the cluster can be reached and reports that what this spec wants is there
// and healthy.
func (r Row) ready() bool {
	return r.Online && r.Status != nil && r.Status.Generation == r.Spec.Generation && r.Status.State == atoll.RowReady
}

// Input of one step.
type Input struct {
	// Bundle UID.
	Bundle string
	// Rows by cluster name.
	Rows     map[string]Row
	Decision schedule.Decision
	// Revision that all rows are to reach; empty: none is cut yet, nothing new
	// comes.
	Revision string
	// Base of that revision: rows that are at the revision of that number, or a later
	// one, keep to theirs while their own variant stays; 0: none does.
	Base int64
	// Variants of that revision by cluster name; a cluster that is missing keeps
	// its own.
	Variants map[string]string
	// OwnVariants of the revisions that rows are at, by cluster name, for rows from
	// which Deletes take something, and for those that keep to their revision and whose
	// cluster may have changed; a cluster that is missing keeps its own.
	OwnVariants map[string]string
	Removal     v1alpha1.RemovalMode
	// Budget of removals by edit; nil: 10%.
	Budget *intstr.IntOrString
	// Confirm is the hash of the plan that an administrator released.
	Confirm string
	// Keep is the hash of the plan of which an administrator takes back what is in it
	// of rows that are recalled.
	Keep string
	// Placement is the hash of the Bundle's placement.
	Placement string
	// Recalled is about deletions that the target revision holds back, since members
	// remember them and the hub, which was set back, did not. Somebody else carries
	// out what is decided.
	Recalled Recalled
	// Deleting: the Bundle is deleted, or the namespace of its templates.
	Deleting bool
	// Deletes lists, by the revision that a row is at, what users deleted between
	// it and the target revision: "key uid", sorted. Orphaned items are not listed.
	Deletes map[string][]string
	// MovesAway lists, by cluster name, what the target revision takes out of the
	// row there because Bundles that are not in that cluster hold it now: "key uid",
	// sorted.
	MovesAway map[string][]string
	// Unwanted lists, by cluster name, what override rules of the target revision keep
	// out of the cluster, by key.
	Unwanted map[string][]Unwanted
	// RecentDeletes counts rows of the Bundle's namespace, this Bundle included,
	// that lost something by direct deletes in the last Window.
	RecentDeletes int
	// RecentOuts lists clusters that edits took out of this Bundle in the last Window.
	RecentOuts []string
	// Explain asks for Output.Waits.
	Explain bool
	// Holding: the hub holds after a rewind; nothing changes.
	Holding bool
	// Floor: generations start above it.
	Floor int64
	Now   time.Time
}

// Output is what to write, what to say and when to look again.
type Output struct {
	// Changes by cluster name: the new spec, or nil to take the row away.
	Changes map[string]*atoll.RowSpec
	// GivenUp rows, by cluster name: their clusters are deleted; what runs there
	// is left behind.
	GivenUp []GivenUp
	// Plan that waits for a confirmation; nil: none does.
	Plan *Plan
	// Quiet: no row waits for another one, none is shared out, and nothing is held. As
	// long as the Bundle, its revision and its placement stay as they are, and every
	// row that changes is to stay or is gone for good, rows that did not change need
	// not be looked at again before RequeueAt.
	Quiet bool
	// Awaited clusters: rows that have to become healthy before others may give way.
	// Sorted.
	Awaited []string
	// Waits says of every row that is not done what it waits for, by cluster name,
	// if Explain asked.
	Waits []Wait
	// RequeueAt is when time alone changes something; zero: never.
	RequeueAt time.Time
	// Deletes counts rows that this step tells to lose something by direct deletes,
	// Outs lists the clusters that it takes out for an edit; what was confirmed is
	// in neither.
	Deletes int
	Outs    []string
	// Short lists workloads of which not all replicas have a place.
	Short []schedule.Shortage
	// Crowded names clusters whose stated capacity kept a row, or its share, from what it
	// would be. Sorted.
	Crowded []string
}

// Recalled deletions, and the plan under which they are confirmed or kept; zero:
// there are none.
type Recalled struct {
	Plan, Text string
}

// Unwanted is an item that override rules keep out of a cluster.
type Unwanted struct {
	// Key of the item.
	Key string
	// UID of the template of which the row there has an object; empty: it has none.
	UID string
}

// GivenUp is a row that nobody will act on any more.
type GivenUp struct {
	Cluster  string         `json:"cluster"`
	UID      string         `json:"uid"`
	Revision string         `json:"revision"`
	Phase    atoll.RowPhase `json:"phase"`
}

// Advance by one step.
func Advance(in Input) Output {
	if in.Holding {
		return holding(in)
	}
	s := newStep(in, false)
	s.run()
	if p := s.plan.plan(in.Bundle); p != nil && (p.Hash == in.Confirm || p.Hash == in.Keep) {
		s = newStep(in, p.Hash == in.Confirm)
		s.keep = !s.released
		s.run()
	}
	return s.output()
}

// step is the work on one Input.
type step struct {
	Input
	// released: what waits for a confirmation has got it.
	released bool
	// keep: rows that are recalled come back.
	keep bool
	now  int64
	next map[string]*atoll.RowSpec
	// stays are to be Active, the others to go, by the phase in which they are.
	stays, outs, held, leaving []string
	// recalls are those that the placement wants and the member remembers to have
	// removed before the hub was set back.
	recalls []string
	// moving is when the move began that this step goes on with, or begins: what has
	// to give way while a move is under way waits for its replacements too.
	moving int64
	// begun: the move is from an earlier step.
	begun bool
	// came: rows that come or grow in this step.
	came map[string]bool
	// blocked: by which rows a row that is to go, or its share, is kept.
	blocked map[string]*crowd
	// notYet are the items that are not wanted in a cluster and that stay there until
	// that is confirmed, by cluster and key.
	notYet  map[string][]string
	plan    planner
	givenUp []GivenUp
	requeue time.Time
	// assigned is what the workloads are to come to.
	assigned schedule.Assignment
	// deletes and gone are what goes without a confirmation.
	deletes int
	gone    []string
}

func newStep(in Input, released bool) *step {
	return &step{
		Input: in, released: released, now: in.Now.Unix(), moving: in.Now.Unix(),
		next: map[string]*atoll.RowSpec{}, came: map[string]bool{}, blocked: map[string]*crowd{},
	}
}

func (s *step) run() {
	s.sort()
	for _, row := range s.Rows {
		if since := row.Spec.Moving; since != 0 {
			s.moving, s.begun = min(s.moving, since), true
		}
	}
	holds := s.budget()
	s.keepBack(holds)
	s.assigned = s.Decision.Keeping(s.notYet).Assign(holds)
	for _, c := range s.stays {
		s.stay(c, s.assigned.Of(c))
	}
	for _, c := range s.leavers() {
		s.leave(c, holds[c])
	}
	for _, c := range s.recalls {
		s.recall(c)
	}
	s.gateShares()
	s.gateLeavers()
	s.gateDeletes()
	s.gateMoves()
	s.askUnwanted()
	s.ask()
	s.seal()
}

func (s *step) leavers() []string { return slices.Concat(s.outs, s.held, s.leaving) }

// sort the clusters by what is to become of them.
func (s *step) sort() {
	for _, v := range s.Decision.Verdicts {
		c := v.Cluster
		row, has := s.Rows[c]
		if has && (v.Outcome == schedule.Gone || v.UID != row.Spec.UID) {
			s.givenUp = append(s.givenUp, GivenUp{Cluster: c, UID: row.Spec.UID, Revision: row.Spec.Revision, Phase: row.Spec.Phase})
			s.next[c] = nil
			has = false
		}
		wanted := !s.Deleting && (v.Outcome == schedule.Placed || v.Outcome == schedule.Kept)
		switch {
		case wanted && has && s.recalled(row.Spec):
			s.recalls = append(s.recalls, c)
		case wanted && (has || v.Outcome == schedule.Placed && s.Revision != ""):
			s.stays = append(s.stays, c)
		case !has:
		case row.Spec.Phase == atoll.RowRemoving:
			s.removing(c, row)
		case row.Spec.Phase == atoll.RowLeaving:
			s.leaving = append(s.leaving, c)
		case row.Spec.Phase == atoll.RowHeld:
			s.held = append(s.held, c)
		default:
			s.outs = append(s.outs, c)
		}
	}
}

// removing spares what is not removed yet, when the mode, or that of the cluster's own
// removal, was changed to Orphan meanwhile. The other way round, what was to be left is left. A row that was
// recalled and is not wanted any more goes like any other.
func (s *step) removing(c string, row Row) {
	spec := row.Spec
	if spec.Recall != nil {
		spec.Recall, spec.Reason = nil, s.cause(c).String()
	}
	v, _ := s.Decision.Verdict(c)
	spared := v.Orphan && atoll.ParseRowReason(spec.Reason).Word == atoll.RowClusterRemoved
	spec.Orphan = spec.Orphan || spared || s.Removal == v1alpha1.RemoveOrphan
	if spec.Orphan != row.Spec.Orphan || !spec.Recall.Equal(row.Spec.Recall) {
		s.next[c] = &spec
	}
}

// stay gives the spec of a row that is to be Active.
func (s *step) stay(c string, share schedule.Share) {
	v, _ := s.Decision.Verdict(c)
	spec := s.Rows[c].Spec
	if spec.UID != v.UID {
		spec = atoll.RowSpec{UID: v.UID, Generation: spec.Generation}
	}
	if spec.Phase == atoll.RowRemoving {
		spec.Assigned, spec.Due = nil, nil
	}
	if spec.Phase != atoll.RowActive {
		s.came[c] = true
		spec.Phase, spec.Since, spec.Orphan, spec.Grown, spec.Moving = atoll.RowActive, s.now, false, 0, 0
	}
	spec.Placement, spec.Reason, spec.Recall = v.Placement, "", nil
	if v.Outcome == schedule.Kept {
		spec.Reason = atoll.RowReason{Word: v.Word, Text: v.Reason}.String()
	}
	s.follow(c, &spec)
	s.grow(c, &spec, share)
	if s.crowded(c, v) {
		spec.Reason = atoll.RowReason{Word: atoll.RowNoCapacity, Text: v.Full}.String()
		keepItems(s.Rows[c].Spec, &spec)
	}
	s.next[c] = &spec
}

// follow moves the spec to the target revision.
func (s *step) follow(c string, spec *atoll.RowSpec) {
	if v, _ := s.Decision.Verdict(c); s.Revision == "" || s.keeps(c, spec) || s.crowded(c, v) {
		return
	}
	spec.Revision = s.Revision
	if v, ok := s.Variants[c]; ok {
		spec.Variant = v
	}
	spec.NotHere, spec.NotYet = s.unwanted(c)
}

// keeps tells whether the row keeps to the revision that it is at, since nothing but
// overrides that wait for the next change tells the target from it. That other rules of
// its own revision target its cluster now is a change.
func (s *step) keeps(c string, spec *atoll.RowSpec) bool {
	row, has := s.Rows[c]
	if !has || row.Spec.UID != spec.UID || row.Spec.Phase == atoll.RowRemoving || !atoll.MayStay(row.Spec.Revision, s.Revision, s.Base) {
		return false
	}
	own, known := s.OwnVariants[c]
	return row.Spec.Revision != s.Revision && len(row.Spec.NotYet) == 0 && (!known || own == row.Spec.Variant)
}

// crowded tells whether the row stays at its revision since its cluster's stated capacity
// has no place for the newer one.
func (s *step) crowded(c string, v schedule.Verdict) bool {
	row, has := s.Rows[c]
	return v.Full != "" && has && row.Spec.UID == v.UID && row.Spec.Phase != atoll.RowRemoving && row.Spec.Revision != s.Revision
}

// leave gives the spec of a row that is to go: it keeps its share until it does,
// and follows the Bundle's revisions like any other.
func (s *step) leave(c string, hold bool) {
	spec := s.Rows[c].Spec
	spec.Due = nil
	phase := atoll.RowLeaving
	if hold {
		phase = atoll.RowHeld
	}
	if spec.Phase != phase {
		spec.Phase, spec.Since, spec.Moving = phase, s.now, 0
	}
	if !hold {
		spec.Home = nil
		if spec.Moving == 0 {
			spec.Moving = s.moving
		}
	}
	spec.Reason = s.cause(c).String()
	if !s.Deleting {
		s.follow(c, &spec)
		if v, _ := s.Decision.Verdict(c); !s.crowded(c, v) {
			spec.Assigned = s.keepShare(spec.Assigned)
		}
		spec.Ordinals = keepOrdinals(spec.Ordinals, spec.Assigned)
	}
	s.next[c] = &spec
}

// cause of a row's leaving.
func (s *step) cause(c string) atoll.RowReason {
	if s.Deleting {
		return atoll.RowReason{Word: atoll.RowBundleDeleted}
	}
	v, _ := s.Decision.Verdict(c)
	return atoll.RowReason{Word: v.Word, Text: v.Reason}
}

// seal sets generations, and drops what did not change.
func (s *step) seal() {
	for c, spec := range s.next {
		if spec == nil {
			continue
		}
		row, has := s.Rows[c]
		old := row.Spec
		switch {
		case !has || old.UID != spec.UID:
			// In milliseconds: a row that was taken away and comes again at once is
			// above what it had before.
			spec.Generation = max(old.Generation, s.Floor, s.Now.UnixMilli()) + 1
		case !sameWork(old, *spec):
			spec.Generation = max(old.Generation, s.Floor) + 1
		case sameNotes(old, *spec):
			delete(s.next, c)
		}
	}
}

// sameWork tells whether the agent has nothing to do about the difference.
func sameWork(a, b atoll.RowSpec) bool {
	return a.Revision == b.Revision && a.Variant == b.Variant && a.Phase == b.Phase &&
		a.Orphan == b.Orphan && maps.Equal(a.Assigned, b.Assigned) && maps.Equal(a.Ordinals, b.Ordinals) && maps.Equal(a.NotYet, b.NotYet)
}

// sameNotes tells whether rows of the same work also remember the same.
func sameNotes(a, b atoll.RowSpec) bool {
	return a.Reason == b.Reason && a.Since == b.Since && a.Placement == b.Placement &&
		a.Grown == b.Grown && a.Moving == b.Moving && a.Pods == b.Pods && slices.Equal(a.Home, b.Home) && slices.Equal(a.NotHere, b.NotHere) &&
		maps.Equal(a.Due, b.Due) && a.Recall.Equal(b.Recall)
}

func (s *step) output() Output {
	if at := s.Decision.EvictAt; !at.IsZero() && !s.Deleting {
		s.wake(at)
	}
	out := Output{
		Changes: s.next, GivenUp: s.givenUp, Plan: s.plan.plan(s.Bundle), Awaited: s.awaited(),
		RequeueAt: s.requeue, Deletes: s.deletes, Outs: s.gone, Quiet: s.quiet(), Short: s.assigned.Short, Crowded: s.assigned.Crowded,
	}
	if s.Explain {
		out.Waits = s.waits()
	}
	return out
}

func (s *step) quiet() bool {
	return !s.Deleting && s.Revision != "" && s.Recalled.Plan == "" && !s.Decision.NoFit && len(s.Decision.Workloads()) == 0 &&
		len(s.outs)+len(s.held)+len(s.leaving)+len(s.recalls)+len(s.blocked)+len(s.plan.entries) == 0
}

// wake asks to be called again at a time.
func (s *step) wake(at time.Time) {
	if s.requeue.IsZero() || at.Before(s.requeue) {
		s.requeue = at
	}
}
