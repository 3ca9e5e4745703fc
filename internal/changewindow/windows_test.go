package changewindow

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
)

func parseTime(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// newWindow returns a window of "TYPE|SCHEDULE|DURATION|ZONE|KEY=VALUE". A zone that begins with ~ is for clusters without one.
func newWindow(t testing.TB, text string) v1alpha1.ChangeWindow {
	t.Helper()
	f := append(strings.Split(text, "|"), "", "")
	d, err := time.ParseDuration(f[2])
	if err != nil {
		t.Fatal(err)
	}
	out := v1alpha1.ChangeWindow{Type: v1alpha1.ChangeWindowType(f[0]), Schedule: f[1], Duration: metav1.Duration{Duration: d}}
	out.TimeZone, out.UseClusterTimeZone = strings.CutPrefix(f[3], "~")
	if k, v, is := strings.Cut(f[4], "="); is {
		out.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{k: v}}
	}
	return out
}

func newWindows(t testing.TB, texts []string) (out []v1alpha1.ChangeWindow) {
	t.Helper()
	for _, text := range texts {
		out = append(out, newWindow(t, text))
	}
	return out
}

func TestOpenings(t *testing.T) {
	for name, c := range map[string]struct {
		windows []string
		labels  map[string]string // zone is the time zone of the cluster
		now     string
		want    string
	}{
		"none":                   {nil, nil, "2026-12-01T12:00:00Z", "open"},
		"before an Allow window": {[]string{"Allow|0 22 * * *|4h"}, nil, "2026-12-01T21:59:59Z", "opens at 2026-12-01T22:00:00Z"},
		"at its start":           {[]string{"Allow|0 22 * * *|4h"}, nil, "2026-12-01T22:00:00Z", "open until 2026-12-02T02:00:00Z"},
		"in its last second":     {[]string{"Allow|0 22 * * *|4h"}, nil, "2026-12-02T01:59:59Z", "open until 2026-12-02T02:00:00Z"},
		"at its end":             {[]string{"Allow|0 22 * * *|4h"}, nil, "2026-12-02T02:00:00Z", "opens at 2026-12-02T22:00:00Z"},
		"outside a Deny window":  {[]string{"Deny|0 22 * * *|4h"}, nil, "2026-12-01T21:00:00Z", "open until 2026-12-01T22:00:00Z"},
		"in a Deny window":       {[]string{"Deny|0 22 * * *|4h"}, nil, "2026-12-01T23:00:00Z", "opens at 2026-12-02T02:00:00Z"},
		"Deny wins":              {[]string{"Allow|0 22 * * *|4h", "Deny|0 23 * * *|1h"}, nil, "2026-12-01T23:00:00Z", "opens at 2026-12-02T00:00:00Z"},
		"two Allow windows":      {[]string{"Allow|0 22 * * *|1h", "Allow|0 4 * * *|1h"}, nil, "2026-12-01T23:00:00Z", "opens at 2026-12-02T04:00:00Z"},
		"Deny at the next Allow": {[]string{"Allow|0 22 * * *|1h", "Deny|0 0 2 12 *|24h"}, nil, "2026-12-01T23:00:00Z", "opens at 2026-12-03T22:00:00Z"},
		"starts that overlap":    {[]string{"Deny|0 * * * *|90m"}, nil, "2026-12-01T12:00:00Z", "never opens"},
		"a zone":                 {[]string{"Allow|0 22 * * *|4h|America/New_York"}, nil, "2026-12-01T22:00:00Z", "opens at 2026-12-02T03:00:00Z"},
		"the zone of the cluster": {
			[]string{"Allow|0 22 * * *|4h|~"}, map[string]string{"zone": "America/New_York"}, "2026-12-01T22:00:00Z", "opens at 2026-12-02T03:00:00Z",
		},
		"a cluster without a zone": {
			[]string{"Allow|0 22 * * *|4h|~Europe/Oslo"}, nil, "2026-12-01T21:30:00Z", "open until 2026-12-02T01:00:00Z",
		},
		"the zone of the cluster before that of the window": {
			[]string{"Allow|0 22 * * *|4h|~Europe/Oslo"}, map[string]string{"zone": "America/New_York"}, "2026-12-01T21:30:00Z", "opens at 2026-12-02T03:00:00Z",
		},
		"a zone that another window follows": {
			[]string{"Allow|0 22 * * *|4h|Europe/Oslo", "Deny|0 6 * * *|12h|~"}, map[string]string{"zone": "America/New_York"}, "2026-12-01T21:30:00Z", "opens at 2026-12-01T23:00:00Z",
		},
		"a zone of the cluster that the hub does not have": {
			[]string{"Allow|0 22 * * *|4h|~"}, map[string]string{"zone": "Mars/Olympus"}, "2026-12-01T22:00:00Z", "never opens",
		},
		"another cluster":            {[]string{"Allow|0 22 * * *|4h||env=prod"}, map[string]string{"env": "test"}, "2026-12-01T12:00:00Z", "open"},
		"its cluster":                {[]string{"Allow|0 22 * * *|4h||env=prod"}, map[string]string{"env": "prod"}, "2026-12-01T12:00:00Z", "opens at 2026-12-01T22:00:00Z"},
		"the night without the hour": {[]string{"Deny|30 2 * * *|1h|Europe/Oslo"}, nil, "2027-03-28T01:30:00Z", "opens at 2027-03-28T02:00:00Z"},
		"the night with two of them": {[]string{"Deny|30 2 * * *|1h|Europe/Oslo"}, nil, "2027-10-31T01:00:00Z", "opens at 2027-10-31T02:30:00Z"},
		"over a jump by elapsed time": {
			[]string{"Allow|0 22 * * *|8h|Europe/Oslo"}, nil, "2027-03-28T04:30:00Z", "open until 2027-03-28T05:00:00Z",
		},
		"a year's end":             {[]string{"Deny|0 0 20 12 *|336h"}, nil, "2026-12-24T00:00:00Z", "opens at 2027-01-03T00:00:00Z"},
		"an Allow that is refused": {[]string{"Allow|60 * * * *|1h"}, nil, "2026-12-24T00:00:00Z", "never opens"},
		"a Deny that is refused":   {[]string{"Deny|0 0 * * *|1h|Nowhere/Land"}, nil, "2026-12-24T12:00:00Z", "never opens"},
		"a day that no year has":   {[]string{"Allow|0 0 31 2 *|1h"}, nil, "2026-12-24T12:00:00Z", "never opens"},
	} {
		t.Run(name, func(t *testing.T) {
			w, now := CompileWindows(newWindows(t, c.windows)), parseTime(t, c.now)
			view := w.NewView(now)
			m, got := w.MaskOf(c.labels, c.labels["zone"]), ""
			switch o := view.OpeningOf(m); {
			case o.IsOpen && o.Until.IsZero():
				got = "open"
			case o.IsOpen:
				got = "open until " + o.Until.UTC().Format(time.RFC3339)
			case o.Opens:
				got = "opens at " + o.At.UTC().Format(time.RFC3339)
			case o.At.After(now):
				got = "never opens"
			}
			if got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			if again := view.OpeningOf(m); !again.At.Equal(view.OpeningOf(m).At) || len(view.judged) > 1 {
				t.Errorf("it is judged again: %+v", view.judged)
			}
		})
	}
}

