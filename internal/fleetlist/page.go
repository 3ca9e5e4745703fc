package fleetlist

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const (
	// MaxPage bounds the clusters of a page, and DefaultPage is their number where a request has none.
	MaxPage     = 2000
	DefaultPage = 500
	// MaxToken bounds a continue token, in bytes.
	MaxToken = 1024
	// maxSortText bounds the text by which rows are sorted, in bytes.
	maxSortText = 128
	// maxName bounds the name of an object.
	maxName = 253
)

// sortValue is the place of a row in an order: by number, then by text, then by name. Numbers within texts and names count as
// numbers.
type sortValue struct {
	number float64
	text   string
	name   string
}

func (a sortValue) compareTo(b sortValue) int {
	if c := cmp.Compare(a.number, b.number); c != 0 {
		return c
	}
	if c := compareNatural(a.text, b.text); c != 0 {
		return c
	}
	return compareNatural(a.name, b.name)
}

// sortKey is an order of pages. It returns number and text of a row.
type sortKey struct {
	name    string
	valueOf func(r *Row) (number float64, text string)
}

func sortByText(name string, text func(r *Row) string) sortKey {
	return sortKey{name, func(r *Row) (float64, string) { return 0, cutSortText(text(r)) }}
}

// sortByUse has the clusters with the largest requested part first.
func sortByUse(resource corev1.ResourceName) sortKey {
	return sortKey{string(resource), func(r *Row) (float64, string) { return -r.requestedPart(resource), "" }}
}

// sortKeys are all orders. The first one is the default.
var sortKeys = []sortKey{
	{"status", func(r *Row) (float64, string) { return float64(r.State), "" }},
	{"name", func(*Row) (float64, string) { return 0, "" }},
	{"since", func(r *Row) (float64, string) { return float64(r.stateSince().Unix()), "" }},
	sortByText("region", func(r *Row) string { return r.Cluster.Spec.Region }),
	sortByText("zone", func(r *Row) string { return strings.Join(r.Cluster.Spec.ListZones(), " ") }),
	sortByText("provider", func(r *Row) string { return r.Cluster.Spec.Provider }),
	sortByText("version", func(r *Row) string { return r.Cluster.Status.KubernetesVersion }),
	sortByText("agent", func(r *Row) string { return r.Cluster.Status.AgentVersion }),
	sortByUse(corev1.ResourceCPU),
	sortByUse(corev1.ResourceMemory),
}

// cutSortText returns at most maxSortText bytes of a text, of whole characters.
func cutSortText(text string) string {
	if len(text) <= maxSortText {
		return text
	}
	return text[:lastCharacterEnd(text, maxSortText)]
}

// Order is the order of a page's rows.
type Order struct {
	key     sortKey
	reverse bool
}

// ParseOrder returns the order of a name, which a minus reverses. The empty name is that of the default.
func ParseOrder(name string) (Order, error) {
	if name == "" {
		return Order{key: sortKeys[0]}, nil
	}
	plain, reverse := strings.CutPrefix(name, "-")
	names := make([]string, 0, len(sortKeys))
	for _, k := range sortKeys {
		if k.name == plain {
			return Order{k, reverse}, nil
		}
		names = append(names, k.name)
	}
	return Order{}, fmt.Errorf("pages are not sorted by %q; they are by %s, each also with a minus before it", cutSortText(name), strings.Join(names, ", "))
}

// formatName returns the name that ParseOrder reads.
func (o Order) formatName() string {
	if o.reverse {
		return "-" + o.key.name
	}
	return o.key.name
}

func (o Order) valueOf(r *Row) sortValue {
	number, text := o.key.valueOf(r)
	return sortValue{number, text, r.Name()}
}

func (o Order) compareValues(a, b sortValue) int {
	if o.reverse {
		return b.compareTo(a)
	}
	return a.compareTo(b)
}

// PageRequest is what a page is made of.
type PageRequest struct {
	Filter Filter
	Order  Order
	// Limit is the largest number of clusters.
	Limit int
	// after is the place after which the page begins; nil for the first page.
	after *sortValue
}

// cursorText is a place in the order, as a continue token has it.
type cursorText struct {
	Question uint64  `json:"q"`
	Number   float64 `json:"v"`
	Text     string  `json:"t"`
	Name     string  `json:"n"`
}

// hashQuestion identifies the filter and the order of a request.
func (q *PageRequest) hashQuestion() uint64 {
	h := fnv.New64a()
	h.Write([]byte(q.Filter.question + " " + q.Order.formatName()))
	return h.Sum64()
}

