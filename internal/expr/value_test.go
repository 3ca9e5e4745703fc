package expr_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/expr"
)

func TestValues(t *testing.T) {
	c := &atoll.ClusterView{
		Name: "tokyo", Region: "ap", Zone: "ap-1", Provider: "aws",
		Labels: map[string]string{"dns": "10.0.0.10", "n": "3", "long": strings.Repeat("x", 200)}, Properties: map[string]string{"p": "reported"},
		Sets: []string{"asia", "edge"},
	}
	for _, tc := range []struct {
		text string
		want any
		err  string // of this cluster
		bad  string // of every cluster
	}{
		{text: `cluster.labels['dns']`, want: "10.0.0.10"},
		{text: `cluster.labels.dns + ':53'`, want: "10.0.0.10:53"},
		{text: `int(cluster.labels['n']) + 1`, want: int64(4)},
		{text: `quantity('1Ki') / 2.0`, want: 512.0},
		{text: `'x' in cluster.labels ? cluster.labels['x'] : cluster.region`, want: "ap"},
		{text: `[cluster.name, cluster.zone, cluster.provider]`, want: []any{"tokyo", "ap-1", "aws"}},
		{text: `{'a': {'b': true, 'c': null}}`, want: map[string]any{"a": map[string]any{"b": true, "c": nil}}},
		{text: `'edge' in cluster.sets ? 'small' : 'large'`, want: "small"},
		{text: `cluster.sets`, want: []any{"asia", "edge"}},
		{text: `cluster.zones`, want: []any{"ap-1"}},
		{text: `cluster.labels['none']`, err: "no such key: none"},
		{text: `int(cluster.labels['dns'])`, err: "type conversion error"},
		{text: `{1: 2}`, err: "a key that is a int"},
		{text: `[1, 2].map(x, cluster.labels.map(k, cluster.labels.map(l, cluster.labels['long'])))`, bad: "may cost"},
		{text: `cluster.labels['long'] + cluster.labels['long'] + [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25].map(x, cluster.labels['long'])[0]`,
			want: strings.Repeat("x", 600)},
		{text: `[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25].map(x, cluster.labels['long'])`, err: "gives more than 4096 bytes"},
		{text: strings.Repeat("[", 8) + "1" + strings.Repeat("]", 8), want: nestedList(8)},
		{text: strings.Repeat("[", 9) + "1" + strings.Repeat("]", 9), err: "gives more than"},
		{text: strings.Repeat("{'a':", 8) + "1" + strings.Repeat("}", 8), want: nestedMap(8)},
		{text: strings.Repeat("{'a':", 9) + "1" + strings.Repeat("}", 9), err: "gives more than"},
		{text: `duration('1s')`, err: "no value of JSON"},
		{text: `cluster.properties['p']`, bad: `line 1, column 1: cluster has no field "properties" here: it has name, labels, region, zone, zones, provider and sets`},
		{text: `cluster.labels[`, bad: "line 1"},
		{text: strings.Repeat("(", 100) + "1" + strings.Repeat(")", 100), bad: "recursion"},
		{text: "'" + strings.Repeat("x", 2048) + "'", bad: "bytes long"},
	} {
		v, err := expr.CompileValueExpression(tc.text)
		if tc.bad != "" || err != nil {
			if err == nil || tc.bad == "" || !strings.Contains(err.Error(), tc.bad) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%.80s: compiles with %v, want %q", tc.text, err, tc.bad)
			}
			continue
		}
		got, err := v.EvaluateFor(c)
		if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) || err == nil && !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%.80s: %v %v, want %v %s", tc.text, got, err, tc.want, tc.err)
		}
		if v.MaxEstimatedCost() == 0 || v.MaxEstimatedCost() > expr.MaxCost || fmt.Sprint(v) != tc.text {
			t.Errorf("%.80s: cost %d", tc.text, v.MaxEstimatedCost())
		}
	}
}

// nestedList returns the number 1 in that many lists.
func nestedList(depth int) (v any) {
	v = int64(1)
	for range depth {
		v = []any{v}
	}
	return v
}

// nestedMap returns the number 1 in that many maps.
func nestedMap(depth int) (v any) {
	v = int64(1)
	for range depth {
		v = map[string]any{"a": v}
	}
	return v
}
