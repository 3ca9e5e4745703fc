package fleetlist

import (
	"fmt"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/labels"
)

const (
	// MaxText bounds the text of a filter or of a search, in bytes, MaxSelector a label selector, and MaxValue the value
	// of a group and the name of a property.
	MaxText     = 500
	MaxSelector = 1000
	MaxValue    = 400
	// maxTerms bounds the terms of a filter. Further ones do not count.
	maxTerms = 20
	// maxGroupValues bounds the groups in which a cluster must be.
	maxGroupValues = 8
)

// Filter selects rows. The zero value selects all.
type Filter struct {
	terms    []filterTerm
	selector labels.Selector
	states   [numStates]bool
	hasState bool
	groups   []GroupValue
	waiting  bool
	// question is what the filter was made of.
	question string
}

// FilterInput is what a filter is made of.
type FilterInput struct {
	// Text has words that must be found, and pairs FIELD:VALUE. A minus before a term excludes, and a comma separates
	// alternatives of a field.
	Text string
	// Selector is a label selector.
	Selector string
	// States are names of states, separated by commas; empty for all.
	States string
	// Groups are properties with a value that a cluster must have.
	Groups []GroupValue
	// Waiting selects the clusters that wait for a person.
	Waiting bool
}

// GroupValue is a value of a property.
type GroupValue struct {
	Property *Property
	Value    string
}

// filterTerm is one term of a text.
type filterTerm struct {
	exclude bool
	// field is empty for a word.
	field  string
	values []string
}

// NewFilter returns the filter of an input, or what is wrong with the input.
func NewFilter(in FilterInput) (Filter, error) {
	f := Filter{groups: in.Groups, waiting: in.Waiting}
	if len(in.Text) > MaxText {
		return f, fmt.Errorf("the filter has more than %d bytes", MaxText)
	}
	if len(in.Selector) > MaxSelector {
		return f, fmt.Errorf("the label selector has more than %d bytes", MaxSelector)
	}
	if len(in.Groups) > maxGroupValues {
		return f, fmt.Errorf("the filter has more than %d groups", maxGroupValues)
	}
	f.question = fmt.Sprintf("%q %q %q %t", in.Text, in.Selector, in.States, in.Waiting)
	for _, g := range in.Groups {
		if len(g.Value) > MaxValue {
			return f, fmt.Errorf("the value of a group has more than %d bytes", MaxValue)
		}
		f.question += fmt.Sprintf(" %q=%q", g.Property.Name, g.Value)
	}
	f.terms = parseTerms(in.Text)
	if in.Selector != "" {
		selector, err := labels.Parse(in.Selector)
		if err != nil {
			return f, fmt.Errorf("the label selector is not valid: %w", err)
		}
		f.selector = selector
	}
	err := f.parseStates(in.States)
	return f, err
}

func (f *Filter) parseStates(text string) error {
	if text == "" {
		return nil
	}
	if len(text) > MaxText {
		return fmt.Errorf("the states have more than %d bytes", MaxText)
	}
	f.hasState = true
	for name := range strings.SplitSeq(text, ",") {
		state, known := parseState(name)
		if !known {
			return fmt.Errorf("there is no state %q; states are %s", name, strings.Join(stateNames[:], ", "))
		}
		f.states[state] = true
	}
	return nil
}

func parseState(name string) (State, bool) {
	for s, known := range stateNames {
		if name == known {
			return State(s), true
		}
	}
	return Unknown, false
}

// parseTerms divides a text into terms at spaces. Spaces between quotes belong to a term.
func parseTerms(text string) (out []filterTerm) {
	quoted := false
	raw := strings.FieldsFunc(text, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return !quoted && unicode.IsSpace(r)
	})
	for _, word := range raw[:min(len(raw), maxTerms)] {
		term := filterTerm{}
		if len(word) > 1 && word[0] == '-' {
			term.exclude, word = true, word[1:]
		}
		word = lowerText(word)
		if field, value, found := strings.Cut(word, ":"); found && field != "" {
			term.field, term.values = field, strings.Split(strings.ReplaceAll(value, `"`, ""), ",")
		} else {
			term.values = []string{strings.ReplaceAll(word, `"`, "")}
		}
		out = append(out, term)
	}
	return out
}

