package atoll

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
)

// largeRules returns rules of the largest feedback and health that a rule states.
func largeRules(n int) (feedback []v1alpha1.FeedbackRule, health []v1alpha1.HealthRule) {
	for i := range MaxFeedbackValues {
		feedback = append(feedback, v1alpha1.FeedbackRule{Name: fmt.Sprint("n", n, "-", i), JSONPath: "." + strings.Repeat("a", MaxPath-1), Type: v1alpha1.FeedbackString})
	}
	for i := range MaxHealthRules {
		health = append(health, v1alpha1.HealthRule{Expression: fmt.Sprintf("%2048d", n*MaxHealthRules+i)})
	}
	return feedback, health
}

// assessedContent returns a content of items, each with an assessment of its own that has the rules of the numbers.
func assessedContent(items int, numbers func(item int) (feedback, health int)) *Content {
	feedbacks, healths := map[int][]v1alpha1.FeedbackRule{}, map[int][]v1alpha1.HealthRule{}
	c := &Content{}
	for i := range items {
		f, h := numbers(i)
		for _, n := range []int{f, h} {
			if feedbacks[n] == nil {
				feedbacks[n], healths[n] = largeRules(n)
			}
		}
		c.Items = append(c.Items, Item{
			Key: ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: fmt.Sprintf("c%04d", i)}, Object: json.RawMessage(`{}`),
			Treatment: &Treatment{Update: v1alpha1.UpdateCreateOnly, Assessment: &Assessment{Feedback: feedbacks[f], Health: healths[h], Completion: "true"}},
		})
	}
	return c
}

// manifestOfContent returns a manifest with the assessments of the content.
func manifestOfContent(c *Content) *Manifest {
	m := &Manifest{Bundle: "b"}
	for _, it := range c.Items {
		m.Items = append(m.Items, RenderedItem{Key: it.Key, Object: it.Object, Error: UnknownAssessment, Assessment: it.Treatment.StatedAssessment()})
	}
	return m
}

// Rules are encoded once, whatever the number of items and of their combinations.
func TestAssessmentsAreEncodedOnce(t *testing.T) {
	for name, numbers := range map[string]func(int) (int, int){
		"of one rule":            func(int) (int, int) { return 0, 0 },
		"of all pairs of 20, 20": func(i int) (int, int) { return i / 20, i % 20 },
	} {
		one, all := assessedContent(1, numbers), assessedContent(400, numbers)
		rules := map[string]bool{}
		for _, it := range all.Items {
			for _, part := range []Assessment{{Feedback: it.Treatment.Assessment.Feedback}, {Health: it.Treatment.Assessment.Health}, {Completion: "true"}} {
				rules[HashJSON(part)] = true
			}
		}
		listed := all.WithListedAssessments()
		if len(listed.AssessmentParts) != len(rules) {
			t.Errorf("%s: %d parts are listed, and %d are different", name, len(listed.AssessmentParts), len(rules))
		}
		text, err := json.Marshal(listed)
		if err != nil {
			t.Fatal(err)
		}
		const ofItem, ofRule = 200, 30_000
		if most := 400*ofItem + len(rules)*ofRule; len(text) > most {
			t.Errorf("%s: %d bytes for 400 items and %d rules", name, len(text), len(rules))
		}
		var read Content
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		if err := read.ResolveAssessments(); err != nil || !reflect.DeepEqual(&read, all) {
			t.Errorf("%s: another content is read: %v", name, err)
		}
		m := manifestOfContent(all)
		listedManifest := m.WithListedAssessments()
		if text, err = json.Marshal(listedManifest); err != nil {
			t.Fatal(err)
		}
		var readManifest Manifest
		if err := json.Unmarshal(text, &readManifest); err != nil {
			t.Fatal(err)
		}
		if err := readManifest.ResolveAssessments(); err != nil || !reflect.DeepEqual(&readManifest, m) {
			t.Errorf("%s: another manifest is read: %v", name, err)
		}
		if m.Items[0].Assessment == nil || all.Items[0].Treatment.Assessment == nil || one.Items[0].Treatment.AssessmentParts != nil {
			t.Errorf("%s: listing has changed what is listed", name)
		}
	}
}

