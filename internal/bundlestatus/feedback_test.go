package bundlestatus

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// reportFeedback returns a status of the web Deployment with the values.
func reportFeedback(values ...atoll.FeedbackValue) *atoll.RowStatus {
	st := readyStatus()
	st.Items = []atoll.ItemStatus{{Key: webKey, Health: atoll.Healthy, Feedback: values}}
	return st
}

// feedbackContent returns a content in which rules name feedback of the objects.
func feedbackContent(names []string, keys ...atoll.ItemKey) *atoll.Content {
	c := &atoll.Content{}
	for _, key := range keys {
		a := &atoll.Assessment{}
		for _, name := range names {
			a.Feedback = append(a.Feedback, v1alpha1.FeedbackRule{Name: name, JSONPath: ".a", Type: v1alpha1.FeedbackString})
		}
		c.Items = append(c.Items, atoll.Item{Key: key, UID: key.Name, Hash: "h1", Treatment: &atoll.Treatment{Assessment: a}})
	}
	return c
}

// feedbackOfRows returns the feedback of rows that are read one after the other.
func feedbackOfRows(content *atoll.Content, rows ...Row) []v1alpha1.BundleFeedback {
	tally := newFeedbackTally()
	for i := range rows {
		tally.countRow(&rows[i])
	}
	return tally.listFeedback(content)
}

// A Bundle's feedback has the values that most clusters report.
func TestFeedbackOfABundle(t *testing.T) {
	content := feedbackContent([]string{"version"}, webKey)
	value := func(v string) *atoll.RowStatus { return reportFeedback(atoll.FeedbackValue{Name: "version", Value: v}) }
	rows := []Row{newRow("a", value("1.1")), newRow("c", reportFeedback(atoll.FeedbackValue{Name: "version", Problem: "it is a list"})), newRow("d", nil)}
	rows = append(rows, newRow("e", value("1.1"), withPhase(atoll.RowRemoving, "")))
	for i := range 10 {
		rows = append(rows, newRow(fmt.Sprint("b", i), value("1.2")))
	}
	got := feedbackOfRows(content, rows...)
	want := []v1alpha1.BundleFeedback{{Object: "Deployment/web", Name: "version", ProblemClusters: 1, Values: []v1alpha1.BundleFeedbackValue{{Value: "1.2", Clusters: 10}, {Value: "1.1", Clusters: 1}}}}
	st := ComputeStatus(StatusInput{Rows: rows, Feedback: got, Latest: latest, Now: time.Unix(1, 0)})
	if !reflect.DeepEqual(st.Feedback, want) || st.FeedbackSummary != "version: 1.2 (10), 1.1 (1), no value (1)" {
		t.Errorf("%+v, %q", st.Feedback, st.FeedbackSummary)
	}
	if got := summarizeFeedback(feedbackOfRows(content, rows[0])); got != "version: 1.1" {
		t.Errorf("of one value: %q", got)
	}
	if got := feedbackOfRows(content, newRow("a", readyStatus())); got != nil || summarizeFeedback(got) != "" {
		t.Errorf("without feedback: %+v", got)
	}
	if got := feedbackOfRows(nil, rows[0]); got != nil {
		t.Errorf("before the first Revision: %+v", got)
	}
}

// The size of a Bundle's feedback does not depend on the number of clusters.
func TestFeedbackOfABundleIsBounded(t *testing.T) {
	var names []string
	for n := range 20 {
		names = append(names, fmt.Sprintf("name-%02d", n))
	}
	var rows []Row
	for i := range 500 {
		st := reportFeedback()
		for _, name := range names {
			st.Items[0].Feedback = append(st.Items[0].Feedback, atoll.FeedbackValue{Name: name, Value: fmt.Sprint(i, "\x1b", strings.Repeat("x", 300))})
		}
		rows = append(rows, newRow(fmt.Sprint("c", i), st))
	}
	got := feedbackOfRows(feedbackContent(names, webKey), rows...)
	if summary := summarizeFeedback(got); len(got) != maxBundleFeedback || len(summary) > maxFeedbackSummary || strings.Contains(summary, "\x1b") {
		t.Errorf("%d names, %q", len(got), summary)
	}
	for _, f := range got {
		if len(f.Values) != maxFeedbackValues || f.OtherClusters != 500-maxFeedbackValues || len(f.Values[0].Value) > maxFeedbackValue {
			t.Errorf("%+v", f)
		}
	}
}