// Matches reports whether the filter selects the row.
func (f *Filter) Matches(r *Row) bool { return f.HasState(r.State) && f.MatchesAllButState(r) }

// HasState reports whether the filter selects rows of the state.
func (f *Filter) HasState(s State) bool { return !f.hasState || f.states[s] }

// MatchesAllButState reports whether the filter would select the row in one of the states.
func (f *Filter) MatchesAllButState(r *Row) bool {
	if f.waiting && !r.WaitsForPerson() {
		return false
	}
	for _, g := range f.groups {
		if !g.Property.HasValue(r, g.Value) {
			return false
		}
	}
	if f.selector != nil && !f.selector.Matches(labels.Set(r.Cluster.Labels)) {
		return false
	}
	for i := range f.terms {
		if f.terms[i].isFound(r) == f.terms[i].exclude {
			return false
		}
	}
	return true
}

func (t *filterTerm) isFound(r *Row) bool {
	if t.field == "" {
		return hasWord(r, t.values[0])
	}
	for _, wanted := range t.values {
		if hasField(r, t.field, wanted) {
			return true
		}
	}
	return false
}

// hasWord reports whether the name or another text of the row contains a word.
func hasWord(r *Row, word string) bool {
	for _, text := range [...]string{r.Name(), r.Cluster.Spec.Region, r.Cluster.Status.KubernetesVersion, r.stateReason()} {
		if containsFold(text, word) {
			return true
		}
	}
	key, value, isPair := strings.Cut(word, "=")
	for k, v := range r.Cluster.Labels {
		if isPair {
			if hasSuffixFold(k, key) && hasPrefixFold(v, value) {
				return true
			}
		} else if containsFold(k, word) || containsFold(v, word) {
			return true
		}
	}
	for i := range r.Cluster.Spec.Taints {
		if containsFold(taintText(r, i), word) {
			return true
		}
	}
	return false
}

func hasSuffixFold(text, lower string) bool {
	return len(text) >= len(lower) && hasPrefixFold(text[len(text)-len(lower):], lower)
}

// taintText returns KEY=VALUE:EFFECT of a taint, or KEY:EFFECT without a value.
func taintText(r *Row, i int) string {
	t := r.Cluster.Spec.Taints[i]
	if t.Value == "" {
		return t.Key + ":" + string(t.Effect)
	}
	return t.Key + "=" + t.Value + ":" + string(t.Effect)
}

// hasField reports whether a field of the row has a value. A value that ends in * is the beginning of one.
func hasField(r *Row, field, wanted string) bool {
	switch field {
	case "label":
		for k, v := range r.Cluster.Labels {
			if matchesPair(k, v, wanted) {
				return true
			}
		}
	case "taint":
		for i := range r.Cluster.Spec.Taints {
			if equalFold(r.Cluster.Spec.Taints[i].Key, wanted) || matchesValue(taintText(r, i), wanted) {
				return true
			}
		}
	case "name":
		return matchesValue(r.Name(), wanted)
	case "reason":
		return matchesValue(r.stateReason(), wanted)
	default:
		p := findProperty(field)
		return p != nil && p.matchesWord(r, wanted)
	}
	return false
}

// matchesValue reports whether a value is the wanted one, begins with it up to a final *, or is KEY=… of it.
func matchesValue(value, wanted string) bool {
	if begin, isPrefix := strings.CutSuffix(wanted, "*"); isPrefix {
		return hasPrefixFold(value, begin)
	}
	return equalFold(value, wanted) || len(value) > len(wanted) && value[len(wanted)] == '=' && hasPrefixFold(value, wanted)
}

// matchesPair is matchesValue for KEY=VALUE, which is not put together.
func matchesPair(key, value, wanted string) bool {
	wantedKey, wantedValue, isPair := strings.Cut(wanted, "=")
	if !isPair {
		begin, isPrefix := strings.CutSuffix(wanted, "*")
		return isPrefix && hasPrefixFold(key, begin) || equalFold(key, wanted)
	}
	if begin, isPrefix := strings.CutSuffix(wantedValue, "*"); isPrefix {
		return equalFold(key, wantedKey) && hasPrefixFold(value, begin)
	}
	return equalFold(key, wantedKey) && equalFold(value, wantedValue)
}
