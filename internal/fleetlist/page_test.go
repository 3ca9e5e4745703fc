package fleetlist

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
)

func keepGoing() bool { return true }

// orderNames are the names of all orders, in both directions.
func orderNames() (out []string) {
	for _, k := range sortKeys {
		out = append(out, k.name, "-"+k.name)
	}
	return out
}

func mustOrder(t testing.TB, name string) Order {
	t.Helper()
	o, err := ParseOrder(name)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func namesOf(rows []*Row) (out []string) {
	for _, r := range rows {
		out = append(out, r.Name())
	}
	return out
}

// sortWhole returns what a filter selects of the rows, in order, by nothing but a sort.
func sortWhole(rows []Row, f Filter, o Order) (out []string) {
	var kept []*Row
	for i := range rows {
		if f.Matches(&rows[i]) {
			kept = append(kept, &rows[i])
		}
	}
	slices.SortFunc(kept, func(a, b *Row) int { return o.compareValues(o.valueOf(a), o.valueOf(b)) })
	return namesOf(kept)
}

// All pages together are the whole in order, whatever filter, order and size.
func TestPagesAreTheWholeInOrder(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		rows := NewIndex(makeRows(r, r.IntN(120))).Rows()
		f := mustFilter(t, []FilterInput{{}, {States: "Ready,Away"}, {Selector: "env=prod"}, {Text: "region:region-1*"}}[r.IntN(4)])
		for _, name := range orderNames() {
			q := PageRequest{Filter: f, Order: mustOrder(t, name), Limit: 1 + r.IntN(30)}
			want := sortWhole(rows, f, q.Order)
			var got []string
			for {
				p, complete := SelectPage(rows, q, keepGoing)
				if !complete || p.Before != len(got) || p.Matching != len(want) || len(p.Rows) > q.Limit {
					t.Fatalf("seed %d, %s: page %+v after %d of %d", seed, name, p, len(got), len(want))
				}
				got = append(got, namesOf(p.Rows)...)
				if p.Continue == "" {
					break
				}
				if len(p.Rows) != q.Limit || len(p.Continue) > MaxToken {
					t.Fatalf("seed %d, %s: %d rows, and a token of %d bytes", seed, name, len(p.Rows), len(p.Continue))
				}
				if err := q.SetToken(p.Continue); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d, %s by %d:\n%q\nwant\n%q", seed, name, q.Limit, got, want)
			}
		}
	}
}

// By name, a cluster that is there all the time is on exactly one page, whatever comes, goes and changes between them.
func TestPagesByNameSurviveChanges(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 2))
		x := NewIndex(makeRows(r, 100))
		q := PageRequest{Order: mustOrder(t, []string{"name", "-name"}[r.IntN(2)]), Limit: 7}
		gone, seen := map[string]bool{}, map[string]int{}
		for {
			p, _ := SelectPage(x.Rows(), q, keepGoing)
			for _, name := range namesOf(p.Rows) {
				seen[name]++
			}
			if p.Continue == "" {
				break
			}
			if err := q.SetToken(p.Continue); err != nil {
				t.Fatal(err)
			}
			var changes []Change
			for _, at := range r.Perm(130)[:10] {
				c := Change{Name: fmt.Sprint("cluster-", at)}
				if r.IntN(3) > 0 {
					row := makeRow(r, c.Name)
					c.After = &row
				} else {
					gone[c.Name] = true
				}
				changes = append(changes, c)
			}
			x.Apply(changes)
		}
		for i := range 100 {
			name := fmt.Sprint("cluster-", i)
			if seen[name] != 1 && !gone[name] || seen[name] > 1 {
				t.Fatalf("seed %d: %s is on %d pages", seed, name, seen[name])
			}
		}
	}
}

