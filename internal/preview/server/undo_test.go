package server

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/preview"
	"atoll.dev/atoll/internal/preview/explain"
	"atoll.dev/atoll/internal/undo/history"
)

// fakeKept has one change, and drops as many changes as the window has hours.
type fakeKept struct{}

func (fakeKept) CountDropped(window time.Duration) int { return int(window / time.Hour) }

func (fakeKept) FindLatest(key atoll.ItemKey) (c history.Change, until time.Time, ok bool) {
	at := time.Date(2026, 11, 1, 8, 0, 0, 0, time.UTC)
	return history.Change{Operation: history.Edited, By: "ann", At: at}, at.Add(time.Hour), key == webKey
}

func TestPlansCountDroppedChanges(t *testing.T) {
	settings := func(name string, window *metav1.Duration) *v1alpha1.HubSettings {
		return &v1alpha1.HubSettings{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.HubSettingsSpec{UndoWindow: window}}
	}
	hours := &metav1.Duration{Duration: 3 * time.Hour}
	deleted := settings("hub", hours)
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	x := &userQuery{sources: Sources{Undo: fakeKept{}}}
	for name, tc := range map[string]struct {
		written client.Object
		want    int
	}{
		"a window":               {settings("hub", hours), 3},
		"the default":            {settings("hub", nil), 24},
		"settings that go":       {deleted, 24},
		"settings without sense": {settings("other", hours), 0},
		"another kind":           {&v1alpha1.Placement{}, 0},
	} {
		if got := x.countDroppedChanges([]client.Object{tc.written}); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
	if (&userQuery{}).countDroppedChanges([]client.Object{settings("hub", hours)}) != 0 || (&userQuery{}).latestChange(webKey) != nil {
		t.Error("a hub that keeps nothing counts changes")
	}
	text := preview.BuildPlan(preview.Input{DroppedChanges: x.countDroppedChanges([]client.Object{settings("hub", hours)})}).FormatText(false)
	if want := "3 kept changes could no longer be taken back by `atoll undo`.\n"; !strings.HasPrefix(text, want) {
		t.Errorf("the plan is %q", text)
	}
}

func TestExplanationsNameTheLatestChange(t *testing.T) {
	x := &userQuery{sources: Sources{Undo: fakeKept{}}}
	if x.latestChange(atoll.ItemKey{Kind: "Secret"}) != nil {
		t.Error("an object without a kept change has one")
	}
	text := explain.Explain(explain.ExplanationInput{Object: webKey, Exists: true, LatestChange: x.latestChange(webKey)}).FormatText(false)
	want := "\nThe latest change (Edited by ann at 2026-11-01T08:00:00Z) can be taken back by `atoll undo` until 2026-11-01T09:00:00Z.\n"
	if !strings.HasSuffix(text, want) {
		t.Errorf("the explanation is %q", text)
	}
}
