package state

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

func testItem(kind, name, body string) atoll.Item {
	return atoll.Item{
		Key: atoll.ItemKey{Kind: kind, Namespace: "shop", Name: name}, APIVersion: "v1", UID: "u-" + name,
		Object: json.RawMessage(fmt.Sprintf(`{"data":%q}`, body)),
	}
}

func TestCutWritesOnlyNews(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(NewScheme()).Build()
	revs, err := newRevisions(c, bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	content := &atoll.Content{Items: []atoll.Item{testItem("ConfigMap", "a", "x"), testItem("Secret", "s", "hush-hush")}}
	first, err := revs.CreateRevision(t.Context(), testRef, content)
	if err != nil {
		t.Fatal(err)
	}
	content.Items[0].SourceFingerprint = "another fingerprint of the same content"
	if again, err := revs.CreateRevision(t.Context(), testRef, content); err != nil || again != first {
		t.Fatalf("the same content was cut as %q, %v; want %q", again, err, first)
	}
	other := &atoll.Content{Items: []atoll.Item{testItem("ConfigMap", "a", "y")}}
	second, err := revs.CreateRevision(t.Context(), testRef, other)
	if err != nil || second == first {
		t.Fatalf("other content was cut as %q, %v", second, err)
	}
	if third, err := revs.CreateRevision(t.Context(), testRef, content); err != nil || third == first {
		t.Fatalf("going back was cut as %q, %v: it is a revision of its own", third, err)
	}
	if got := revs.OfBundle("b1"); len(got) != 3 || got[2].Spec.Number != 3 {
		t.Fatalf("revisions: %v", got)
	}
}

func TestSecretsLieOnlyInSecrets(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(NewScheme()).Build()
	revs, _ := newRevisions(c, bytes.Repeat([]byte{1}, 32))
	name, err := revs.CreateRevision(t.Context(), testRef, &atoll.Content{Items: []atoll.Item{testItem("ConfigMap", "a", "x"), testItem("Secret", "s", "hush-hush")}})
	if err != nil {
		t.Fatal(err)
	}
	var all enginev1.RevisionList
	if err := c.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	inline, err := decodeContent(all.Items[0].Spec.Content, nil)
	if err != nil || len(inline.Items) != 1 || inline.Items[0].Key.Kind != "ConfigMap" {
		t.Fatalf("the Revision itself holds %+v, %v", inline, err)
	}
	var secrets corev1.SecretList
	if err := c.List(t.Context(), &secrets); err != nil || len(secrets.Items) != 1 || secrets.Items[0].Namespace != atoll.SystemNamespace {
		t.Fatalf("secret parts: %v, %v", secrets.Items, err)
	}
	revs.cache.remove(name)
	back, err := revs.GetContent(t.Context(), name)
	if err != nil || len(back.Items) != 2 || !strings.Contains(string(back.Items[1].Object), "hush-hush") {
		t.Fatalf("read back: %+v, %v", back, err)
	}
}

func TestAChangeRewritesOnePart(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var items []atoll.Item
	for i := range 400 {
		b := make([]byte, 6000)
		for j := range b {
			b[j] = byte('a' + rng.IntN(26))
		}
		items = append(items, testItem("ConfigMap", fmt.Sprintf("c%d", i), string(b)))
	}
	_, before, err := encodeContent(&atoll.Content{Items: items})
	if err != nil {
		t.Fatal(err)
	}
	items[17].Object = json.RawMessage(`{"data":"changed"}`)
	inline, after, err := encodeContent(&atoll.Content{Items: items})
	if err != nil {
		t.Fatal(err)
	}
	changed := 0
	for i := range after {
		if !bytes.Equal(before[i].data, after[i].data) {
			changed++
		}
		if len(after[i].data) > maxPartBytes {
			t.Errorf("part %d has %d bytes", i, len(after[i].data))
		}
	}
	if len(before) != len(after) || len(after) < 4 || changed != 1 {
		t.Fatalf("%d parts, %d of them changed; want 1", len(after), changed)
	}
	var parts [][]byte
	for _, p := range after {
		parts = append(parts, p.data)
	}
	if c, err := decodeContent(inline, parts); err != nil || len(c.Items) != 400 {
		t.Fatalf("read back %v, %v", c, err)
	}
}

func TestTooLargeIsRefusedByName(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	b := make([]byte, 2_000_000)
	for j := range b {
		b[j] = byte('0' + rng.IntN(75))
	}
	_, _, err := encodeContent(&atoll.Content{Items: []atoll.Item{testItem("ConfigMap", "huge", string(b))}})
	if err == nil || !strings.Contains(err.Error(), "huge") {
		t.Fatalf("err = %v, want one that names the item", err)
	}
}

func TestDropKeepsPartsThatOthersName(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(NewScheme()).Build()
	revs, _ := newRevisions(c, bytes.Repeat([]byte{1}, 32))
	for _, body := range []string{"x", "y"} {
		if _, err := revs.CreateRevision(t.Context(), testRef, &atoll.Content{Items: []atoll.Item{testItem("ConfigMap", "a", body), testItem("Secret", "s", "same")}}); err != nil {
			t.Fatal(err)
		}
	}
	parts := func() int {
		var secrets corev1.SecretList
		if err := c.List(t.Context(), &secrets); err != nil {
			t.Fatal(err)
		}
		return len(secrets.Items)
	}
	if err := revs.DropRevisions(t.Context(), revs.OfBundle("b1")[:1]); err != nil {
		t.Fatal(err)
	}
	if left := revs.OfBundle("b1"); len(left) != 1 || left[0].Spec.Number != 2 || parts() != 1 {
		t.Fatalf("left: %v, %d parts", left, parts())
	}
	if err := revs.DropAll(t.Context(), "b1"); err != nil {
		t.Fatal(err)
	}
	if left := revs.OfBundle("b1"); len(left) != 0 || parts() != 0 {
		t.Fatalf("left after all: %v, %d parts", left, parts())
	}
}

// TestALateRevisionIsNotTheLatest: a leader that was stopped in the middle of a cut
// goes on when another one has cut the same number.
func TestALateRevisionIsNotTheLatest(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(NewScheme()).Build()
	key := bytes.Repeat([]byte{1}, 32)
	leader, err := newRevisions(c, key)
	if err != nil {
		t.Fatal(err)
	}
	stale, err := newRevisions(c, key)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 { // whatever the hashes are
		ref := enginev1.BundleRef{UID: fmt.Sprint("b", i), Namespace: "shop", Name: "web"}
		now, err := leader.CreateRevision(t.Context(), ref, &atoll.Content{Items: []atoll.Item{testItem("ConfigMap", "a", fmt.Sprint("now", i))}})
		if err != nil {
			t.Fatal(err)
		}
		before := enginev1.Revision{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: now}, &before); err != nil {
			t.Fatal(err)
		}
		before.ResourceVersion = "1000"
		late, err := stale.CreateRevision(t.Context(), ref, &atoll.Content{Items: []atoll.Item{testItem("ConfigMap", "a", fmt.Sprint("late", i))}})
		if err != nil {
			t.Fatal(err)
		}
		after := enginev1.Revision{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: late}, &after); err != nil {
			t.Fatal(err)
		}
		after.ResourceVersion = "1001"
		for _, order := range [][2]*enginev1.Revision{{&before, &after}, {&after, &before}} {
			fresh, err := newRevisions(c, key)
			if err != nil {
				t.Fatal(err)
			}
			fresh.put(order[0])
			fresh.put(order[1])
			if latest, _ := fresh.LatestOfBundle(ref.UID); latest.Name != now {
				t.Fatalf("the latest is %s, want %s", latest.Name, now)
			}
		}
	}
}
