package report

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// An item is ready when its object has the content, and its entry in a report has no problem.
func TestReadyItems(t *testing.T) {
	healthy := Item{Applied: true, Observed: true, Health: atoll.Healthy}
	for name, c := range map[string]struct {
		edit func(*Item)
		want bool
	}{
		"healthy":                   {func(*Item) {}, true},
		"suspended":                 {func(it *Item) { it.Health = atoll.Suspended }, true},
		"starting":                  {func(it *Item) { it.Health = atoll.Progressing }, false},
		"unhealthy":                 {func(it *Item) { it.Health = atoll.Degraded }, false},
		"unknown":                   {func(it *Item) { it.Health = atoll.Unknown }, false},
		"not applied":               {func(it *Item) { it.Applied = false }, false},
		"not seen":                  {func(it *Item) { it.Observed = false }, false},
		"waiting for another thing": {func(it *Item) { it.Reason = atoll.ReasonWaitsForObjects }, false},
		"refused":                   {func(it *Item) { it.Reason, it.Error = atoll.ReasonForbidden, true }, false},
		"not rendered":              {func(it *Item) { it.RenderError = "no" }, false},
	} {
		it := healthy
		if c.edit(&it); it.IsReady() != c.want {
			t.Errorf("%s: %t", name, !c.want)
		}
	}
}

// In a report without room, objects that wait for their wave come after those that are waited for.
func TestObjectsThatWaitForAWaveAreLeastImportant(t *testing.T) {
	waits := atoll.ItemStatus{Health: atoll.Progressing, Reason: atoll.ReasonWaitsForWave}
	starting := atoll.ItemStatus{Health: atoll.Progressing, Reason: "RollingOut"}
	if itemReportRank(waits, false) <= itemReportRank(starting, false) {
		t.Error("an object that waits comes first")
	}
}
