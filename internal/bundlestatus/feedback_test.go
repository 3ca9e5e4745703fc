package bundlestatus

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

func reportFeedback(name, value, problem string) *atoll.RowStatus {
	st := readyStatus()
	st.Items = []atoll.ItemStatus{{
		Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}, Health: atoll.Healthy,
		Feedback: []atoll.FeedbackValue{{Name: name, Value: value, Problem: problem}},
	}}
	return st
}

// A Bundle's feedback has the values that most clusters report.
func TestFeedbackOfABundle(t *testing.T) {
	of := func(rows ...Row) v1alpha1.BundleStatus {
		return ComputeStatus(StatusInput{Rows: rows, Latest: latest, Now: time.Unix(1, 0)})
	}
	many := newRow("b", reportFeedback("version", "1.2", ""))
	many.More = 9
	got := of(newRow("a", reportFeedback("version", "1.1", "")), many, newRow("c", reportFeedback("version", "", "it is a list")), newRow("d", nil))
	want := []v1alpha1.BundleFeedback{{Object: "Deployment/web", Name: "version", ProblemClusters: 1, Values: []v1alpha1.BundleFeedbackValue{{Value: "1.2", Clusters: 10}, {Value: "1.1", Clusters: 1}}}}
	if !reflect.DeepEqual(got.Feedback, want) || got.FeedbackSummary != "version: 1.2 (10), 1.1 (1), no value (1)" {
		t.Errorf("%+v, %q", got.Feedback, got.FeedbackSummary)
	}
	if got := of(newRow("a", reportFeedback("version", "1.2", ""))); got.FeedbackSummary != "version: 1.2" {
		t.Errorf("of one value: %q", got.FeedbackSummary)
	}
	if got := of(newRow("a", readyStatus())); got.Feedback != nil || got.FeedbackSummary != "" {
		t.Errorf("without feedback: %+v", got)
	}
}

// The size of a Bundle's feedback does not depend on the number of clusters.
func TestFeedbackOfABundleIsBounded(t *testing.T) {
	var rows []Row
	for i := range 500 {
		st := readyStatus()
		for n := range 20 {
			it := reportFeedback(fmt.Sprintf("name-%02d", n), fmt.Sprint(i, "\x1b", strings.Repeat("x", 300)), "").Items[0]
			st.Items = append(st.Items, it)
		}
		rows = append(rows, newRow(fmt.Sprint("c", i), st))
	}
	got := ComputeStatus(StatusInput{Rows: rows, Latest: latest, Now: time.Unix(1, 0)})
	if len(got.Feedback) != maxBundleFeedback || len(got.FeedbackSummary) > maxFeedbackSummary || strings.Contains(got.FeedbackSummary, "\x1b") {
		t.Errorf("%d names, %q", len(got.Feedback), got.FeedbackSummary)
	}
	for _, f := range got.Feedback {
		if len(f.Values) != maxFeedbackValues || f.OtherClusters != 500-maxFeedbackValues || len(f.Values[0].Value) > maxFeedbackValue {
			t.Errorf("%+v", f)
		}
	}
}
