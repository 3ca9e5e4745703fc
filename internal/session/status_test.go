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
	stored, dropped := atoll.HashLargeStatuses(report("x"))
	if !dropped || StatusHash(stored) != StatusHash(report("x")) {
		t.Error("the hub's part counts as another report")
	}
	if StatusHash(report("y")) == StatusHash(report("x")) {
		t.Error("another status counts as the same report")
	}
}

// The times of a drift are no news, and its fields are.
func TestHashOfADrift(t *testing.T) {
	report := func(value string, since int64) atoll.RowStatus {
		d := &atoll.Drift{Total: 1, Since: since, Fields: []atoll.DriftField{{Path: "/data/a", Live: value, Since: since}}}
		return atoll.RowStatus{Generation: 1, Items: []atoll.ItemStatus{{Health: atoll.Healthy, Drift: d}}}
	}
	first := report("1", 5)
	if StatusHash(first) != StatusHash(report("1", 9)) {
		t.Error("a later time counts as another report")
	}
	if StatusHash(first) == StatusHash(report("2", 5)) {
		t.Error("another value counts as the same report")
	}
	if f := first.Items[0].Drift; f.Since != 5 || f.Fields[0].Since != 5 {
		t.Errorf("the report changed: %+v", f)
	}
}
