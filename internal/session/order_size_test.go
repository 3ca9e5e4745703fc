package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// filledManifest returns a manifest of an item that has so many bytes beside its object.
func filledManifest(filler int) atoll.Manifest {
	return atoll.Manifest{Content: "c", Items: []atoll.RenderedItem{{
		Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "a"}, APIVersion: "v1", Hash: "h",
		Object: json.RawMessage(`{"data":"` + strings.Repeat("o", 100<<10) + `"}`), MemberOwned: []string{strings.Repeat("x", filler)},
	}}}
}

func encodedOrder(t *testing.T, m atoll.Manifest) *pb.FromHub {
	t.Helper()
	body, err := NewPayload(m).Encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	return upsertFrame("b", string(body))
}

// A frame of the most bytes is sent and read. With one byte more it is not sent.
func TestTheLargestFrame(t *testing.T) {
	frame := upsertFrame("b", strings.Repeat("x", MaxFrameBytes-100))
	room := 0
	for CheckFrameSize(frame) == nil {
		room++
		frame.GetUpsert().Manifest = append(frame.GetUpsert().Manifest, 'x')
	}
	largest := len(frame.GetUpsert().GetManifest()) - 1
	bare, err := json.Marshal(NewPayload(filledManifest(0)).manifest)
	if err != nil {
		t.Fatal(err)
	}
	fits := encodedOrder(t, filledManifest(largest-len(bare)))
	if n := len(fits.GetUpsert().GetManifest()); n != largest || CheckFrameSize(fits) != nil {
		t.Fatalf("a manifest of %d bytes, want %d: %v", n, largest, CheckFrameSize(fits))
	}
	out := NewAgent(AgentOptions{}, Memory{}).HandleFrame(fits)
	if len(out.Rejected) > 0 || len(out.Frames) != 1 || len(out.Frames[0].GetNeed().GetHashes()) != 1 {
		t.Errorf("the agent refuses the largest frame, or does not request the object: %v", out.Rejected)
	}
	var tooLarge *OrderTooLargeError
	err = CheckFrameSize(encodedOrder(t, filledManifest(largest-len(bare)+1)))
	if !errors.As(err, &tooLarge) || tooLarge.Size != MaxFrameBytes+1 || err.Error() != "it has 8388609 bytes in one frame, and an agent takes at most 8388608" {
		t.Errorf("%v", err)
	}
}

// A hub does not encode what an agent would refuse when it decodes it.
func TestOrdersThatNoAgentDecodesAreNotMade(t *testing.T) {
	items := func(n int, item func(i int) atoll.RenderedItem) (m atoll.Manifest) {
		for i := range n {
			m.Items = append(m.Items, item(i))
		}
		return m
	}
	plain := func(i int) atoll.RenderedItem {
		return atoll.RenderedItem{Key: atoll.ItemKey{Kind: "A", Name: fmt.Sprint(i)}}
	}
	owning := func(int) atoll.RenderedItem {
		return atoll.RenderedItem{Key: atoll.ItemKey{Kind: "A", Name: "a"}, MemberOwned: strings.Split(strings.Repeat("a,", 99)+"a", ",")}
	}
	completing := func(i int) atoll.RenderedItem {
		return atoll.RenderedItem{Key: atoll.ItemKey{Kind: "A", Name: "a"}, Assessment: &atoll.Assessment{Completion: fmt.Sprintf("%2048d", i)}}
	}
	reading := func(i int) atoll.RenderedItem {
		var feedback []v1alpha1.FeedbackRule
		for n := range atoll.MaxFeedbackValues {
			feedback = append(feedback, v1alpha1.FeedbackRule{Name: "a", JSONPath: fmt.Sprintf(".%511d", i*atoll.MaxFeedbackValues+n), Type: v1alpha1.FeedbackString})
		}
		return atoll.RenderedItem{Key: atoll.ItemKey{Kind: "A", Name: "a"}, Assessment: &atoll.Assessment{Feedback: feedback}}
	}
	for name, c := range map[string]struct {
		fits, over atoll.Manifest
		unit       string
	}{
		"elements":    {items(maxManifestElements-100, plain), items(maxManifestElements, plain), "items and other elements"},
		"values":      {items(3_700, owning), items(4_000, owning), "values"},
		"expressions": {items(32, completing), items(33, completing), "bytes of different expressions in rules"},
		"paths":       {items(64, reading), items(65, reading), "bytes of different paths in rules"},
	} {
		body, err := NewPayload(c.fits).Encode(nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if _, err := decodeManifest(&pb.Upsert{Bundle: "b", Manifest: body}); err != nil {
			t.Errorf("%s: the agent refuses what is made: %v", name, err)
		}
		_, err = NewPayload(c.over).Encode(nil)
		if tooLarge := (*OrderTooLargeError)(nil); !errors.As(err, &tooLarge) || tooLarge.Unit != c.unit || tooLarge.Size <= tooLarge.Limit {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// assessedItems returns a manifest of items with the rules of one policy.
func assessedItems(n int) (m atoll.Manifest) {
	a := atoll.Assessment{Completion: fmt.Sprintf("%2048d", 1)}
	for i := range atoll.MaxFeedbackValues {
		a.Feedback = append(a.Feedback, v1alpha1.FeedbackRule{Name: fmt.Sprint("n", i), JSONPath: "." + longText(511), Type: v1alpha1.FeedbackString})
	}
	for i := range 7 {
		a.Health = append(a.Health, v1alpha1.HealthRule{Expression: fmt.Sprintf("%2048d", i)})
	}
	m.Content = "c"
	for i := range n {
		own := a
		m.Items = append(m.Items, atoll.RenderedItem{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: fmt.Sprint("a", i)}, APIVersion: "v1", Hash: "h", Error: atoll.UnknownAssessment, Object: json.RawMessage(`{}`), Assessment: &own})
	}
	return m
}

// A manifest of many items with large rules is small, and agents read it. Agents before the list get the rules with each
// item, and no more of them than a frame has.
func TestRulesOfManyItemsFitIntoAFrame(t *testing.T) {
	m := assessedItems(400)
	p := NewPayload(m)
	body, err := p.Encode(nil)
	if err != nil || len(body) > 200<<10 {
		t.Fatalf("%d bytes, %v", len(body), err)
	}
	out := NewAgent(AgentOptions{}, Memory{}).HandleFrame(upsertFrame("b", string(body)))
	if len(out.Store) != 1 || len(out.Rejected) > 0 || !reflect.DeepEqual(out.Store[0].Items, m.Items) {
		t.Errorf("the agent stores other items, or none: %v", out.Rejected)
	}
	whole, err := p.EncodeForOlder(nil)
	if err != nil || CheckFrameSize(upsertFrame("b", string(whole))) == nil {
		t.Errorf("400 items of an older agent have %d bytes, %v", len(whole), err)
	}
	few := assessedItems(3)
	if whole, err = NewPayload(few).EncodeForOlder(nil); err != nil {
		t.Fatal(err)
	}
	var read atoll.Manifest
	if err := json.Unmarshal(whole, &read); err != nil || read.AssessmentParts != nil || !reflect.DeepEqual(read.Items, few.Items) {
		t.Errorf("an older agent reads other items: %v", err)
	}
}
