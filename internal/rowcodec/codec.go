package rowcodec

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"atoll.dev/atoll/internal/atoll"
)

// The rows of a TargetSlice are a text with a line for each, by cluster name, and so
// are their statuses. A line is the cluster's name and then fields, with spaces between
// them: each a letter (the JSON name in RowSpec, RowStatus, Recall or ItemStatus) and
// its value, as in
//
//	tokyo-1 u0b6e5a1c-7f0e-4c1d-9d55-3f1f7c0c6f7a g3 r~0 s1790000000
//
// A field that is absent has its default: generation 1, phase Active, state Ready, as many
// items ready as there are, an item Healthy and since the row's time, and zero for all others.
// The meaning of a letter never changes, and a reader skips unknown letters.
//
//   - Numbers are decimal, times Unix seconds; a flag is its letter alone.
//   - Text is ~N, the Nth of the slice's words, or itself with bytes that mean
//     something to the line as %XX.
//   - Phases and states are their capital (A, L, H, R, V; P, R, D, F, X for Removed),
//     healths theirs (H, P, D, S, U), others text.
//   - Members of lists have commas between them, fields of what is inside a field
//     (an item i, a recall b, an approval c) semicolons; assigned, due, ordinals and notYet are
//     text=number.
//   - w in a status: the content is not applied.
//   - u in a status is the end of the UID, which distinguishes a cluster from others of its name.
//   - s comes before i.
//
// EncodeSpec and EncodeStatus add words to a slice's Dictionary; without one they write all text in place.
//
// One text, because the API server looks at each entry of a map some twenty times on
// every write, and at a text once.

// letterTable stand for the values of a small set.
type letterTable[T ~string] []struct {
	letter byte
	value  T
}

var (
	rowPhases = letterTable[atoll.RowPhase]{{'A', atoll.RowActive}, {'L', atoll.RowLeaving}, {'H', atoll.RowHeld}, {'R', atoll.RowRemoving}, {'V', atoll.RowVacant}, {'P', atoll.RowPending}}
	rowStates = letterTable[atoll.RowState]{{'P', atoll.RowProgressing}, {'R', atoll.RowReady}, {'D', atoll.RowDegraded}, {'F', atoll.RowFailed}, {'X', atoll.RowRemoved}}
	healths   = letterTable[atoll.Health]{{'H', atoll.Healthy}, {'P', atoll.Progressing}, {'D', atoll.Degraded}, {'S', atoll.Suspended}, {'U', atoll.Unknown}}
)

// errDamagedLine is wrapped by errors about lines that are damaged.
var errDamagedLine = errors.New("damaged")

// uidSuffixLength is how much of a UID a status repeats.
const uidSuffixLength = 12

func uidSuffix(uid string) string { return uid[max(0, len(uid)-uidSuffixLength):] }

// EncodeSpec returns the line of a row's spec. Text that it shares with other lines is added to the
// dictionary; nil writes all text in place.
func EncodeSpec(r atoll.RowSpec, words *Dictionary) string {
	l := lineWriter{dictionary: words, separator: ' ', buf: make([]byte, 0, 128)}
	l.writeLiteral('u', r.UID)
	l.writeNumber('g', r.Generation, 1)
	l.writeText('r', r.Revision)
	l.writeText('v', r.Variant)
	l.writeCounts('a', r.Assigned)
	if r.Phase != atoll.RowActive {
		writeEnumLetter(&l, 'p', r.Phase, rowPhases)
	}
	l.writeFlag('o', r.Orphan)
	l.writeText('y', r.Reason)
	l.writeNumber('s', r.Since, 0)
	l.writeText('l', r.PlacementFingerprint)
	l.writeList('h', r.HomeItems)
	l.writeCounts('d', r.OrdinalStarts)
	l.writeNumber('w', r.GrownAt, 0)
	l.writeNumber('k', r.MovingSince, 0)
	l.writeList('n', r.Absent)
	l.writeCounts('f', r.ExcludedPending)
	l.writeCounts('e', r.ShrinkTo)
	l.writeNumber('m', r.RequestedPods, 0)
	if r.Recall != nil {
		l.writeTag('b')
		l.writeNested(func() {
			l.writeNumber('t', r.Recall.RemovedAt, 0)
			l.writeText('p', r.Recall.Placement)
			l.writeFlag('c', r.Recall.Confirmed)
		})
	}
	for _, a := range r.Approvals {
		l.writeTag('c')
		l.writeNested(func() { writeApproval(&l, a) })
	}
	l.writeNumber('t', r.MovedAt, 0)
	l.writeNumber('x', r.FailedAt, 0)
	l.writeText('z', r.AdmittedRemoval)
	l.writeText('j', r.PreviousRevision)
	l.writeText('i', r.RemovalHooks)
	return string(l.buf)
}

