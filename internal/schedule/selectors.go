package schedule

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/clustermatch"
	"atoll.dev/atoll/internal/expr"
)

// clusterSelectors narrow the clusters by what they are, compiled.
type clusterSelectors struct {
	names, exclude map[string]bool
	labelSelector  *metav1.LabelSelector
	labels         labels.Selector
	labelsError    error
	// equalLabels are the requirements that one key has one value, which most selectors are
	// made of; onlyEqual: there are no others.
	equalLabels   []labelPair
	onlyEqual     bool
	fieldSelector *v1alpha1.FieldSelector
	setNames      []string
	sets          map[string]bool
	expression    string
	cel           *expr.ClusterSelector
	celError      error
	// Reasons of refusals, set by precomputeRefusalReasons; empty in a ClusterTarget, which gives none.
	labelsReason, setsReason string
}

// setAffinity takes over the selectors of an affinity. Malformed labels match no cluster.
func (a *clusterSelectors) setAffinity(from *v1alpha1.ClusterAffinity) {
	if from == nil {
		return
	}
	a.names, a.exclude = newNameSet(from.ClusterNames), newNameSet(from.ExcludeClusters)
	if from.LabelSelector != nil {
		a.setLabels(from.LabelSelector)
	}
	a.fieldSelector = from.FieldSelector
}

func (a *clusterSelectors) setLabels(from *metav1.LabelSelector) {
	a.labelSelector = from
	if a.labels, a.labelsError = metav1.LabelSelectorAsSelector(from); a.labelsError != nil {
		a.labels = labels.Nothing()
		return
	}
	a.equalLabels, a.onlyEqual = equalityRequirements(a.labels)
}

func (a *clusterSelectors) setClusterSets(names []string) {
	a.setNames, a.sets = names, newNameSet(names)
}

func (a *clusterSelectors) setExpression(text string) {
	if a.expression = text; text != "" {
		a.cel, a.celError = expr.CompileClusterSelector(text)
	}
}

// precomputeRefusalReasons makes the reasons that are the same for all clusters.
func (a *clusterSelectors) precomputeRefusalReasons() {
	switch {
	case a.labelSelector == nil:
	case a.labelsError != nil:
		a.labelsReason = fmt.Sprintf("labelSelector is malformed: %v", a.labelsError)
	default:
		a.labelsReason = fmt.Sprintf("labels do not match %q", a.labels)
	}
	if a.sets != nil {
		a.setsReason = "is in none of the cluster sets " + formatNames(a.setNames)
	}
}

func (a *clusterSelectors) labelFingerprint() string {
	if a.labelsError != nil {
		return shortFingerprint(a.labelSelector)
	}
	return shortFingerprint(a.labels.String())
}

func (a *clusterSelectors) refuseByExclude(c *atoll.ClusterView, _ bool) (refusal, bool) {
	return refusal{reason: "named in exclude"}, a.exclude[c.Name]
}

func (a *clusterSelectors) refuseByName(c *atoll.ClusterView, _ bool) (refusal, bool) {
	return refusal{reason: "not named in clusterNames"}, !a.names[c.Name]
}

func (a *clusterSelectors) refuseBySets(c *atoll.ClusterView, say bool) (refusal, bool) {
	if hasAnyName(a.sets, c.Sets) {
		return refusal{}, false
	}
	r := refusal{reason: a.setsReason}
	if say && len(c.Sets) > 0 {
		r.reason += ", but in " + formatNames(c.Sets)
	}
	return r, true
}

// labelPair is a required label.
type labelPair struct{ key, value string }

// equalityRequirements returns the equality requirements of a selector, and whether it has no others.
func equalityRequirements(sel labels.Selector) (list []labelPair, whole bool) {
	requirements, selectable := sel.Requirements()
	if whole = selectable; !selectable {
		return nil, false
	}
	for i := range requirements {
		r := &requirements[i]
		values := r.ValuesUnsorted()
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			if len(values) == 1 {
				list = append(list, labelPair{r.Key(), values[0]})
				continue
			}
		}
		whole = false
	}
	return list, whole
}

// matchLabels returns the selector's answer, faster where one label decides.
func (a *clusterSelectors) matchLabels(have map[string]string) bool {
	for i := range a.equalLabels {
		if v, ok := have[a.equalLabels[i].key]; !ok || v != a.equalLabels[i].value {
			return false
		}
	}
	return a.onlyEqual || a.labels.Matches(labels.Set(have))
}

func (a *clusterSelectors) refuseByLabels(c *atoll.ClusterView, _ bool) (refusal, bool) {
	return refusal{reason: a.labelsReason}, !a.matchLabels(c.Labels)
}

func (a *clusterSelectors) refuseByFields(c *atoll.ClusterView, say bool) (refusal, bool) {
	for i := range a.fieldSelector.MatchExpressions {
		req := &a.fieldSelector.MatchExpressions[i]
		if clustermatch.MatchesField(req, c) {
			continue
		}
		r := refusal{agentReported: !atoll.IsClusterSpecField(req.Key)}
		if say {
			r.reason = clustermatch.DescribeFieldMismatch(req, c)
		}
		return r, true
	}
	return refusal{}, false
}

// refuseByExpression evaluates the expression. It cannot see whether a property made the
// difference, so a refusal by an expression that reads any takes nothing away.
func (a *clusterSelectors) refuseByExpression(c *atoll.ClusterView, say bool) (r refusal, refused bool) {
	if a.celError != nil {
		if say {
			r.reason = fmt.Sprintf("celSelector is malformed: %v", a.celError)
		}
		return r, true
	}
	seen := expr.Cluster{ClusterView: c}
	if a.cel.IsTrueFor(seen) {
		return r, false
	}
	r.agentReported = len(a.cel.PropertyNames()) > 0
	if !say {
		return r, true
	}
	if _, err := a.cel.MatchCluster(seen); err != nil {
		r.reason = fmt.Sprintf("the expression fails on it: %v", err)
	} else {
		r.reason = fmt.Sprintf("not true of it: %s", a.cel)
	}
	return r, true
}
