package apptree

import (
	"cmp"
	"slices"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
)

const (
	// maxPlanParts and maxPlanClusters bound what a plan lists. The rest is counted.
	maxPlanParts    = 200
	maxPlanClusters = 1000
)

// Plan is what waits for the confirmation of exactly its hash.
type Plan struct {
	Hash string `json:"hash"`
	// Recalled: members have stored the removals from before the hub was restored, so they can also be kept.
	Recalled bool `json:"recalled,omitempty"`
	// Clusters counts those that the plan is about.
	Clusters int `json:"clusters"`
	// Parts have the same content each.
	Parts []PlanPart `json:"parts"`
	// MoreParts counts those that are left out.
	MoreParts int `json:"moreParts,omitempty"`
}

// PlanPart is the same content of a plan in some clusters.
type PlanPart struct {
	Reason atoll.Reason `json:"reason"`
	// Text is what is removed, or why. It is empty for a user that may not read all templates.
	Text string `json:"text,omitempty"`
	// Clusters by name.
	Clusters []string `json:"clusters"`
	// MoreClusters counts those that are left out.
	MoreClusters int `json:"moreClusters,omitempty"`
}

// waitingRow is a row that waits for the confirmation of a plan.
type waitingRow struct {
	cluster string
	reason  atoll.RowReason
}

// listPlans lists the plans that rows wait for, sorted by hash. Plans that are answered do not wait.
func (b treeBuilder) listPlans(rows []Row, answered []string) (out []Plan) {
	var waiting []waitingRow
	for i := range rows {
		reason := atoll.ParseRowReason(rows[i].Row.Spec.Reason)
		if reason.Plan == "" || slices.Contains(answered, reason.Plan) {
			continue
		}
		if !b.seesAll {
			reason.Text = "" // it may name templates
		}
		waiting = append(waiting, waitingRow{rows[i].Cluster, reason})
	}
	slices.SortFunc(waiting, func(x, y waitingRow) int { return cmp.Compare(x.cluster, y.cluster) })
	at := map[string]int{}
	for _, w := range waiting {
		n, known := at[w.reason.Plan]
		if !known {
			n, out = len(out), append(out, Plan{Hash: w.reason.Plan, Parts: []PlanPart{}})
			at[w.reason.Plan] = n
		}
		out[n].addRow(w.cluster, w.reason)
	}
	slices.SortFunc(out, func(x, y Plan) int { return cmp.Compare(x.Hash, y.Hash) })
	return out
}

// addRow adds a row that waits for the plan.
func (p *Plan) addRow(cluster string, reason atoll.RowReason) {
	p.Clusters++
	p.Recalled = p.Recalled || reason.Reason == atoll.ReasonRemovedBeforeRestore
	text := phrase.EscapeLine(reason.Text)
	i := slices.IndexFunc(p.Parts, func(part PlanPart) bool { return part.Reason == reason.Reason && part.Text == text })
	switch {
	case i < 0 && len(p.Parts) >= maxPlanParts:
		p.MoreParts++
	case i < 0:
		p.Parts = append(p.Parts, PlanPart{Reason: reason.Reason, Text: text, Clusters: []string{cluster}})
	case len(p.Parts[i].Clusters) >= maxPlanClusters:
		p.Parts[i].MoreClusters++
	default:
		p.Parts[i].Clusters = append(p.Parts[i].Clusters, cluster)
	}
}
