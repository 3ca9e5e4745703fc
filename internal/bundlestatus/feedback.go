package bundlestatus

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/google/btree"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
)

// The bounds of a Bundle's feedback. Its size does not depend on the number of clusters.
const (
	maxBundleFeedback  = 16
	maxFeedbackValues  = 4
	maxFeedbackValue   = 64 // bytes
	maxFeedbackObject  = 512
	maxFeedbackSummary = 512
)

// feedbackID names a value that clusters report.
type feedbackID struct {
	item atoll.ItemKey
	name string
}

// feedbackTally counts the feedback of a Bundle's rows. A changed row changes its own counts, and no others are read. Make
// it with newFeedbackTally.
type feedbackTally struct {
	counts map[feedbackID]*feedbackCounts
	// parts are what each cluster with feedback counts for, by its name.
	parts map[string][]feedbackPart
}

// feedbackPart is one value of a cluster.
type feedbackPart struct {
	of        *feedbackCounts
	value     string
	isProblem bool
}

// feedbackCounts counts clusters by value, which is cut as it is shown.
type feedbackCounts struct {
	id       feedbackID
	values   map[string]int32
	ordered  *btree.BTreeG[valueCount]
	clusters int32 // with a value or a problem
	problems int32
}

// valueCount is a value with the number of clusters that report it.
type valueCount struct {
	value    string
	clusters int32
}

// isShownBefore orders values: those of the most clusters first.
func (v valueCount) isShownBefore(o valueCount) bool {
	return cmp.Or(cmp.Compare(o.clusters, v.clusters), strings.Compare(v.value, o.value)) < 0
}

// valuesPerNode is the degree of the trees of values.
const valuesPerNode = 8

func newFeedbackTally() *feedbackTally {
	return &feedbackTally{counts: map[feedbackID]*feedbackCounts{}, parts: map[string][]feedbackPart{}}
}

// countRow counts what the row's cluster reports now, in place of what it reported before. A cluster counts once for
// each name of an object, whatever it sends.
func (t *feedbackTally) countRow(row *Row) {
	t.removeCluster(row.Cluster)
	if row.Status == nil || !row.Spec.Phase.IsChosen() {
		return
	}
	var parts []feedbackPart
	counted := map[*feedbackCounts]bool{}
	for i := range row.Status.Items {
		it := &row.Status.Items[i]
		for _, v := range it.Feedback {
			c := t.ensureCounts(feedbackID{it.Key, v.Name})
			if counted[c] {
				continue
			}
			counted[c] = true
			part := feedbackPart{of: c, value: phrase.TruncateText(v.Value, maxFeedbackValue), isProblem: v.Problem != ""}
			part.addClusters(1)
			parts = append(parts, part)
		}
	}
	if len(parts) > 0 {
		t.parts[row.Cluster] = parts
	}
}

// removeCluster removes what a cluster counts for.
func (t *feedbackTally) removeCluster(cluster string) {
	for _, part := range t.parts[cluster] {
		if part.addClusters(-1); part.of.clusters == 0 {
			delete(t.counts, part.of.id)
		}
	}
	delete(t.parts, cluster)
}

func (t *feedbackTally) ensureCounts(id feedbackID) *feedbackCounts {
	c := t.counts[id]
	if c == nil {
		c = &feedbackCounts{id: id, values: map[string]int32{}, ordered: btree.NewG(valuesPerNode, valueCount.isShownBefore)}
		t.counts[id] = c
	}
	return c
}

// addClusters counts the part for one cluster more, or less.
func (p feedbackPart) addClusters(change int32) {
	c := p.of
	c.clusters += change
	if p.isProblem {
		c.problems += change
		return
	}
	before := c.values[p.value]
	now := before + change
	if before > 0 {
		c.ordered.Delete(valueCount{p.value, before})
	}
	if c.values[p.value] = now; now == 0 {
		delete(c.values, p.value)
		return
	}
	c.ordered.ReplaceOrInsert(valueCount{p.value, now})
}

// listFeedback returns the counts by object and name. Only names count that the rules of the content state: a cluster
// cannot add others. It lists the maxBundleFeedback names of the most clusters, so that a name of one cluster alone
// displaces no name of several.
func (t *feedbackTally) listFeedback(content *atoll.Content) (out []v1alpha1.BundleFeedback) {
	if content == nil || len(t.counts) == 0 {
		return nil
	}
	var listed []*feedbackCounts
	for i := range content.Items {
		item := &content.Items[i]
		a := item.Treatment.StatedAssessment()
		if a == nil || item.Key.IsSecret() {
			continue
		}
		for _, rule := range a.Feedback {
			if c := t.counts[feedbackID{item.Key, rule.Name}]; c != nil {
				listed = insertMostReported(listed, c)
			}
		}
	}
	slices.SortFunc(listed, func(x, y *feedbackCounts) int {
		return cmp.Or(x.id.item.Compare(y.id.item), strings.Compare(x.id.name, y.id.name))
	})
	for _, c := range listed {
		out = append(out, c.summarizeValues())
	}
	return out
}

// insertMostReported inserts counts behind those of as many clusters, and keeps the first maxBundleFeedback.
func insertMostReported(listed []*feedbackCounts, c *feedbackCounts) []*feedbackCounts {
	i := len(listed)
	for i > 0 && listed[i-1].clusters < c.clusters {
		i--
	}
	if i == maxBundleFeedback || slices.Contains(listed, c) {
		return listed
	}
	listed = slices.Insert(listed, i, c)
	return listed[:min(len(listed), maxBundleFeedback)]
}

// summarizeValues returns the counts with the values of the most clusters.
func (c *feedbackCounts) summarizeValues() v1alpha1.BundleFeedback {
	f := v1alpha1.BundleFeedback{
		Object: phrase.CutText(c.id.item.Kind+"/"+c.id.item.Name, maxFeedbackObject), Name: c.id.name, ProblemClusters: c.problems,
		OtherClusters: c.clusters - c.problems,
	}
	c.ordered.Ascend(func(v valueCount) bool {
		f.Values = append(f.Values, v1alpha1.BundleFeedbackValue{Value: v.value, Clusters: v.clusters})
		f.OtherClusters -= v.clusters
		return len(f.Values) < maxFeedbackValues
	})
	return f
}

// summarizeFeedback returns feedback in a line, such as "version: 1.3 (2), 1.2 (1)". The number of clusters is left out
// where all report one value.
func summarizeFeedback(feedback []v1alpha1.BundleFeedback) string {
	var parts []string
	for _, f := range feedback {
		var values []string
		for _, v := range f.Values {
			text := phrase.EscapeLine(v.Value)
			if len(f.Values) > 1 || f.OtherClusters > 0 || f.ProblemClusters > 0 {
				text += fmt.Sprintf(" (%d)", v.Clusters)
			}
			values = append(values, text)
		}
		if f.OtherClusters > 0 {
			values = append(values, fmt.Sprintf("others (%d)", f.OtherClusters))
		}
		if f.ProblemClusters > 0 {
			values = append(values, fmt.Sprintf("no value (%d)", f.ProblemClusters))
		}
		parts = append(parts, f.Name+": "+strings.Join(values, ", "))
	}
	return phrase.TruncateText(strings.Join(parts, "; "), maxFeedbackSummary)
}
