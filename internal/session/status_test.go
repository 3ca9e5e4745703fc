package session

import (
	"encoding/json"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// A hub that stored a report without its large statuses has the same report, and a changed status
// is another report.
func TestHashOfALargeStatus(t *testing.T) {
	report := func(text string) atoll.RowStatus {
		return atoll.RowStatus{Generation: 1, Items: []atoll.ItemStatus{{Health: atoll.Healthy, ReflectedStatus: json.RawMessage(`{"s":{"a":"` + strings.Repeat(text, 2000) + `"}}`)}}}
	}
	stored, dropped := atoll.DropLargeStatuses(report("x"))
	if !dropped || StatusHash(stored) != StatusHash(report("x")) {
		t.Error("the hub's part counts as another report")
	}
	if StatusHash(report("y")) == StatusHash(report("x")) {
		t.Error("another status counts as the same report")
	}
}
