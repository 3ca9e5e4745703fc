package decisions

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/state"
)

// objectChanges are the PlacementDecisions to write and to delete.
type objectChanges struct {
	// toWrite is new or changed; toDelete is empty.
	toWrite, toDelete []state.Decision
}

// arrangeDecisions puts the chosen clusters, by name, into existing objects, and into new ones
// when those are full. A cluster stays in its object; a cluster in two objects stays in the
// first.
func arrangeDecisions(p state.Placement, now []state.Decision, chosen map[string]v1alpha1.ClusterDecision) (out objectChanges) {
	left := maps.Clone(chosen)
	var pages []state.Decision
	taken := map[int]bool{}
	for _, d := range now {
		n := d.SequenceNumber()
		if n == 0 || d.Meta.Name != decisionNameOf(p, n) {
			out.toDelete = append(out.toDelete, d)
			continue
		}
		taken[n] = true
		d.Status.Decisions = takeChosen(d.Status.Decisions, left)
		pages = append(pages, d)
	}
	fresh := slices.Sorted(maps.Keys(left))
	for i := range pages {
		room := min(v1alpha1.MaxDecisions-len(pages[i].Status.Decisions), len(fresh))
		pages[i].Status.Decisions, fresh = fillDecisionList(pages[i].Status.Decisions, left, fresh, max(room, 0))
	}
	for n := 1; len(fresh) > 0; n++ {
		if !taken[n] {
			d := newDecision(p, n)
			d.Status.Decisions, fresh = fillDecisionList(nil, left, fresh, min(v1alpha1.MaxDecisions, len(fresh)))
			pages = append(pages, d)
		}
	}
	out.addChangedPages(now, pages)
	return out
}

// takeChosen returns the clusters of the list that are in chosen, and removes them from it.
func takeChosen(list []v1alpha1.ClusterDecision, chosen map[string]v1alpha1.ClusterDecision) []v1alpha1.ClusterDecision {
	next := make([]v1alpha1.ClusterDecision, 0, len(list))
	for _, is := range list {
		if c, ok := chosen[is.ClusterName]; ok {
			next = append(next, c)
			delete(chosen, is.ClusterName)
		}
	}
	return next
}

// addChangedPages adds the pages that are empty or differ from now.
func (l *objectChanges) addChangedPages(now, pages []state.Decision) {
	was := make(map[string][]v1alpha1.ClusterDecision, len(now))
	for _, d := range now {
		was[d.Meta.Name] = d.Status.Decisions
	}
	for _, d := range pages {
		switch {
		case d.Meta.ResourceVersion != "" && len(d.Status.Decisions) == 0:
			l.toDelete = append(l.toDelete, d)
		case d.Meta.ResourceVersion == "" || !slices.Equal(was[d.Meta.Name], d.Status.Decisions):
			l.toWrite = append(l.toWrite, d)
		}
	}
}

// fillDecisionList fills a list with the first of the fresh clusters, by name.
func fillDecisionList(list []v1alpha1.ClusterDecision, of map[string]v1alpha1.ClusterDecision, fresh []string, room int) (filled []v1alpha1.ClusterDecision, rest []string) {
	for _, name := range fresh[:room] {
		list = append(list, of[name])
	}
	slices.SortFunc(list, func(a, b v1alpha1.ClusterDecision) int { return strings.Compare(a.ClusterName, b.ClusterName) })
	return list, fresh[room:]
}

func decisionNameOf(p state.Placement, n int) string {
	return fmt.Sprintf("%s-decision-%d", p.Meta.Name, n)
}

// newDecision returns an object that is not in the store yet.
func newDecision(p state.Placement, n int) state.Decision {
	kind, yes := "Placement", true
	if p.Meta.Namespace == "" {
		kind = "ClusterPlacement"
	}
	return state.Decision{Meta: metav1.ObjectMeta{
		Namespace: p.Meta.Namespace, Name: decisionNameOf(p, n),
		Labels: map[string]string{v1alpha1.LabelPlacement: p.Meta.Name, v1alpha1.LabelDecision: strconv.Itoa(n)},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: kind, Name: p.Meta.Name, UID: p.Meta.UID, Controller: &yes,
		}},
	}}
}
