package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/schedule"
)

// subjectName names the object for people.
func (e Explanation) subjectName() string {
	s := e.Kind + "/" + e.Name
	if e.Namespace != "" {
		s += " in namespace " + e.Namespace
	}
	return s
}

// isNamespace reports whether the explained object is a Namespace.
func (e Explanation) isNamespace() bool { return e.Group == "" && e.Kind == "Namespace" }

// rowTally counts what rows there are.
type rowTally struct {
	placed, done     int
	waiting, leaving []string
	othersWaiting    []string // where the object is well and others of its Bundle are not
	disconnected     []string
	held             int
	aboutToGo        int
	unplacedReplicas int64    // replicas of divided workloads
	fullClusters     []string // that fit, and have no place by the capacity that they state
}

func (e Explanation) countRows() (t rowTally) {
	for _, b := range e.Bundles {
		for _, short := range b.Short {
			t.unplacedReplicas += short.Unplaced
		}
		for _, c := range b.Clusters {
			switch {
			case c.Row != nil:
				t.countRow(c.Cluster, c.Row)
			case c.Verdict == schedule.OutcomePlaced:
				t.aboutToGo++
			case c.Filter == schedule.FilterCapacity && b.Choice == nil && len(b.Affinities) == 0:
				t.fullClusters = append(t.fullClusters, c.Cluster)
			}
		}
	}
	return t
}

// countRow adds a cluster's row.
func (t *rowTally) countRow(cluster string, r *RowExplanation) {
	if !r.Online && r.Phase != atoll.RowRemoving {
		t.disconnected = append(t.disconnected, cluster)
	}
	switch {
	case r.Phase == atoll.RowRemoving || r.Phase == atoll.RowLeaving:
		t.leaving = append(t.leaving, cluster)
	case r.Phase == atoll.RowHeld || atoll.ParseRowReason(r.Reason).Plan != "":
		t.placed++
		t.held++
	default:
		t.placed++
		t.countProgress(cluster, r)
	}
}

// countProgress adds a placed row that is not held: it is done, or its cluster or other items of its
// Bundle are waited for.
func (t *rowTally) countProgress(cluster string, r *RowExplanation) {
	well := r.Online && r.Health == atoll.Healthy && r.Problem == "" && r.Reported == r.Generation &&
		atoll.ParseRowReason(r.Reason).Reason != atoll.ReasonNoCapacity
	switch {
	case r.WaitsFor == "":
		t.done++
	case well:
		t.done++
		t.othersWaiting = append(t.othersWaiting, cluster)
	default:
		t.waiting = append(t.waiting, cluster)
	}
}

// verdictSentence returns the verdict in a sentence.
func (e Explanation) verdictSentence() string {
	s := e.subjectName()
	var holders []string
	for _, b := range e.Bundles {
		holders = append(holders, b.Holders...)
	}
	slices.Sort(holders)
	if deleted := e.deletionSentence(s, slices.Compact(holders)); deleted != "" {
		return deleted
	}
	switch {
	case e.Chosen != nil:
		return s + " " + e.Chosen.choiceSentence() + "."
	case e.isKeptOnHub():
		return s + " stays on the hub: " + e.PolicyMatch.HubOnly + "."
	case len(e.Bundles) == 0:
		return s + " " + e.unplacedReason() + "."
	case e.isInNoBundleContent():
		return s + " is in no cluster: the latest revision of its Bundle does not have it yet" + e.unsentScriptFailureClause() + "."
	}
	return e.placedSubject() + " " + e.rowsSentence() + "."
}

// deletionSentence is the verdict on an object that is not on the hub, or is being deleted there; empty for
// another one. holders are the clusters that still have it.
func (e Explanation) deletionSentence(subject string, holders []string) string {
	switch {
	case !e.Exists && len(holders) > 0:
		return fmt.Sprintf("%s is deleted, and on its way out of %s.", subject, abbreviateNames(holders, 3))
	case !e.Exists && e.Group != v1alpha1.GroupVersion.Group:
		return subject + " is not on the hub."
	case e.DeletedAt != nil && len(holders) > 0:
		return fmt.Sprintf("%s is being deleted: it goes once %s released it.", subject, abbreviateNames(holders, 3))
	case e.DeletedAt != nil:
		return subject + " is being deleted."
	}
	return ""
}

// placedSubject names the objects that rows are about.
func (e Explanation) placedSubject() string {
	s := e.subjectName()
	if e.Kind != "Bundle" && e.Kind != "ClusterBundle" && e.Group == v1alpha1.GroupVersion.Group {
		return "What " + s + " places"
	}
	if e.isNamespace() && e.Annotation != "" {
		return "What the annotation of " + s + " places"
	}
	return s
}

// isInNoBundleContent reports whether no Bundle that places the object has it in its content: the state of
// the rows of these is not about it.
func (e Explanation) isInNoBundleContent() bool {
	return !slices.ContainsFunc(e.Bundles, func(b BundleExplanation) bool { return b.Item != unsentItem })
}

// isKeptOnHub reports whether the object is stated to stay on the hub, and no Bundle has it.
func (e Explanation) isKeptOnHub() bool {
	return e.PolicyMatch != nil && e.PolicyMatch.HubOnly != "" && (len(e.Bundles) == 0 || e.isInNoBundleContent())
}