// findOpening returns the first minute at which changes may start, by looking at each minute.
func TestOpeningsMinuteByMinute(t *testing.T) {
	w := CompileWindows(newWindows(t, []string{"Allow|20 */5 * * *|50m|Europe/Oslo", "Allow|0 3 * * *|2h|Asia/Kolkata", "Deny|*/45 2-6 * * *|10m|America/New_York", "Deny|30 2 * * *|1h|Europe/Oslo"}))
	m := w.MaskOf(nil, "")
	for _, from := range []string{"2027-03-27T20:00:00Z", "2027-10-30T20:00:00Z", "2026-12-01T00:00:00Z"} {
		begin := parseTime(t, from)
		var open []bool
		for i := range 24 * 60 {
			v := w.judgeAt(m, begin.Add(time.Duration(i)*time.Minute), &search{left: searchSteps})
			open = append(open, v.isOpen())
		}
		for i := range 12 * 60 {
			at, opens := w.findOpening(m, begin.Add(time.Duration(i)*time.Minute), searchSteps)
			want := i
			for !open[want] {
				want++
			}
			if got := int(at.Sub(begin) / time.Minute); !opens || got != want {
				t.Fatalf("from minute %d after %s it opens in minute %d, want %d", i, from, got, want)
			}
		}
	}
}

