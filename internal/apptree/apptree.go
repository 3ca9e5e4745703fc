// Package apptree makes the tree of one application: its templates, its clusters, and the health of each
// template in each cluster.
//
// Contract: pure, and may be called concurrently. The tree holds nothing of templates that the caller does
// not name as visible, and has at most the requested number of clusters, those with trouble first.
package apptree

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/rollout"
)

// RowState is what a person sees of a cluster at first.
type RowState string

// The states, those with trouble first.
const (
	Failed      RowState = "Failed"
	Degraded    RowState = "Degraded"
	Away        RowState = "Away"
	Waiting     RowState = "Waiting"
	Progressing RowState = "Progressing"
	Removing    RowState = "Removing"
	Ready       RowState = "Ready"
)

var stateOrder = []RowState{Failed, Degraded, Away, Waiting, Progressing, Removing, Ready}

// Tree is one application.
type Tree struct {
	// Namespace and Name of the Bundle; a ClusterBundle has no namespace.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Revision is the number of the newest Revision; 0: there is none.
	Revision int64 `json:"revision"`
	// Templates that the user may read.
	Templates []Template `json:"templates"`
	// HiddenTemplates counts the others.
	HiddenTemplates int `json:"hiddenTemplates,omitempty"`
	// Counts of all clusters by their states.
	Counts map[RowState]int `json:"counts"`
	// Clusters of the tree, those with trouble first, then by name.
	Clusters []Cluster `json:"clusters"`
	// MoreClusters counts those that are left out.
	MoreClusters int `json:"moreClusters,omitempty"`
	// Plans of removals that wait for a confirmation, sorted by hash.
	Plans []Plan `json:"plans,omitempty"`
}

// Template is an object that a user wrote.
type Template struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// Cluster is the application in one cluster.
type Cluster struct {
	Name  string         `json:"name"`
	State RowState       `json:"state"`
	Phase atoll.RowPhase `json:"phase"`
	// Revision is the number of the Revision that the cluster is to hold.
	Revision int64 `json:"revision"`
	// Reason, Actor, Message and Since show what the cluster waits for. A ready cluster has Since alone.
	Reason  atoll.Reason `json:"reason,omitempty"`
	Actor   atoll.Actor  `json:"actor,omitempty"`
	Message string       `json:"message,omitempty"`
	Since   *time.Time   `json:"since,omitempty"`
	// Applied: the report is of the latest order, and all of it is applied.
	Applied bool `json:"applied,omitempty"`
	// Total items and Ready ones, as reported.
	Total int32 `json:"total"`
	Ready int32 `json:"ready"`
	// Items that are not simply healthy. An applied template that is not among them is healthy, unless
	// Unlisted is above 0.
	Items    []Item `json:"items,omitempty"`
	Unlisted int32  `json:"unlisted,omitempty"`
}

// Item is a template in one cluster.
type Item struct {
	// Template is the index in Tree.Templates.
	Template int          `json:"template"`
	Health   atoll.Health `json:"health,omitempty"`
	Reason   atoll.Reason `json:"reason,omitempty"`
	Message  string       `json:"message,omitempty"`
	Since    *time.Time   `json:"since,omitempty"`
	// Error: it could not be applied.
	Error bool `json:"error,omitempty"`
	// Absent: an override rule keeps it out of the cluster.
	Absent bool `json:"absent,omitempty"`
}

// Row is what the hub's tables have of one cluster.
type Row struct {
	Cluster string
	Row     rollout.Row
	// Since is when the cluster's readiness changed last.
	ReadyChanged time.Time
}

// Input of a tree.
type Input struct {
	Namespace, Name string
	Revision        int64
	// Items of the newest Revision.
	Items []atoll.ItemKey
	// Removed are the items that it takes out.
	Removed []atoll.ItemKey
	// IsVisible reports whether the user may read a template.
	IsVisible func(atoll.ItemKey) bool
	Rows      []Row
	// Answered are hashes of plans that a person has confirmed or withdrawn.
	Answered []string
	// Limit is the greatest number of clusters, and Cluster names the only one to return; empty: all.
	Limit   int
	Cluster string
}

// BuildTree returns the tree.
func BuildTree(in Input) Tree {
	out := Tree{Namespace: in.Namespace, Name: in.Name, Revision: in.Revision, Templates: []Template{}, Counts: map[RowState]int{}, Clusters: []Cluster{}}
	b := treeBuilder{indexes: map[atoll.ItemKey]int{}}
	for _, key := range in.Items {
		if !in.IsVisible(key) {
			out.HiddenTemplates++
			continue
		}
		b.indexes[key] = len(out.Templates)
		out.Templates = append(out.Templates, Template{Group: key.Group, Kind: key.Kind, Namespace: key.Namespace, Name: key.Name})
	}
	b.seesAll = out.HiddenTemplates == 0 && !slices.ContainsFunc(in.Removed, func(key atoll.ItemKey) bool { return !in.IsVisible(key) })
	out.Plans = b.listPlans(in.Rows, in.Answered)
	var wanted []stateOfRow
	for i := range in.Rows {
		r := &in.Rows[i]
		state := findRowState(r.Row)
		if state == "" {
			continue
		}
		out.Counts[state]++
		if in.Cluster == "" || in.Cluster == r.Cluster {
			wanted = append(wanted, stateOfRow{rank: slices.Index(stateOrder, state), row: r})
		}
	}
	slices.SortFunc(wanted, func(a, b stateOfRow) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), strings.Compare(a.row.Cluster, b.row.Cluster))
	})
	if len(wanted) > in.Limit {
		out.MoreClusters, wanted = len(wanted)-in.Limit, wanted[:in.Limit]
	}
	for _, w := range wanted {
		out.Clusters = append(out.Clusters, b.buildCluster(w.row, stateOrder[w.rank]))
	}
	return out
}

