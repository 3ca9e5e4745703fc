package expr

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// Which expressions are quick, and which are CEL's.
func TestQuickened(t *testing.T) {
	for text, want := range map[string]bool{
		"cluster.labels['env'] == 'prod' && cluster.region in ['eu', 'us']":          true,
		"has(cluster.labels.env) || !('a' in cluster.sets)":                          true,
		"cluster.name.startsWith('x') && 'gpu' in cluster.properties && 'a' != 'b'":  true,
		"cluster.labels['a'] == cluster.labels.b":                                    true,
		"cluster.labels['a' + 'b'] == 'x'":                                           false,
		"cluster.labels[cluster.name] == 'x'":                                        false,
		"cluster.sets.exists(s, s == 'a')":                                           false,
		"quantity(cluster.labels['a']) > 1.0":                                        false,
		"cluster.name.matches('a')":                                                  false,
		"cluster.region in [cluster.zone, 'a']":                                      false,
		"cluster.region in []":                                                       false,
		"cluster.labels == {'a': 'b'}":                                               false,
		"(cluster.name == 'a' ? 'x' : 'y') == 'x'":                                   false,
		"true && (cluster.name == 'a' || cluster.sets.exists(s, s == cluster.zone))": false,
	} {
		s, err := Compile(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := s.quick != nil; got != want {
			t.Errorf("%s: quick %t, want %t", text, got, want)
		}
	}
}

// scribbler writes expressions of the quick kind.
type scribbler struct{ *rand.Rand }

func (s scribbler) one(of ...string) string { return of[s.IntN(len(of))] }

func (s scribbler) text() string {
	return s.one("cluster.name", "cluster.region", "cluster.zone", "cluster.provider", "'a'", "'b'", "''",
		"cluster.labels['a']", "cluster.labels.b", "cluster.properties['a']", "cluster.properties.c")
}

func (s scribbler) truth(depth int) string {
	if depth == 0 || s.IntN(5) == 0 {
		switch s.IntN(8) {
		case 0:
			return s.one("true", "false")
		case 1:
			return "has(cluster." + s.one("labels", "properties") + "." + s.one("a", "b") + ")"
		case 2:
			return s.text() + " in " + s.one("cluster.sets", "cluster.labels", "['a', 'b']", "['']")
		case 3:
			return s.one("'a'", "'b'") + " in cluster.properties"
		case 4:
			return s.text() + "." + s.one("startsWith", "endsWith", "contains") + "(" + s.text() + ")"
		}
		return s.text() + s.one(" == ", " != ") + s.text()
	}
	switch s.IntN(3) {
	case 0:
		return "!(" + s.truth(depth-1) + ")"
	case 1:
		return "(" + s.truth(depth-1) + ") && (" + s.truth(depth-1) + ")"
	}
	return "(" + s.truth(depth-1) + ") || (" + s.truth(depth-1) + ")"
}

func (s scribbler) some() map[string]string {
	out := map[string]string{}
	for range s.IntN(3) {
		out[s.one("a", "b", "c")] = s.one("", "a", "b", "ab")
	}
	return out
}

// What is quick says what CEL says, also where CEL fails.
func TestQuickIsCEL(t *testing.T) {
	s := scribbler{rand.New(rand.NewPCG(11, 12))}
	count := map[string]int{}
	for range 1500 {
		text := s.truth(3)
		sel, err := compile(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if sel.quick == nil {
			t.Fatalf("%s is not quick", text)
		}
		for range 8 {
			c := Cluster{ClusterView: &atoll.ClusterView{
				Name: s.one("a", "ab"), Region: s.one("", "a"), Zone: s.one("b", "ab"), Provider: s.one("", "b"),
				Labels: s.some(), Properties: s.some(), Sets: strings.Fields(s.one("", "a", "a b")),
			}}
			want := "fails"
			if ok, err := sel.evaluate(c); err == nil {
				want = fmt.Sprint(ok)
			}
			got := map[truth]string{no: "false", yes: "true", fails: "fails"}[sel.quick(c)]
			if count[want]++; got != want {
				t.Fatalf("%s of %+v %q: %s, and CEL says %s", text, *c.ClusterView, c.Sets, got, want)
			}
		}
	}
	for _, answer := range []string{"true", "false", "fails"} {
		if count[answer] < 500 {
			t.Errorf("only %d of the answers are %s", count[answer], answer)
		}
	}
}