func TestWindowsThatAreRefused(t *testing.T) {
	many := make([]string, MaxWindows+1)
	for i := range many {
		many[i] = "Allow|0 22 * * *|4h"
	}
	for name, c := range map[string]struct {
		windows []string
		want    string
	}{
		"none":                          {nil, ""},
		"each night":                    {[]string{"Allow|0 22 * * *|4h|Europe/Oslo"}, ""},
		"working hours are denied":      {[]string{"Deny|0 8 * * 1-5|9h"}, ""},
		"as many as may be":             {many[1:], ""},
		"one more":                      {many, "windows: Too many"},
		"another type":                  {[]string{"Maybe|0 22 * * *|4h"}, "windows[0].type: Unsupported"},
		"no time":                       {[]string{"Allow|0 22 * * *|59s"}, "windows[0].duration: Invalid"},
		"too long":                      {[]string{"Allow|0 22 * * *|745h"}, "windows[0].duration: Invalid"},
		"a zone that is none":           {[]string{"Allow|0 22 * * *|4h", "Allow|0 22 * * *|4h|Europe/Nowhere"}, "windows[1].timeZone: Invalid"},
		"the hub's own zone":            {[]string{"Allow|0 22 * * *|4h|Local"}, "windows[0].timeZone: Invalid"},
		"no cron":                       {[]string{"Allow|at night|4h"}, "windows[0].schedule: Invalid"},
		"a day that no year has":        {[]string{"Allow|0 0 31 2 *|4h"}, "windows[0].schedule: Invalid"},
		"a leap day":                    {[]string{"Allow|0 0 29 2 *|4h"}, ""},
		"always denied":                 {[]string{"Deny|0 * * * *|1h"}, "windows: Invalid"},
		"denied each minute":            {[]string{"Deny|* * * * *|1m"}, "windows: Invalid"},
		"denied when allowed":           {[]string{"Allow|0 22 * * *|4h", "Deny|0 20 * * *|7h"}, "windows: Invalid"},
		"denied when allowed, in zones": {[]string{"Allow|0 22 * * *|4h|Europe/Oslo", "Deny|0 20 * * *|7h"}, "windows: Invalid"},
		"allowed in a gap":              {[]string{"Allow|0 22 * * *|4h", "Deny|0 20 * * *|5h59m"}, ""},
		"some clusters are denied":      {[]string{"Allow|0 22 * * *|4h", "Deny|0 20 * * *|8h||env=prod"}, "windows[1]: Invalid"},
		"only some clusters":            {[]string{"Allow|0 22 * * *|4h||env=prod", "Deny|0 20 * * *|8h||env=test"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := CheckWindows(newWindows(t, c.windows), field.NewPath("windows")).ToAggregate()
			if c.want == "" && got != nil || c.want != "" && (got == nil || !strings.Contains(got.Error(), c.want)) {
				t.Errorf("%v, want %q", got, c.want)
			}
		})
	}
}

// A window concerns the clusters of its selector, and all without one.
func TestClustersOfAWindow(t *testing.T) {
	w := CompileWindows([]v1alpha1.ChangeWindow{
		{},
		{ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}},
		{ClusterSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "region", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"eu", "us"}}}}},
	})
	for name, c := range map[string]struct {
		labels map[string]string
		want   Mask
	}{
		"no label":     {nil, 0b101},
		"both":         {map[string]string{"env": "prod", "region": "asia"}, 0b111},
		"of Europe":    {map[string]string{"env": "prod", "region": "eu"}, 0b011},
		"of no window": {map[string]string{"env": "test", "region": "us"}, 0b001},
	} {
		if got := w.MaskOf(c.labels, "Europe/Oslo"); got != c.want {
			t.Errorf("%s: %b, want %b", name, got, c.want)
		}
	}
}

// A refusal repeats only the beginning of a text that was refused.
func TestARefusalIsShort(t *testing.T) {
	w := []v1alpha1.ChangeWindow{{Type: v1alpha1.ChangeWindowAllow, Schedule: strings.Repeat("x", 1<<20), Duration: metav1.Duration{Duration: time.Hour}, TimeZone: ""}}
	if text := fmt.Sprint(CheckWindows(w, field.NewPath("windows"))); len(text) > 1000 {
		t.Errorf("it has %d bytes", len(text))
	}
}

