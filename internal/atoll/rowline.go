package atoll

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The rows of a TargetSlice are a text with a line for each, by cluster name, and so
// are their statuses. A line is the cluster's name and then fields, with spaces between
// them: each a letter (the JSON name in RowSpec, RowStatus, Recall or ItemStatus) and
// its value, as in
//
//	tokyo-1 u0b6e5a1c-7f0e-4c1d-9d55-3f1f7c0c6f7a g3 r~0 s1790000000
//
// A field that is absent has its default: generation 1, phase Active, state Ready,
// as many items ready as there are, an item Healthy and since the row's time, and
// zero for all others. What a letter means never changes, and a reader passes over
// letters that it does not know.
//
//   - Numbers are decimal, times Unix seconds; a flag is its letter alone.
//   - Text is ~N, the Nth of the slice's words, or itself with bytes that mean
//     something to the line as %XX.
//   - Phases and states are their capital (A, L, H, R, V; P, R, D, F, X for Removed),
//     healths theirs (H, P, D, S, U), others text.
//   - Members of lists have commas between them, fields of what is inside a field
//     (an item i, a recall b) semicolons; assigned, due, ordinals and notYet are
//     text=number.
//   - w in a status: what the content says is not applied.
//   - u in a status is the end of the UID, which tells a cluster from its namesakes.
//   - s comes before i.
//
// Encode writes fields without words; EncodeWith adds to a slice's.
//
// One text, because the API server looks at each entry of a map some twenty times on
// every write, and at a text once.

// letters stand for the values of a small set.
type letters[T ~string] []struct {
	letter byte
	value  T
}

var (
	rowPhases = letters[RowPhase]{{'A', RowActive}, {'L', RowLeaving}, {'H', RowHeld}, {'R', RowRemoving}, {'V', RowVacant}}
	rowStates = letters[RowState]{{'P', RowProgressing}, {'R', RowReady}, {'D', RowDegraded}, {'F', RowFailed}, {'X', RowRemoved}}
	healths   = letters[Health]{{'H', Healthy}, {'P', Progressing}, {'D', Degraded}, {'S', Suspended}, {'U', Unknown}}
)

// errLine is wrapped by errors about lines that are damaged.
var errLine = errors.New("damaged")

// uidTail is how much of a UID a status repeats.
const uidTail = 12

func tailOf(uid string) string { return uid[max(0, len(uid)-uidTail):] }

// Encode gives the row's line without words.
func (r RowSpec) Encode() string { return r.EncodeWith(nil) }

// EncodeWith gives the row's line; text that it has in common with others goes to
// words, unless they are nil.
func (r RowSpec) EncodeWith(words *Words) string {
	l := lineWriter{words: words, between: ' ', buf: make([]byte, 0, 128)}
	l.literal('u', r.UID)
	l.number('g', r.Generation, 1)
	l.text('r', r.Revision)
	l.text('v', r.Variant)
	l.counts('a', r.Assigned)
	if r.Phase != RowActive {
		letter(&l, 'p', r.Phase, rowPhases)
	}
	l.flag('o', r.Orphan)
	l.text('y', r.Reason)
	l.number('s', r.Since, 0)
	l.text('l', r.Placement)
	l.list('h', r.Home)
	l.counts('d', r.Ordinals)
	l.number('w', r.Grown, 0)
	l.number('k', r.Moving, 0)
	l.list('n', r.NotHere)
	l.counts('f', r.NotYet)
	l.counts('e', r.Due)
	l.number('m', r.Pods, 0)
	if r.Recall != nil {
		l.tag('b')
		l.inner(func() {
			l.number('t', r.Recall.At, 0)
			l.text('p', r.Recall.Placement)
			l.flag('c', r.Recall.Confirmed)
		})
	}
	return string(l.buf)
}

// counts are text=number, by text.
func (l *lineWriter) counts(tag byte, m map[string]int64) {
	if len(m) == 0 {
		return
	}
	l.tag(tag)
	for i, item := range slices.Sorted(maps.Keys(m)) {
		l.comma(i)
		l.word(item)
		l.buf = strconv.AppendInt(append(l.buf, '='), m[item], 10)
	}
}

// Encode gives the status's line without words.
func (r RowStatus) Encode() string { return r.EncodeWith(nil) }

// EncodeWith gives the status's line; text that it has in common with others goes to
// words, unless they are nil.
func (r RowStatus) EncodeWith(words *Words) string {
	l := lineWriter{words: words, between: ' ', buf: make([]byte, 0, 128)}
	l.literal('u', tailOf(r.UID))
	l.number('g', r.Generation, 1)
	l.text('c', r.Content)
	l.number('q', r.Seq, 0)
	if r.State != RowReady {
		letter(&l, 'p', r.State, rowStates)
	}
	l.flag('w', !r.Applied)
	l.text('y', r.Reason)
	l.text('m', r.Message)
	l.number('s', r.Since, 0)
	l.number('t', int64(r.Total), 0)
	l.number('n', int64(r.Ready), int64(r.Total))
	for i := range r.Items {
		l.tag('i')
		l.inner(func() { r.Items[i].write(&l, r.Since) })
	}
	l.number('o', int64(r.Unlisted), 0)
	l.list('x', r.Gone)
	l.flag('z', r.AllGone)
	l.flag('v', r.Vacant)
	return string(l.buf)
}