// Items that share an assessment share it after decoding, too.
func TestResolvedItemsShareTheirAssessments(t *testing.T) {
	m := manifestOfContent(assessedContent(10, func(i int) (int, int) { return i % 2, 0 }))
	listed := m.WithListedAssessments()
	if err := listed.ResolveAssessments(); err != nil {
		t.Fatal(err)
	}
	different := map[*Assessment]bool{}
	for _, it := range listed.Items {
		different[it.Assessment] = true
	}
	if len(different) != 2 {
		t.Errorf("%d assessments are in memory, want 2", len(different))
	}
}

// An item without options costs no byte: a content and a manifest without assessments are encoded as before there were
// any, also in what names a Revision.
func TestItemsWithoutAssessmentsCostNothing(t *testing.T) {
	c := &Content{Items: []Item{{Key: ItemKey{Kind: "ConfigMap", Name: "a"}, Object: json.RawMessage(`{}`)}}}
	text, err := json.Marshal(c.WithListedAssessments())
	if want := `{"items":[{"key":"/ConfigMap//a","apiVersion":"","uid":"","object":{},"hash":""}],"conflictResolution":"","removal":""}`; err != nil || string(text) != want || string(EncodeContentIdentity(c)) != want {
		t.Errorf("%s, %v", text, err)
	}
	m := &Manifest{Bundle: "b", Items: []RenderedItem{{Key: c.Items[0].Key, Object: json.RawMessage(`{}`)}}}
	text, err = json.Marshal(m.WithListedAssessments())
	if want := `{"bundle":"b","generation":0,"content":"","items":[{"key":"/ConfigMap//a","apiVersion":"","uid":"","object":{},"hash":""}],"conflictResolution":"","removal":""}`; err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
	mixed := assessedContent(2, func(int) (int, int) { return 0, 0 })
	mixed.Items[0].Treatment = nil
	listed := mixed.WithListedAssessments()
	alone, _ := json.Marshal((&Content{Items: mixed.Items[:1]}).Items[0])
	if text, _ = json.Marshal(listed.Items[0]); string(text) != string(alone) {
		t.Errorf("beside an item with options: %s, want %s", text, alone)
	}
}

// A content without the list is read as before: hubs and agents encoded assessments with each item.
func TestAssessmentsOfEachItemAreRead(t *testing.T) {
	all := assessedContent(3, func(i int) (int, int) { return i % 2, i })
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	var read Content
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	if err := read.ResolveAssessments(); err != nil || !reflect.DeepEqual(&read, all) {
		t.Errorf("another content is read: %v", err)
	}
}

// An item for whose assessment the list has no place has the assessment itself.
func TestAssessmentsBeyondTheListStayWithTheirItems(t *testing.T) {
	item := func(i int) RenderedItem {
		return RenderedItem{Key: ItemKey{Kind: "A", Name: "a"}, Object: json.RawMessage(`{}`), Assessment: &Assessment{Completion: fmt.Sprint(i)}}
	}
	m := &Manifest{}
	for i := range MaxAssessmentParts + 2 {
		m.Items = append(m.Items, item(i))
	}
	m.Items = append(m.Items, item(0))
	listed := m.WithListedAssessments()
	text, err := json.Marshal(listed)
	if err != nil {
		t.Fatal(err)
	}
	var read Manifest
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	if err := read.ResolveAssessments(); err != nil || !reflect.DeepEqual(read.Items, m.Items) {
		t.Errorf("other items are read: %v", err)
	}
	if n := len(listed.AssessmentParts); n != MaxAssessmentParts || listed.Items[MaxAssessmentParts].Assessment == nil || listed.Items[MaxAssessmentParts+2].Assessment != nil {
		t.Errorf("%d parts are listed", n)
	}
}