// A hostile list of the densest schedules computes no more starts than the bound.
func TestDenseWindowsAreSearchedWithinTheBound(t *testing.T) {
	for _, text := range []string{"Deny|* * * * *|744h|Europe/Oslo", "Deny|* * * * *|1m", "Deny|* 0-22 * * *|1m|Asia/Kolkata"} {
		var dense []string
		for range MaxWindows {
			dense = append(dense, text)
		}
		w, in, now := CompileWindows(newWindows(t, dense)), &search{left: searchSteps}, time.Unix(1_800_000_000, 0)
		at, opens := w.findOpening(w.MaskOf(nil, ""), now, searchSteps)
		if w.judgeAt(w.MaskOf(nil, ""), now, in); in.left < -MaxWindows {
			t.Errorf("%s: %d starts above the bound", text, -in.left)
		}
		if v := w.judgeAt(w.MaskOf(nil, ""), at, &search{left: searchSteps}); opens && !v.isOpen() || !at.After(now) {
			t.Errorf("%s: at %s it is open: %t, found: %t", text, at, v.isOpen(), opens)
		}
	}
}

// The densest schedules cost a bounded number of steps.
func BenchmarkOpeningOfDenseWindows(b *testing.B) {
	for _, text := range []string{"Deny|* * * * *|744h|Europe/Oslo", "Deny|* * * * *|1m", "Deny|* 0-22 * * *|1m"} {
		b.Run(text, func(b *testing.B) {
			var dense []string
			for range MaxWindows {
				dense = append(dense, text)
			}
			w, now := CompileWindows(newWindows(b, dense)), time.Unix(1_800_000_000, 0)
			for b.Loop() {
				view := w.NewView(now)
				view.OpeningOf(w.MaskOf(nil, ""))
			}
		})
	}
}

// Selectors that give each cluster another mask do not make a look cost a search for each of them. Whether changes may start is exact
// all the same.
func TestManyMasksShareOneSearch(t *testing.T) {
	var texts []string
	for i := range MaxWindows {
		texts = append(texts, []string{"Allow|*/2 * * * *|1m", "Deny|*/3 * * * *|1m"}[i%2]+"||"+string(rune('a'+i))+"=x")
	}
	const masks = 1 << 12
	w, now := CompileWindows(newWindows(t, texts)), parseTime(t, "2026-12-01T12:00:30Z")
	view := w.NewView(now)
	for m := Mask(1); m < masks; m++ {
		o, want := view.OpeningOf(m), w.judgeAt(m, now, &search{left: searchSteps})
		if o.IsOpen != want.isOpen() || !o.IsOpen && !o.At.After(now) {
			t.Fatalf("mask %x: %+v", m, o)
		}
	}
	if steps := searchSteps - view.in.left; steps > masks+2*searchSteps {
		t.Errorf("%d steps for %d masks", steps, masks)
	}
}

// Clusters have one mask where their time zones make no difference. A zone has the same number in all policies.
func TestMasksOfTimeZones(t *testing.T) {
	w := CompileWindows(newWindows(t, []string{"Allow|0 22 * * *|4h", "Deny|0 8 * * *|1h|~Europe/Oslo|env=prod"}))
	prod := map[string]string{"env": "prod"}
	for _, c := range []struct {
		a, b   Mask
		isSame bool
	}{
		{w.MaskOf(nil, "Europe/Oslo"), w.MaskOf(nil, "Asia/Kolkata"), true},
		{w.MaskOf(prod, "Europe/Oslo"), w.MaskOf(prod, "Asia/Kolkata"), false},
		{w.MaskOf(prod, "Asia/Kolkata"), CompileWindows(newWindows(t, []string{"Allow|0 22 * * *|4h", "Deny|0 8 * * *|1h|~|env=prod"})).MaskOf(prod, "Asia/Kolkata"), true},
		{w.MaskOf(prod, ""), 0b11, true},
	} {
		if (c.a == c.b) != c.isSame {
			t.Errorf("%b and %b", c.a, c.b)
		}
	}
	if a, b := w.MaskOf(prod, "Asia/Tokyo"), w.MaskOf(prod, "Asia/Tashkent"); a == b {
		t.Errorf("two zones have the number %b", a)
	}
}