func writeApproval(l *lineWriter, a atoll.DriftApproval) {
	l.writeText('k', a.Item)
	l.writeLiteral('i', a.ID)
	l.writeText('b', a.By)
	l.writeNumber('t', a.At, 0)
}

// writeCounts writes a field of counts: text=number pairs, sorted by text.
func (l *lineWriter) writeCounts(tag byte, m map[string]int64) {
	if len(m) == 0 {
		return
	}
	l.writeTag(tag)
	for i, item := range slices.Sorted(maps.Keys(m)) {
		l.writeComma(i)
		l.writeWord(item)
		l.buf = strconv.AppendInt(append(l.buf, '='), m[item], 10)
	}
}

// EncodeStatus returns the line of a row's status. Text that it shares with other lines is added to
// the dictionary; nil writes all text in place.
func EncodeStatus(r atoll.RowStatus, words *Dictionary) string {
	l := lineWriter{dictionary: words, separator: ' ', buf: make([]byte, 0, 128)}
	l.writeLiteral('u', uidSuffix(r.UID))
	l.writeNumber('g', r.Generation, 1)
	l.writeText('c', r.Content)
	l.writeNumber('q', r.Seq, 0)
	if r.State != atoll.RowReady {
		writeEnumLetter(&l, 'p', r.State, rowStates)
	}
	l.writeFlag('w', !r.Applied)
	l.writeText('y', string(r.Reason))
	l.writeText('m', r.Message)
	l.writeNumber('s', r.Since, 0)
	l.writeNumber('t', int64(r.Total), 0)
	l.writeNumber('n', int64(r.Ready), int64(r.Total))
	for i := range r.Items {
		l.writeTag('i')
		l.writeNested(func() { writeItem(&l, &r.Items[i], r.Since) })
	}
	l.writeNumber('o', int64(r.UnlistedNotReady), 0)
	l.writeNumber('r', int64(r.Drifted), 0)
	l.writeList('x', r.DoneTombstones)
	l.writeFlag('z', r.AllTombstonesDone)
	l.writeFlag('v', r.NamespaceKept)
	return string(l.buf)
}

func writeItem(l *lineWriter, it *atoll.ItemStatus, since int64) {
	l.writeText('k', it.Key.String())
	if it.Health != atoll.Healthy {
		writeEnumLetter(l, 'h', it.Health, healths)
	}
	l.writeText('y', string(it.Reason))
	l.writeText('m', it.Message)
	l.writeNumber('s', it.Since, since)
	l.writeFlag('e', it.Error)
	l.writeText('f', string(it.ReflectedStatus))
	if it.Drift != nil {
		l.writeText('r', encodeJSON(it.Drift))
	}
	if len(it.Feedback) > 0 {
		l.writeText('b', encodeJSON(it.Feedback))
	}
	l.writeFlag('d', it.Completed)
}

// DecodeSpec reads what EncodeSpec wrote, with the words of its dictionary.
// The result shares memory with its arguments.
func DecodeSpec(line string, words ...string) (atoll.RowSpec, error) {
	r := atoll.RowSpec{Generation: 1, Phase: atoll.RowActive}
	f := lineReader{rest: line, separator: ' ', words: words}
	for f.next() {
		if !readOrderField(&f, &r) {
			readPlacementField(&f, &r)
		}
	}
	if f.err != nil {
		return atoll.RowSpec{}, fmt.Errorf("row spec %q: %w", line, f.err)
	}
	return r, nil
}

