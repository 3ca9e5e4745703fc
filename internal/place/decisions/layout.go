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

// layout of what a Placement chose on PlacementDecisions.
type layout struct {
	// write is those that are new or changed, drop those that are empty.
	write, drop []state.Decision
}

// layOut puts the chosen clusters, by name, into the objects that there are, and into new
// ones where those are full. A cluster stays where it is; one that is in two places stays
// in the first.
func layOut(p state.Placement, now []state.Decision, chosen map[string]v1alpha1.ClusterDecision) (out layout) {
	left := maps.Clone(chosen)
	var pages []state.Decision
	taken := map[int]bool{}
	for _, d := range now {
		n := d.Number()
		if n == 0 || d.Meta.Name != nameOf(p, n) {
			out.drop = append(out.drop, d)
			continue
		}
		taken[n] = true
		next := make([]v1alpha1.ClusterDecision, 0, len(d.Status.Decisions))
		for _, is := range d.Status.Decisions {
			if c, ok := left[is.ClusterName]; ok {
				next = append(next, c)
				delete(left, is.ClusterName)
			}
		}
		d.Status.Decisions = next
		pages = append(pages, d)
	}
	fresh := slices.Sorted(maps.Keys(left))
	for i := range pages {
		room := min(v1alpha1.MaxDecisions-len(pages[i].Status.Decisions), len(fresh))
		pages[i].Status.Decisions, fresh = fill(pages[i].Status.Decisions, left, fresh, max(room, 0))
	}
	for n := 1; len(fresh) > 0; n++ {
		if !taken[n] {
			d := newDecision(p, n)
			d.Status.Decisions, fresh = fill(nil, left, fresh, min(v1alpha1.MaxDecisions, len(fresh)))
			pages = append(pages, d)
		}
	}
	was := make(map[string][]v1alpha1.ClusterDecision, len(now))
	for _, d := range now {
		was[d.Meta.Name] = d.Status.Decisions
	}
	for _, d := range pages {
		switch {
		case d.Meta.ResourceVersion != "" && len(d.Status.Decisions) == 0:
			out.drop = append(out.drop, d)
		case d.Meta.ResourceVersion == "" || !slices.Equal(was[d.Meta.Name], d.Status.Decisions):
			out.write = append(out.write, d)
		}
	}
	return out
}

// fill a list with the first of the fresh clusters, in the order of the names.
func fill(list []v1alpha1.ClusterDecision, of map[string]v1alpha1.ClusterDecision, fresh []string, room int) (filled []v1alpha1.ClusterDecision, rest []string) {
	for _, name := range fresh[:room] {
		list = append(list, of[name])
	}
	slices.SortFunc(list, func(a, b v1alpha1.ClusterDecision) int { return strings.Compare(a.ClusterName, b.ClusterName) })
	return list, fresh[room:]
}

func nameOf(p state.Placement, n int) string { return fmt.Sprintf("%s-decision-%d", p.Meta.Name, n) }

// newDecision is one that is not in the store yet.
func newDecision(p state.Placement, n int) state.Decision {
	kind, yes := "Placement", true
	if p.Meta.Namespace == "" {
		kind = "ClusterPlacement"
	}
	return state.Decision{Meta: metav1.ObjectMeta{
		Namespace: p.Meta.Namespace, Name: nameOf(p, n),
		Labels: map[string]string{v1alpha1.LabelPlacement: p.Meta.Name, v1alpha1.LabelDecision: strconv.Itoa(n)},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: kind, Name: p.Meta.Name, UID: p.Meta.UID, Controller: &yes,
		}},
	}}
}