func TestTokensAreCheckedBeforeUse(t *testing.T) {
	rows := NewIndex(makeRows(rand.New(rand.NewPCG(1, 3)), 20)).Rows()
	q := PageRequest{Filter: mustFilter(t, FilterInput{Text: "cluster"}), Order: mustOrder(t, "region"), Limit: 5}
	p, _ := SelectPage(rows, q, keepGoing)
	if err := q.SetToken(p.Continue); err != nil || q.after == nil {
		t.Fatal(err)
	}
	encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	own := fmt.Sprint(q.hashQuestion())
	for name, token := range map[string]string{
		"no base64":         "%%%",
		"no JSON":           encode("{"),
		"no name":           encode(`{"q":` + own + `,"v":0,"t":""}`),
		"a long name":       encode(`{"q":` + own + `,"n":"` + strings.Repeat("a", maxName+1) + `"}`),
		"a long text":       encode(`{"q":` + own + `,"n":"a","t":"` + strings.Repeat("a", maxSortText+1) + `"}`),
		"a token too long":  encode(strings.Repeat("a", MaxToken)),
		"another question":  encode(`{"q":1,"v":0,"t":"","n":"a"}`),
		"a number too high": encode(`{"q":` + own + `,"v":1e999,"n":"a"}`),
	} {
		if err := q.SetToken(token); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	for name, other := range map[string]PageRequest{
		"another filter": {Filter: mustFilter(t, FilterInput{Text: "clusters"}), Order: q.Order, Limit: 5},
		"another order":  {Filter: q.Filter, Order: mustOrder(t, "-region"), Limit: 5},
	} {
		if err := other.SetToken(p.Continue); err == nil || !strings.Contains(err.Error(), "another filter or order") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ParseOrder("labels"); err == nil {
		t.Error("there is an order by labels")
	}
}

// A cluster whose region is long and not of ASCII letters has its place on both sides of a token.
func TestTokensOfLongTexts(t *testing.T) {
	var rows []Row
	for i := range 9 {
		c := readyCluster(fmt.Sprint("c", i))
		c.Spec.Region = "x" + strings.Repeat("é", 200)
		rows = append(rows, NewRow(c, nil))
	}
	q := PageRequest{Order: mustOrder(t, "region"), Limit: 4}
	var got []string
	for range 3 {
		p, _ := SelectPage(rows, q, keepGoing)
		got = append(got, namesOf(p.Rows)...)
		if err := q.SetToken(p.Continue); err != nil {
			t.Fatal(err)
		}
	}
	if want := "c0 c1 c2 c3 c4 c5 c6 c7 c8"; strings.Join(got, " ") != want {
		t.Errorf("%q", got)
	}
}

func TestAPassEndsWithItsRequest(t *testing.T) {
	rows := makeRows(rand.New(rand.NewPCG(1, 4)), 2*passStep)
	calls := 0
	if _, complete := SelectPage(rows, PageRequest{Order: mustOrder(t, ""), Limit: 1}, func() bool { calls++; return false }); complete || calls != 1 {
		t.Errorf("complete %t after %d calls", complete, calls)
	}
	if NewIndex(rows).CountAll(NewTally(Filter{}, nil), func() bool { return false }) {
		t.Error("the counts are complete")
	}
}

// A change that alters a page concerns its window. Changes elsewhere concern it only where they may.
func TestWindowsSeeEachChangeOfTheirPage(t *testing.T) {
	concerned, others := 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 5))
		x := NewIndex(makeRows(r, 60))
		q := PageRequest{Filter: mustFilter(t, []FilterInput{{}, {States: "Away,NotReady"}, {Selector: "env=prod"}}[r.IntN(3)]), Order: mustOrder(t, orderNames()[r.IntN(2*len(sortKeys))]), Limit: 1 + r.IntN(12)}
		if first, _ := SelectPage(x.Rows(), q, keepGoing); r.IntN(2) == 0 && first.Continue != "" {
			if err := q.SetToken(first.Continue); err != nil {
				t.Fatal(err)
			}
		}
		page, _ := SelectPage(x.Rows(), q, keepGoing)
		w, was := NewWindow(q, page), namesOf(page.Rows)
		change := []Change{{Name: fmt.Sprint("cluster-", r.IntN(70))}}
		if r.IntN(4) > 0 {
			row := makeRow(r, change[0].Name)
			change[0].After = &row
		}
		x.Apply(change)
		page, _ = SelectPage(x.Rows(), q, keepGoing)
		differs := !slices.Equal(was, namesOf(page.Rows)) || change[0].Before != nil && slices.Contains(was, change[0].Name)
		switch concerns := w.Concerns(change[0].Before, change[0].After); {
		case differs && !concerns:
			t.Fatalf("seed %d: the page %q became %q by %+v", seed, was, namesOf(page.Rows), change[0])
		case concerns:
			concerned++
		default:
			others++
		}
	}
	if concerned == 0 || others == 0 {
		t.Errorf("%d changes concern their windows, and %d do not", concerned, others)
	}
}