// readOrderField reads a field about the order to the cluster; false: it is another field.
func readOrderField(f *lineReader, r *atoll.RowSpec) bool {
	switch f.tag {
	case 'u':
		r.UID = f.decodeText(f.value)
	case 'g':
		r.Generation = f.readNumber()
	case 'r':
		r.Revision = f.decodeText(f.value)
	case 'v':
		r.Variant = f.decodeText(f.value)
	case 'a':
		r.Assigned = f.readCounts()
	case 'p':
		r.Phase = readEnumLetter(f, rowPhases)
	case 'o':
		r.Orphan = true
	case 'y':
		r.Reason = f.decodeText(f.value)
	case 's':
		r.Since = f.readNumber()
	default:
		return false
	}
	return true
}

// readPlacementField reads a field about the placement of the row. It skips unknown fields.
func readPlacementField(f *lineReader, r *atoll.RowSpec) {
	switch f.tag {
	case 'l':
		r.PlacementFingerprint = f.decodeText(f.value)
	case 'h':
		r.HomeItems = f.readList()
	case 'd':
		r.OrdinalStarts = f.readCounts()
	case 'w':
		r.GrownAt = f.readNumber()
	case 'k':
		r.MovingSince = f.readNumber()
	case 'n':
		r.Absent = f.readList()
	case 'f':
		r.ExcludedPending = f.readCounts()
	case 'e':
		r.ShrinkTo = f.readCounts()
	case 'm':
		r.RequestedPods = f.readNumber()
	case 'b':
		r.Recall = f.readRememberedRemoval()
	case 'c':
		r.Approvals = append(r.Approvals, f.readApproval())
	default:
		readTurnField(f, r)
	}
}

// readTurnField reads a field about the row's turn in a rollout, or its removal. It skips unknown fields.
func readTurnField(f *lineReader, r *atoll.RowSpec) {
	switch f.tag {
	case 't':
		r.MovedAt = f.readNumber()
	case 'x':
		r.FailedAt = f.readNumber()
	case 'z':
		r.AdmittedRemoval = f.decodeText(f.value)
	case 'j':
		r.PreviousRevision = f.decodeText(f.value)
	case 'i':
		r.RemovalHooks = f.decodeText(f.value)
	}
}

// DecodeRequestedPods returns the pods of the row that a line of a spec is of: at least 1 where the row is to stay, and 0
// where the row leaves by its phase. It allocates nothing, and takes a number that
// cannot be read for 1.
//
// A row that waits for an old copy counts, because it keeps the place.
func DecodeRequestedPods(line string) int64 {
	pods := int64(1)
	for field := range strings.SplitSeq(line, " ") {
		switch {
		case field == "":
		case field[0] == 'p' && field != pendingField:
			return 0
		case field[0] == 'm':
			if n, err := strconv.ParseInt(field[1:], 10, 64); err == nil {
				pods = max(n, 1)
			}
		}
	}
	return pods
}

// pendingField is the field of RowPending.
const pendingField = "pP"

// DecodeStatus reads what EncodeStatus wrote, with the words of its dictionary.
// uid is that of the row's cluster; where another cluster, which had the name before,
// wrote the status, the result has another UID. The result
// shares memory with its arguments.
func DecodeStatus(line, uid string, words ...string) (atoll.RowStatus, error) {
	r := atoll.RowStatus{Generation: 1, State: atoll.RowReady, Applied: true}
	f := lineReader{rest: line, separator: ' ', words: words}
	ready := false
	for f.next() {
		if readStateField(&f, &r) {
			continue
		}
		ready = readItemsField(&f, &r) || ready
	}
	if f.err != nil {
		return atoll.RowStatus{}, fmt.Errorf("row status %q: %w", line, f.err)
	}
	if !ready {
		r.Ready = r.Total
	}
	if r.UID == uidSuffix(uid) {
		r.UID = uid
	}
	return r, nil
}

// readStateField reads a field about the state of the row; false: it is another field.
func readStateField(f *lineReader, r *atoll.RowStatus) bool {
	switch f.tag {
	case 'u':
		r.UID = f.decodeText(f.value)
	case 'g':
		r.Generation = f.readNumber()
	case 'c':
		r.Content = f.decodeText(f.value)
	case 'q':
		r.Seq = f.readNumber()
	case 'p':
		r.State = readEnumLetter(f, rowStates)
	case 'w':
		r.Applied = false
	case 'y':
		r.Reason = atoll.Reason(f.decodeText(f.value))
	case 'm':
		r.Message = f.decodeText(f.value)
	default:
		return false
	}
	return true
}

