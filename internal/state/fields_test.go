package state

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rowcodec"
)

// A Revision names its Bundle and its parts, so that a restarted hub reads the content back.
func TestRevisionFields(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	items := []atoll.Item{testItem("Secret", "s", "hush-hush")}
	for i := range 200 {
		b := make([]byte, 6000)
		for j := range b {
			b[j] = byte('a' + rng.IntN(26))
		}
		items = append(items, testItem("ConfigMap", fmt.Sprintf("c%d", i), string(b)))
	}
	c := fake.NewClientBuilder().WithScheme(NewScheme()).Build()
	key := bytes.Repeat([]byte{1}, 32)
	revs, _ := newRevisions(c, key)
	for _, n := range []int{1, len(items)} {
		if _, err := revs.CreateRevision(t.Context(), testRef, &atoll.Content{Items: items[:n], MinRevision: int64(n)}); err != nil {
			t.Fatal(err)
		}
	}
	name := revs.OfBundle(testRef.UID)[1].Name
	var r enginev1.Revision
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, &r); err != nil {
		t.Fatal(err)
	}
	if r.Spec.Bundle != testRef || r.Spec.Number != 2 || r.Spec.Base != int64(len(items)) || atoll.RevisionNumber(name) != 2 || r.Spec.Items != int32(len(items)) || len(r.Spec.Content) == 0 {
		t.Errorf("bundle %+v, number %d, items %d, content of %d bytes", r.Spec.Bundle, r.Spec.Number, r.Spec.Items, len(r.Spec.Content))
	}
	plain, secret := 0, 0
	for _, p := range r.Spec.Parts {
		if p.Secret {
			secret++
			var s corev1.Secret
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: atoll.SystemNamespace, Name: p.Name}, &s); err != nil {
				t.Error(err)
			}
			continue
		}
		plain++
		var part enginev1.RevisionPart
		if err := c.Get(t.Context(), client.ObjectKey{Name: p.Name}, &part); err != nil || len(part.Data) == 0 || len(part.Data) > maxPartBytes {
			t.Errorf("part %s has %d bytes of data, %v", p.Name, len(part.Data), err)
		}
	}
	if plain == 0 || secret != 1 {
		t.Fatalf("%d plain and %d secret parts", plain, secret)
	}
	restarted, _ := newRevisions(c, key)
	back, err := restarted.GetContent(t.Context(), name)
	if err != nil || len(back.Items) != len(items) {
		t.Fatalf("read back %v, %v", back, err)
	}
	for _, got := range back.Items {
		if got.Key.Kind == "Secret" && !strings.Contains(string(got.Object), "hush-hush") {
			t.Errorf("the secret came back as %s", got.Object)
		}
	}
	// Content that is missing is an error, never an empty content.
	var parts enginev1.RevisionPartList
	if err := c.List(t.Context(), &parts); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), &parts.Items[0]); err != nil {
		t.Fatal(err)
	}
	again, _ := newRevisions(c, key)
	if got, err := again.GetContent(t.Context(), name); err == nil || !strings.Contains(err.Error(), parts.Items[0].Name) {
		t.Errorf("without one part it has %v, %v", got, err)
	}
}

// A TargetSlice names the Bundle of its rows, and a restarted hub reads both halves of each row
// back; common values of rows are stored once, as words.
func TestTargetSliceFields(t *testing.T) {
	rows, c := newTestRows(t)
	wanted := rowSpecsFor("a", "b")
	wanted["a"].Variant, wanted["b"].Variant = "variant", "variant"
	if err := rows.WriteSpecs(t.Context(), testRef, nil, wanted); err != nil {
		t.Fatal(err)
	}
	if err := rows.WriteStatuses(t.Context(), testRef.UID, map[string]atoll.RowStatus{"uid-a": {Generation: 1, Seq: 3, State: atoll.RowReady, Content: "content"}}); err != nil {
		t.Fatal(err)
	}
	var s enginev1.TargetSlice
	if err := c.Get(t.Context(), client.ObjectKey{Name: "b1-0"}, &s); err != nil {
		t.Fatal(err)
	}
	if s.Spec.Bundle != testRef || len(rowcodec.SplitLines(s.Spec.Rows)) != 2 || len(rowcodec.SplitLines(s.Status.Rows)) != 1 {
		t.Fatalf("slice %+v, %+v", s.Spec, s.Status)
	}
	if fmt.Sprint(s.Spec.Words, s.Status.Words) != "[variant] [content]" {
		t.Errorf("words: %q, %q", s.Spec.Words, s.Status.Words)
	}
	restarted := newRows(c)
	restarted.put(&s)
	a, _ := restarted.Get(testRef.UID, "a")
	b, ok := restarted.Get(testRef.UID, "b")
	if a.Bundle != testRef || a.Spec.Revision != "r1" || a.Spec.UID != "uid-a" || a.Spec.Variant != "variant" || a.Status == nil || a.Status.Content != "content" || a.Status.Seq != 3 || !ok || b.Status != nil {
		t.Errorf("rows that came back: %+v, %+v", a, b)
	}
}

// The HubState is what the hub stores of its own starts and of a restore.
func TestHubStateFields(t *testing.T) {
	h := &HubStateTable{}
	if reason, holding := h.HoldReason(); holding || reason != "" || h.GenerationFloor() != 0 {
		t.Error("a hub that knows nothing holds")
	}
	st := &enginev1.HubState{
		ObjectMeta: metav1.ObjectMeta{Name: HubStateName, ResourceVersion: "5"}, GenerationFloor: 70,
	}
	h.Put(st)
	if h.GenerationFloor() != 70 {
		t.Errorf("floor %d", h.GenerationFloor())
	}
	for i, tc := range []struct {
		accepted string
		holding  bool
	}{{"", true}, {"hub", false}, {"", true}, {"members", false}} {
		next := st.DeepCopy()
		next.ResourceVersion = fmt.Sprint(6 + i)
		next.Rewound = &enginev1.Rewound{Since: metav1.Now(), Reason: "restored from a backup", Accepted: tc.accepted}
		h.Put(next)
		if reason, holding := h.HoldReason(); holding != tc.holding || holding && reason != "restored from a backup" {
			t.Errorf("accepted %q: holds %t, %q", tc.accepted, holding, reason)
		}
	}
}
