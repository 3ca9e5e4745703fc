package expr

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"atoll.dev/atoll/internal/atoll"
)

// padText returns an expression of that many bytes.
func padText(text string, length int) string { return text + strings.Repeat(" ", length-len(text)) }

// A text of the greatest length is compiled, and once. A longer one is refused, and not kept.
func TestTheLengthOfExpressionsIsBounded(t *testing.T) {
	const selector, value = "cluster.zone == 'length'", "cluster.zone"
	longest := padText(selector, MaxLength)
	first, err := CompileClusterSelector(longest)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := CompileClusterSelector(longest); again != first || first.String() != longest {
		t.Error("the longest selector is compiled twice")
	}
	firstValue, err := CompileValueExpression(padText(value, MaxLength))
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := CompileValueExpression(padText(value, MaxLength)); again != firstValue {
		t.Error("the longest value is compiled twice")
	}
	if d, err := CompileDocumentExpression(padText("object", MaxDocumentLength), "object"); err != nil || d.String() != padText("object", MaxDocumentLength) {
		t.Errorf("the longest document expression: %v", err)
	}
	const want = "is 2049 bytes long, and at most 2048 are read"
	tooLong := padText(selector, MaxLength+1)
	if _, err := CompileClusterSelector(tooLong); err == nil || err.Error() != want {
		t.Errorf("a selector: %v", err)
	}
	if _, err := CompileValueExpression(tooLong); err == nil || err.Error() != want {
		t.Errorf("a value: %v", err)
	}
	if _, err := CompileDocumentExpression(padText("object", MaxDocumentLength+1), "object"); err == nil || err.Error() != "is 8193 bytes long, and at most 8192 are read" {
		t.Errorf("a document expression: %v", err)
	}
	if _, kept := selectorCache.byText.Get(tooLong); kept {
		t.Error("a selector that is too long is kept")
	}
	if _, kept := valueCache.byText.Get(tooLong); kept {
		t.Error("a value that is too long is kept")
	}
}

// Calls cost the data that they read and make: sixteen bytes of a sum, 64 bytes of another text, and each
// element of a list.
func TestCallsCostTheirData(t *testing.T) {
	text := func(n int) ref.Val { return types.String(strings.Repeat("x", n)) }
	list := func(n int) ref.Val { return types.DefaultTypeAdapter.NativeToValue(make([]any, n)) }
	object := types.DefaultTypeAdapter.NativeToValue(map[string]any{"a": strings.Repeat("x", 128), "b": []any{int64(1), int64(2)}})
	texts := types.NewStringList(types.DefaultTypeAdapter, []string{"a", "b", "c"})
	when := types.Timestamp{}
	for _, c := range []struct {
		function string
		args     []ref.Val
		result   ref.Val
		want     uint64
	}{
		{operators.Add, []ref.Val{text(100), text(60)}, text(160), 11},
		{operators.Add, []ref.Val{list(3), list(4)}, list(7), 8},
		{operators.Add, []ref.Val{types.NewMutableList(types.DefaultTypeAdapter), list(4)}, list(90), 5},
		{operators.Add, []ref.Val{types.Int(1), types.Int(2)}, types.Int(3), 1},
		{operators.Equals, []ref.Val{text(640), text(128)}, types.True, 3},
		{operators.NotEquals, []ref.Val{text(64), text(128)}, types.True, 2},
		{operators.Equals, []ref.Val{object, object}, types.True, 8},
		{operators.Equals, []ref.Val{types.Int(1), object}, types.False, 1},
		{operators.Equals, []ref.Val{texts, texts}, types.True, 4},
		{operators.In, []ref.Val{text(10), list(9)}, types.False, 11},
		{operators.In, []ref.Val{text(640), object}, types.False, 1},
		{"startsWith", []ref.Val{text(640), text(64)}, types.True, 12},
		{"size", []ref.Val{list(9)}, types.Int(9), 1},
		{"quantity", []ref.Val{text(3)}, types.Double(1), 21},
		{"versionAtLeast", []ref.Val{text(64), text(3)}, types.True, 22},
		{"getFullYear", []ref.Val{when, text(13)}, types.Int(2026), 501},
		{"getFullYear", []ref.Val{when}, types.Int(2026), 1},
		{"getSeconds", []ref.Val{types.Duration{}, text(3)}, types.Int(1), 1},
		{"other", []ref.Val{when, text(3)}, types.Int(1), 1},
	} {
		if got := (callCosts{}).CallCost(c.function, "", c.args, c.result); *got != c.want {
			t.Errorf("%s of %d arguments costs %d, want %d", c.function, len(c.args), *got, c.want)
		}
	}
	if got := valueCost(list(DocumentStopCost + 5)); got < DocumentStopCost {
		t.Errorf("a list longer than the bound costs %d", got)
	}
}

