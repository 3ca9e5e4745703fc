package offline

import (
	"slices"
	"strings"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// Result of `atoll schedule`: what programs read, and golden files hold.
type Result struct {
	// Bundles by namespace and name.
	Bundles []BundleResult `json:"bundles"`
	// Placements and what they would publish: cluster-scoped ones first, then by namespace
	// and name.
	Placements []PlacementResult `json:"placements,omitempty"`
	// Unplaced templates, by key.
	Unplaced []UnplacedResult `json:"unplaced,omitempty"`
	// Idle policies, which place or override nothing, by kind, namespace and name.
	Idle []IdleResult `json:"idle,omitempty"`
}

// PlacementResult is one Placement and the clusters that it chooses.
type PlacementResult struct {
	// Namespace is empty for a ClusterPlacement.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// NoFit: no cluster fits. Unmet is the minimum of the spread that cannot be had.
	NoFit bool   `json:"noFit,omitempty"`
	Unmet string `json:"unmet,omitempty"`
	// Clusters, all of them, by name.
	Clusters []ClusterResult `json:"clusters"`
}

// IdleResult is a policy that nothing comes of, and why.
type IdleResult struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Why       string `json:"why"`
}

// BundleResult is one Bundle and where it goes.
type BundleResult struct {
	// Namespace is empty for a ClusterBundle.
	Namespace string       `json:"namespace,omitempty"`
	Name      string       `json:"name"`
	Source    SourceResult `json:"source"`
	// RolloutStrategy that its rollout comes from; nil: the source states the rollout itself, or states none.
	RolloutStrategy *v1alpha1.AppliedStrategy `json:"rolloutStrategy,omitempty"`
	// Items by key.
	Items []ItemResult `json:"items"`
	// NoFit: no cluster fits. Unmet is the minimum of the spread that cannot be had.
	NoFit bool   `json:"noFit,omitempty"`
	Unmet string `json:"unmet,omitempty"`
	// Clusters, all of them, by name.
	Clusters []ClusterResult `json:"clusters"`
	// Unscheduled replicas that have no place, by item.
	Unscheduled map[string]int64 `json:"unscheduled,omitempty"`
}

// SourceResult is the policy or annotation that a Bundle comes from.
type SourceResult struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// ItemResult is one object of a Bundle.
type ItemResult struct {
	Key string `json:"key"`
	// Why the source places it; empty for a dependency.
	Why        string `json:"why,omitempty"`
	Dependency bool   `json:"dependency,omitempty"`
	// Problem is why it cannot be sent.
	Problem       string       `json:"problem,omitempty"`
	ProblemReason atoll.Reason `json:"problemReason,omitempty"`
}

// ClusterResult is the verdict on one cluster.
type ClusterResult struct {
	Cluster string           `json:"cluster"`
	Outcome schedule.Outcome `json:"outcome"`
	// Filter that refuses the cluster, and why: as an enumerated reason, and as a sentence.
	Filter     string       `json:"filter,omitempty"`
	ReasonCode atoll.Reason `json:"reasonCode,omitempty"`
	Reason     string       `json:"reason,omitempty"`
	// Capacity that the cluster states, and what was used of it before this Bundle; of
	// clusters that are chosen.
	Capacity []schedule.CapacityBound `json:"capacity,omitempty"`
	// Score of a cluster among which was chosen, of 1,000,000.
	Score int64 `json:"score,omitempty"`
	// Group among the placement's decision groups.
	Group string `json:"group,omitempty"`
	// OverflowStep by which it takes replicas that have no place in the chosen clusters; 0: it is
	// chosen.
	OverflowStep int32 `json:"overflowStep,omitempty"`
	// Replicas by item, of items whose replicas are divided.
	Replicas map[string]int64 `json:"replicas,omitempty"`
}

// UnplacedResult is a template without a policy, and the reason.
type UnplacedResult struct {
	Key    string       `json:"key"`
	Why    string       `json:"why"`
	Reason atoll.Reason `json:"reason,omitempty"`
}

// NewResult returns what a World came to.
func NewResult(o Outcome) Result {
	out := Result{Bundles: []BundleResult{}}
	for i := range o.Bundles {
		out.Bundles = append(out.Bundles, bundleResult(&o.Bundles[i]))
	}
	for i := range o.Placements {
		p := &o.Placements[i]
		out.Placements = append(out.Placements, PlacementResult{
			Namespace: p.Namespace, Name: p.Name, NoFit: p.Decision.NoFit, Unmet: p.Decision.UnmetSpread, Clusters: clusterResults(&p.Decision, schedule.ReplicaAssignment{}),
		})
	}
	for _, u := range o.Unplaced {
		out.Unplaced = append(out.Unplaced, UnplacedResult{Key: u.Key.String(), Why: u.Why, Reason: u.Reason})
	}
	for _, x := range o.Idle {
		out.Idle = append(out.Idle, IdleResult(x))
	}
	return out
}

// clusterResults returns the results of a decision: the verdict on each, and its share.
func clusterResults(d *schedule.Decision, shares schedule.ReplicaAssignment) []ClusterResult {
	out := []ClusterResult{}
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		c := ClusterResult{Cluster: v.Cluster, Outcome: v.Outcome, Filter: v.Filter, ReasonCode: v.ReasonCode(), Reason: v.Reason, Score: v.Score, Group: v.Group, OverflowStep: v.OverflowStep}
		if v.Outcome == schedule.OutcomePlaced {
			c.Replicas, c.Capacity = shares.ShareOf(v.Cluster).AssignedReplicas(), d.CapacityBounds(v.Cluster)
		}
		out = append(out, c)
	}
	return out
}

func bundleResult(b *Bundle) BundleResult {
	out := BundleResult{
		Namespace: b.ID.Namespace, Name: b.ID.Name, Source: SourceResult{Kind: b.Source.Kind, Name: b.Source.Name}, RolloutStrategy: b.Strategy,
		NoFit: b.Decision.NoFit, Unmet: b.Decision.UnmetSpread, Items: b.itemResults(), Clusters: clusterResults(&b.Decision, b.Shares),
	}
	for _, s := range b.Shares.Shortages {
		if out.Unscheduled == nil {
			out.Unscheduled = map[string]int64{}
		}
		out.Unscheduled[s.Key.String()] = s.Unplaced
	}
	return out
}

// itemResults returns the items of the content, and what cannot be one.
func (b *Bundle) itemResults() []ItemResult {
	problems := map[atoll.ItemKey]string{}
	for _, p := range b.Problems {
		problems[p.Key] = p.Err.Error()
	}
	out := []ItemResult{}
	add := func(key atoll.ItemKey, dependency bool) {
		r := ItemResult{Key: key.String(), Why: b.Why[key], Dependency: dependency, Problem: problems[key]}
		if r.Problem != "" {
			r.ProblemReason = atoll.ReasonCannotSend
		}
		out = append(out, r)
	}
	for i := range b.Content.Items {
		item := &b.Content.Items[i]
		add(item.Key, item.Dependency)
		delete(problems, item.Key)
	}
	for key := range problems {
		add(key, false)
	}
	slices.SortFunc(out, func(a, b ItemResult) int { return strings.Compare(a.Key, b.Key) })
	return out
}
