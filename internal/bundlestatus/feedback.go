package bundlestatus

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

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

// feedbackCounts counts clusters by value.
type feedbackCounts struct {
	values   map[string]int32
	problems int32
}

// feedbackTally counts the feedback of a Bundle's rows.
type feedbackTally map[feedbackID]*feedbackCounts

// addRow counts what the row's cluster reports.
func (t *feedbackTally) addRow(r Row) {
	if r.Status == nil {
		return
	}
	for i := range r.Status.Items {
		it := &r.Status.Items[i]
		for _, v := range it.Feedback {
			t.countValue(feedbackID{it.Key, v.Name}, v, r.rowCount())
		}
	}
}

func (t *feedbackTally) countValue(id feedbackID, v atoll.FeedbackValue, clusters int32) {
	if *t == nil {
		*t = feedbackTally{}
	}
	c := (*t)[id]
	if c == nil {
		c = &feedbackCounts{values: map[string]int32{}}
		(*t)[id] = c
	}
	if v.Problem != "" {
		c.problems += clusters
		return
	}
	c.values[v.Value] += clusters
}

// listFeedback returns the counts by object and name, the first maxBundleFeedback of them.
func (t feedbackTally) listFeedback() (out []v1alpha1.BundleFeedback) {
	ids := slices.SortedFunc(maps.Keys(t), func(x, y feedbackID) int {
		return cmp.Or(strings.Compare(x.item.String(), y.item.String()), strings.Compare(x.name, y.name))
	})
	for _, id := range ids[:min(len(ids), maxBundleFeedback)] {
		c := t[id]
		f := v1alpha1.BundleFeedback{
			Object: phrase.CutText(id.item.Kind+"/"+id.item.Name, maxFeedbackObject), Name: id.name, ProblemClusters: c.problems,
		}
		for i, value := range slices.SortedFunc(maps.Keys(c.values), func(x, y string) int {
			return cmp.Or(cmp.Compare(c.values[y], c.values[x]), strings.Compare(x, y))
		}) {
			if i >= maxFeedbackValues {
				f.OtherClusters += c.values[value]
				continue
			}
			f.Values = append(f.Values, v1alpha1.BundleFeedbackValue{Value: phrase.TruncateText(value, maxFeedbackValue), Clusters: c.values[value]})
		}
		out = append(out, f)
	}
	return out
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
