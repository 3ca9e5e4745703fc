package atoll

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

const lineUID = "0b6e5a1c-7f0e-4c1d-9d55-3f1f7c0c6f7a"

var someSpecs = []RowSpec{
	{},
	{UID: lineUID, Generation: 1, Revision: "r", Phase: RowActive, Since: 1_790_000_000},
	{
		UID: lineUID, Generation: 1 << 40, Revision: lineUID + "-12-0123456789abcdef", Variant: "0123456789abcdef0123456789abcdef",
		Assigned: map[string]int64{"apps/Deployment/shop/web": 3, "/x=y,z/shop/a b": 0}, Phase: RowRemoving, Orphan: true,
		Reason: "Unfit: taint ~ 100%; a=b, c", Since: -5, Placement: "p", Home: []string{"", "a,b", "apps/StatefulSet/shop/db"},
		Grown: 7, Moving: 8, Pods: 10, Recall: &Recall{At: 9, Placement: "0123456789abcdef", Confirmed: true},
	},
	{UID: "short", Phase: "A", Recall: &Recall{}},
	{UID: lineUID, Generation: 1, Revision: "r", Assigned: map[string]int64{"apps/StatefulSet/shop/db": 3}, Phase: RowActive, Since: 9, Ordinals: map[string]int64{"apps/StatefulSet/shop/db": 2000}},
	{UID: lineUID, Generation: 2, Revision: "r", Phase: RowActive, NotHere: []string{"/ConfigMap/shop/a b", "apps/Deployment/shop/web"}, NotYet: map[string]int64{"/Secret/shop/s": 7}},
	{UID: lineUID, Generation: 1, Revision: "r", Assigned: map[string]int64{"apps/Deployment/shop/web": 9}, Phase: RowActive, Since: 9, Placement: "a.b/c#kf12oi", Moving: 8, Due: map[string]int64{"apps/Deployment/shop/web": 0}},
	{Phase: "Frozen", Reason: "with \"quotes\" and\nlines\tand é and \xff"},
}

var someStatuses = []RowStatus{
	{},
	{UID: lineUID, Generation: 3, Content: "0123456789abcdef0123456789abcdef", Seq: 42, State: RowReady, Applied: true, Since: 1_790_000_000, Total: 3, Ready: 3},
	{
		UID: lineUID, Generation: 1, Seq: 1, State: RowDegraded, Reason: "CrashLoopBackOff", Message: "back-off 5m0s; see: x=~1, 50%", Since: 1_790_000_000,
		Total: 5, Ready: 0, Unlisted: 2, Gone: []string{"/ConfigMap/shop/a 1-2", "/ConfigMap/shop/b 3"}, AllGone: true, Vacant: true,
		Items: []ItemStatus{
			{Key: ItemKey{"apps", "Deployment", "shop", "web"}, Health: Degraded, Reason: "Crash", Message: "m;n", Since: 1_790_000_000, Error: true},
			{Key: ItemKey{"", "Namespace", "", "shop"}, Health: Healthy, Since: 5, Reflected: json.RawMessage(`{"n":[3,3,3,3,3],"f":"ad"}`)},
		},
	},
	{State: "R", Ready: 1},
}

func checkSpec(t *testing.T, r RowSpec) {
	t.Helper()
	words := NewWords([]string{"there before"})
	for _, tc := range []struct {
		line  string
		words []string
	}{{r.Encode(), nil}, {r.EncodeWith(words), words.List()}} {
		pods := max(r.Pods, 1)
		if r.Phase != RowActive {
			pods = 0
		}
		if got := PodsOf(tc.line); got != pods {
			t.Fatalf("%q has %d pods, want %d", tc.line, got, pods)
		}
		back, err := ParseRowSpec(tc.line, tc.words...)
		if err != nil || !back.Equal(r) {
			t.Fatalf("%+v\nas %q with words %q came back as\n%+v, %v", r, tc.line, tc.words, back, err)
		}
	}
}

func checkStatus(t *testing.T, r RowStatus) {
	t.Helper()
	words := NewWords(nil)
	for _, tc := range []struct {
		line  string
		words []string
	}{{r.Encode(), nil}, {r.EncodeWith(words), words.List()}} {
		back, err := ParseRowStatus(tc.line, r.UID, tc.words...)
		if err != nil || !reflect.DeepEqual(back, r) {
			t.Fatalf("%+v\nas %q with words %q came back as\n%+v, %v", r, tc.line, tc.words, back, err)
		}
	}
}

func TestLinesComeBack(t *testing.T) {
	for _, r := range someSpecs {
		checkSpec(t, r)
	}
	for _, r := range someStatuses {
		checkStatus(t, r)
	}
}

// What lies in the store is read by hubs to come: these lines may not change.
func TestLinesAreAsDocumented(t *testing.T) {
	words := NewWords(nil)
	for i, want := range []string{
		"g0 p",
		"u" + lineUID + " rr s1790000000",
		"u" + lineUID + " g1099511627776 r~0 v~1 a~2=0,~3=3 pR o y~4 s-5 lp h,a%2Cb,~5 w7 k8 m10 bt9;p~6;c",
	} {
		if got := someSpecs[i].EncodeWith(words); got != want {
			t.Errorf("spec %d: %q, want %q", i, got, want)
		}
	}
	if got, want := someSpecs[4].EncodeWith(NewWords(nil)), "u"+lineUID+" rr a~0=3 s9 d~0=2000"; got != want {
		t.Errorf("ordinals: %q, want %q", got, want)
	}
	if got, want := someSpecs[5].EncodeWith(NewWords(nil)), "u"+lineUID+" g2 rr n~0,~1 f~2=7"; got != want {
		t.Errorf("kept out: %q, want %q", got, want)
	}
	if got, want := someSpecs[6].EncodeWith(NewWords(nil)), "u"+lineUID+" rr a~0=9 s9 l~1 k8 e~0=0"; got != want {
		t.Errorf("due: %q, want %q", got, want)
	}
	if got, want := someStatuses[1].EncodeWith(NewWords(nil)), "u3f1f7c0c6f7a g3 c~0 q42 s1790000000 t3"; got != want {
		t.Errorf("status: %q, want %q", got, want)
	}
}