// unsentScriptFailureClause returns the reason: of which failure the object is not sent; empty where none is known.
func (e Explanation) unsentScriptFailureClause() string {
	if slices.ContainsFunc(e.Failures, func(f Failure) bool { return f.Asked == FailureSent }) {
		return ", since a script fails that is called for it"
	}
	return ""
}

// unplacedReason returns why there is no Bundle.
func (e Explanation) unplacedReason() string {
	c := e.PolicyMatch
	switch {
	case e.Policy != nil && e.Policy.Problem != "":
		return "places nothing: " + strings.TrimSuffix(e.Policy.Problem, ".")
	case e.Group == v1alpha1.GroupVersion.Group:
		return "places nothing: no object that exists is selected by it, or others win them all"
	case e.isNamespace() && e.Annotation != "":
		return fmt.Sprintf("is annotated %s: %q, and nothing in it is placed by that", atoll.AnnotationClusters, e.Annotation)
	case e.isNamespace() && (c == nil || c.Winner == nil):
		return fmt.Sprintf("has no annotation %s, so what is in it goes where its own annotations and policies place it; `atoll get bundles -n %s` lists that", atoll.AnnotationClusters, e.Name)
	case c == nil:
		return "is no object that is placed"
	}
	return c.unplacedReason()
}

// unplacedReason returns why the policy match makes no Bundle.
func (c *PolicyMatch) unplacedReason() string {
	switch {
	case c.Winner != nil && strings.HasSuffix(c.Winner.Matched, `""`): // the object's own annotation is empty
		return "is in no cluster: that is what " + c.Winner.shortName() + " asks for"
	case c.Winner != nil && c.WaitsFor != "":
		return fmt.Sprintf("is not placed by %s yet: %s", c.Winner.shortName(), c.WaitsFor)
	case c.Winner != nil:
		return fmt.Sprintf("is about to be placed by %s", c.Winner.shortName())
	case c.Skipped != "":
		return fmt.Sprintf("is in no cluster: the annotation of its namespace leaves it out (%s), and nothing else selects it", c.Skipped)
	}
	return "is in no cluster: " + c.Why
}

// rowsSentence returns where the rows are, and their state.
func (e Explanation) rowsSentence() string {
	t := e.countRows()
	leaves := ""
	if len(t.leaving) > 0 {
		leaves = "; on its way out of " + abbreviateNames(t.leaving, 3)
	}
	if t.placed == 0 {
		return e.noClusterSentence(t, leaves)
	}
	s := fmt.Sprintf("is in %s", clusterCount(t.placed))
	switch {
	case t.done == t.placed:
		s += cmp.Or(map[int]string{1: " and ready there"}[t.placed], " and ready in all of them")
	case t.done > 0:
		s += fmt.Sprintf(" and ready in %d", t.done)
	}
	if len(t.waiting) > 0 {
		s += fmt.Sprintf("; not done in %s", abbreviateNames(t.waiting, 3))
	}
	if len(t.fullClusters) > 0 {
		s += fmt.Sprintf("; not in %s for want of capacity", abbreviateNames(t.fullClusters, 3))
	}
	if t.unplacedReplicas > 0 {
		s += fmt.Sprintf("; %s without a place", phrase.CountNoun(int(t.unplacedReplicas), "replica"))
	}
	if len(t.othersWaiting) > 0 {
		s += fmt.Sprintf("; other items of its Bundle are not done in %s", abbreviateNames(t.othersWaiting, 3))
	}
	if t.held > 0 {
		s += fmt.Sprintf("; a removal waits for a confirmation in %s", clusterCount(t.held))
	}
	if len(t.disconnected) > 0 {
		s += fmt.Sprintf(", as last reported: %s away", abbreviateNames(t.disconnected, 3))
	}
	if t.aboutToGo > 0 {
		s += fmt.Sprintf("; about to go to %d more", t.aboutToGo)
	}
	return s + leaves
}

// noClusterSentence is the sentence about rows none of which is in a cluster to stay.
func (e Explanation) noClusterSentence(t rowTally, leaves string) string {
	switch {
	case t.aboutToGo > 0:
		return fmt.Sprintf("is about to go to %s", clusterCount(t.aboutToGo))
	case leaves != "":
		return "is in no cluster that it stays in" + leaves
	case slices.ContainsFunc(e.Bundles, func(b BundleExplanation) bool { return b.Nowhere }):
		return "is in no cluster, on purpose: its placement names none"
	case slices.ContainsFunc(e.Bundles, func(b BundleExplanation) bool { return b.NoFit }):
		return "is in no cluster: none fits its placement"
	}
	return "is in no cluster"
}

func clusterCount(n int) string { return phrase.CountNoun(n, "cluster") }

// abbreviateNames returns n of the names, and how many more there are; the name of a single other is given.
func abbreviateNames(names []string, n int) string {
	if len(names) == n+1 {
		n++
	}
	return phrase.JoinFirst(names, n, len(names))
}

// isAboutNamespace reports whether the request is about a Namespace.
func (in ExplanationInput) isAboutNamespace() bool {
	return in.Object.Group == "" && in.Object.Kind == "Namespace"
}
