package history

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := utiljson.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func formatJSON(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestComparedFields(t *testing.T) {
	for name, c := range map[string]struct{ before, after, want string }{
		"equal":                        {`{"a":1,"b":[1,{"c":2}]}`, `{"a":1,"b":[1,{"c":2}]}`, `null`},
		"a scalar":                     {`{"a":{"b":1,"c":2}}`, `{"a":{"b":3,"c":2}}`, `{"a":{"b":null}}`},
		"a field that came":            {`{}`, `{"a":{"b":1,"c":{},"d":{"e":[{"name":"x"}]}}}`, `{"a":{"b":null,"c":null,"d":{"e":null}}}`},
		"a field that went":            {`{"a":null}`, `{}`, `{"a":null}`},
		"another type":                 {`{"a":{"b":1}}`, `{"a":[1]}`, `{"a":null}`},
		"a scalar that became a map":   {`{"a":1}`, `{"a":{}}`, `{"a":null}`},
		"an element by name":           {`{"c":[{"name":"x","i":1},{"name":"y"}]}`, `{"c":[{"name":"x","i":2},{"name":"y"}]}`, `{"c":{"name=x":{"i":null}}}`},
		"a named element that came":    {`{"c":[{"name":"x"}]}`, `{"c":[{"name":"y"},{"name":"x"}]}`, `{"c":{"name=y":null}}`},
		"the order of named elements":  {`{"c":[{"name":"x"},{"name":"y"}]}`, `{"c":[{"name":"y"},{"name":"x"}]}`, `{"c":null}`},
		"elements without names":       {`{"c":[1,2]}`, `{"c":[1,3]}`, `{"c":null}`},
		"elements with the same name":  {`{"c":[{"name":"x"},{"name":"x"}]}`, `{"c":[{"name":"x"}]}`, `{"c":null}`},
		"the first element":            {`{"c":[]}`, `{"c":[{"name":"x"}]}`, `{"c":null}`},
		"a whole number and a decimal": {`{"a":1}`, `{"a":1.5}`, `{"a":null}`},
	} {
		got := formatJSON(t, CompareFields(parse(t, c.before), parse(t, c.after)))
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestRevertedFields(t *testing.T) {
	for name, c := range map[string]struct{ former, changed, present, want string }{
		"what came later stays": {
			`{"spec":{"replicas":2},"metadata":{"labels":{"app":"web"}}}`, `{"spec":{"replicas":5},"metadata":{"labels":{"app":"web"}}}`,
			`{"spec":{"replicas":5,"paused":true},"metadata":{"labels":{"app":"web","later":"yes"}}}`,
			`{"metadata":{"labels":{"app":"web","later":"yes"}},"spec":{"paused":true,"replicas":2}}`,
		},
		"what the edit added goes": {
			`{"data":{"a":"1"}}`, `{"data":{"a":"1","b":"2"},"extra":{"x":1}}`, `{"data":{"a":"1","b":"2","c":"3"},"extra":{"x":1}}`,
			`{"data":{"a":"1","c":"3"}}`,
		},
		"what the edit took comes back": {
			`{"data":{"a":"1","b":"2"}}`, `{"data":{"a":"1"}}`, `{"data":{"a":"9"}}`, `{"data":{"a":"9","b":"2"}}`,
		},
		"the last of a map": {
			`{"metadata":{}}`, `{"metadata":{"labels":{"team":"blue"}}}`, `{"metadata":{"labels":{"team":"blue"}}}`, `{"metadata":{}}`,
		},
		"what another added to a map of the edit stays": {
			`{"metadata":{}}`, `{"metadata":{"labels":{"team":"blue"}}}`, `{"metadata":{"labels":{"team":"blue","later":"1"}}}`, `{"metadata":{"labels":{"later":"1"}}}`,
		},
		"what another added to a map that the edit took stays": {
			`{"metadata":{"labels":{"team":"blue"}}}`, `{"metadata":{}}`, `{"metadata":{"labels":{"later":"1"}}}`, `{"metadata":{"labels":{"later":"1","team":"blue"}}}`,
		},
		"an element of the edit goes as a whole": {
			`{"c":[{"name":"a"}]}`, `{"c":[{"name":"a"},{"name":"b","i":1}]}`, `{"c":[{"name":"a"},{"name":"b","i":1,"later":1}]}`, `{"c":[{"name":"a"}]}`,
		},
		"a container that another added stays": {
			`{"c":[{"name":"web","image":"a:1"}]}`, `{"c":[{"name":"web","image":"a:2"}]}`, `{"c":[{"name":"web","image":"a:2"},{"name":"proxy"}]}`,
			`{"c":[{"image":"a:1","name":"web"},{"name":"proxy"}]}`,
		},
		"a container comes back at its place": {
			`{"c":[{"name":"a"},{"name":"b"},{"name":"c"}]}`, `{"c":[{"name":"a"},{"name":"c"}]}`, `{"c":[{"name":"a"},{"name":"x"},{"name":"c"}]}`,
			`{"c":[{"name":"a"},{"name":"b"},{"name":"x"},{"name":"c"}]}`,
		},
		"a first container comes back": {
			`{"c":[{"name":"a"},{"name":"b"}]}`, `{"c":[{"name":"b"}]}`, `{"c":[{"name":"b"}]}`, `{"c":[{"name":"a"},{"name":"b"}]}`,
		},
		"a container of the edit goes": {
			`{"c":[{"name":"a"}]}`, `{"c":[{"name":"a"},{"name":"b"}]}`, `{"c":[{"name":"b"},{"name":"a"}]}`, `{"c":[{"name":"a"}]}`,
		},
		"a list without names is as it was": {
			`{"args":["x"]}`, `{"args":["y"]}`, `{"args":["y","z"]}`, `{"args":["x"]}`,
		},
		"a field that is gone comes back": {
			`{"spec":{"a":{"b":1,"c":2}}}`, `{"spec":{"a":{"b":3,"c":2}}}`, `{"spec":{}}`, `{"spec":{"a":{"b":1,"c":2}}}`,
		},
		"a field of another type is as it was": {
			`{"spec":{"a":{"b":1}}}`, `{"spec":{"a":{"b":3}}}`, `{"spec":{"a":"text"}}`, `{"spec":{"a":{"b":1}}}`,
		},
	} {
		present := parse(t, c.present)
		got := formatJSON(t, RevertFields(present, parse(t, c.former), CompareFields(parse(t, c.former), parse(t, c.changed))))
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
		if formatJSON(t, present) != formatJSON(t, parse(t, c.present)) {
			t.Errorf("%s: the present document was changed", name)
		}
	}
}

// randomDocument returns a document with maps, named and unnamed lists.
func randomDocument(r *rand.Rand, depth int) map[string]any {
	out := map[string]any{}
	for range r.Intn(4) {
		out[string(rune('a'+r.Intn(4)))] = randomValue(r, depth)
	}
	return out
}

func randomValue(r *rand.Rand, depth int) any {
	switch n := r.Intn(5); {
	case depth > 3 || n == 0:
		return int64(r.Intn(3))
	case n == 1:
		return fmt.Sprint(r.Intn(3))
	case n == 2:
		list := []any{}
		for _, i := range r.Perm(4)[:r.Intn(4)] {
			e := randomDocument(r, depth+1)
			e["name"] = fmt.Sprint("n", i)
			list = append(list, e)
		}
		return list
	case n == 3:
		return []any{randomValue(r, depth+1), "x"}
	}
	return randomDocument(r, depth+1)
}

// The undo of an edit that nothing followed gives the former document, and the undo of the undo the edited one.
func TestUndoGivesTheFormerDocument(t *testing.T) {
	for seed := range int64(5000) {
		r := rand.New(rand.NewSource(seed))
		before, after := randomDocument(r, 0), randomDocument(r, 0)
		fields := CompareFields(before, after)
		if (fields == nil) != reflect.DeepEqual(before, after) {
			t.Fatalf("seed %d: the fields are %v of\n%s\n%s", seed, fields, formatJSON(t, before), formatJSON(t, after))
		}
		undone := RevertFields(after, before, fields)
		if !reflect.DeepEqual(undone, before) {
			t.Fatalf("seed %d: from %s to %s:\n got %s", seed, formatJSON(t, before), formatJSON(t, after), formatJSON(t, undone))
		}
		again := CompareFields(after, undone)
		if redone := RevertFields(undone, after, again); !reflect.DeepEqual(redone, after) {
			t.Fatalf("seed %d: the undo of the undo gives %s", seed, formatJSON(t, redone))
		}
	}
}

// Two edits are taken back at once by the union of their fields.
func TestSeveralEditsAreTakenBackAtOnce(t *testing.T) {
	for seed := range int64(2000) {
		r := rand.New(rand.NewSource(seed))
		first, second, third := randomDocument(r, 0), randomDocument(r, 0), randomDocument(r, 0)
		union := UnionFields(CompareFields(first, second), CompareFields(second, third))
		if got := RevertFields(third, first, union); CompareFields(got, first) != nil {
			t.Fatalf("seed %d: %s, %s, %s gives\n%s", seed, formatJSON(t, first), formatJSON(t, second), formatJSON(t, third), formatJSON(t, got))
		}
	}
}

// nestDocument returns a document of so many levels.
func nestDocument(levels int, leaf any) map[string]any {
	doc := map[string]any{"leaf": leaf}
	for range levels {
		doc = map[string]any{"a": doc}
	}
	return doc
}

func TestDeepDocumentsAreOneFieldBelowTheLimit(t *testing.T) {
	before, after := nestDocument(5000, "x"), nestDocument(5000, "y")
	fields := CompareFields(before, after)
	depth := 0
	for f := fields; len(f) > 0; f = f["a"] {
		depth++
	}
	if depth != maxDepth {
		t.Errorf("the field is %d levels deep", depth)
	}
	if !reflect.DeepEqual(RevertFields(after, before, fields), before) {
		t.Error("a deep document is not reverted")
	}
	if CompareFields(before, nestDocument(5000, "x")) != nil {
		t.Error("equal deep documents differ")
	}
}

// Long names with many fields below them cost their own length once.
func TestLongNamesAreNotRepeated(t *testing.T) {
	long := strings.Repeat("k", 1<<20)
	wide := func(v string) map[string]any {
		inner := map[string]any{}
		for n := range 50_000 {
			inner[fmt.Sprint(n)] = v
		}
		return map[string]any{long: inner}
	}
	fields := CompareFields(wide("1"), wide("2"))
	if raw := formatJSON(t, fields); len(raw) > 1<<20+50_000*16 {
		t.Errorf("the fields take %d bytes", len(raw))
	}
	paths, more := FirstPaths(fields, 5)
	if len(paths) != 5 || more != 49_995 || len(paths[0]) > maxPathBytes {
		t.Errorf("%d paths and %d more, the first of %d bytes", len(paths), more, len(paths[0]))
	}
	list, more := ListDifferences(wide("1"), wide("2"), 3)
	if len(list) != 3 || more != 49_997 || list[0].Before != "1" || list[0].After != "2" {
		t.Errorf("%d differences and %d more", len(list), more)
	}
}

func TestTheFirstPaths(t *testing.T) {
	fields := Fields{"spec": {"replicas": nil, "c": {"name=x/y": {"image": nil}}}, "a~b": nil}
	paths, more := FirstPaths(fields, 2)
	if !slices.Equal(paths, []string{"/a~0b", "/spec/c/name=x~1y/image"}) || more != 1 {
		t.Errorf("%q and %d more", paths, more)
	}
	if paths, more := FirstPaths(nil, 2); paths != nil || more != 0 {
		t.Errorf("%q and %d more of nothing", paths, more)
	}
}

func TestTargets(t *testing.T) {
	edit := func(revision string, former, after string) (*Change, *Content) {
		f := parse(t, former)
		return &Change{Operation: Edited, Revision: revision}, &Content{Object: f, Changed: CompareFields(f, parse(t, after))}
	}
	c1, one := edit("1", `{"a":1,"b":1,"metadata":{}}`, `{"a":2,"b":1,"metadata":{}}`)
	c2, two := edit("2", `{"a":2,"b":1}`, `{"a":2,"b":2}`)
	deleted := &Change{Operation: Deleted, Revision: "3"}
	created := &Change{Operation: Created, Revision: "4"}
	both := NewTarget([]*Change{c1, c2}, []*Content{one, two})
	if got := formatJSON(t, both.Revert(parse(t, `{"a":2,"b":2,"c":3}`))); got != `{"a":1,"b":1,"c":3}` || both.Whole || both.Absent {
		t.Errorf("two edits: %s", got)
	}
	if got := formatJSON(t, NewTarget([]*Change{c2}, []*Content{two}).Changed); got != `{"b":null}` {
		t.Errorf("the fields of the second edit are %s", got)
	}
	whole := NewTarget([]*Change{c1, deleted, created}, []*Content{one, {Object: parse(t, `{"a":2}`)}, {}})
	got := formatJSON(t, whole.Revert(parse(t, `{"a":7,"c":3,"status":{"x":1},"metadata":{"uid":"u"}}`)))
	if !whole.Whole || got != `{"a":1,"b":1,"metadata":{"uid":"u"},"status":{"x":1}}` {
		t.Errorf("an object that was made again: %s", got)
	}
	if last := NewTarget([]*Change{created}, []*Content{{}}); !last.Absent {
		t.Error("before its creation the object is absent")
	}
	if gone := NewTarget([]*Change{deleted}, []*Content{{Object: parse(t, `{"a":2}`)}}); gone.Absent || formatJSON(t, gone.Object) != `{"a":2}` {
		t.Errorf("before its deletion: %+v", gone)
	}
}

func TestTheFirstChangeAfterATime(t *testing.T) {
	at := func(seconds int) Change { return Change{At: start.Add(time.Duration(seconds) * time.Second)} }
	changes := []Change{at(10), at(20)}
	for seconds, want := range map[int]int{0: 0, 9: 0, 10: 1, 19: 1, 20: -1, 30: -1} {
		if got := FirstAfter(changes, start.Add(time.Duration(seconds)*time.Second)); got != want {
			t.Errorf("after %ds: %d, want %d", seconds, got, want)
		}
	}
}