// An agent that reports what it likes displaces nothing that others report: neither names that no rule states, nor names
// that only it reports, nor many values under one name.
func TestOneAgentDisplacesNoFeedbackOfOthers(t *testing.T) {
	keyOf := func(name string) atoll.ItemKey {
		return atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: name}
	}
	var keys []atoll.ItemKey
	for i := range 2 * maxBundleFeedback {
		keys = append(keys, keyOf(fmt.Sprintf("c%02d", i)))
	}
	content := feedbackContent([]string{"a", "b"}, keys...)
	report := func(value string, keys ...atoll.ItemKey) *atoll.RowStatus {
		st := readyStatus()
		for _, key := range keys {
			st.Items = append(st.Items, atoll.ItemStatus{Key: key, Feedback: []atoll.FeedbackValue{{Name: "b", Value: value}}})
		}
		return st
	}
	honest := []Row{newRow("tokyo", report("1", keys[maxBundleFeedback:]...)), newRow("osaka", report("1", keys[maxBundleFeedback:]...))}
	want := feedbackOfRows(content, honest...)
	if len(want) != maxBundleFeedback || want[0].Object != "ConfigMap/c16" {
		t.Fatalf("%+v", want)
	}
	invented := readyStatus()
	for i := range 1000 {
		invented.Items = append(invented.Items, atoll.ItemStatus{Key: keyOf(fmt.Sprint("a", i)), Feedback: []atoll.FeedbackValue{{Name: "a", Value: "0"}}})
	}
	flood := readyStatus()
	for i := range 1000 {
		flood.Items = append(flood.Items, atoll.ItemStatus{Key: keys[maxBundleFeedback], Feedback: []atoll.FeedbackValue{{Name: "b", Value: fmt.Sprint("0-", i)}}})
	}
	withFlood := append([]v1alpha1.BundleFeedback(nil), want...)
	withFlood[0].Values = []v1alpha1.BundleFeedbackValue{{Value: "1", Clusters: 2}, {Value: "0-0", Clusters: 1}}
	for name, c := range map[string]struct {
		hostile *atoll.RowStatus
		want    []v1alpha1.BundleFeedback
	}{
		"names that no rule states":  {invented, want},
		"names that only it reports": {report("0", keys[:maxBundleFeedback]...), want},
		"many values under one name": {flood, withFlood},
	} {
		for _, first := range []bool{true, false} {
			rows := append([]Row(nil), honest...)
			if hostile := newRow("hostile", c.hostile); first {
				rows = append([]Row{hostile}, rows...)
			} else {
				rows = append(rows, hostile)
			}
			if got := feedbackOfRows(content, rows...); !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s: %+v, want %+v", name, got, c.want)
			}
		}
	}
}

// After any changes the feedback is that of the rows as they are, and nothing of former ones is kept.
func TestFeedbackFollowsItsRows(t *testing.T) {
	content := feedbackContent([]string{"n0", "n1", "n2"}, webKey)
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		tally, now := newFeedbackTally(), map[string]Row{}
		for range 300 {
			cluster := fmt.Sprint("c", rnd.IntN(20))
			if rnd.IntN(5) == 0 {
				tally.removeCluster(cluster)
				delete(now, cluster)
				continue
			}
			st := reportFeedback()
			for n := range rnd.IntN(4) {
				v := atoll.FeedbackValue{Name: fmt.Sprint("n", n%3), Value: fmt.Sprint(rnd.IntN(6))}
				if rnd.IntN(5) == 0 {
					v = atoll.FeedbackValue{Name: v.Name, Problem: "none"}
				}
				st.Items[0].Feedback = append(st.Items[0].Feedback, v)
			}
			row := newRow(cluster, st)
			tally.countRow(&row)
			now[cluster] = row
			var rows []Row
			for _, row := range now {
				rows = append(rows, row)
			}
			if got, want := tally.listFeedback(content), feedbackOfRows(content, rows...); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: %+v, want %+v", seed, got, want)
			}
		}
		for cluster := range now {
			tally.removeCluster(cluster)
		}
		if len(tally.counts)+len(tally.parts) > 0 {
			t.Errorf("of no rows, %d names and %d clusters are kept", len(tally.counts), len(tally.parts))
		}
	}
}

