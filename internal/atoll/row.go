package atoll

import (
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// RowPhase is what the hub orders for a row.
type RowPhase string

// The phases of a row's spec.
const (
	// RowActive: the cluster is to hold the revision.
	RowActive RowPhase = "Active"
	// RowLeaving: placement has left the cluster; it keeps what it has until the
	// replacements are healthy.
	RowLeaving RowPhase = "Leaving"
	// RowHeld: as Leaving, but the removal is over the budget and waits for
	// `atoll confirm`.
	RowHeld RowPhase = "Held"
	// RowRemoving: the tombstone; stays until the agent confirms it or an
	// administrator gives the cluster up.
	RowRemoving RowPhase = "Removing"
	// RowVacant: nothing is ordered. An empty namespace stays in the cluster, and the
	// row is there to become Removing when the hub's namespace is deleted. Rows of this
	// phase belong to no Bundle: their ref has the namespace's UID, and no name.
	RowVacant RowPhase = "Vacant"
	// RowPending: placement has chosen the cluster, and an old copy elsewhere must end before
	// this one starts. Nothing is ordered yet; the row keeps the cluster's place and capacity.
	RowPending RowPhase = "Pending"
)

// OrdersNothing reports whether the agent of the cluster has nothing to do for a row in this phase.
func (p RowPhase) OrdersNothing() bool { return p == RowVacant || p == RowPending }

// IsChosen reports whether the placement selects the row's cluster, also where it has to wait. A phase that
// is not set counts as Active.
func (p RowPhase) IsChosen() bool { return p == RowActive || p == RowPending || p == "" }

// RowSpec is what the hub orders of one Bundle in one cluster.
type RowSpec struct {
	// UID of the Cluster.
	UID string `json:"u"`
	// Generation grows with every change of the row.
	Generation int64 `json:"g"`
	// Revision name.
	Revision string `json:"r"`
	// Variant is the hash of the override rules of the revision that target this
	// cluster; rows of equal revision, variant, assigned and notYet render the same.
	Variant string `json:"v,omitempty"`
	// Assigned replicas by item, for items that are divided.
	Assigned map[string]int64 `json:"a,omitempty"`
	Phase    RowPhase         `json:"p"`
	// Orphan, with Removing: release instead of delete.
	Orphan bool `json:"o,omitempty"`
	// Reason of an Active row that no longer fits, or of why it leaves; RowReason
	// takes it apart. Like Placement, Home, Grown and Moving it does not move the
	// generation.
	Reason string `json:"y,omitempty"`
	// Since is when the phase began, in Unix seconds.
	Since int64 `json:"s"`
	// PlacementFingerprint is the fingerprint of the label and field selectors under which the
	// cluster was last found to fit, and which rebalance it went through; it distinguishes a
	// cluster that drifted from a placement that was edited. Empty: there were none.
	PlacementFingerprint string `json:"l,omitempty"`
	// HomeItems lists items that are not divided and whose one place this cluster is,
	// also while they have 0 replicas: their data is here. Sorted.
	HomeItems []string `json:"h,omitempty"`
	// OrdinalStarts are where the ranges of StatefulSets begin, by item, for those whose
	// ordinals are ranged: Assigned many from there on.
	OrdinalStarts map[string]int64 `json:"d,omitempty"`
	// GrownAt is when the row's share last grew, in Unix seconds, if that was after
	// Since.
	GrownAt int64 `json:"w,omitempty"`
	// MovingSince is when the move began in which the row gives way, in Unix seconds: it
	// is Leaving, or a smaller share waits until what grows instead is healthy. 0:
	// it gives way in none.
	MovingSince int64 `json:"k,omitempty"`
	// Absent lists, by key, the items that override rules keep out of this cluster and that are
	// out of it, or about to be. An item in it is no new removal.
	Absent []string `json:"n,omitempty"`
	// ExcludedPending has, by key, the items that override rules keep out of this cluster and
	// that stay there until a person confirms it, and since when they wait, in Unix seconds.
	// All other changes of the row continue.
	ExcludedPending map[string]int64 `json:"f,omitempty"`
	// ShrinkTo is, by item, what shares that were divided from scratch are to shrink to once what
	// grows instead is healthy: they count as this much when more is divided. Like Reason
	// it does not move the generation.
	ShrinkTo map[string]int64 `json:"e,omitempty"`
	// RequestedPods of the row, as far as its items state replicas: what the cluster is
	// loaded with by it; 0 stands for 1. Like Placement it does not move the generation.
	RequestedPods int64 `json:"m,omitempty"`
	// Recall, with Removing: the member recorded this removal, and the hub, which was set back, did
	// not. The row stays, although the placement selects its cluster.
	Recall *RememberedRemoval `json:"b,omitempty"`
	// Approvals of reported drift that the member has not answered yet, at most MaxRowApprovals, sorted by item.
	// A new approval moves the generation, and the end of one does not.
	Approvals []DriftApproval `json:"c,omitempty"`
	// RemovalHooks, with Removing, is the last order of a person about the hooks of the removal, as AnnotationRemovalHooks
	// has it.
	RemovalHooks string `json:"i,omitempty"`
	// MovedAt is when the row was allowed to hold its revision, in Unix seconds, where the Bundle states a rollout
	// or is paused. Like Reason it does not move the generation, nor do the following fields.
	MovedAt int64 `json:"t,omitempty"`
	// FailedAt is when the hub saw that the row failed at its revision, and its stage with it, in Unix seconds; 0: it
	// did not. It stays until the row gets another revision, or is healthy after a resume.
	FailedAt int64 `json:"x,omitempty"`
	// AdmittedRemoval, of a row that waits for its turn, is the hash of the items that its turn removes.
	// They were counted with those of all other rows, or confirmed.
	AdmittedRemoval string `json:"z,omitempty"`
	// PreviousRevision is what the row held before its revision, where a stage of the rollout states a rollback. A row that
	// returned held the revision that failed.
	PreviousRevision string `json:"j,omitempty"`
}

// Equal reports whether two specs are equal.
func (r RowSpec) Equal(o RowSpec) bool {
	return r.hasSameOrder(o) && r.Reason == o.Reason && r.Since == o.Since && r.PlacementFingerprint == o.PlacementFingerprint &&
		slices.Equal(r.HomeItems, o.HomeItems) && r.GrownAt == o.GrownAt && r.MovingSince == o.MovingSince &&
		maps.Equal(r.ShrinkTo, o.ShrinkTo) && r.RequestedPods == o.RequestedPods && slices.Equal(r.Approvals, o.Approvals) && r.HasSameTurn(o)
}

// HasSameTurn reports whether both specs store the same turn in a rollout.
func (r RowSpec) HasSameTurn(o RowSpec) bool {
	return r.MovedAt == o.MovedAt && r.FailedAt == o.FailedAt && r.AdmittedRemoval == o.AdmittedRemoval && r.PreviousRevision == o.PreviousRevision
}

// hasSameOrder reports whether both specs order the same of the member.
func (r RowSpec) hasSameOrder(o RowSpec) bool {
	return r.UID == o.UID && r.Generation == o.Generation && r.Revision == o.Revision && r.Variant == o.Variant &&
		r.Phase == o.Phase && r.Orphan == o.Orphan && r.RemovalHooks == o.RemovalHooks && r.Recall.Equal(o.Recall) && maps.Equal(r.Assigned, o.Assigned) &&
		maps.Equal(r.OrdinalStarts, o.OrdinalStarts) && slices.Equal(r.Absent, o.Absent) && maps.Equal(r.ExcludedPending, o.ExcludedPending)
}

// HoldsReplicas reports whether the row has a share of divided replicas.
func (r RowSpec) HoldsReplicas() bool {
	for _, n := range r.Assigned {
		if n > 0 {
			return true
		}
	}
	return false
}

// TargetReplicas returns the replicas of an item that the row has, or is to shrink to.
func (r RowSpec) TargetReplicas(item string) int64 {
	if due, shrinks := r.ShrinkTo[item]; shrinks {
		return due
	}
	return r.Assigned[item]
}

// RenderKey returns a key of the row's rendering: rows with equal keys get equal content. The
// variant stands for the values of the cluster.
func (r RowSpec) RenderKey(variant string) string {
	name := r.Revision + "|" + variant + "|" + HashJSON(r.Assigned)
	if len(r.OrdinalStarts) > 0 {
		name += "|" + HashJSON(r.OrdinalStarts)
	}
	if len(r.ExcludedPending) > 0 {
		name += "|notYet " + HashJSON(slices.Sorted(maps.Keys(r.ExcludedPending)))
	}
	return name
}

// RememberedRemoval of a row's removal. It is never changed, only replaced.
type RememberedRemoval struct {
	// RemovedAt is when the member removed the row, in Unix seconds by its own clock.
	RemovedAt int64 `json:"t"`
	// Placement is the hash of the placement that selects the row all the same; under
	// any other the row is as if it had never been recalled.
	Placement string `json:"p"`
	// Confirmed: a person confirmed the removal.
	Confirmed bool `json:"c,omitempty"`
}

// Equal reports whether two recalls are equal.
func (r *RememberedRemoval) Equal(o *RememberedRemoval) bool {
	return r == o || r != nil && o != nil && *r == *o
}

// JoinedOrGrownAt is when the row's cluster, or the row's share, last became part of what the
// Bundle runs on, in Unix seconds.
func (r RowSpec) JoinedOrGrownAt() int64 { return max(r.Since, r.GrownAt) }

// RowState is what a cluster makes of a row.
type RowState string

// The states that agents report.
const (
	// RowProgressing: applied, or being applied, and not healthy yet.
	RowProgressing RowState = "Progressing"
	// RowReady: applied and every item healthy.
	RowReady RowState = "Ready"
	// RowDegraded: applied, and some item is not healthy and will not become so by
	// itself.
	RowDegraded RowState = "Degraded"
	// RowFailed: some item could not be applied; Reason and Items name the items and the
	// causes.
	RowFailed RowState = "Failed"
	// RowRemoved: a Removing row is done.
	RowRemoved RowState = "Removed"
)

// MaxUnixSeconds is the end of the year 9999, in Unix seconds. RFC 3339, and so a status, can write
// no later time.
const MaxUnixSeconds = 253402300799

// RowStatus is what one cluster last reported of one Bundle.
type RowStatus struct {
	// UID of the Cluster that reported; the hub fills it in.
	UID string `json:"u,omitempty"`
	// Generation of the row spec that the report is about.
	Generation int64 `json:"g"`
	// Content hash of the manifest that the agent holds.
	Content string `json:"c,omitempty"`
	// Seq of the agent: a lower never replaces a higher.
	Seq   int64    `json:"q"`
	State RowState `json:"p"`
	// Applied: every item of that content has been applied.
	Applied bool   `json:"d,omitempty"`
	Reason  Reason `json:"y,omitempty"`
	Message string `json:"m,omitempty"`
	// Since is when the state began, in Unix seconds.
	Since int64 `json:"s"`
	// Total items and Ready ones.
	Total int32 `json:"t"`
	Ready int32 `json:"n"`
	// Items that are not healthy, or whose status the template reflects.
	Items []ItemStatus `json:"i,omitempty"`
	// UnlistedNotReady counts items that are not ready and had no room in Items. Without any,
	// an item that is not in Items is healthy once the content is applied.
	UnlistedNotReady int32 `json:"o,omitempty"`
	// Drifted counts observed items that differ from the content or are missing, also those that had no
	// room in Items.
	Drifted int32 `json:"r,omitempty"`
	// DoneTombstones lists tombstones that the agent has carried out: "key uid". If there are
	// more than fit, the first ones by name.
	DoneTombstones []string `json:"x,omitempty"`
	// AllTombstonesDone: there are more tombstones than have room in Gone, and the agent has
	// carried out all.
	AllTombstonesDone bool `json:"z,omitempty"`
	// NamespaceKept, when Removed: the namespace that the agent made for the Bundle stays,
	// and nothing of Atoll's is in it.
	NamespaceKept bool `json:"v,omitempty"`
}

// IsReportOf reports whether the status has the state of a generation. It is false without a status.
func (s *RowStatus) IsReportOf(generation int64, state RowState) bool {
	return s != nil && s.Generation == generation && s.State == state
}

// SinceTime returns Since as a time of the years 1970 to 9999, whatever was stored.
func (s *RowStatus) SinceTime() time.Time {
	return time.Unix(min(max(s.Since, 0), MaxUnixSeconds), 0)
}

// Health of an object.
type Health string

// The healths; the words of Argo CD.
const (
	Healthy     Health = "Healthy"
	Progressing Health = "Progressing"
	Degraded    Health = "Degraded"
	Suspended   Health = "Suspended"
	Unknown     Health = "Unknown"
)

// ItemStatus is one item in a report.
type ItemStatus struct {
	Key    ItemKey `json:"k"`
	Health Health  `json:"h"`
	Reason Reason  `json:"y,omitempty"`
	// Message for people, at most 256 bytes.
	Message string `json:"m,omitempty"`
	// Since is when health last changed, in Unix seconds.
	Since int64 `json:"s,omitempty"`
	// Error: the item could not be applied or rendered; Reason is the cause.
	Error bool `json:"e,omitempty"`
	// Drift is how an observed object differs from the item. It is nil where nothing differs, and for
	// objects that the member writes.
	Drift *Drift `json:"r,omitempty"`
	// ReflectedStatus status, in interpret's compact form.
	ReflectedStatus json.RawMessage `json:"f,omitempty"`
	// Feedback has the values that the item's Assessment names, at most MaxFeedbackValues, in the order of the rules.
	Feedback []FeedbackValue `json:"b,omitempty"`
	// Completed: the item's Assessment defines when the object has run to completion, and it has.
	Completed bool `json:"d,omitempty"`
}