// The result of a document expression holds a number of bytes: texts and keys by their length, other values
// as 4, lists and maps as 16. It is nested up to 32 deep.
func TestTheResultOfADocumentExpressionIsBounded(t *testing.T) {
	d, err := CompileDocumentExpression("object", "object")
	if err != nil {
		t.Fatal(err)
	}
	text := func(n int) string { return strings.Repeat("x", n) }
	nested := func(depth int) (v any) {
		v = int64(1)
		for range depth {
			v = []any{v}
		}
		return v
	}
	const most = MaxDocumentValue
	for name, c := range map[string]struct {
		value any
		fits  bool
	}{
		"a text":                {text(most - 4), true},
		"a longer text":         {text(most - 3), false},
		"a list":                {[]any{text(most - 16 - 4 - 4), int64(1)}, true},
		"a longer list":         {[]any{text(most - 16 - 4 - 4), int64(1), nil}, false},
		"a map":                 {map[string]any{"key": text(most - 16 - 3 - 4)}, true},
		"a longer map":          {map[string]any{"key": text(most - 16 - 3 - 3)}, false},
		"a key":                 {map[string]any{text(most - 16 - 4): true}, true},
		"a longer key":          {map[string]any{text(most): true}, false},
		"lists in each other":   {nested(4 * maxNesting), true},
		"more lists than these": {nested(4*maxNesting + 1), false},
	} {
		got, err := d.EvaluateWith(map[string]any{"object": c.value})
		if c.fits && (err != nil || fmt.Sprint(got) != fmt.Sprint(c.value)) || !c.fits && (err == nil || err.Error() != "gives more than 524288 bytes, or is nested deeper than 32") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A value of a cluster holds 4096 bytes of text and elements.
func TestTheResultOfAValueIsBounded(t *testing.T) {
	v, err := CompileValueExpression("{'k': [cluster.labels['a']]}")
	if err != nil {
		t.Fatal(err)
	}
	const most = MaxValue - 1 - 1 - 1 - 1 // the map, its key, the list and the text as an element
	for n, want := range map[int]string{most: "", most + 1: "gives more than 4096 bytes"} {
		got, err := v.EvaluateFor(&atoll.ClusterView{Labels: map[string]string{"a": strings.Repeat("x", n)}})
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%d bytes: %v, %v", n, got, err)
		}
	}
}

// Functions on texts refuse other values.
func TestFunctionsOnTextsRefuseOtherValues(t *testing.T) {
	for text, want := range map[string]string{
		"quantity(object)": "no such overload", "versionAtLeast(object, '1.0')": "no such overload", "versionAtLeast('1.0', object)": "no such overload",
		"versionAtLeast('x', '1.0')": `versionAtLeast: "x" is no version`, "versionAtLeast('1.0', 'y')": `versionAtLeast: "y" is no version`,
		"[1] + object": "no such overload",
	} {
		d, err := CompileDocumentExpression(text, "object")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := d.EvaluateWith(map[string]any{"object": int64(3)}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, %v, want %q", text, got, err, want)
		}
	}
}

// A sum of lists longer than an evaluation may read is refused before it is made.
func TestSumsOfListsAreBounded(t *testing.T) {
	d, err := CompileDocumentExpression("(a + b).size()", "a", "b")
	if err != nil {
		t.Fatal(err)
	}
	sum := func(n int) (any, error) {
		return d.EvaluateWith(map[string]any{"a": make([]any, n), "b": make([]any, 1)})
	}
	if got, err := sum(DocumentStopCost / 2); err != nil || got != int64(DocumentStopCost/2+1) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := sum(DocumentStopCost); err == nil || err.Error() != "a list of 100001 is made, and at most 100000 are" {
		t.Errorf("%v, %v", got, err)
	}
}

// A value and a selector have the cost of their loops on a large cluster, and at least 1.
func TestCostsOfExpressions(t *testing.T) {
	s, err := CompileClusterSelector("true")
	if err != nil || s.MaxEstimatedCost() != 1 {
		t.Errorf("true costs %d, %v", s.MaxEstimatedCost(), err)
	}
	v, err := CompileValueExpression("1")
	if err != nil || v.MaxEstimatedCost() != 1 {
		t.Errorf("1 costs %d, %v", v.MaxEstimatedCost(), err)
	}
	one, err := CompileClusterSelector("quantity(cluster.name) > 1.0")
	if err != nil {
		t.Fatal(err)
	}
	two, err := CompileClusterSelector("quantity(cluster.name) > 1.0 && versionAtLeast(cluster.name, '1.0')")
	if err != nil || two.MaxEstimatedCost() < one.MaxEstimatedCost()+10 {
		t.Errorf("two calls cost %d, one %d, %v", two.MaxEstimatedCost(), one.MaxEstimatedCost(), err)
	}
}

// An issue names the field of a cluster that is missing, at its place in the text.
func TestIssuesNameTheMissingField(t *testing.T) {
	const has = ": it has name, labels, region, zone, zones, provider, sets and properties"
	for text, want := range map[string]string{
		"'ü' == 'x' || cluster.nme == 'x'": `line 1, column 15: cluster has no field "nme" here` + has,
		"true &&\n cluster . nme == 'x'":   `line 2, column 2: cluster has no field "nme" here` + has,
		"cluster == 'x'":                   "line 1, column 1: cluster is no value by itself" + has,
		"clusters.nme == 'x'":              "line 1, column 1: undeclared reference to 'clusters'",
		"true && clusters.name == 'x'":     "line 1, column 9: undeclared reference to 'clusters'",
		"cluster.name > 1":                 "line 1, column 14: found no matching overload for '_>_' applied to '(string, int)'",
	} {
		if _, err := CompileClusterSelector(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	const hubHas = ": it has name, labels, region, zone, zones, provider and sets"
	if _, err := CompileValueExpression("cluster.properties"); err == nil || err.Error() != `line 1, column 1: cluster has no field "properties" here`+hubHas {
		t.Errorf("a value: %v", err)
	}
}

// Simple expressions are answered without CEL, and others by it.
func TestOnlySimpleExpressionsAreQuick(t *testing.T) {
	for text, quick := range map[string]bool{
		"true": true, "!true": true, "cluster.name == 'a'": true, "'a' != cluster.zone": true, "has(cluster.labels.a)": true, "'a' in cluster.labels": true,
		"cluster.name in ['a', 'b']": true, "'a' in cluster.sets": true, "cluster.name.startsWith('a')": true, "cluster.labels['a'].endsWith('b')": true,
		"cluster.labels.a.contains('b') && !(cluster.region == 'x')": true, "cluster.properties['a'] == 'b' || cluster.properties.c == 'd'": true,
		"cluster.name in [cluster.zone]": false, "cluster.name in []": false, "cluster.name.size() == 3": false, "cluster.name + 'a' == 'b'": false,
		"cluster.name.matches('a')": false, "cluster.name.startsWith(cluster.name + 'a')": false, "!(cluster.name.size() == 3)": false,
		"cluster.name == 'a' && cluster.name.size() == 3": false, "cluster.name.size() == 3 || cluster.name == 'a'": false,
		"cluster.labels[cluster.name] == 'a'": false, "(cluster.name + 'a') in cluster.labels": false, "cluster.sets == ['a']": false,
		"(cluster.name + 'a').startsWith('a')": false, "['a', 'b'][0] == 'a'": false,
	} {
		s, err := CompileClusterSelector(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if is := s.quickMatcher != nil; is != quick {
			t.Errorf("%s: quick %t", text, is)
		}
	}
}

// An expression that needs CEL sees the same fields as a simple one.
func TestCELSeesTheFieldsOfACluster(t *testing.T) {
	for text, want := range map[string]bool{
		"cluster.name.size() == 7": true, "cluster.region.size() == 2": true, "cluster.zone.size() == 4": true, "cluster.provider.size() == 3": true,
		"cluster.labels.size() == 3": true, "cluster.sets.size() == 2": true, "cluster.properties['nodes'].size() == 2": true, "cluster.provider.size() == 4": false,
		"cluster.properties.nodes.size() == 2": true, "{'a': cluster.name}.size() == 1": true, "[cluster.zone, cluster.region].size() == 2": true,
	} {
		s, err := CompileClusterSelector(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if s.quickMatcher != nil {
			t.Errorf("%s is quick", text)
		}
		if got, err := s.MatchCluster(tokyo); got != want || err != nil {
			t.Errorf("%s: %t, %v", text, got, err)
		}
		if got := s.IsTrueFor(tokyo); got != want {
			t.Errorf("%s is true: %t", text, got)
		}
	}
	a := &activation{tokyo}
	if v, ok := a.ResolveName("cluster.taints"); ok || v != nil || a.Parent() != nil {
		t.Errorf("%v", v)
	}
}