func (it *ItemStatus) write(l *lineWriter, since int64) {
	l.text('k', it.Key.String())
	if it.Health != Healthy {
		letter(l, 'h', it.Health, healths)
	}
	l.text('y', it.Reason)
	l.text('m', it.Message)
	l.number('s', it.Since, since)
	l.flag('e', it.Error)
	l.text('f', string(it.Reflected))
}

// ParseRowSpec reads what EncodeWith wrote, with the words that it wrote them with.
// The result shares memory with its arguments.
func ParseRowSpec(line string, words ...string) (RowSpec, error) {
	r := RowSpec{Generation: 1, Phase: RowActive}
	f := lineReader{rest: line, between: ' ', words: words}
	for f.next() {
		switch f.tag {
		case 'u':
			r.UID = f.text(f.value)
		case 'g':
			r.Generation = f.number()
		case 'r':
			r.Revision = f.text(f.value)
		case 'v':
			r.Variant = f.text(f.value)
		case 'a':
			r.Assigned = f.counts()
		case 'p':
			r.Phase = letterOf(&f, rowPhases)
		case 'o':
			r.Orphan = true
		case 'y':
			r.Reason = f.text(f.value)
		case 's':
			r.Since = f.number()
		case 'l':
			r.Placement = f.text(f.value)
		case 'h':
			r.Home = f.list()
		case 'd':
			r.Ordinals = f.counts()
		case 'w':
			r.Grown = f.number()
		case 'k':
			r.Moving = f.number()
		case 'n':
			r.NotHere = f.list()
		case 'f':
			r.NotYet = f.counts()
		case 'e':
			r.Due = f.counts()
		case 'm':
			r.Pods = f.number()
		case 'b':
			r.Recall = f.recall()
		}
	}
	if f.err != nil {
		return RowSpec{}, fmt.Errorf("row spec %q: %w", line, f.err)
	}
	return r, nil
}

// PodsOf the row that a line of a spec is of: at least 1 where the row is to stay, and 0
// where it is on its way out, which its phase tells. It allocates nothing, and takes a
// number that cannot be read for 1.
func PodsOf(line string) int64 {
	pods := int64(1)
	for field := range strings.SplitSeq(line, " ") {
		switch {
		case field == "":
		case field[0] == 'p':
			return 0
		case field[0] == 'm':
			if n, err := strconv.ParseInt(field[1:], 10, 64); err == nil {
				pods = max(n, 1)
			}
		}
	}
	return pods
}

// ParseRowStatus reads what EncodeWith wrote, with the words that it wrote them with.
// uid is that of the row's cluster; where another cluster, which had the name before,
// wrote the status, the result has another UID. The result
// shares memory with its arguments.
func ParseRowStatus(line, uid string, words ...string) (RowStatus, error) {
	r := RowStatus{Generation: 1, State: RowReady, Applied: true}
	f := lineReader{rest: line, between: ' ', words: words}
	ready := false
	for f.next() {
		switch f.tag {
		case 'u':
			r.UID = f.text(f.value)
		case 'g':
			r.Generation = f.number()
		case 'c':
			r.Content = f.text(f.value)
		case 'q':
			r.Seq = f.number()
		case 'p':
			r.State = letterOf(&f, rowStates)
		case 'w':
			r.Applied = false
		case 'y':
			r.Reason = f.text(f.value)
		case 'm':
			r.Message = f.text(f.value)
		case 's':
			r.Since = f.number()
		case 't':
			r.Total = f.small()
		case 'n':
			r.Ready, ready = f.small(), true
		case 'i':
			r.Items = append(r.Items, f.item(r.Since))
		case 'o':
			r.Unlisted = f.small()
		case 'x':
			r.Gone = f.list()
		case 'z':
			r.AllGone = true
		case 'v':
			r.Vacant = true
		}
	}
	if f.err != nil {
		return RowStatus{}, fmt.Errorf("row status %q: %w", line, f.err)
	}
	if !ready {
		r.Ready = r.Total
	}
	if r.UID == tailOf(uid) {
		r.UID = uid
	}
	return r, nil
}

func (l *lineReader) item(since int64) ItemStatus {
	it := ItemStatus{Health: Healthy, Since: since}
	f := lineReader{rest: l.value, between: ';', words: l.words}
	for f.next() {
		switch f.tag {
		case 'k':
			key, err := ParseItemKey(f.text(f.value))
			if err != nil {
				f.fail()
			}
			it.Key = key
		case 'h':
			it.Health = letterOf(&f, healths)
		case 'y':
			it.Reason = f.text(f.value)
		case 'm':
			it.Message = f.text(f.value)
		case 's':
			it.Since = f.number()
		case 'e':
			it.Error = true
		case 'f':
			it.Reflected = []byte(f.text(f.value))
		}
	}
	if it.Key == (ItemKey{}) {
		f.fail()
	}
	l.err = errors.Join(l.err, f.err)
	return it
}

func (l *lineReader) recall() *Recall {
	r := &Recall{}
	f := lineReader{rest: l.value, between: ';', words: l.words}
	for f.next() {
		switch f.tag {
		case 't':
			r.At = f.number()
		case 'p':
			r.Placement = f.text(f.value)
		case 'c':
			r.Confirmed = true
		}
	}
	l.err = errors.Join(l.err, f.err)
	return r
}

func (l *lineReader) counts() map[string]int64 {
	m := map[string]int64{}
	for part := range strings.SplitSeq(l.value, ",") {
		item, n, ok := strings.Cut(part, "=")
		if !ok {
			l.fail()
		}
		m[l.text(item)] = l.integer(n)
	}
	return m
}
