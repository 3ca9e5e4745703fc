package schedule

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/expr"
)

// selectors is what narrows the clusters by what they are, made ready to be asked.
type selectors struct {
	names, exclude map[string]bool
	labels         labels.Selector
	labelsReason   string
	// equal are the requirements that one key has one value, which most selectors are
	// made of; whole: there are no others.
	equal      []pair
	whole      bool
	fields     []v1alpha1.FieldRequirement
	sets       map[string]bool
	setsReason string
	cel        *expr.Selector
	celError   string

	labelPrint, fieldPrint, setsPrint, celPrint string
	// own: of a group, whose sets and expression are remembered beside the placement's.
	own bool
}

func compileAffinity(from *v1alpha1.ClusterAffinity) (a selectors) {
	if from == nil {
		return a
	}
	if err := a.choose(from); err != nil {
		a.labelsReason = fmt.Sprintf("labelSelector is malformed: %v", err)
		a.labelPrint = print8(from.LabelSelector)
	} else if a.labels != nil {
		a.labelsReason = fmt.Sprintf("labels do not match %q", a.labels)
		a.labelPrint = print8(a.labels.String())
	}
	if from.FieldSelector != nil {
		a.fieldPrint = print8(from.FieldSelector)
	}
	return a
}

// choose by an affinity, without words for who is refused. Labels that are malformed
// match nothing.
func (a *selectors) choose(from *v1alpha1.ClusterAffinity) (err error) {
	a.names, a.exclude = set(from.ClusterNames), set(from.ExcludeClusters)
	if from.LabelSelector != nil {
		if a.labels, err = metav1.LabelSelectorAsSelector(from.LabelSelector); err != nil {
			a.labels = labels.Nothing()
		} else {
			a.equal, a.whole = equalities(a.labels)
		}
	}
	if from.FieldSelector != nil {
		a.fields = from.FieldSelector.MatchExpressions
	}
	return err
}

func (a *selectors) useSets(names []string) {
	if len(names) == 0 {
		return
	}
	a.sets, a.setsReason = set(names), fmt.Sprintf("is in none of the cluster sets %s", list(names))
	a.setsPrint = print8(names)
}

func (a *selectors) useCEL(text string) {
	if text != "" {
		a.celPrint = print8(text)
		a.compileCEL(text)
	}
}

func (a *selectors) compileCEL(text string) {
	if text == "" {
		return
	}
	sel, err := expr.Compile(text)
	if a.cel = sel; err != nil {
		a.celError = fmt.Sprintf("celSelector is malformed: %v", err)
	}
}

// at a place of what rows remember.
func (a *selectors) at(common, own int) int {
	if a.own {
		return own
	}
	return common
}

// first refusal by all but the expression, which costs most and is asked last.
func (a *selectors) first(c *atoll.ClusterView, say bool) (r refusal, refused bool) {
	if a.names != nil || a.exclude != nil {
		if r, refused = a.named(c); refused {
			return r, true
		}
	}
	if a.sets != nil {
		if r, refused = a.inSets(c, say); refused {
			return r, true
		}
	}
	if r, refused = a.selected(c); refused || len(a.fields) == 0 {
		return r, refused
	}
	return a.fielded(c, say)
}

// matches tells whether the selectors alone lets the cluster pass.
func (a *selectors) matches(c *atoll.ClusterView) bool {
	if _, refused := a.first(c, false); refused {
		return false
	}
	_, refused := a.expressed(c, false)
	return !refused
}

func (a *selectors) named(c *atoll.ClusterView) (refusal, bool) {
	switch {
	case a.exclude[c.Name]:
		return refusal{filter: FilterExclude, reason: "named in exclude"}, true
	case a.names != nil && !a.names[c.Name]:
		return refusal{filter: FilterNames, reason: "not named in clusterNames"}, true
	}
	return refusal{}, false
}

func (a *selectors) inSets(c *atoll.ClusterView, say bool) (refusal, bool) {
	if a.sets == nil || anyOf(a.sets, c.Sets) {
		return refusal{}, false
	}
	r := refusal{filter: FilterSets, print: a.setsPrint, place: a.at(printSets, printOwnSets)}
	if r.reason = a.setsReason; say && len(c.Sets) > 0 {
		r.reason += ", but in " + list(c.Sets)
	}
	return r, true
}

// pair of a label.
type pair struct{ key, value string }

// equalities of a selector, and whether that is all of it.
func equalities(sel labels.Selector) (list []pair, whole bool) {
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
				list = append(list, pair{r.Key(), values[0]})
				continue
			}
		}
		whole = false
	}
	return list, whole
}

// matchLabels is the selector's answer, found sooner where one label decides.
func (a *selectors) matchLabels(have map[string]string) bool {
	for i := range a.equal {
		if v, ok := have[a.equal[i].key]; !ok || v != a.equal[i].value {
			return false
		}
	}
	return a.whole || a.labels.Matches(labels.Set(have))
}

func (a *selectors) selected(c *atoll.ClusterView) (refusal, bool) {
	if a.labels == nil || a.matchLabels(c.Labels) {
		return refusal{}, false
	}
	return refusal{filter: FilterLabels, reason: a.labelsReason, print: a.labelPrint, place: printLabels}, true
}

func (a *selectors) fielded(c *atoll.ClusterView, say bool) (refusal, bool) {
	for i := range a.fields {
		req := &a.fields[i]
		if atoll.MatchField(req, c) {
			continue
		}
		r := refusal{filter: FilterFields, print: a.fieldPrint, place: printFields, reported: !atoll.SpecField(req.Key)}
		if say {
			r.reason = atoll.FieldReason(req, c)
		}
		return r, true
	}
	return refusal{}, false
}

// expressed asks the expression. Whether a property made the difference cannot be told
// from outside, so a refusal by one that reads any takes nothing away.
func (a *selectors) expressed(c *atoll.ClusterView, say bool) (refusal, bool) {
	if a.cel == nil && a.celError == "" {
		return refusal{}, false
	}
	r := refusal{filter: FilterCEL, reason: a.celError, print: a.celPrint, place: a.at(printCEL, printOwnCEL)}
	if a.cel == nil {
		return r, true
	}
	seen := expr.Cluster{ClusterView: c}
	if a.cel.True(seen) {
		return refusal{}, false
	}
	r.reported = len(a.cel.Properties()) > 0
	if !say {
		return r, true
	}
	if _, err := a.cel.Match(seen); err != nil {
		r.reason = fmt.Sprintf("the expression fails on it: %v", err)
	} else {
		r.reason = fmt.Sprintf("not true of it: %s", a.cel)
	}
	return r, true
}