func TestAStatusIsTheClustersOwn(t *testing.T) {
	line := RowStatus{UID: lineUID, Generation: 1, Seq: 1, State: RowReady}.Encode()
	own, err := ParseRowStatus(line, lineUID)
	if err != nil || own.UID != lineUID {
		t.Errorf("own: %+v, %v", own, err)
	}
	other := strings.Replace(lineUID, "7a", "7b", 1)
	if r, err := ParseRowStatus(line, other); err != nil || r.UID == other {
		t.Errorf("a namesake's: %+v, %v", r, err)
	}
}

// An older hub reads a newer hub's lines, and refuses what is damaged.
func TestUnknownAndDamagedLines(t *testing.T) {
	r, err := ParseRowSpec("uabc Qsomething r~0 Z p~1", "r1", "Frozen")
	if err != nil || r.UID != "abc" || r.Revision != "r1" || r.Phase != "Frozen" {
		t.Errorf("%+v, %v", r, err)
	}
	for _, line := range []string{"r~1", "r~", "r~x", "r~99999999999999999999", "gx", "g", "r%4", "r%", "r%zz", " uabc", "uabc ", "uabc  g2", "a~0", "a~0=x"} {
		if _, err := ParseRowSpec(line, "r1"); err == nil {
			t.Errorf("%q was read", line)
		}
	}
	for _, line := range []string{"tx", "t99999999999", "i", "ikbad", "ihP", "i;", "x~7"} {
		if r, err := ParseRowStatus(line, "u"); err == nil {
			t.Errorf("%q was read as %+v", line, r)
		}
	}
}

func TestPruneWords(t *testing.T) {
	words, rows := NewWords(nil), ""
	for i := range 40 {
		r := someSpecs[2]
		r.Revision = fmt.Sprintf("revision-%d", i)
		rows = JoinLines([]Line{{"c", r.EncodeWith(words) + " Q~1;~0"}, {"b", someSpecs[1].EncodeWith(words)}})
	}
	before, err := ParseRowSpec(Lines(rows)[1].Text, words.List()...)
	if err != nil {
		t.Fatal(err)
	}
	rows, pruned := PruneWords(rows, words.List())
	if len(pruned) >= 10 {
		t.Errorf("%d words are left of %d", len(pruned), len(words.List()))
	}
	after, err := ParseRowSpec(Lines(rows)[1].Text, pruned...)
	if err != nil || !after.Equal(before) || after.Revision != "revision-39" {
		t.Errorf("%+v, %v", after, err)
	}
	if _, again := PruneWords(rows, pruned); len(again) != len(pruned) {
		t.Errorf("pruned again: %d words", len(again))
	}
}

func TestLines(t *testing.T) {
	lines := []Line{{"b", "x y"}, {"a", ""}, {"a-1", "z"}}
	rows := JoinLines(lines)
	if rows != "a \na-1 z\nb x y\n" {
		t.Errorf("%q", rows)
	}
	for _, text := range []string{rows, "b x y\n\na\na-1 z"} {
		if got := fmt.Sprintf("%q", Lines(text)); got != `[{"a" ""} {"a-1" "z"} {"b" "x y"}]` {
			t.Errorf("%q is taken apart as %s", text, got)
		}
	}
}

func FuzzRowSpec(f *testing.F) {
	for _, r := range someSpecs {
		f.Add(r.Encode(), "word")
	}
	f.Fuzz(func(t *testing.T, line, word string) {
		if r, err := ParseRowSpec(line, word, "other"); err == nil {
			if len(r.Assigned) > 0 || len(r.Home) > 0 {
				r.Home = append(r.Home, word)
			}
			checkSpec(t, r)
		}
	})
}

func FuzzRowStatus(f *testing.F) {
	for _, r := range someStatuses {
		f.Add(r.Encode(), "word")
	}
	f.Fuzz(func(t *testing.T, line, word string) {
		if r, err := ParseRowStatus(line, "", word, "other"); err == nil {
			for i := range r.Items {
				if len(r.Items[i].Reflected) == 0 {
					r.Items[i].Reflected = nil
				}
			}
			r.UID = tailOf(r.UID)
			checkStatus(t, r)
		}
	})
}

func BenchmarkParseRow(b *testing.B) {
	words := NewWords(nil)
	spec := someSpecs[1].EncodeWith(words)
	status := RowStatus{UID: lineUID, Generation: 3, Content: lineUID, Seq: 42, State: RowReady, Applied: true, Since: 5, Total: 1, Ready: 1,
		Items: []ItemStatus{{Key: ItemKey{"apps", "Deployment", "shop", "web"}, Health: Healthy, Since: 5, Reflected: json.RawMessage(`{"n":[3,3,3,3,3],"f":"ad"}`)}}}.EncodeWith(words)
	b.ReportMetric(float64(len(spec)+len(status)), "bytes")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseRowSpec(spec, words.List()...); err != nil {
			b.Fatal(err)
		}
		if _, err := ParseRowStatus(status, lineUID, words.List()...); err != nil {
			b.Fatal(err)
		}
	}
}
