package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// subject names the object for people.
func (e Explanation) subject() string {
	s := e.Kind + "/" + e.Name
	if e.Namespace != "" {
		s += " in namespace " + e.Namespace
	}
	return s
}

// space tells whether a Namespace was asked about.
func (e Explanation) space() bool { return e.Group == "" && e.Kind == "Namespace" }

// tally counts what rows there are.
type tally struct {
	in, done        int
	waiting, leaves []string
	others          []string // where the object is well and others of its Bundle are not
	away            []string
	held            int
	fit             int
	unplaced        int64    // replicas of divided workloads
	full            []string // that fit, and have no place by the capacity that they state
}

func (e Explanation) tally() (t tally) {
	for _, b := range e.Bundles {
		for _, short := range b.Short {
			t.unplaced += short.Unplaced
		}
		for _, c := range b.Clusters {
			if c.Row != nil && !c.Row.Online && c.Row.Phase != atoll.RowRemoving {
				t.away = append(t.away, c.Cluster)
			}
			switch {
			case c.Verdict == schedule.Placed && c.Row == nil:
				t.fit++
			case c.Row == nil && c.Filter == schedule.FilterCapacity && b.Choice == nil && len(b.Affinities) == 0:
				t.full = append(t.full, c.Cluster)
			case c.Row == nil:
			case c.Row.Phase == atoll.RowRemoving || c.Row.Phase == atoll.RowLeaving:
				t.leaves = append(t.leaves, c.Cluster)
			case c.Row.Phase == atoll.RowHeld || atoll.ParseRowReason(c.Row.Reason).Plan != "":
				t.in++
				t.held++
			default:
				well := c.Row.Health == atoll.Healthy && c.Row.Problem == "" && c.Row.Reported == c.Row.Generation &&
					atoll.ParseRowReason(c.Row.Reason).Word != atoll.RowNoCapacity
				if t.in++; c.Row.WaitsFor == "" || well && c.Row.Online {
					t.done++
				} else {
					t.waiting = append(t.waiting, c.Cluster)
				}
				if c.Row.WaitsFor != "" && well && c.Row.Online {
					t.others = append(t.others, c.Cluster)
				}
			}
		}
	}
	return t
}

// verdict in a sentence.
func (e Explanation) verdict() string {
	s := e.subject()
	var holders []string
	for _, b := range e.Bundles {
		holders = append(holders, b.Holders...)
	}
	slices.Sort(holders)
	switch holders = slices.Compact(holders); {
	case !e.Exists && len(holders) > 0:
		return fmt.Sprintf("%s is deleted, and on its way out of %s.", s, some(holders, 3))
	case !e.Exists && e.Group != v1alpha1.GroupVersion.Group:
		return s + " is not on the hub."
	case e.DeletedAt != nil && len(holders) > 0:
		return fmt.Sprintf("%s is being deleted: it goes once %s let go of it.", s, some(holders, 3))
	case e.DeletedAt != nil:
		return s + " is being deleted."
	case e.Chosen != nil:
		return s + " " + e.Chosen.chooses() + "."
	case len(e.Bundles) == 0:
		return s + " " + e.unplaced() + "."
	case e.unsent():
		return s + " is in no cluster: the latest revision of its Bundle does not have it yet" + e.because() + "."
	}
	if e.Kind != "Bundle" && e.Kind != "ClusterBundle" && e.Group == v1alpha1.GroupVersion.Group {
		s = "What " + s + " places"
	} else if e.space() {
		s = "What the annotation of " + s + " places"
	}
	return s + " " + e.whereabouts() + "."
}

// unsent tells whether no Bundle that places the object has it in its content: how the rows
// of these do says nothing of it.
func (e Explanation) unsent() bool {
	return !slices.ContainsFunc(e.Bundles, func(b BundleExplanation) bool { return b.Item != unsentItem })
}

// because of which failure the object is not sent; empty where none is known.
func (e Explanation) because() string {
	if slices.ContainsFunc(e.Failures, func(f Failure) bool { return f.Asked == FailureSent }) {
		return ", since a script fails that is asked about it"
	}
	return ""
}

