package get

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// The wide table of rows has the values that clusters report, escaped, and says which have a problem.
func TestFeedbackInTheTableOfRows(t *testing.T) {
	key := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	status := &atoll.RowStatus{Items: []atoll.ItemStatus{
		{Key: key}, {Key: key, Feedback: []atoll.FeedbackValue{{Name: "version", Value: "1\x1b2"}, {Name: "size", Problem: "it is a list, and no Integer"}}},
	}}
	if got, want := formatFeedback(status), `Deployment/web version=1\x1b2, Deployment/web size=(it is a list, and no Integer)`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := formatFeedback(nil); got != "" {
		t.Errorf("without a report: %q", got)
	}
}
