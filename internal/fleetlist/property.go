package fleetlist

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Property is what clusters are grouped by. A cluster without a value is in the group with the empty name.
type Property struct {
	// Name is its name in requests.
	Name string
	// single returns the one value of a row; nil where a cluster may have several, which list returns.
	single func(r *Row) string
	list   func(r *Row) []string
}

// labelPrefix begins the name of the property of a label.
const labelPrefix = "label:"

// properties are the properties with a fixed name.
var properties = []Property{
	{Name: "region", single: func(r *Row) string { return r.Cluster.Spec.Region }},
	{Name: "zone", list: func(r *Row) []string { return r.Cluster.Spec.ListZones() }},
	{Name: "provider", single: func(r *Row) string { return r.Cluster.Spec.Provider }},
	{Name: "set", list: func(r *Row) []string { return r.Sets }},
	{Name: "version", single: func(r *Row) string { return r.Cluster.Status.KubernetesVersion }},
	{Name: "status", single: func(r *Row) string { return r.State.String() }},
	{Name: "agent", single: func(r *Row) string { return r.Cluster.Status.AgentVersion }},
}

// FindProperty returns the property of a name: one of the table, or label:KEY.
func FindProperty(name string) (*Property, error) {
	if len(name) > MaxValue {
		return nil, fmt.Errorf("the name of the property has more than %d bytes", MaxValue)
	}
	if key, isLabel := strings.CutPrefix(name, labelPrefix); isLabel && key != "" {
		return &Property{Name: name, single: func(r *Row) string { return r.Cluster.Labels[key] }}, nil
	}
	if p := findProperty(name); p != nil {
		return p, nil
	}
	var names []string
	for _, p := range properties {
		names = append(names, p.Name)
	}
	return nil, fmt.Errorf("clusters are not grouped by %q; they are by %s, and label:KEY", name, strings.Join(names, ", "))
}

func findProperty(name string) *Property {
	for i := range properties {
		if properties[i].Name == name {
			return &properties[i]
		}
	}
	return nil
}

// EachValue calls fn with each value of the row.
func (p *Property) EachValue(r *Row, fn func(value string)) {
	if p.single != nil {
		fn(p.single(r))
		return
	}
	values := p.list(r)
	for _, v := range values {
		fn(v)
	}
	if len(values) == 0 {
		fn("")
	}
}

// matchesWord reports whether a value of the row matches the word of a filter. A row without a value in a list matches the empty word alone.
func (p *Property) matchesWord(r *Row, wanted string) bool {
	if p.single != nil {
		return matchesValue(p.single(r), wanted)
	}
	values := p.list(r)
	return len(values) == 0 && wanted == "" || slices.ContainsFunc(values, func(v string) bool { return matchesValue(v, wanted) })
}

// HasValue reports whether the row has the value.
func (p *Property) HasValue(r *Row, value string) bool {
	if p.single != nil {
		return p.single(r) == value
	}
	values := p.list(r)
	return value == "" && len(values) == 0 || slices.Contains(values, value)
}

// Counts are numbers of clusters by state.
type Counts [numStates]int

// Total returns the number of clusters in all states.
func (c Counts) Total() (n int) {
	for _, of := range c {
		n += of
	}
	return n
}

// MarshalJSON returns an object with the states that clusters are in.
func (c Counts) MarshalJSON() ([]byte, error) {
	out := map[State]int{}
	for s, n := range c {
		if n != 0 {
			out[State(s)] = n
		}
	}
	return json.Marshal(out)
}

// Group is the clusters with one value of a property.
type Group struct {
	Value    string `json:"value"`
	Clusters int    `json:"clusters"`
	States   Counts `json:"states"`
}

// Tally counts clusters, by a property where the request names one. Rows that change are taken out as they were, and added as they are.
type Tally struct {
	filter Filter
	by     *Property
	// all counts the clusters that the filter selects in any state.
	all    Counts
	groups map[string]*Counts
}

// NewTally returns a Tally of no rows; by is nil for no groups.
func NewTally(f Filter, by *Property) *Tally {
	return &Tally{filter: f, by: by, groups: map[string]*Counts{}}
}

// Change replaces a row by its successor. Either is nil where a cluster came or went. It reports whether a count changed.
func (t *Tally) Change(before, after *Row) bool {
	removed, added := t.addRow(before, -1), t.addRow(after, 1)
	return removed || added
}

// addRow adds n to the counts of a row that the filter selects, and reports whether the filter selects it in some state.
func (t *Tally) addRow(r *Row, n int) bool {
	if r == nil || !t.filter.MatchesAllButState(r) {
		return false
	}
	t.all[r.State] += n
	if t.by == nil || !t.filter.HasState(r.State) {
		return true
	}
	t.by.EachValue(r, func(value string) {
		of := t.groups[value]
		if of == nil {
			of = &Counts{}
			t.groups[value] = of
		}
		if of[r.State] += n; of.Total() == 0 {
			delete(t.groups, value)
		}
	})
	return true
}

// Len returns the number of groups.
func (t *Tally) Len() int { return len(t.groups) }

// Answer is the answer of a Tally.
type Answer struct {
	// By is the property of the groups.
	By string `json:"by,omitempty"`
	// All counts the clusters of the fleet.
	All int `json:"all"`
	// Matching counts the clusters that the whole filter selects.
	Matching int `json:"matching"`
	// States counts those that the filter selects in any state.
	States Counts `json:"states"`
	// Groups are the largest ones, in the order of their values. A cluster in several ClusterSets is in each of their groups.
	Groups []Group `json:"groups"`
	// MoreGroups counts the other groups, and MoreClusters their clusters.
	MoreGroups   int `json:"moreGroups,omitempty"`
	MoreClusters int `json:"moreClusters,omitempty"`
}

// Answer returns the counts of a fleet of so many clusters, with at most limit groups.
func (t *Tally) Answer(fleet, limit int) Answer {
	out := Answer{All: fleet, States: t.all, Groups: make([]Group, 0, min(len(t.groups), limit))}
	if t.by != nil {
		out.By = t.by.Name
	}
	for s, n := range t.all {
		if t.filter.HasState(State(s)) {
			out.Matching += n
		}
	}
	all := make([]Group, 0, len(t.groups))
	for value, counts := range t.groups {
		all = append(all, Group{Value: value, Clusters: counts.Total(), States: *counts})
	}
	slices.SortFunc(all, func(a, b Group) int { return cmp.Or(b.Clusters-a.Clusters, compareNatural(a.Value, b.Value)) })
	shown := min(len(all), limit)
	for _, g := range all[shown:] {
		out.MoreGroups++
		out.MoreClusters += g.Clusters
	}
	out.Groups = append(out.Groups, all[:shown]...)
	slices.SortFunc(out.Groups, func(a, b Group) int { return compareNatural(a.Value, b.Value) })
	return out
}
