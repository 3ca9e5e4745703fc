package atoll

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"atoll.dev/atoll/api/v1alpha1"
)

// MaxAssessmentParts bounds the parts of assessments that a content or a manifest lists. The rules of a policy have
// fewer. An item beyond has its assessment itself.
const MaxAssessmentParts = 256

// MaxCombinedRules bounds the rules of the different assessments that items combine of listed parts: 256 parts make a
// million combinations, each of which takes memory of its own. An item beyond has its assessment itself.
const MaxCombinedRules = 16 << 10

// AssessmentParts are the different parts of the assessments of an encoded content or manifest. Each part has feedback,
// health, completion or the time after it alone. Items refer to parts by their indexes, so that the rules of a policy are encoded once, and
// not for each item or each combination of rules.
type AssessmentParts []Assessment

// UnmarshalJSON decodes parts. A longer list than any hub makes is refused before its parts take memory.
func (p *AssessmentParts) UnmarshalJSON(text []byte) error {
	var form [MaxAssessmentParts + 1]json.RawMessage
	if err := json.Unmarshal(text, &form); err != nil { // which drops the elements after those of an array
		return err
	}
	if form[MaxAssessmentParts] != nil {
		return fmt.Errorf("it lists more than %d parts of assessments", MaxAssessmentParts)
	}
	return json.Unmarshal(text, (*[]Assessment)(p))
}

// assessmentLister lists the parts of assessments. The zero value has none.
type assessmentLister struct {
	parts AssessmentParts
	// byText has the index of each part by its JSON. The others find it without encoding: equal pointers are of one rule.
	byText       map[string]int
	byFeedback   map[*v1alpha1.FeedbackRule]int
	byHealth     map[*v1alpha1.HealthRule]int
	byAssessment map[*Assessment][]int
	combinations combinationCount
}

// combinationCount counts the rules of different combinations of parts. The zero value has none.
type combinationCount struct {
	known map[string]bool // by their indexes
	rules int
}

// addCombination adds the parts of an assessment. It reports whether all that were added are within MaxCombinedRules.
func (c *combinationCount) addCombination(indexes string, a *Assessment) bool {
	if c.known[indexes] {
		return true
	}
	rules := len(a.Feedback) + len(a.Health) + 1
	if c.rules+rules > MaxCombinedRules {
		return false
	}
	if c.known == nil {
		c.known = map[string]bool{}
	}
	c.known[indexes] = true
	c.rules += rules
	return true
}

// listAssessment returns the indexes of the parts of an assessment, and nil where the list has no place for them.
func (l *assessmentLister) listAssessment(a *Assessment) []int {
	if l.byText == nil { // most contents have no assessments
		l.byText, l.byAssessment = map[string]int{}, map[*Assessment][]int{}
		l.byFeedback, l.byHealth = map[*v1alpha1.FeedbackRule]int{}, map[*v1alpha1.HealthRule]int{}
	}
	if indexes, known := l.byAssessment[a]; known {
		return indexes
	}
	var indexes []int
	if len(a.Feedback) > 0 {
		indexes = append(indexes, listPart(l, l.byFeedback, &a.Feedback[0], Assessment{Feedback: a.Feedback}))
	}
	if len(a.Health) > 0 {
		indexes = append(indexes, listPart(l, l.byHealth, &a.Health[0], Assessment{Health: a.Health}))
	}
	if a.Completion != "" {
		indexes = append(indexes, l.listText(Assessment{Completion: a.Completion}))
	}
	if a.TTLSecondsAfterFinished != nil {
		indexes = append(indexes, l.listText(Assessment{TTLSecondsAfterFinished: a.TTLSecondsAfterFinished}))
	}
	if slices.Contains(indexes, -1) || !l.combinations.addCombination(fmt.Sprint(indexes), a) {
		indexes = nil
	}
	l.byAssessment[a] = indexes
	return indexes
}

// listPart returns the index of a part whose rules begin at the pointer; -1: the list has no place for it.
func listPart[T any](l *assessmentLister, known map[*T]int, first *T, part Assessment) int {
	i, is := known[first]
	if !is || len(l.parts[i].Feedback) != len(part.Feedback) || len(l.parts[i].Health) != len(part.Health) {
		if i = l.listText(part); i >= 0 {
			known[first] = i
		}
	}
	return i
}

func (l *assessmentLister) listText(part Assessment) int {
	text, err := json.Marshal(part)
	if err != nil {
		panic(fmt.Sprintf("atoll: an assessment is made of plain values: %v", err))
	}
	i, known := l.byText[string(text)]
	switch {
	case known:
		return i
	case len(l.parts) == MaxAssessmentParts:
		return -1
	}
	l.parts = append(l.parts, part)
	l.byText[string(text)] = len(l.parts) - 1
	return len(l.parts) - 1
}

// assessmentResolver makes assessments of listed parts. Items with equal references share one.
type assessmentResolver struct {
	parts        AssessmentParts
	made         map[string]*Assessment
	combinations combinationCount
}

// maxPartsOfAssessment is the number of parts that an assessment may have: feedback, health, completion and the time after it.
const maxPartsOfAssessment = 4

