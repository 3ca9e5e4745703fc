package expr

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// Simple expressions have a quick matcher, and others need CEL.
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
		s, err := CompileClusterSelector(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := s.quickMatcher != nil; got != want {
			t.Errorf("%s: quick %t, want %t", text, got, want)
		}
	}
}

// expressionWriter writes expressions of the quick kind.
type expressionWriter struct{ *rand.Rand }

func (s expressionWriter) pickOne(of ...string) string { return of[s.IntN(len(of))] }

func (s expressionWriter) writeText() string {
	return s.pickOne("cluster.name", "cluster.region", "cluster.zone", "cluster.provider", "'a'", "'b'", "''",
		"cluster.labels['a']", "cluster.labels.b", "cluster.properties['a']", "cluster.properties.c")
}

func (s expressionWriter) writeCondition(depth int) string {
	if depth == 0 || s.IntN(5) == 0 {
		switch s.IntN(8) {
		case 0:
			return s.pickOne("true", "false")
		case 1:
			return "has(cluster." + s.pickOne("labels", "properties") + "." + s.pickOne("a", "b") + ")"
		case 2:
			return s.writeText() + " in " + s.pickOne("cluster.sets", "cluster.zones", "cluster.labels", "['a', 'b']", "['']")
		case 3:
			return s.pickOne("'a'", "'b'") + " in cluster.properties"
		case 4:
			return s.writeText() + "." + s.pickOne("startsWith", "endsWith", "contains") + "(" + s.writeText() + ")"
		}
		return s.writeText() + s.pickOne(" == ", " != ") + s.writeText()
	}
	switch s.IntN(3) {
	case 0:
		return "!(" + s.writeCondition(depth-1) + ")"
	case 1:
		return "(" + s.writeCondition(depth-1) + ") && (" + s.writeCondition(depth-1) + ")"
	}
	return "(" + s.writeCondition(depth-1) + ") || (" + s.writeCondition(depth-1) + ")"
}

func (s expressionWriter) randomMap() map[string]string {
	out := map[string]string{}
	for range s.IntN(3) {
		out[s.pickOne("a", "b", "c")] = s.pickOne("", "a", "b", "ab")
	}
	return out
}

// Quick matchers agree with CEL, including its failures.
func TestQuickIsCEL(t *testing.T) {
	s := expressionWriter{rand.New(rand.NewPCG(11, 12))}
	count := map[string]int{}
	for range 1500 {
		text := s.writeCondition(3)
		sel, err := compileSelectorUncached(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if sel.quickMatcher == nil {
			t.Fatalf("%s is not quick", text)
		}
		for range 8 {
			c := Cluster{ClusterView: &atoll.ClusterView{
				Name: s.pickOne("a", "ab"), Region: s.pickOne("", "a"), Zone: s.pickOne("b", "ab"), Provider: s.pickOne("", "b"),
				Labels: s.randomMap(), Properties: s.randomMap(), Sets: strings.Fields(s.pickOne("", "a", "a b")),
			}}
			if s.IntN(3) == 0 {
				c.Zone, c.Zones = "", []string{"a", "b"}
			}
			want := "fails"
			if ok, err := sel.evaluateProgram(c); err == nil {
				want = fmt.Sprint(ok)
			}
			got := map[matchResult]string{resultFalse: "false", resultTrue: "true", resultError: "fails"}[sel.quickMatcher(c)]
			if count[want]++; got != want {
				t.Fatalf("%s of %+v %q: %s, and CEL gives %s", text, *c.ClusterView, c.Sets, got, want)
			}
		}
	}
	for _, answer := range []string{"true", "false", "fails"} {
		if count[answer] < 500 {
			t.Errorf("only %d of the answers are %s", count[answer], answer)
		}
	}
}
