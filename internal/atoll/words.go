package atoll

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
)

// shortWord is the length from which on text is shorter as the number of a word.
const shortWord = 4

// Line of one cluster.
type Line struct{ Cluster, Text string }

// Lines takes the rows of a slice apart, by cluster name.
func Lines(rows string) []Line {
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
		slices.SortFunc(out, Line.compare)
	}
	return out
}

// SliceRow is one row of a TargetSlice.
type SliceRow struct {
	Cluster string
	Spec    RowSpec
	// Status is nil where none was reported. Where it is of another cluster, which had
	// the name before, its UID is another.
	Status *RowStatus
}

// RowsOf decodes a slice, by cluster name. The error names the row that this version
// cannot read.
func RowsOf(s *enginev1.TargetSlice) ([]SliceRow, error) {
	statuses := map[string]string{}
	for _, l := range Lines(s.Status.Rows) {
		statuses[l.Cluster] = l.Text
	}
	lines := Lines(s.Spec.Rows)
	rows := make([]SliceRow, 0, len(lines))
	for _, l := range lines {
		r := SliceRow{Cluster: l.Cluster}
		var err error
		if r.Spec, err = ParseRowSpec(l.Text, s.Spec.Words...); err != nil {
			return nil, fmt.Errorf("target slice %s, cluster %s: %w", s.Name, l.Cluster, err)
		}
		if line, ok := statuses[l.Cluster]; ok {
			st, err := ParseRowStatus(line, r.Spec.UID, s.Status.Words...)
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
	if !slices.IsSortedFunc(lines, Line.compare) {
		lines = slices.SortedFunc(slices.Values(lines), Line.compare)
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

func (l Line) compare(o Line) int { return strings.Compare(l.Cluster, o.Cluster) }

// Words are the texts that the lines of one slice have in common; lines name them by
// their place. Words are only added, but for Prune. Not safe for concurrent
// use.
type Words struct {
	list []string
	at   map[string]int
}

// NewWords goes on with the words of a slice, which it leaves as they are.
func NewWords(list []string) *Words { return &Words{list: slices.Clip(list)} }

// List of the words; shared, not to be changed.
func (w *Words) List() []string { return w.list }

// place of the word, which is added where it is not there.
func (w *Words) place(word string) int {
	if w.at == nil {
		w.at = make(map[string]int, len(w.list)+4)
		for i, s := range w.list {
			w.at[s] = i
		}
	}
	i, ok := w.at[word]
	if !ok {
		i = len(w.list)
		w.list = append(w.list, word)
		w.at[word] = i
	}
	return i
}

// PruneWords leaves out the words that no line of rows names, once they are more than
// a few, and gives the lines to go with those that stay. Fields that this version does
// not know keep their words too.
func PruneWords(rows string, words []string) (string, []string) {
	const few = 4
	to, used := make([]int, len(words)), 0
	eachWord(rows, func(_, _, word int) {
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
	eachWord(rows, func(begin, end, word int) {
		if word < len(to) {
			b = strconv.AppendInt(append(b, rows[done:begin]...), int64(to[word]), 10)
			done = end
		}
	})
	return string(append(b, rows[done:]...)), kept
}

// WithoutWords gives what a line says with the words in their places: equal for lines
// that say the same, whatever the words that they were written with.
func WithoutWords(line string, words []string) string {
	var l lineWriter
	done := 0
	eachWord(line, func(begin, end, word int) {
		if word < len(words) {
			l.buf = append(l.buf, line[done:begin-1]...)
			l.escape(words[word])
			done = end
		}
	})
	return string(append(l.buf, line[done:]...))
}

// eachWord gives the place of each word in lines: where its number begins and ends.
func eachWord(line string, fn func(begin, end, word int)) {
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
	buf     []byte
	words   *Words
	between byte
	begun   int // where the fields of this level begin
}

func (l *lineWriter) tag(t byte) {
	if len(l.buf) > l.begun {
		l.buf = append(l.buf, l.between)
	}
	l.buf = append(l.buf, t)
}

// inner writes fields inside the field whose letter was just written.
func (l *lineWriter) inner(fields func()) {
	between, begun := l.between, l.begun
	l.between, l.begun = ';', len(l.buf)
	fields()
	l.between, l.begun = between, begun
}

func (l *lineWriter) comma(i int) {
	if i > 0 {
		l.buf = append(l.buf, ',')
	}
}

func (l *lineWriter) flag(t byte, on bool) {
	if on {
		l.tag(t)
	}
}

func (l *lineWriter) number(t byte, n, usual int64) {
	if n != usual {
		l.tag(t)
		l.buf = strconv.AppendInt(l.buf, n, 10)
	}
}

// text of a field that has none when it is empty.
func (l *lineWriter) text(t byte, s string) {
	if s != "" {
		l.tag(t)
		l.word(s)
	}
}

// literal is text that no other line has.
func (l *lineWriter) literal(t byte, s string) {
	if s != "" {
		l.tag(t)
		l.escape(s)
	}
}

func (l *lineWriter) list(t byte, texts []string) {
	if len(texts) == 0 {
		return
	}
	l.tag(t)
	for i, s := range texts {
		l.comma(i)
		l.word(s)
	}
}

func (l *lineWriter) word(s string) {
	if l.words == nil || len(s) < shortWord || !utf8.ValidString(s) {
		l.escape(s)
		return
	}
	l.buf = strconv.AppendInt(append(l.buf, '~'), int64(l.words.place(s)), 10)
}

const special = " ;,=~%"

func (l *lineWriter) escape(s string) {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 || r < ' ' || r < utf8.RuneSelf && strings.IndexByte(special, s[i]) >= 0 {
			l.buf = fmt.Appendf(l.buf, "%%%02X", s[i])
		} else {
			l.buf = append(l.buf, s[i:i+n]...)
		}
		i += n
	}
}

// letter writes a value of a small set; one that is not in it as text that is no
// letter.
func letter[T ~string](l *lineWriter, t byte, v T, set letters[T]) {
	l.tag(t)
	for _, e := range set {
		if e.value == v {
			l.buf = append(l.buf, e.letter)
			return
		}
	}
	if l.escape(string(v)); len(v) == 1 {
		l.buf = append(l.buf, '=')
	}
}

func letterOf[T ~string](l *lineReader, set letters[T]) T {
	if len(l.value) == 1 {
		for _, e := range set {
			if e.letter == l.value[0] {
				return e.value
			}
		}
	}
	return T(l.text(strings.TrimSuffix(l.value, "=")))
}

// lineReader takes a line apart.
type lineReader struct {
	rest    string
	words   []string
	between byte
	tag     byte
	value   string
	err     error
}

func (l *lineReader) next() bool {
	if l.rest == "" || l.err != nil {
		return false
	}
	field := l.rest
	if i := strings.IndexByte(field, l.between); i >= 0 {
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
		l.err = errLine
	}
}

// text of a value or of a part of it.
func (l *lineReader) text(s string) string {
	if len(s) > 0 && s[0] == '~' {
		i := 0
		for _, c := range []byte(s[1:]) {
			if c < '0' || c > '9' || i > len(l.words) {
				i = len(l.words)
				break
			}
			i = 10*i + int(c-'0')
		}
		if i >= len(l.words) || len(s) == 1 {
			l.fail()
			return ""
		}
		return l.words[i]
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

func (l *lineReader) number() int64 { return l.integer(l.value) }

func (l *lineReader) integer(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		l.fail()
	}
	return n
}

func (l *lineReader) small() int32 {
	n, err := strconv.ParseInt(l.value, 10, 32)
	if err != nil {
		l.fail()
	}
	return int32(n)
}

func (l *lineReader) list() []string {
	parts := strings.Split(l.value, ",")
	for i, p := range parts {
		parts[i] = l.text(p)
	}
	return parts
}
