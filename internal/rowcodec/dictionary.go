package rowcodec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// minWordLength is the length from which on text is shorter as the number of a word.
const minWordLength = 4

// Line of one cluster.
type Line struct{ Cluster, Text string }

// SplitLines takes the rows of a slice apart, by cluster name.
func SplitLines(rows string) []Line {
	out, sorted := make([]Line, 0, strings.Count(rows, "\n")), true
	for rows != "" {
		var l string
		l, rows, _ = strings.Cut(rows, "\n")
		if l == "" {
			continue
		}
		cluster, text, _ := strings.Cut(l, " ")
		sorted = sorted && (len(out) == 0 || out[len(out)-1].Cluster < cluster)
		out = append(out, Line{cluster, text})
	}
	if !sorted {
		slices.SortFunc(out, Line.compareCluster)
	}
	return out
}

// SliceRow is one row of a TargetSlice.
type SliceRow struct {
	Cluster string
	Spec    atoll.RowSpec
	// Status is nil where none was reported. A status of an earlier cluster of the same name
	// has another UID.
	Status *atoll.RowStatus
}

// DecodeSlice decodes a slice, by cluster name. The error names the row that this version
// cannot read.
func DecodeSlice(s *enginev1.TargetSlice) ([]SliceRow, error) {
	statuses := map[string]string{}
	for _, l := range SplitLines(s.Status.Rows) {
		statuses[l.Cluster] = l.Text
	}
	lines := SplitLines(s.Spec.Rows)
	rows := make([]SliceRow, 0, len(lines))
	for _, l := range lines {
		r := SliceRow{Cluster: l.Cluster}
		var err error
		if r.Spec, err = DecodeSpec(l.Text, s.Spec.Words...); err != nil {
			return nil, fmt.Errorf("target slice %s, cluster %s: %w", s.Name, l.Cluster, err)
		}
		if line, ok := statuses[l.Cluster]; ok {
			st, err := DecodeStatus(line, r.Spec.UID, s.Status.Words...)
			if err != nil {
				return nil, fmt.Errorf("target slice %s, cluster %s: %w", s.Name, l.Cluster, err)
			}
			r.Status = &st
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// JoinLines puts the rows of a slice together.
func JoinLines(lines []Line) string {
	if !slices.IsSortedFunc(lines, Line.compareCluster) {
		lines = slices.SortedFunc(slices.Values(lines), Line.compareCluster)
	}
	n := 0
	for _, l := range lines {
		n += len(l.Cluster) + len(l.Text) + 2
	}
	var b strings.Builder
	b.Grow(n)
	for _, l := range lines {
		b.WriteString(l.Cluster)
		b.WriteByte(' ')
		b.WriteString(l.Text)
		b.WriteByte('\n')
	}
	return b.String()
}

func (l Line) compareCluster(o Line) int { return strings.Compare(l.Cluster, o.Cluster) }

// Dictionary are the texts that the lines of one slice have in common; lines name them by
// their place. Words are only added, but for Prune. Not safe for concurrent
// use.
type Dictionary struct {
	words []string
	index map[string]int
}

// NewDictionary goes on with the words of a slice, which it leaves as they are.
func NewDictionary(list []string) *Dictionary { return &Dictionary{words: slices.Clip(list)} }

// Words returns the list of the words; shared, not to be changed.
func (w *Dictionary) Words() []string { return w.words }

// internWord returns the number of the word, which is added where it is not there.
func (w *Dictionary) internWord(word string) int {
	if w.index == nil {
		w.index = make(map[string]int, len(w.words)+4)
		for i, s := range w.words {
			w.index[s] = i
		}
	}
	i, ok := w.index[word]
	if !ok {
		i = len(w.words)
		w.words = append(w.words, word)
		w.index[word] = i
	}
	return i
}

// PruneWords leaves out the words that no line of rows names, once they are more than
// a few, and gives the lines to go with those that stay. Unknown fields keep their words too.
func PruneWords(rows string, words []string) (string, []string) {
	const few = 4
	to, used := make([]int, len(words)), 0
	forEachWord(rows, func(_, _, word int) {
		if word < len(to) && to[word] == 0 {
			to[word] = 1
			used++
		}
	})
	if len(words)-used <= few {
		return rows, words
	}
	kept := make([]string, 0, used)
	for i := range to {
		if to[i] == 1 {
			to[i] = len(kept)
			kept = append(kept, words[i])
		}
	}
	b, done := make([]byte, 0, len(rows)), 0
	forEachWord(rows, func(begin, end, word int) {
		if word < len(to) {
			b = strconv.AppendInt(append(b, rows[done:begin]...), int64(to[word]), 10)
			done = end
		}
	})
	return string(append(b, rows[done:]...)), kept
}

// ExpandWords returns a line with all words in place: equal for equal rows, whatever dictionary
// they were written with.
func ExpandWords(line string, words []string) string {
	var l lineWriter
	done := 0
	forEachWord(line, func(begin, end, word int) {
		if word < len(words) {
			l.buf = append(l.buf, line[done:begin-1]...)
			l.writeEscaped(words[word])
			done = end
		}
	})
	return string(append(l.buf, line[done:]...))
}

// forEachWord calls back with the place of each word in lines: where its number begins and ends.
func forEachWord(line string, fn func(begin, end, word int)) {
	for at := strings.IndexByte(line, '~'); at >= 0; {
		begin := at + 1
		end := begin
		for end < len(line) && line[end] >= '0' && line[end] <= '9' {
			end++
		}
		if n, err := strconv.Atoi(line[begin:end]); err == nil {
			fn(begin, end, n)
		}
		next := strings.IndexByte(line[end:], '~')
		if next < 0 {
			return
		}
		at = end + next
	}
}

// lineWriter appends fields to a line.
type lineWriter struct {
	buf        []byte
	dictionary *Dictionary
	separator  byte
	levelStart int // where the fields of this level begin
}

func (l *lineWriter) writeTag(t byte) {
	if len(l.buf) > l.levelStart {
		l.buf = append(l.buf, l.separator)
	}
	l.buf = append(l.buf, t)
}

// writeNested writes fields inside the field whose letter was just written.
func (l *lineWriter) writeNested(fields func()) {
	between, begun := l.separator, l.levelStart
	l.separator, l.levelStart = ';', len(l.buf)
	fields()
	l.separator, l.levelStart = between, begun
}

func (l *lineWriter) writeComma(i int) {
	if i > 0 {
		l.buf = append(l.buf, ',')
	}
}

func (l *lineWriter) writeFlag(t byte, on bool) {
	if on {
		l.writeTag(t)
	}
}

func (l *lineWriter) writeNumber(t byte, n, usual int64) {
	if n != usual {
		l.writeTag(t)
		l.buf = strconv.AppendInt(l.buf, n, 10)
	}
}

// writeText writes the text of a field that has none when it is empty.
func (l *lineWriter) writeText(t byte, s string) {
	if s != "" {
		l.writeTag(t)
		l.writeWord(s)
	}
}

// writeLiteral is text that no other line has.
func (l *lineWriter) writeLiteral(t byte, s string) {
	if s != "" {
		l.writeTag(t)
		l.writeEscaped(s)
	}
}

func (l *lineWriter) writeList(t byte, texts []string) {
	if len(texts) == 0 {
		return
	}
	l.writeTag(t)
	for i, s := range texts {
		l.writeComma(i)
		l.writeWord(s)
	}
}

func (l *lineWriter) writeWord(s string) {
	if l.dictionary == nil || len(s) < minWordLength || !utf8.ValidString(s) {
		l.writeEscaped(s)
		return
	}
	l.buf = strconv.AppendInt(append(l.buf, '~'), int64(l.dictionary.internWord(s)), 10)
}

const escapedBytes = " ;,=~%"

func (l *lineWriter) writeEscaped(s string) {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 || r < ' ' || r < utf8.RuneSelf && strings.IndexByte(escapedBytes, s[i]) >= 0 {
			l.buf = fmt.Appendf(l.buf, "%%%02X", s[i])
		} else {
			l.buf = append(l.buf, s[i:i+n]...)
		}
		i += n
	}
}

// writeEnumLetter writes a value of a small set; one that is not in it as text that is no
// letter.
func writeEnumLetter[T ~string](l *lineWriter, t byte, v T, set letterTable[T]) {
	l.writeTag(t)
	for _, e := range set {
		if e.value == v {
			l.buf = append(l.buf, e.letter)
			return
		}
	}
	if l.writeEscaped(string(v)); len(v) == 1 {
		l.buf = append(l.buf, '=')
	}
}

func readEnumLetter[T ~string](l *lineReader, set letterTable[T]) T {
	if len(l.value) == 1 {
		for _, e := range set {
			if e.letter == l.value[0] {
				return e.value
			}
		}
	}
	return T(l.decodeText(strings.TrimSuffix(l.value, "=")))
}

// lineReader takes a line apart.
type lineReader struct {
	rest      string
	words     []string
	separator byte
	tag       byte
	value     string
	err       error
}

func (l *lineReader) next() bool {
	if l.rest == "" || l.err != nil {
		return false
	}
	field := l.rest
	if i := strings.IndexByte(field, l.separator); i >= 0 {
		field, l.rest = field[:i], field[i+1:]
		if l.rest == "" {
			l.fail()
		}
	} else {
		l.rest = ""
	}
	if field == "" {
		l.fail()
		return false
	}
	l.tag, l.value = field[0], field[1:]
	return true
}

func (l *lineReader) fail() {
	if l.err == nil {
		l.err = errDamagedLine
	}
}

// resolveWordNumber returns the word of the dictionary that has the decimal number s.
func (l *lineReader) resolveWordNumber(s string) string {
	i := 0
	for _, c := range []byte(s) {
		if c < '0' || c > '9' || i > len(l.words) {
			i = len(l.words)
			break
		}
		i = 10*i + int(c-'0')
	}
	if i >= len(l.words) || s == "" {
		l.fail()
		return ""
	}
	return l.words[i]
}

// decodeText returns the text of a value or of a part of it.
func (l *lineReader) decodeText(s string) string {
	if len(s) > 0 && s[0] == '~' {
		return l.resolveWordNumber(s[1:])
	}
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		n, err := strconv.ParseUint(s[i+1:min(i+3, len(s))], 16, 8)
		if err != nil || i+2 >= len(s) {
			l.fail()
			return ""
		}
		b = append(b, byte(n))
		i += 2
	}
	return string(b)
}

func (l *lineReader) readNumber() int64 { return l.parseInteger(l.value) }

func (l *lineReader) parseInteger(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		l.fail()
	}
	return n
}

func (l *lineReader) readInt32() int32 {
	n, err := strconv.ParseInt(l.value, 10, 32)
	if err != nil {
		l.fail()
	}
	return int32(n)
}

func (l *lineReader) readList() []string {
	parts := strings.Split(l.value, ",")
	for i, p := range parts {
		parts[i] = l.decodeText(p)
	}
	return parts
}