// formatToken returns the token of the page after a place.
func (q *PageRequest) formatToken(after sortValue) string {
	text, err := json.Marshal(cursorText{q.hashQuestion(), after.number, after.text, after.name})
	if err != nil {
		return "" // numbers of rows are finite
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

var errToken = errors.New("the continue token is none of this hub's; begin without one")

// SetToken makes the request that of the page after a token. A token belongs to one filter and one order.
func (q *PageRequest) SetToken(token string) error {
	if token == "" {
		return nil
	}
	if len(token) > MaxToken {
		return errToken
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return errToken
	}
	var c cursorText
	if err := json.Unmarshal(text, &c); err != nil || len(c.Text) > maxSortText || c.Name == "" || len(c.Name) > maxName {
		return errToken
	}
	if c.Question != q.hashQuestion() {
		return errors.New("the continue token belongs to another filter or order; begin without one")
	}
	q.after = &sortValue{c.Number, c.Text, c.Name}
	return nil
}

// Page is one page of clusters, in order.
type Page struct {
	// Rows are shared with the Index: they are valid until it changes.
	Rows []*Row
	// Before counts the matching clusters before the page.
	Before int
	// Matching counts the clusters that the whole filter selects, and States those that it selects in any state.
	Matching int
	States   Counts
	// Continue is the token of the next page; empty for the last page.
	Continue string
	// last is the place of the last row, if another page follows.
	last *sortValue
}

// candidate is a row that may be on the page.
type candidate struct {
	value sortValue
	row   *Row
}

// SelectPage returns a page of the rows. It takes one pass, and memory for two pages. keepOn is called now and then; the result is
// not complete when it has returned false.
func SelectPage(rows []Row, q PageRequest, keepOn func() bool) (p Page, complete bool) {
	s := pageSelection{request: q, kept: make([]candidate, 0, min(2*q.Limit, len(rows)))}
	for i := range rows {
		if i%passStep == passStep-1 && !keepOn() {
			return p, false
		}
		r := &rows[i]
		if !q.Filter.MatchesAllButState(r) {
			continue
		}
		p.States[r.State]++
		if !q.Filter.HasState(r.State) {
			continue
		}
		p.Matching++
		if s.offerRow(r) {
			p.Before++
		}
	}
	s.dropSurplus()
	if s.more {
		p.last = &s.kept[len(s.kept)-1].value
		p.Continue = q.formatToken(*p.last)
	}
	p.Rows = make([]*Row, len(s.kept))
	for i := range s.kept {
		p.Rows[i] = s.kept[i].row
	}
	return p, true
}

// passStep is after how many rows a pass checks whether its answer is still wanted.
const passStep = 4096

// pageSelection keeps the first rows of an order, of all that it is offered.
type pageSelection struct {
	request PageRequest
	kept    []candidate
	// last is the last one of a full page; nothing after it is kept.
	last *sortValue
	more bool
}

// offerRow takes a row, and reports whether it is on an earlier page.
func (s *pageSelection) offerRow(r *Row) (isBefore bool) {
	value := s.request.Order.valueOf(r)
	if s.request.after != nil && s.request.Order.compareValues(value, *s.request.after) <= 0 {
		return true
	}
	if s.last != nil && s.request.Order.compareValues(value, *s.last) > 0 {
		s.more = true
		return false
	}
	if s.kept = append(s.kept, candidate{value, r}); len(s.kept) >= 2*s.request.Limit {
		s.dropSurplus()
	}
	return false
}

// dropSurplus sorts what is kept, and drops what is after the page.
func (s *pageSelection) dropSurplus() {
	slices.SortFunc(s.kept, func(a, b candidate) int { return s.request.Order.compareValues(a.value, b.value) })
	if len(s.kept) > s.request.Limit {
		s.kept, s.more = s.kept[:s.request.Limit], true
	}
	if len(s.kept) == s.request.Limit {
		last := s.kept[len(s.kept)-1].value
		s.last = &last
	}
}

// Window decides whether a change concerns a page that a person sees.
type Window struct {
	request PageRequest
	names   map[string]struct{}
	last    *sortValue
}

// NewWindow returns the window of a page.
func NewWindow(q PageRequest, p Page) Window {
	w := Window{request: q, names: make(map[string]struct{}, len(p.Rows)), last: p.last}
	for _, r := range p.Rows {
		w.names[r.Name()] = struct{}{}
	}
	return w
}

// Concerns reports whether a cluster of the window changed, or one came that belongs there.
func (w *Window) Concerns(before, after *Row) bool {
	for _, r := range [...]*Row{before, after} {
		if r == nil {
			continue
		}
		if _, shown := w.names[r.Name()]; shown {
			return true
		}
	}
	if after == nil || !w.request.Filter.Matches(after) {
		return false
	}
	value := w.request.Order.valueOf(after)
	if w.request.after != nil && w.request.Order.compareValues(value, *w.request.after) <= 0 {
		return false
	}
	return w.last == nil || w.request.Order.compareValues(value, *w.last) < 0
}

// compareNatural compares texts, in which digits count as numbers. Only equal texts are equal.
func compareNatural(a, b string) int {
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		if isDigit(a[i]) && isDigit(b[j]) {
			x, y := digitsAt(a, i), digitsAt(b, j)
			i, j = i+len(x), j+len(y)
			x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
			if c := cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y)); c != 0 {
				return c
			}
			continue
		}
		if a[i] != b[j] {
			return cmp.Compare(a[i], b[j])
		}
		i, j = i+1, j+1
	}
	return cmp.Or(cmp.Compare(len(a)-i, len(b)-j), strings.Compare(a, b))
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

// digitsAt returns the digits of a text from a place on.
func digitsAt(text string, at int) string {
	end := at
	for end < len(text) && isDigit(text[end]) {
		end++
	}
	return text[at:end]
}