var (
	errAssessmentReference = errors.New("an item refers to its assessment in a form that no hub makes")
	errTooManyCombinations = fmt.Errorf("the assessments of its items combine more than %d rules", MaxCombinedRules)
)

// resolveReference returns the assessment of an item that has it itself, or refers to its parts.
func (r *assessmentResolver) resolveReference(own *Assessment, indexes []int) (*Assessment, error) {
	if len(indexes) == 0 {
		return own, nil
	}
	if own != nil || len(indexes) > maxPartsOfAssessment {
		return nil, errAssessmentReference
	}
	key := fmt.Sprint(indexes)
	if a := r.made[key]; a != nil {
		return a, nil
	}
	a := &Assessment{}
	for _, i := range indexes {
		if i < 0 || i >= len(r.parts) || !a.addPart(&r.parts[i]) {
			return nil, errAssessmentReference
		}
	}
	if !r.combinations.addCombination(key, a) {
		return nil, errTooManyCombinations
	}
	if r.made == nil {
		r.made = map[string]*Assessment{}
	}
	r.made[key] = a
	return a, nil
}

// sharesPartWith reports whether both assessments state one of the parts.
func (a *Assessment) sharesPartWith(part *Assessment) bool {
	return len(a.Feedback) > 0 && len(part.Feedback) > 0 || len(a.Health) > 0 && len(part.Health) > 0 || a.Completion != "" && part.Completion != "" ||
		a.TTLSecondsAfterFinished != nil && part.TTLSecondsAfterFinished != nil
}

// addPart adds what the part has. It reports whether the assessment did not have it before.
func (a *Assessment) addPart(part *Assessment) bool {
	if a.sharesPartWith(part) {
		return false
	}
	if len(part.Feedback) > 0 {
		a.Feedback = part.Feedback
	}
	if len(part.Health) > 0 {
		a.Health = part.Health
	}
	if part.Completion != "" {
		a.Completion = part.Completion
	}
	if part.TTLSecondsAfterFinished != nil {
		a.TTLSecondsAfterFinished = part.TTLSecondsAfterFinished
	}
	return true
}

// WithListedAssessments returns the content as it is encoded: with each part of an assessment once. c is not changed.
func (c *Content) WithListedAssessments() Content {
	out, lister := *c, assessmentLister{}
	for i := range c.Items {
		t := c.Items[i].Treatment
		if t.StatedAssessment() == nil {
			continue
		}
		indexes := lister.listAssessment(t.Assessment)
		if indexes == nil {
			continue
		}
		if &out.Items[0] == &c.Items[0] {
			out.Items = slices.Clone(c.Items)
		}
		listed := *t
		listed.Assessment, listed.AssessmentParts = nil, indexes
		out.Items[i].Treatment = &listed
	}
	out.AssessmentParts = lister.parts
	return out
}

// ResolveAssessments gives the items of a decoded content the assessments to which they refer.
func (c *Content) ResolveAssessments() (err error) {
	resolver := assessmentResolver{parts: c.AssessmentParts}
	for i := range c.Items {
		t := c.Items[i].Treatment
		if t == nil {
			continue
		}
		if t.Assessment, err = resolver.resolveReference(t.Assessment, t.AssessmentParts); err != nil {
			return fmt.Errorf("item %d: %w", i, err)
		}
		t.AssessmentParts = nil
	}
	c.AssessmentParts = nil
	return nil
}

// WithListedAssessments returns the manifest as it is encoded: with each part of an assessment once. m is not changed.
func (m *Manifest) WithListedAssessments() Manifest {
	out, _ := m.WithListedAssessmentsOf(nil)
	return out
}

// WithListedAssessmentsOf is WithListedAssessments for the manifest and for further items, which refer to the list of the
// manifest.
func (m *Manifest) WithListedAssessmentsOf(further []RenderedItem) (Manifest, []RenderedItem) {
	out, lister := *m, assessmentLister{}
	out.Items, further = lister.listItems(m.Items), lister.listItems(further)
	out.AssessmentParts = lister.parts
	return out, further
}

// listItems returns the items with references to listed parts. Items without assessments are the argument itself.
func (l *assessmentLister) listItems(items []RenderedItem) []RenderedItem {
	out := items
	for i := range items {
		if items[i].Assessment == nil {
			continue
		}
		indexes := l.listAssessment(items[i].Assessment)
		if indexes == nil {
			continue
		}
		if &out[0] == &items[0] {
			out = slices.Clone(items)
		}
		out[i].Assessment, out[i].AssessmentParts = nil, indexes
	}
	return out
}

// ResolveAssessments gives the items of a decoded manifest, and further ones that refer to its list, the assessments to
// which they refer.
func (m *Manifest) ResolveAssessments(further ...RenderedItem) (err error) {
	resolver := assessmentResolver{parts: m.AssessmentParts}
	for _, items := range [][]RenderedItem{m.Items, further} {
		for i := range items {
			it := &items[i]
			if it.Assessment, err = resolver.resolveReference(it.Assessment, it.AssessmentParts); err != nil {
				return fmt.Errorf("item %d: %w", i, err)
			}
			it.AssessmentParts = nil
		}
	}
	m.AssessmentParts = nil
	return nil
}