type stateOfRow struct {
	rank int
	row  *Row
}

// findRowState returns the state of a row; empty where nothing is left of it.
func findRowState(r rollout.Row) RowState {
	isCurrent := r.Status != nil && r.Status.Generation == r.Spec.Generation
	switch {
	case r.Spec.Phase == atoll.RowVacant, isCurrent && r.Status.State == atoll.RowRemoved:
		return ""
	case !r.Online:
		return Away
	case r.Spec.Phase == atoll.RowPending, r.Spec.Phase == atoll.RowHeld:
		return Waiting
	case r.Spec.Phase == atoll.RowRemoving, r.Spec.Phase == atoll.RowLeaving:
		return Removing
	case !isCurrent:
		return Progressing
	}
	switch r.Status.State {
	case atoll.RowReady:
		return Ready
	case atoll.RowDegraded:
		return Degraded
	case atoll.RowFailed:
		return Failed
	}
	return Progressing
}

// treeBuilder makes clusters for one user.
type treeBuilder struct {
	indexes map[atoll.ItemKey]int
	seesAll bool
}

func (b treeBuilder) buildCluster(r *Row, state RowState) Cluster {
	spec := r.Row.Spec
	out := Cluster{Name: r.Cluster, State: state, Phase: spec.Phase, Revision: atoll.RevisionNumber(spec.Revision)}
	row := r.Row
	if row.Status != nil {
		row.Status = b.redactStatus(row.Status)
		out.Total, out.Ready, out.Unlisted = row.Status.Total, row.Status.Ready, row.Status.UnlistedNotReady
		out.Applied = row.Status.Applied && row.Status.Generation == spec.Generation
		out.Items = b.listItems(row.Status)
		out.Since = timeOf(row.Status.Since)
	}
	out.Items = append(out.Items, b.listAbsentItems(spec)...)
	b.addWait(&out, row, r.ReadyChanged)
	return out
}

// addWait adds what the cluster waits for, in the words of the engine.
func (b treeBuilder) addWait(out *Cluster, row rollout.Row, readyChanged time.Time) {
	if out.State == Ready {
		return
	}
	reason, since := atoll.ParseRowReason(row.Spec.Reason), time.Unix(row.Spec.Since, 0)
	w := rollout.RowWait{Reason: reason.Reason, For: reason.Text, Since: since}
	switch {
	case out.State == Away:
		w = rollout.RowWait{Reason: atoll.ReasonWaitsForCluster, Since: readyChanged}
	case row.Spec.Phase == atoll.RowRemoving:
		w = rollout.WaitOfRemovingRow(row)
	case row.Spec.Phase == atoll.RowActive:
		w = rollout.WaitOfActiveRow(row)
	case !b.seesAll:
		w.For = "" // it may name templates
	}
	out.Reason, out.Message = w.Reason, phrase.EscapeLine(w.For)
	if out.Actor = w.Actor; out.Actor == "" {
		out.Actor = atoll.ActorOf(w.Reason)
	}
	if !w.Since.IsZero() {
		utc := w.Since.UTC()
		out.Since = &utc
	}
}

// redactStatus returns the report without what only readers of all templates may see: hidden items, and the
// agent's words about the whole.
func (b treeBuilder) redactStatus(st *atoll.RowStatus) *atoll.RowStatus {
	if b.seesAll {
		return st
	}
	next := *st
	next.Reason, next.Message = "", ""
	next.Items = slices.DeleteFunc(slices.Clone(st.Items), func(it atoll.ItemStatus) bool {
		_, visible := b.indexes[it.Key]
		return !visible
	})
	return &next
}

// listItems lists the reported items that are not simply healthy.
func (b treeBuilder) listItems(st *atoll.RowStatus) (out []Item) {
	for _, it := range st.Items {
		at, known := b.indexes[it.Key]
		if !known || it.Health == atoll.Healthy && !it.Error && it.Reason == "" {
			continue
		}
		out = append(out, Item{Template: at, Health: it.Health, Reason: it.Reason, Message: phrase.EscapeLine(it.Message), Since: timeOf(it.Since), Error: it.Error})
	}
	return out
}

func (b treeBuilder) listAbsentItems(spec atoll.RowSpec) (out []Item) {
	for _, text := range spec.Absent {
		key, err := atoll.ParseItemKey(text)
		if err != nil {
			continue
		}
		if at, known := b.indexes[key]; known {
			out = append(out, Item{Template: at, Absent: true})
		}
	}
	return out
}

// timeOf returns a time of a report, whatever was stored; nil: there is none.
func timeOf(seconds int64) *time.Time {
	if seconds <= 0 {
		return nil
	}
	t := time.Unix(min(seconds, atoll.MaxUnixSeconds), 0).UTC()
	return &t
}
