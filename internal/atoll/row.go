package atoll

import (
	"encoding/json"
	"maps"
	"slices"
)

// RowPhase is what the hub wants of a row.
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
)

// RowSpec is what the hub wants of one Bundle in one cluster.
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
	// Orphan, with Removing: forget instead of delete.
	Orphan bool `json:"o,omitempty"`
	// Reason of an Active row that no longer fits, or of why it leaves; RowReason
	// takes it apart. Like Placement, Home, Grown and Moving it does not move the
	// generation.
	Reason string `json:"y,omitempty"`
	// Since is when the phase began, in Unix seconds.
	Since int64 `json:"s"`
	// Placement is the fingerprint of the label and field selectors under which
	// the cluster was last found to fit, and which rebalance it went through; it tells a
	// cluster that drifted from a placement that was edited. Empty: there were none.
	Placement string `json:"l,omitempty"`
	// Home lists items that are not divided and whose one place this cluster is,
	// also while they have 0 replicas: their data is here. Sorted.
	Home []string `json:"h,omitempty"`
	// Ordinals are where the ranges of StatefulSets begin, by item, for those whose
	// ordinals are ranged: Assigned many from there on.
	Ordinals map[string]int64 `json:"d,omitempty"`
	// Grown is when the row's share last grew, in Unix seconds, if that was after
	// Since.
	Grown int64 `json:"w,omitempty"`
	// Moving is when the move began in which the row gives way, in Unix seconds: it
	// is Leaving, or a smaller share waits until what grows instead is healthy. 0:
	// it gives way in none.
	Moving int64 `json:"k,omitempty"`
	// NotHere lists, by key, the items that override rules keep out of this cluster and
	// that are out of it, or about to be. It tells what is no removal any more.
	NotHere []string `json:"n,omitempty"`
	// NotYet has, by key, the items that override rules keep out of this cluster and that
	// stay there until somebody confirms it, and since when they wait, in Unix seconds. All
	// else of the row goes on.
	NotYet map[string]int64 `json:"f,omitempty"`
	// Due is, by item, what shares that were divided from scratch are to shrink to once what
	// grows instead is healthy: they count as this much when more is divided. Like Reason
	// it does not move the generation.
	Due map[string]int64 `json:"e,omitempty"`
	// Pods that the row asks for, as far as its items state replicas: what the cluster is
	// loaded with by it; 0 stands for 1. Like Placement it does not move the generation.
	Pods int64 `json:"m,omitempty"`
	// Recall, with Removing: the member remembers this removal and the hub, which was
	// set back, does not. The row stays, although the placement wants it.
	Recall *Recall `json:"b,omitempty"`
}

// Equal tells whether two specs say the same.
func (r RowSpec) Equal(o RowSpec) bool {
	return r.UID == o.UID && r.Generation == o.Generation && r.Revision == o.Revision && r.Variant == o.Variant &&
		maps.Equal(r.Assigned, o.Assigned) && r.Phase == o.Phase && r.Orphan == o.Orphan && r.Reason == o.Reason &&
		r.Since == o.Since && r.Placement == o.Placement && slices.Equal(r.Home, o.Home) && maps.Equal(r.Ordinals, o.Ordinals) &&
		r.Grown == o.Grown && r.Moving == o.Moving && slices.Equal(r.NotHere, o.NotHere) && maps.Equal(r.NotYet, o.NotYet) &&
		maps.Equal(r.Due, o.Due) && r.Pods == o.Pods && r.Recall.Equal(o.Recall)
}

// Share of an item that the row has, or is to shrink to.
func (r RowSpec) Share(item string) int64 {
	if due, shrinks := r.Due[item]; shrinks {
		return due
	}
	return r.Assigned[item]
}

// Rendering names what the row is rendered from beside its cluster's values, which a
// variant stands for: rows for which it is the same get the same.
func (r RowSpec) Rendering(variant string) string {
	name := r.Revision + "|" + variant + "|" + HashJSON(r.Assigned)
	if len(r.Ordinals) > 0 {
		name += "|" + HashJSON(r.Ordinals)
	}
	if len(r.NotYet) > 0 {
		name += "|notYet " + HashJSON(slices.Sorted(maps.Keys(r.NotYet)))
	}
	return name
}

// Recall of a row's removal. It is never changed, only replaced.
type Recall struct {
	// At is when the member removed the row, in Unix seconds by its own clock.
	At int64 `json:"t"`
	// Placement is the hash of the placement that wants the row all the same; under
	// any other the row is as if it had never been recalled.
	Placement string `json:"p"`
	// Confirmed: somebody said that the removal is right.
	Confirmed bool `json:"c,omitempty"`
}

// Equal tells whether two recalls say the same.
func (r *Recall) Equal(o *Recall) bool {
	return r == o || r != nil && o != nil && *r == *o
}

// Came is when the row's cluster, or the row's share, last became part of what the
// Bundle runs on, in Unix seconds.
func (r RowSpec) Came() int64 { return max(r.Since, r.Grown) }

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
	// RowFailed: some item could not be applied; Reason and Items say which and why.
	RowFailed RowState = "Failed"
	// RowRemoved: a Removing row is done.
	RowRemoved RowState = "Removed"
)

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
	Reason  string `json:"y,omitempty"`
	Message string `json:"m,omitempty"`
	// Since is when the state began, in Unix seconds.
	Since int64 `json:"s"`
	// Total items and Ready ones.
	Total int32 `json:"t"`
	Ready int32 `json:"n"`
	// Items that are not healthy, or whose status the template reflects.
	Items []ItemStatus `json:"i,omitempty"`
	// Unlisted counts items that are not ready and had no room in Items. Without any,
	// an item that is not in Items is healthy once the content is applied.
	Unlisted int32 `json:"o,omitempty"`
	// Gone lists tombstones that the agent has carried out: "key uid". Of more than
	// have room, the first by name.
	Gone []string `json:"x,omitempty"`
	// AllGone: there are more tombstones than have room in Gone, and the agent has
	// carried out all.
	AllGone bool `json:"z,omitempty"`
	// Vacant, when Removed: the namespace that the agent made for the Bundle stays,
	// and nothing of Atoll's is in it.
	Vacant bool `json:"v,omitempty"`
}

// DeniedByPolicy is the reason of an item that the administrator of the member does not
// let the hub apply, or not any more: then it is there as it was applied last, healthy or
// not.
const DeniedByPolicy = "DeniedByPolicy"

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
	Reason string  `json:"y,omitempty"`
	// Message for people, at most 256 bytes.
	Message string `json:"m,omitempty"`
	// Since is when health last changed, in Unix seconds.
	Since int64 `json:"s,omitempty"`
	// Error: the item could not be applied or rendered; Reason says why.
	Error bool `json:"e,omitempty"`
	// Reflected status, in interpret's compact form.
	Reflected json.RawMessage `json:"f,omitempty"`
}
