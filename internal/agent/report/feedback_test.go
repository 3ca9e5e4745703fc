package report

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// Feedback of a healthy item is listed, and its change is no change of health.
func TestFeedbackIsReported(t *testing.T) {
	key := atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "conf"}
	input := func(values ...atoll.FeedbackValue) Input {
		return Input{Generation: 1, Items: []Item{{Key: key, Applied: true, Observed: true, Health: atoll.Healthy, Feedback: values, Completed: true}}}
	}
	first := BuildStatus(input(atoll.FeedbackValue{Name: "a", Value: "1"}), nil, 5)
	next := BuildStatus(input(atoll.FeedbackValue{Name: "a", Value: "2"}), &first, 9)
	if it := next.Items[0]; it.Feedback[0].Value != "2" || !it.Completed || it.Since != first.Items[0].Since || next.Since != 5 || next.State != atoll.RowReady {
		t.Errorf("%+v", next)
	}
}

// The feedback of one application is bounded. The first items by key keep theirs.
func TestFeedbackIsBounded(t *testing.T) {
	large := slices.Repeat([]atoll.FeedbackValue{{Name: "a", Value: strings.Repeat("x", 200)}}, 8)
	s := BuildStatus(Input{Generation: 1, Items: manyItems(20, "Deployment", func(_ int, it *Item) { it.Feedback = large })}, nil, 1)
	text, err := json.Marshal(s)
	if err != nil || len(text) > 12<<10 || len(s.Items) != 20 || s.Ready != 20 {
		t.Errorf("%d bytes, %d items, %d ready (%v)", len(text), len(s.Items), s.Ready, err)
	}
	if len(s.Items[0].Feedback) != 8 || len(s.Items[19].Feedback) != 0 || !strings.Contains(s.Items[19].Message, "leaves out its feedback") {
		t.Errorf("the first has %d values, the last %d: %q", len(s.Items[0].Feedback), len(s.Items[19].Feedback), s.Items[19].Message)
	}
}