// readItemsField reads a field about items, tombstones or times, and reports whether it is the
// number of ready items. It skips unknown fields.
func readItemsField(f *lineReader, r *atoll.RowStatus) (isReady bool) {
	switch f.tag {
	case 's':
		r.Since = f.readNumber()
	case 't':
		r.Total = f.readInt32()
	case 'n':
		r.Ready = f.readInt32()
		return true
	case 'i':
		r.Items = append(r.Items, f.readItem(r.Since))
	case 'o':
		r.UnlistedNotReady = f.readInt32()
	case 'r':
		r.Drifted = f.readInt32()
	case 'x':
		r.DoneTombstones = f.readList()
	case 'z':
		r.AllTombstonesDone = true
	case 'v':
		r.NamespaceKept = true
	}
	return false
}

func (l *lineReader) readItem(since int64) atoll.ItemStatus {
	it := atoll.ItemStatus{Health: atoll.Healthy, Since: since}
	f := lineReader{rest: l.value, separator: ';', words: l.words}
	for f.next() {
		switch f.tag {
		case 'k':
			key, err := atoll.ParseItemKey(f.decodeText(f.value))
			if err != nil {
				f.fail()
			}
			it.Key = key
		case 'h':
			it.Health = readEnumLetter(&f, healths)
		case 'y':
			it.Reason = atoll.Reason(f.decodeText(f.value))
		case 'm':
			it.Message = f.decodeText(f.value)
		case 's':
			it.Since = f.readNumber()
		case 'e':
			it.Error = true
		case 'f':
			it.ReflectedStatus = []byte(f.decodeText(f.value))
		default:
			readAssessedField(&f, &it)
		}
	}
	if it.Key == (atoll.ItemKey{}) {
		f.fail()
	}
	l.err = errors.Join(l.err, f.err)
	return it
}

// encodeJSON returns a part of an item that few rows have, as JSON.
func encodeJSON[T *atoll.Drift | []atoll.FeedbackValue](part T) string {
	text, err := json.Marshal(part)
	if err != nil {
		panic(fmt.Sprintf("rowcodec: a structure of texts and numbers has JSON: %v", err))
	}
	return string(text)
}

func (l *lineReader) readDrift() *atoll.Drift {
	d := &atoll.Drift{}
	if json.Unmarshal([]byte(l.decodeText(l.value)), d) != nil {
		l.fail()
	}
	return d
}

// readAssessedField reads a field of what a member compared or judged by rules. It skips unknown fields.
func readAssessedField(f *lineReader, it *atoll.ItemStatus) {
	switch f.tag {
	case 'r':
		it.Drift = f.readDrift()
	case 'b':
		it.Feedback = f.readFeedback()
	case 'd':
		it.Completed = true
	}
}

func (l *lineReader) readFeedback() (values []atoll.FeedbackValue) {
	if json.Unmarshal([]byte(l.decodeText(l.value)), &values) != nil {
		l.fail()
	}
	return values
}

func (l *lineReader) readRememberedRemoval() *atoll.RememberedRemoval {
	r := &atoll.RememberedRemoval{}
	f := lineReader{rest: l.value, separator: ';', words: l.words}
	for f.next() {
		switch f.tag {
		case 't':
			r.RemovedAt = f.readNumber()
		case 'p':
			r.Placement = f.decodeText(f.value)
		case 'c':
			r.Confirmed = true
		}
	}
	l.err = errors.Join(l.err, f.err)
	return r
}

func (l *lineReader) readApproval() (a atoll.DriftApproval) {
	f := lineReader{rest: l.value, separator: ';', words: l.words}
	for f.next() {
		switch f.tag {
		case 'k':
			a.Item = f.decodeText(f.value)
		case 'i':
			a.ID = f.decodeText(f.value)
		case 'b':
			a.By = f.decodeText(f.value)
		case 't':
			a.At = f.readNumber()
		}
	}
	l.err = errors.Join(l.err, f.err)
	return a
}

func (l *lineReader) readCounts() map[string]int64 {
	m := map[string]int64{}
	for part := range strings.SplitSeq(l.value, ",") {
		item, n, ok := strings.Cut(part, "=")
		if !ok {
			l.fail()
		}
		m[l.decodeText(item)] = l.parseInteger(n)
	}
	return m
}
