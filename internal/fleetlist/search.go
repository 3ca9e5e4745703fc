package fleetlist

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxFound bounds the objects of a kind that a search finds, and DefaultFound is their number where a request has none.
	MaxFound     = 50
	DefaultFound = 20
	// maxSearchTerms bounds the terms of a search. Further ones do not count.
	maxSearchTerms = 10
)

// Named is an object that a search can find.
type Named struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Title is the name that its team uses, where that is another one.
	Title string `json:"title,omitempty"`
	// Detail is the state of a Cluster, and Suspended of a Source that is suspended.
	Detail string `json:"detail,omitempty"`
}

func (n Named) shownTitle() string { return cmp.Or(n.Title, n.Name) }

// Ranks of a term: at the start of the title, at that of a word in it, within it, or in the name or the namespace.
const (
	rankStart = iota
	rankWord
	rankWithin
	rankElsewhere
)

// Search finds the objects with all terms of a text, the best first.
type Search struct {
	terms []string
	limit int
	found []rankedName
	// worst is the last one of a full list; nothing after it is kept.
	worst *rankedName
}

type rankedName struct {
	Named
	rank int
}

// NewSearch returns a search for at most so many objects, or what is wrong with the text.
func NewSearch(text string, limit int) (*Search, error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("the text has more than %d bytes", MaxText)
	}
	terms := strings.Fields(lowerText(text))
	if len(terms) == 0 {
		return nil, fmt.Errorf("name what is searched by q: each of its words must be in the name, the title or the namespace")
	}
	return &Search{terms: terms[:min(len(terms), maxSearchTerms)], limit: limit}, nil
}

// Offer takes an object into account.
func (s *Search) Offer(n Named) {
	rank, fits := s.rankOf(n)
	if !fits {
		return
	}
	r := rankedName{n, rank}
	if s.worst != nil && compareRanked(r, *s.worst) > 0 {
		return
	}
	if s.found = append(s.found, r); len(s.found) >= 4*s.limit {
		s.dropSurplus()
	}
}

// Found returns the best objects.
func (s *Search) Found() []Named {
	s.dropSurplus()
	out := make([]Named, len(s.found))
	for i := range s.found {
		out[i] = s.found[i].Named
	}
	return out
}

func (s *Search) dropSurplus() {
	slices.SortFunc(s.found, compareRanked)
	if len(s.found) >= s.limit {
		s.found = s.found[:s.limit]
		worst := s.found[s.limit-1]
		s.worst = &worst
	}
}

// compareRanked compares by rank, then shorter titles first, then by name.
func compareRanked(a, b rankedName) int {
	x, y := a.shownTitle(), b.shownTitle()
	return cmp.Or(a.rank-b.rank, len(x)-len(y), compareNatural(x, y), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// rankOf returns the sum of the ranks of the terms; false where one is not found. The exact title is better than any other.
func (s *Search) rankOf(n Named) (sum int, fits bool) {
	title := n.shownTitle()
	for _, term := range s.terms {
		rank, found := rankInTitle(title, term)
		if !found {
			if !containsFold(n.Name, term) && !containsFold(n.Namespace, term) {
				return 0, false
			}
			rank = rankElsewhere
		}
		sum += rank
	}
	if len(s.terms) == 1 && equalFold(title, s.terms[0]) {
		sum--
	}
	return sum, true
}

func rankInTitle(title, term string) (rank int, found bool) {
	for at := 0; at+len(term) <= len(title); at++ {
		if !hasPrefixFold(title[at:], term) {
			continue
		}
		if at == 0 {
			return rankStart, true
		}
		before, _ := utf8.DecodeLastRuneInString(title[:at])
		if unicode.IsLetter(before) || unicode.IsDigit(before) {
			return rankWithin, true
		}
		return rankWord, true
	}
	return 0, false
}