// Few parts make many combinations, each of which takes memory. Beyond a bound, items have their assessments themselves,
// and references are refused.
func TestCombinationsOfPartsAreBounded(t *testing.T) {
	const numbers = 100
	feedbacks, healths := make([][]v1alpha1.FeedbackRule, numbers), make([][]v1alpha1.HealthRule, numbers)
	for n := range numbers {
		for i := range MaxFeedbackValues {
			feedbacks[n] = append(feedbacks[n], v1alpha1.FeedbackRule{Name: fmt.Sprint("n", n, "-", i), JSONPath: ".a"})
		}
		for i := range MaxHealthRules {
			healths[n] = append(healths[n], v1alpha1.HealthRule{Expression: fmt.Sprint(n, i)})
		}
	}
	m, hostile := &Manifest{}, Manifest{}
	for n := range numbers {
		hostile.AssessmentParts = append(hostile.AssessmentParts, Assessment{Feedback: feedbacks[n]}, Assessment{Health: healths[n]})
	}
	for f := range numbers {
		for h := range numbers {
			m.Items = append(m.Items, RenderedItem{Assessment: &Assessment{Feedback: feedbacks[f], Health: healths[h]}})
			hostile.Items = append(hostile.Items, RenderedItem{AssessmentParts: []int{2 * f, 2*h + 1}})
		}
	}
	m.Items = append(m.Items, m.Items[0])
	listed, combinations := m.WithListedAssessments(), map[string]bool{}
	for _, it := range listed.Items {
		if it.Assessment == nil {
			combinations[fmt.Sprint(it.AssessmentParts)] = true
		}
	}
	const want = MaxCombinedRules / (MaxFeedbackValues + MaxHealthRules + 1)
	if len(combinations) != want || listed.Items[len(listed.Items)-1].Assessment != nil {
		t.Errorf("%d combinations, want %d", len(combinations), want)
	}
	if err := listed.ResolveAssessments(); err != nil || !reflect.DeepEqual(listed.Items, m.Items) {
		t.Errorf("other items are read: %v", err)
	}
	if err := hostile.ResolveAssessments(); !errors.Is(err, errTooManyCombinations) {
		t.Errorf("10,000 combinations: %v", err)
	}
}

// References that no hub makes are refused.
func TestReferencesToAssessmentsAreChecked(t *testing.T) {
	for text, want := range map[string]bool{
		`{"assessments":[{"completion":"a"}],"items":[{"key":"/A//a","assessed":[0]}]}`:                                                                          true,
		`{"assessments":[{"completion":"a"}],"items":[{"key":"/A//a","assessed":[1]}]}`:                                                                          false,
		`{"assessments":[{"completion":"a"}],"items":[{"key":"/A//a","assessed":[-1]}]}`:                                                                         false,
		`{"items":[{"key":"/A//a","assessed":[0]}]}`:                                                                                                             false,
		`{"assessments":[{"completion":"a"}],"items":[{"key":"/A//a","assessed":[0,0]}]}`:                                                                        false,
		`{"assessments":[{"completion":"a"},{"completion":"b"}],"items":[{"key":"/A//a","assessed":[0,1]}]}`:                                                     false,
		`{"assessments":[{"completion":"a"}],"items":[{"key":"/A//a","assessed":[0],"assessment":{"completion":"b"}}]}`:                                          false,
		`{"assessments":[{}],"items":[{"key":"/A//a","assessed":[0,0,0,0,0]}]}`:                                                                                  false,
		`{"assessments":[{"completion":"a"},{"ttl":60}],"items":[{"key":"/A//a","assessed":[0,1]}]}`:                                                             true,
		`{"assessments":[{"ttl":6},{"ttl":60}],"items":[{"key":"/A//a","assessed":[0,1]}]}`:                                                                      false,
		`{"assessments":[` + strings.Repeat(`{},`, MaxAssessmentParts-1) + `{}],"items":[]}`:                                                                     true,
		`{"assessments":[` + strings.Repeat(`{},`, MaxAssessmentParts) + `{}],"items":[]}`:                                                                       false,
		`{"assessments":[{"health":[` + strings.Repeat(`{"expression":"a"},`, MaxHealthRules) + `{"expression":"a"}]}],"items":[]}`:                              false,
		`{"assessments":[{"feedback":[{"name":"a"}],"health":[{"expression":"a"}]},{"completion":"b"}],"items":[{"key":"/A//a","assessed":[0,1]}]}`:              true,
		`{"assessments":[{"feedback":[{"name":"a"}],"health":[{"expression":"a"}]},{"health":[{"expression":"b"}]}],"items":[{"key":"/A//a","assessed":[0,1]}]}`: false,
	} {
		var m Manifest
		err := json.Unmarshal([]byte(text), &m)
		if err == nil {
			err = m.ResolveAssessments()
		}
		if (err == nil) != want {
			t.Errorf("%.200s: %v", text, err)
		}
	}
}