// newFeedbackReconciler returns a reconciler that has looked at a Bundle in which each row has a value of its own.
func newFeedbackReconciler(b testing.TB, rows int) (report func(row, value int), look func()) {
	b.Helper()
	m, r := newSettledReconciler(b, rows)
	m.cutRevision("b", feedbackContent([]string{"version"}, webKey))
	report = func(row, value int) {
		m.setRow("b", fmt.Sprintf("c%06d", row), func(r *state.Row) {
			r.Status.Items = append([]atoll.ItemStatus(nil), r.Status.Items...)
			r.Status.Items[0].Feedback = []atoll.FeedbackValue{{Name: "version", Value: fmt.Sprintf("%d-%d", value, row)}}
		})
	}
	look = func() {
		if _, err := r.reconcileBundle(b.Context(), "b"); err != nil {
			b.Fatal(err)
		}
	}
	for i := range rows {
		report(i, 0)
	}
	look()
	return report, look
}

// A look costs what has changed, also where each row has a value of its own: it allocates as often among 10,000 rows as
// among 100.
func TestALookCostsNothingForValuesOfOthers(t *testing.T) {
	allocations := func(rows int) float64 {
		report, look := newFeedbackReconciler(t, rows)
		n := 0
		return testing.AllocsPerRun(50, func() {
			report(n%rows, 1+n/rows)
			look()
			n++
		})
	}
	few, many := allocations(100), allocations(10_000)
	t.Logf("%v allocations among 100 rows, %v among 10,000", few, many)
	if many > few+100 {
		t.Errorf("a look allocates %v times among 100 rows and %v times among 10,000", few, many)
	}
}

// Values part no rows: those that say the same otherwise stay one group.
func TestValuesPartNoRows(t *testing.T) {
	l, value := newRowGroups(), 0
	row := func(cluster string) Row {
		return newRow(cluster, reportFeedback(atoll.FeedbackValue{Name: "version", Value: fmt.Sprint(cluster, "-", value)}))
	}
	source := rowSource{
		all: func() (out []Row) {
			for i := range 1000 {
				out = append(out, row(fmt.Sprint("c", i)))
			}
			return out
		},
		one: func(cluster string) (Row, bool) { return row(cluster), true },
	}
	content := feedbackContent([]string{"version"}, webKey)
	for value = range 3 {
		l.markChanged("c7")
		rows, total := l.readRows(source)
		if len(rows) != 1 || total != 1000 {
			t.Errorf("%d groups of %d rows", len(rows), total)
		}
		got := l.listFeedback(content)
		if len(got) != 1 || len(got[0].Values) != maxFeedbackValues || got[0].OtherClusters != 1000-maxFeedbackValues {
			t.Errorf("%+v", got)
		}
		if c := l.feedback.counts[feedbackID{webKey, "version"}]; c.values[fmt.Sprint("c7-", value)] != 1 || len(c.values) != 1000 {
			t.Errorf("the value of the changed row is not counted: %d values", len(c.values))
		}
	}
}

// BenchmarkFeedback is one row of other values, and the look at its Bundle, where each row has values of its own.
func BenchmarkFeedback(b *testing.B) {
	for _, rows := range benchSizes {
		b.Run(fmt.Sprint(rows), func(b *testing.B) {
			report, look := newFeedbackReconciler(b, rows)
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				report(n%rows, 1+n/rows)
				look()
			}
		})
	}
}
