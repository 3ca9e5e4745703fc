package rowcodec

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

const lineUID = "0b6e5a1c-7f0e-4c1d-9d55-3f1f7c0c6f7a"

var someSpecs = []atoll.RowSpec{
	{},
	{UID: lineUID, Generation: 1, Revision: "r", Phase: atoll.RowActive, Since: 1_790_000_000},
	{
		UID: lineUID, Generation: 1 << 40, Revision: lineUID + "-12-0123456789abcdef", Variant: "0123456789abcdef0123456789abcdef",
		Assigned: map[string]int64{"apps/Deployment/shop/web": 3, "/x=y,z/shop/a b": 0}, Phase: atoll.RowRemoving, Orphan: true,
		Reason: "Unfit: taint ~ 100%; a=b, c", Since: -5, PlacementFingerprint: "p", HomeItems: []string{"", "a,b", "apps/StatefulSet/shop/db"},
		GrownAt: 7, MovingSince: 8, RequestedPods: 10, Recall: &atoll.RememberedRemoval{RemovedAt: 9, Placement: "0123456789abcdef", Confirmed: true},
	},
	{UID: "short", Phase: "A", Recall: &atoll.RememberedRemoval{}},
	{UID: lineUID, Generation: 1, Revision: "r", Assigned: map[string]int64{"apps/StatefulSet/shop/db": 3}, Phase: atoll.RowActive, Since: 9, OrdinalStarts: map[string]int64{"apps/StatefulSet/shop/db": 2000}},
	{UID: lineUID, Generation: 2, Revision: "r", Phase: atoll.RowActive, Absent: []string{"/ConfigMap/shop/a b", "apps/Deployment/shop/web"}, ExcludedPending: map[string]int64{"/Secret/shop/s": 7}},
	{UID: lineUID, Generation: 1, Revision: "r", Assigned: map[string]int64{"apps/Deployment/shop/web": 9}, Phase: atoll.RowActive, Since: 9, PlacementFingerprint: "a.b/c#kf12oi", MovingSince: 8, ShrinkTo: map[string]int64{"apps/Deployment/shop/web": 0}},
	{UID: lineUID, Generation: 2, Revision: "r", Phase: atoll.RowActive, Since: 9, MovedAt: 12, FailedAt: 34, AdmittedRemoval: "0123456789abcdef", PreviousRevision: "q"},
	{UID: lineUID, Generation: 2, Revision: "r", Phase: atoll.RowActive, Since: 9, Approvals: []atoll.DriftApproval{
		{Item: "/ConfigMap/shop/a", ID: "0123456789abcdef", By: "system:serviceaccount:x y;z,~1", At: 1_790_000_000}, {Item: "apps/Deployment/shop/web", ID: "fedcba9876543210"},
	}},
	{UID: lineUID, Generation: 2, Revision: "r", Phase: atoll.RowRemoving, Since: 9, RemovalHooks: "Retry-2"},
	{Phase: "Frozen", Reason: "with \"quotes\" and\nlines\tand é and \xff"},
}

var someStatuses = []atoll.RowStatus{
	{},
	{UID: lineUID, Generation: 3, Content: "0123456789abcdef0123456789abcdef", Seq: 42, State: atoll.RowReady, Applied: true, Since: 1_790_000_000, Total: 3, Ready: 3},
	{
		UID: lineUID, Generation: 1, Seq: 1, State: atoll.RowDegraded, Reason: "CrashLoopBackOff", Message: "back-off 5m0s; see: x=~1, 50%", Since: 1_790_000_000,
		Total: 5, Ready: 0, UnlistedNotReady: 2, DoneTombstones: []string{"/ConfigMap/shop/a 1-2", "/ConfigMap/shop/b 3"}, AllTombstonesDone: true, NamespaceKept: true,
		Items: []atoll.ItemStatus{
			{Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}, Health: atoll.Degraded, Reason: "Crash", Message: "m;n", Since: 1_790_000_000, Error: true},
			{Key: atoll.ItemKey{Kind: "Namespace", Name: "shop"}, Health: atoll.Healthy, Since: 5, ReflectedStatus: json.RawMessage(`{"n":[3,3,3,3,3],"f":"ad"}`)},
		},
	},
	{State: "R", Ready: 1},
	{
		UID: lineUID, Generation: 2, Seq: 3, State: atoll.RowReady, Applied: true, Since: 9, Total: 3, Ready: 2, Drifted: 70,
		Items: []atoll.ItemStatus{
			{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "a"}, Health: atoll.Healthy, Reason: atoll.ReasonDrifted, Since: 9, Drift: &atoll.Drift{
				Total: 9, Fields: []atoll.DriftField{{Path: "/data/a b;c", Live: `"x;y"`, Wanted: `"~1 z"`, Managers: []string{"kubectl-edit", "m"}, Since: 8}, {Path: "/data/d"}},
			}},
			{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "b"}, Health: atoll.Unknown, Reason: atoll.ReasonMissing, Since: 9, Drift: &atoll.Drift{Missing: true, Since: 7}},
			{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "c"}, Health: atoll.Healthy, Since: 9, Completed: true, Feedback: []atoll.FeedbackValue{{Name: "a", Value: "1;2 3,~"}, {Name: "b", Problem: "none"}}},
		},
	},
}

