package kinds

import (
	"strconv"
	"strings"
)

// maxIndexText is the longest list of indexes that a row holds. A longer one is left out.
const maxIndexText = 256

// indexFields are the lists of indexes in the status of an Indexed Job, in the order of reflectedStatus.L.
var indexFields = []string{"completedIndexes", "failedIndexes"}

// reflectIndexLists returns the lists of indexes of a Job's status; nil where there is none.
func reflectIndexLists(st map[string]any) (out []string) {
	for i, name := range indexFields {
		if text := stringField(st, name); text != "" && len(text) <= maxIndexText {
			out = append(out, make([]string, i+1-len(out))...)
			out[i] = text
		}
	}
	return out
}

// setIndexLists writes the indexes that the row's cluster reports. The indexes of a Job that several clusters
// divide belong to different pods, and are left out. So are those of a cluster that is behind the counts
// of the status.
func (a *statusAggregation) setIndexLists(st map[string]any, row clusterRow) {
	spec := specOf(a.template)
	isJoined := a.divided && (len(a.rows) != 1 || row.EqualClusters > 0)
	if stringField(spec, "completionMode") != "Indexed" || isJoined {
		return
	}
	completions := countField(spec, "completions")
	for i, name := range indexFields {
		switch {
		case name == "failedIndexes" && spec["backoffLimitPerIndex"] == nil: // then the API server refuses them
		case row.countAt(2) < countField(a.templateStatus, "succeeded"):
			if old := stringField(a.templateStatus, name); old != "" {
				st[name] = old
			}
		case i < len(row.L) && areValidIndexes(row.L[i], completions):
			st[name] = row.L[i]
		}
	}
}

// areValidIndexes reports whether the API server accepts a text as indexes below the number of completions:
// ascending numbers and ranges, such as 0-2,5.
func areValidIndexes(text string, completions int64) bool {
	last := int64(-1)
	for part := range strings.SplitSeq(text, ",") {
		first, end, isRange := strings.Cut(part, "-")
		if !isRange {
			end = first
		}
		from, err := strconv.ParseInt(first, 10, 32)
		to, err2 := strconv.ParseInt(end, 10, 32)
		if err != nil || err2 != nil || from <= last || to < from || isRange && to == from || to >= completions {
			return false
		}
		last = to
	}
	return true
}
