package expr_test

import (
	"cmp"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/expr"
)

func TestDocument(t *testing.T) {
	object := map[string]any{
		"spec":   map[string]any{"replicas": int64(3), "big": int64(9007199254740993), "half": 0.5, "none": nil},
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}},
		"long":   strings.Repeat("a", 1000),
		"ones":   strings.Repeat(".1", 200),
		"list":   make([]any, 2000),
	}
	for i := range object["list"].([]any) {
		object["list"].([]any)[i] = int64(i)
	}
	for _, tc := range []struct {
		text string
		want any
		err  string // when asked
		bad  string // when compiled
		made uint64 // bytes at most; 0: 16 MiB
	}{
		{text: "object.spec.replicas", want: int64(3)},
		{text: "object.spec.big", want: int64(9007199254740993)},
		{text: "object.spec.replicas + 1", want: int64(4)},
		{text: "object.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')", want: true},
		{text: "{'status': has(object.status.phase) ? object.status.phase : 'none'}", want: map[string]any{"status": "none"}},
		{text: "object.?status.?phase.orValue('none')", want: "none"},
		{text: "[object.spec.half, quantity('1Gi')]", want: []any{0.5, float64(1 << 30)}},
		{text: "object.spec", want: object["spec"]},
		{text: "versionAtLeast('1.30', '1.29')", want: true},
		{text: "quantity('1e-3') + quantity('12E')", want: 12e18 + 1e-3},
		{text: "quantity('1e-1000000000')", err: "it is none"},
		{text: "quantity(object.long)", err: "quantity(\"" + strings.Repeat("a", 64) + "\"): it is none"},
		{text: "versionAtLeast('1.' + object.long, '1.0')", err: "\"1." + strings.Repeat("a", 62) + "\" is no version"},
		{text: "versionAtLeast('1.0', '1' + string(1) + object.ones)", err: "is no version"},
		{text: "versionAtLeast('10" + strings.Repeat(".1", 127) + "', '9.9')", want: true},
		{text: "versionAtLeast('100" + strings.Repeat(".1", 127) + "', '9.9')", err: "is no version"},
		// Expensive calls on small arguments have their cost.
		{text: "object.list.all(a, timestamp('2026-01-01T00:00:00Z').getFullYear('Europe/Berlin') > 0)", err: "cost limit exceeded"},
		{text: "object.list.all(a, object.list.all(b, versionAtLeast('1.30', '1.29')))", err: "cost limit exceeded", made: 8 << 20},
		{text: "object.list.all(a, object.list.all(b, quantity('1234567890123456789012345678901234567890Ki') > 0.0))", err: "cost limit exceeded", made: 8 << 20},
		{text: "object.nothing", err: "no such key: nothing"},
		{text: "object.spec.replicas\n  + 'x'", err: "no such overload"},
		{text: "object.spec +", bad: "line 1, column 14"},
		{text: "true &&\n  other", bad: "line 2, column 3: undeclared reference to 'other'"},
		{text: "'" + strings.Repeat("x", 8192) + "'", bad: "bytes long"},
		{text: "object.long" + strings.Repeat(".map(a, a)", 200), bad: "recursion"},
		// A value that doubles is refused before it is made.
		{text: "[[1]]" + strings.Repeat(".map(a, a + a)", 30) + "[0].size()", err: "cost limit exceeded"},
		{text: "[[1]]" + strings.Repeat(".map(a, a + a)", 12) + "[0].size()", want: int64(4096)},
		{text: "[object.long]" + strings.Repeat(".map(a, a + a)", 15), err: "cost limit exceeded"},
		{text: "object.list.map(a, a).size()", want: int64(2000)},
		{text: "object.list.all(a, object == object)", err: "cost limit exceeded"},
		{text: "object.list.all(a, 5000 in object.list)", want: false},
		{text: "object.list.exists(a, 5000 in object.list)", err: "cost limit exceeded"},
		{text: "object.long.matches('(a*)*b')", bad: "matches is not here"},
		{text: "[1, 2] + [3] + object.status.conditions.map(c, c.type)", want: []any{int64(1), int64(2), int64(3), "Ready"}},
		{text: "{'a': 1} == {'a': 1} && 'a' in {'a': 1}", want: true},
		{text: "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, true)))))", err: "cost limit exceeded"},
		{text: "[1]" + strings.Repeat(".map(a, [a, a])", 19), err: "gives more than"},
	} {
		began := time.Now()
		d, err := expr.CompileDocumentExpression(tc.text, "object")
		if tc.bad != "" || err != nil {
			if err == nil || tc.bad == "" || !strings.Contains(err.Error(), tc.bad) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%.80s: compiles with %v, want %q", tc.text, err, tc.bad)
			}
			continue
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := d.EvaluateWith(map[string]any{"object": object})
		runtime.ReadMemStats(&after)
		if made := after.TotalAlloc - before.TotalAlloc; !raceEnabled && made > cmp.Or(tc.made, 16<<20) {
			t.Errorf("%.80s: makes %d kB", tc.text, made>>10)
		}
		if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) || err == nil && !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%.80s: %.200v %v, want %v %s", tc.text, got, err, tc.want, tc.err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("%.80s: took %v", tc.text, took)
		}
	}
}