func TestAnIndexAppliesChanges(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 6))
		x, want := NewIndex(nil), map[string]*v1alpha1.Cluster{}
		for range 20 {
			var changes []Change
			for _, at := range r.Perm(40)[:r.IntN(15)] {
				c := Change{Name: fmt.Sprint("c", at)}
				if r.IntN(3) > 0 {
					row := makeRow(r, c.Name)
					c.After = &row
				}
				changes = append(changes, c)
			}
			x.Apply(changes)
			for _, c := range changes {
				if (c.Before == nil) != (want[c.Name] == nil) || c.Before != nil && c.Before.Cluster != want[c.Name] {
					t.Fatalf("seed %d: %s was %v", seed, c.Name, c.Before)
				}
				if delete(want, c.Name); c.After != nil {
					want[c.Name] = c.After.Cluster
				}
			}
			if x.Len() != len(want) || !slices.IsSortedFunc(x.Rows(), compareRows) {
				t.Fatalf("seed %d: %d rows, want %d in order", seed, x.Len(), len(want))
			}
			for _, row := range x.Rows() {
				if want[row.Name()] != row.Cluster {
					t.Fatalf("seed %d: another row of %s", seed, row.Name())
				}
			}
		}
	}
}

// Counts that follow changes are those of a count of all.
func TestTalliesFollowChanges(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 7))
		f := mustFilter(t, []FilterInput{{}, {States: "Ready"}, {Selector: "env=prod"}}[r.IntN(3)])
		by := []*Property{nil, mustProperty(t, "region"), mustProperty(t, "set"), mustProperty(t, "label:env")}[r.IntN(4)]
		x, tally := NewIndex(makeRows(r, 50)), NewTally(f, by)
		x.CountAll(tally, keepGoing)
		for range 30 {
			change := []Change{{Name: fmt.Sprint("cluster-", r.IntN(60))}}
			if r.IntN(3) > 0 {
				row := makeRow(r, change[0].Name)
				change[0].After = &row
			}
			x.Apply(change)
			tally.Change(change[0].Before, change[0].After)
			fresh := NewTally(f, by)
			x.CountAll(fresh, keepGoing)
			if got, want := fmt.Sprintf("%+v", tally.Answer(x.Len(), 5)), fmt.Sprintf("%+v", fresh.Answer(x.Len(), 5)); got != want {
				t.Fatalf("seed %d:\n%s\nwant\n%s", seed, got, want)
			}
		}
	}
}

func TestCountsHaveTheLargestGroups(t *testing.T) {
	tally := NewTally(mustFilter(t, FilterInput{States: "Ready,Away"}), mustProperty(t, "region"))
	for i, region := range []string{"r10", "r10", "r9", "r9", "r9", "r1", "", "r2"} {
		c := readyCluster(fmt.Sprint("c", i))
		c.Spec.Region = region
		if i == 1 {
			c.Spec.Accepted = false
		}
		row := NewRow(c, nil)
		tally.Change(nil, &row)
	}
	a := tally.Answer(9, 3)
	var values []string
	for _, g := range a.Groups {
		values = append(values, fmt.Sprint(g.Value, ":", g.Clusters, ":", g.States.Total()))
	}
	if got := strings.Join(values, " "); got != ":1:1 r1:1:1 r9:3:3" {
		t.Errorf("groups %q", got)
	}
	if a.All != 9 || a.Matching != 7 || a.States[Joining] != 1 || a.MoreGroups != 2 || a.MoreClusters != 2 || a.By != "region" {
		t.Errorf("%+v", a)
	}
}

// The order of texts is total: numbers count as numbers, and no two different texts are equal.
func TestNaturalOrder(t *testing.T) {
	for _, pair := range [][2]string{{"c2", "c10"}, {"v1.9.1", "v1.10.0"}, {"a", "a1"}, {"", "a"}, {"01", "1"}, {"a01b", "a1c"}, {"a9", "ab"}, {"c99999999999999999999", "c100000000000000000000"}} {
		if compareNatural(pair[0], pair[1]) >= 0 || compareNatural(pair[1], pair[0]) <= 0 || compareNatural(pair[0], pair[0]) != 0 {
			t.Errorf("%q is not before %q", pair[0], pair[1])
		}
	}
	r := rand.New(rand.NewPCG(1, 8))
	text := func() string {
		var b strings.Builder
		for range r.IntN(5) {
			b.WriteByte("ab019-"[r.IntN(6)])
		}
		return b.String()
	}
	for range 20_000 {
		a, b, c := text(), text(), text()
		if compareNatural(a, b) != -compareNatural(b, a) || (compareNatural(a, b) == 0) != (a == b) {
			t.Fatalf("%q and %q", a, b)
		}
		if compareNatural(a, b) < 0 && compareNatural(b, c) < 0 && compareNatural(a, c) >= 0 {
			t.Fatalf("%q, %q, %q", a, b, c)
		}
	}
}