func checkSpec(t *testing.T, r atoll.RowSpec) {
	t.Helper()
	words := NewDictionary([]string{"there before"})
	for _, tc := range []struct {
		line  string
		words []string
	}{{EncodeSpec(r, nil), nil}, {EncodeSpec(r, words), words.Words()}} {
		pods := max(r.RequestedPods, 1)
		if r.Phase != atoll.RowActive {
			pods = 0
		}
		if got := DecodeRequestedPods(tc.line); got != pods {
			t.Fatalf("%q has %d pods, want %d", tc.line, got, pods)
		}
		back, err := DecodeSpec(tc.line, tc.words...)
		if err != nil || !back.Equal(r) {
			t.Fatalf("%+v\nas %q with words %q came back as\n%+v, %v", r, tc.line, tc.words, back, err)
		}
	}
}

func checkStatus(t *testing.T, r atoll.RowStatus) {
	t.Helper()
	words := NewDictionary(nil)
	for _, tc := range []struct {
		line  string
		words []string
	}{{EncodeStatus(r, nil), nil}, {EncodeStatus(r, words), words.Words()}} {
		back, err := DecodeStatus(tc.line, r.UID, tc.words...)
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

// Later hubs read the stored lines: these may not change.
func TestLinesAreAsDocumented(t *testing.T) {
	words := NewDictionary(nil)
	for i, want := range []string{
		"g0 p",
		"u" + lineUID + " rr s1790000000",
		"u" + lineUID + " g1099511627776 r~0 v~1 a~2=0,~3=3 pR o y~4 s-5 lp h,a%2Cb,~5 w7 k8 m10 bt9;p~6;c",
	} {
		if got := EncodeSpec(someSpecs[i], words); got != want {
			t.Errorf("spec %d: %q, want %q", i, got, want)
		}
	}
	if got, want := EncodeSpec(someSpecs[4], NewDictionary(nil)), "u"+lineUID+" rr a~0=3 s9 d~0=2000"; got != want {
		t.Errorf("ordinals: %q, want %q", got, want)
	}
	if got, want := EncodeSpec(someSpecs[5], NewDictionary(nil)), "u"+lineUID+" g2 rr n~0,~1 f~2=7"; got != want {
		t.Errorf("kept out: %q, want %q", got, want)
	}
	if got, want := EncodeSpec(someSpecs[6], NewDictionary(nil)), "u"+lineUID+" rr a~0=9 s9 l~1 k8 e~0=0"; got != want {
		t.Errorf("due: %q, want %q", got, want)
	}
	if got, want := EncodeStatus(someStatuses[1], NewDictionary(nil)), "u3f1f7c0c6f7a g3 c~0 q42 s1790000000 t3"; got != want {
		t.Errorf("status: %q, want %q", got, want)
	}
}

func TestAStatusIsTheClustersOwn(t *testing.T) {
	line := EncodeStatus(atoll.RowStatus{UID: lineUID, Generation: 1, Seq: 1, State: atoll.RowReady}, nil)
	own, err := DecodeStatus(line, lineUID)
	if err != nil || own.UID != lineUID {
		t.Errorf("own: %+v, %v", own, err)
	}
	other := strings.Replace(lineUID, "7a", "7b", 1)
	if r, err := DecodeStatus(line, other); err != nil || r.UID == other {
		t.Errorf("a namesake's: %+v, %v", r, err)
	}
}

// An older hub reads a newer hub's lines, and refuses what is damaged.
func TestUnknownAndDamagedLines(t *testing.T) {
	r, err := DecodeSpec("uabc Qsomething r~0 Z p~1", "r1", "Frozen")
	if err != nil || r.UID != "abc" || r.Revision != "r1" || r.Phase != "Frozen" {
		t.Errorf("%+v, %v", r, err)
	}
	for _, line := range []string{"r~1", "r~", "r~x", "r~99999999999999999999", "gx", "g", "r%4", "r%", "r%zz", " uabc", "uabc ", "uabc  g2", "a~0", "a~0=x"} {
		if _, err := DecodeSpec(line, "r1"); err == nil {
			t.Errorf("%q was read", line)
		}
	}
	for _, line := range []string{"tx", "t99999999999", "i", "ikbad", "ihP", "i;", "x~7", "ikConfigMap/a;r{", "rx"} {
		if r, err := DecodeStatus(line, "u"); err == nil {
			t.Errorf("%q was read as %+v", line, r)
		}
	}
}

func TestPruneWords(t *testing.T) {
	words, rows := NewDictionary(nil), ""
	for i := range 40 {
		r := someSpecs[2]
		r.Revision = fmt.Sprintf("revision-%d", i)
		rows = JoinLines([]Line{{"c", EncodeSpec(r, words) + " Q~1;~0"}, {"b", EncodeSpec(someSpecs[1], words)}})
	}
	before, err := DecodeSpec(SplitLines(rows)[1].Text, words.Words()...)
	if err != nil {
		t.Fatal(err)
	}
	rows, pruned := PruneWords(rows, words.Words())
	if len(pruned) >= 10 {
		t.Errorf("%d words are left of %d", len(pruned), len(words.Words()))
	}
	after, err := DecodeSpec(SplitLines(rows)[1].Text, pruned...)
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
		if got := fmt.Sprintf("%q", SplitLines(text)); got != `[{"a" ""} {"a-1" "z"} {"b" "x y"}]` {
			t.Errorf("%q is taken apart as %s", text, got)
		}
	}
}

func FuzzRowSpec(f *testing.F) {
	for _, r := range someSpecs {
		f.Add(EncodeSpec(r, nil), "word")
	}
	f.Fuzz(func(t *testing.T, line, word string) {
		if r, err := DecodeSpec(line, word, "other"); err == nil {
			if len(r.Assigned) > 0 || len(r.HomeItems) > 0 {
				r.HomeItems = append(r.HomeItems, word)
			}
			checkSpec(t, r)
		}
	})
}

func FuzzRowStatus(f *testing.F) {
	for _, r := range someStatuses {
		f.Add(EncodeStatus(r, nil), "word")
	}
	f.Fuzz(func(t *testing.T, line, word string) {
		if r, err := DecodeStatus(line, "", word, "other"); err == nil {
			for i := range r.Items {
				if len(r.Items[i].ReflectedStatus) == 0 {
					r.Items[i].ReflectedStatus = nil
				}
			}
			r.UID = uidSuffix(r.UID)
			checkStatus(t, r)
		}
	})
}

// A slice is decoded whole, with a row for each line of its spec, or refused.
func FuzzSlice(f *testing.F) {
	words := NewDictionary(nil)
	for i := range min(len(someSpecs), len(someStatuses)) {
		spec, status := EncodeSpec(someSpecs[i], words), EncodeStatus(someStatuses[i], words)
		f.Add("a "+spec+"\nb "+spec+"\n", "a "+status+"\n", "word")
	}
	f.Add("b x\na y\n\n", "c z", "")
	f.Fuzz(func(t *testing.T, specs, statuses, word string) {
		s := &enginev1.TargetSlice{}
		s.Spec.Rows, s.Spec.Words, s.Status.Rows, s.Status.Words = specs, append(words.Words(), word), statuses, append(words.Words(), word)
		rows, err := DecodeSlice(s)
		if err != nil {
			if !strings.Contains(err.Error(), "target slice") {
				t.Fatalf("the error names no slice: %v", err)
			}
			return
		}
		lines, reported := SplitLines(specs), map[string]bool{}
		for _, l := range SplitLines(statuses) {
			reported[l.Cluster] = true
		}
		if len(rows) != len(lines) {
			t.Fatalf("%d rows of %d lines", len(rows), len(lines))
		}
		for i, r := range rows {
			if r.Cluster != lines[i].Cluster || (r.Status != nil) != reported[r.Cluster] {
				t.Fatalf("line %d: %+v", i, r)
			}
		}
	})
}

func BenchmarkParseRow(b *testing.B) {
	words := NewDictionary(nil)
	spec := EncodeSpec(someSpecs[1], words)
	status := EncodeStatus(atoll.RowStatus{UID: lineUID, Generation: 3, Content: lineUID, Seq: 42, State: atoll.RowReady, Applied: true, Since: 5, Total: 1, Ready: 1,
		Items: []atoll.ItemStatus{{Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}, Health: atoll.Healthy, Since: 5, ReflectedStatus: json.RawMessage(`{"n":[3,3,3,3,3],"f":"ad"}`)}}}, words)
	b.ReportMetric(float64(len(spec)+len(status)), "bytes")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeSpec(spec, words.Words()...); err != nil {
			b.Fatal(err)
		}
		if _, err := DecodeStatus(status, lineUID, words.Words()...); err != nil {
			b.Fatal(err)
		}
	}
}