// unplaced says why there is no Bundle.
func (e Explanation) unplaced() string {
	c := e.Claim
	switch {
	case e.Policy != nil && e.Policy.Problem != "":
		return "places nothing: " + strings.TrimSuffix(e.Policy.Problem, ".")
	case e.Group == v1alpha1.GroupVersion.Group:
		return "places nothing: no object that exists is selected by it, or others win them all"
	case e.space() && e.Annotation != "":
		return fmt.Sprintf("is annotated %s: %q, and nothing in it is placed by that", atoll.AnnotationClusters, e.Annotation)
	case e.space() && (c == nil || c.Winner == nil):
		return fmt.Sprintf("has no annotation %s, so what is in it goes where its own annotations and policies say; `atoll get bundles -n %s` lists that", atoll.AnnotationClusters, e.Name)
	case c == nil:
		return "is no object that is placed"
	case c.Winner != nil && e.nowhere():
		return "is in no cluster: that is what " + c.Winner.short() + " asks for"
	case c.Winner != nil && c.Waits != "":
		return fmt.Sprintf("is not placed by %s yet: %s", c.Winner.short(), c.Waits)
	case c.Winner != nil:
		return fmt.Sprintf("is about to be placed by %s", c.Winner.short())
	case c.Skipped != "":
		return fmt.Sprintf("is in no cluster: the annotation of its namespace leaves it out (%s), and nothing else selects it", c.Skipped)
	}
	return "is in no cluster: " + c.Why
}

// nowhere tells whether the object's own annotation is empty.
func (e Explanation) nowhere() bool {
	return e.Claim.Winner != nil && strings.HasSuffix(e.Claim.Winner.Matched, `""`)
}

// whereabouts says where the rows are, and how they do.
func (e Explanation) whereabouts() string {
	t := e.tally()
	leaves := ""
	if len(t.leaves) > 0 {
		leaves = "; on its way out of " + some(t.leaves, 3)
	}
	if t.in == 0 {
		switch {
		case t.fit > 0:
			return fmt.Sprintf("is about to go to %s", clusters(t.fit))
		case leaves != "":
			return "is in no cluster that it stays in" + leaves
		case slices.ContainsFunc(e.Bundles, func(b BundleExplanation) bool { return b.Nowhere }):
			return "is in no cluster, on purpose: its placement names none"
		case slices.ContainsFunc(e.Bundles, func(b BundleExplanation) bool { return b.NoFit }):
			return "is in no cluster: none fits its placement"
		}
		return "is in no cluster"
	}
	s := fmt.Sprintf("is in %s", clusters(t.in))
	switch {
	case t.done == t.in:
		s += cmp.Or(map[int]string{1: " and ready there"}[t.in], " and ready in all of them")
	case t.done > 0:
		s += fmt.Sprintf(" and ready in %d", t.done)
	}
	if len(t.waiting) > 0 {
		s += fmt.Sprintf("; not done in %s", some(t.waiting, 3))
	}
	if len(t.full) > 0 {
		s += fmt.Sprintf("; not in %s for want of capacity", some(t.full, 3))
	}
	if t.unplaced > 0 {
		s += fmt.Sprintf("; %s without a place", atoll.Count(int(t.unplaced), "replica"))
	}
	if len(t.others) > 0 {
		s += fmt.Sprintf("; other items of its Bundle are not done in %s", some(t.others, 3))
	}
	if t.held > 0 {
		s += fmt.Sprintf("; a removal waits for a confirmation in %s", clusters(t.held))
	}
	if len(t.away) > 0 {
		s += fmt.Sprintf(", as last heard: %s away", some(t.away, 3))
	}
	if t.fit > 0 {
		s += fmt.Sprintf("; about to go to %d more", t.fit)
	}
	return s + leaves
}

func clusters(n int) string { return atoll.Count(n, "cluster") }

// some of the names, and how many more there are.
func some(names []string, n int) string {
	if len(names) <= n+1 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:n], ", "), len(names)-n)
}
