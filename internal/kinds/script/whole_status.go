package script

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/internal/kinds"
)

// MaxStatus is the most bytes of JSON of a status that a cluster reports with its fields, for a
// script on the hub that joins statuses.
const MaxStatus = 16 << 10

// wholeStatus is the form of a status that is reported with its fields.
type wholeStatus struct {
	Status map[string]any `json:"s"`
	// Late: the object's controller in the member has not seen its latest generation.
	Late bool `json:"late,omitempty"`
	// LeftOut holds the number of fields that the bound left out.
	LeftOut int `json:"cut,omitempty"`
}

// encodeWholeStatus returns the report of a status, at most MaxStatus bytes. The report of a larger
// status lacks its largest top-level fields. Equal statuses give equal bytes.
func encodeWholeStatus(status map[string]any, late bool) (json.RawMessage, error) {
	b, err := json.Marshal(wholeStatus{Status: status, Late: late})
	if err != nil {
		return nil, fmt.Errorf("its status has no JSON: %w", err)
	}
	if len(b) <= MaxStatus {
		return b, nil
	}
	fields, err := fieldsBySize(status)
	if err != nil {
		return nil, err
	}
	w := wholeStatus{Status: map[string]any{}, Late: late}
	room := MaxStatus - len(`{"s":{},"late":true,"cut":}`) - len(fmt.Sprint(len(fields)))
	for _, f := range fields {
		if f.bytes > room {
			w.LeftOut++
			continue
		}
		room -= f.bytes
		w.Status[f.name] = status[f.name]
	}
	if len(w.Status) == 0 {
		w.Status = nil // a script gets the item as one without a status
	}
	return json.Marshal(w)
}

// statusField is a field of a status, with the bytes that it takes in JSON.
type statusField struct {
	name  string
	bytes int
}

// fieldsBySize returns the top-level fields of a status, the smallest first.
func fieldsBySize(status map[string]any) ([]statusField, error) {
	out := make([]statusField, 0, len(status))
	for name, v := range status {
		b, err := json.Marshal(map[string]any{name: v})
		if err != nil {
			return nil, fmt.Errorf("its status has no JSON: %w", err)
		}
		out = append(out, statusField{name, len(b) - len(`{}`) + len(`,`)})
	}
	slices.SortFunc(out, func(a, b statusField) int {
		if a.bytes != b.bytes {
			return a.bytes - b.bytes
		}
		return strings.Compare(a.name, b.name)
	})
	return out, nil
}

// DecodeWholeStatus returns a status that was reported whole; nil for other reports.
func DecodeWholeStatus(reflected json.RawMessage) map[string]any {
	var w wholeStatus
	if utiljson.Unmarshal(reflected, &w) != nil {
		return nil
	}
	return w.Status
}

// leftOutMessage returns a sentence about the fields that the bound left out of a report; empty
// where it left out none.
func leftOutMessage(reflected json.RawMessage) string {
	if !isWholeStatus(reflected) {
		return ""
	}
	var w wholeStatus
	if utiljson.Unmarshal(reflected, &w) != nil || w.LeftOut == 0 {
		return ""
	}
	return fmt.Sprintf("the report leaves out the %d largest fields of the status, since at most %d bytes are reported: let the interpreter's status return the fields that aggregate joins", w.LeftOut, MaxStatus)
}

func isWholeStatus(reflected json.RawMessage) bool {
	return strings.HasPrefix(string(reflected), `{"s":`)
}

// dropWholeStatuses clears statuses that were reported whole for a script that is gone. They
// count as not reported.
func dropWholeStatuses(rows []kinds.RowItem) []kinds.RowItem {
	is := func(r kinds.RowItem) bool { return isWholeStatus(r.Reflected) }
	if !slices.ContainsFunc(rows, is) {
		return rows
	}
	rows = slices.Clone(rows)
	for i := range rows {
		if is(rows[i]) {
			rows[i].Reflected = nil
		}
	}
	return rows
}
