package rowcodec

import "atoll.dev/atoll/internal/atoll"

// Summary is what metrics count of a row: the phase and the order of its spec, and the state of its
// status. The zero Summary is no row.
type Summary struct {
	Phase atoll.RowPhase
	// Reason is RowSpec.Reason.
	Reason            string
	Revision          string
	Generation, Since int64
	// IsReported is true when the status is of the row's cluster; the following fields are of it.
	IsReported                    bool
	ReportedGeneration, StateTime int64
	State                         atoll.RowState
	// WaitReason is RowStatus.WaitReason.
	WaitReason atoll.Reason
	Applied    bool
	// Drifted is RowStatus.Drifted.
	Drifted int32
}

// SummarizeRow reads the lines of a row; an empty status is none. It skips counts, and the items of a
// row that is ready. A status that cannot be read counts as none, and a spec that cannot be read as no
// row.
func SummarizeRow(spec, status string, specWords, statusWords []string) Summary {
	order := atoll.RowSpec{Generation: 1, Phase: atoll.RowActive}
	f := lineReader{rest: spec, separator: ' ', words: specWords}
	for f.next() {
		if f.tag != 'a' {
			readOrderField(&f, &order)
		}
	}
	if f.err != nil {
		return Summary{}
	}
	out := Summary{Phase: order.Phase, Reason: order.Reason, Revision: order.Revision, Generation: order.Generation, Since: order.Since}
	if status == "" {
		return out
	}
	report := atoll.RowStatus{Generation: 1, State: atoll.RowReady, Applied: true}
	f = lineReader{rest: status, separator: ' ', words: statusWords}
	for f.next() {
		switch f.tag {
		case 's':
			report.Since = f.readNumber()
		case 'r':
			report.Drifted = f.readInt32()
		case 'i':
			if report.State != atoll.RowReady {
				report.Items = append(report.Items, f.readItem(report.Since))
			}
		default:
			readStateField(&f, &report)
		}
	}
	if f.err != nil || report.UID != uidSuffix(order.UID) {
		return out
	}
	out.IsReported, out.ReportedGeneration, out.StateTime, out.State, out.Applied = true, report.Generation, report.Since, report.State, report.Applied
	out.Drifted, out.WaitReason = report.Drifted, report.WaitReason()
	return out
}
