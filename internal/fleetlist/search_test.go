package fleetlist

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

func TestTheBestNamesComeFirst(t *testing.T) {
	all := []Named{
		{Name: "cobweb"}, {Name: "oslo-web"}, {Name: "webshop"}, {Name: "web", Namespace: "shop"}, {Name: "deployment-web-1", Title: "Web", Namespace: "live"}, {Name: "berlin", Namespace: "web"}, {Name: "rome"},
	}
	for query, want := range map[string]string{
		"web":      "deployment-web-1 web webshop oslo-web cobweb berlin",
		"WEB shop": "webshop web",
		"rome web": "",
		"shop":     "webshop web",
		"deploy":   "deployment-web-1",
	} {
		s, err := NewSearch(query, 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range all {
			s.Offer(n)
		}
		var got []string
		for _, n := range s.Found() {
			got = append(got, n.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q finds %q, want %q", query, got, want)
		}
	}
	for name, text := range map[string]string{"no text": " ", "a long text": strings.Repeat("a", MaxText+1)} {
		if _, err := NewSearch(text, 1); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// A bounded search finds what is first of all that fit.
func TestASearchFindsTheFirstOfAll(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		limit := 1 + r.IntN(10)
		bounded, err := NewSearch("a b", limit)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := NewSearch("a b", 10_000)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 300 {
			var name strings.Builder
			for range r.IntN(8) {
				name.WriteByte("ab-c"[r.IntN(4)])
			}
			n := Named{Name: fmt.Sprint(name.String(), i), Namespace: []string{"ab", "x"}[r.IntN(2)]}
			bounded.Offer(n)
			whole.Offer(n)
		}
		got, want := bounded.Found(), whole.Found()
		if want = want[:min(limit, len(want))]; !slices.Equal(got, want) {
			t.Fatalf("seed %d: %v, want %v", seed, got, want)
		}
	}
}

func TestPagesOfSources(t *testing.T) {
	var all []*v1alpha1.Source
	for _, key := range []string{"a/x", "a/y", "b/a", "b/b", "c/z"} {
		namespace, name, _ := strings.Cut(key, "/")
		all = append(all, &v1alpha1.Source{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	}
	for limit := 1; limit < 7; limit++ {
		var got []string
		for token := ""; ; {
			after, err := ParseSourceToken(token)
			if err != nil {
				t.Fatal(err)
			}
			page, next := PageSources(all, after, limit)
			for _, s := range page {
				got = append(got, s.Namespace+"/"+s.Name)
			}
			if token = next; next == "" {
				break
			}
		}
		if strings.Join(got, " ") != "a/x a/y b/a b/b c/z" {
			t.Errorf("by %d: %q", limit, got)
		}
	}
	if page, next := PageSources(all, SourceKey{"b", "aa"}, 2); len(page) != 2 || page[0].Name != "b" || next != "" {
		t.Errorf("after a Source that is gone: %v %q", page, next)
	}
	if page, next := PageSources(nil, SourceKey{}, 2); page == nil || len(page) != 0 || next != "" {
		t.Errorf("of no Sources: %v %q", page, next)
	}
	for _, token := range []string{"%", "YQ", "L2E", strings.Repeat("a", MaxToken+1)} {
		if _, err := ParseSourceToken(token); err == nil {
			t.Errorf("the token %q is accepted", token)
		}
	}
}
