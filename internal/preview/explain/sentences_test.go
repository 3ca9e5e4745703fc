package explain

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
)

// nameClusters returns n names: c00, c01 and so on.
func nameClusters(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("c%02d", i))
	}
	return out
}

// newDoneRow returns a row of which there is nothing to say.
func newDoneRow() *RowExplanation {
	return &RowExplanation{Phase: atoll.RowActive, Online: true, State: atoll.RowReady, Health: atoll.Healthy, Number: 2, Since: testTime}
}

// explainRows explains web in one Bundle, with a row for each cluster.
func explainRows(clusters ...ClusterExplanation) Explanation {
	return Explanation{Kind: "Deployment", Group: "apps", Name: "web", Exists: true, now: testTime, Bundles: []BundleExplanation{{Name: "b", Number: 2, Clusters: clusters}}}
}

func TestLongListsOfNamesAreCut(t *testing.T) {
	for n, want := range map[int]string{0: "", 1: "c00", 2: "c00, c01", 3: "c00, c01, c02", 4: "c00, c01 and 2 more", 9: "c00, c01 and 7 more"} {
		if got := abbreviateNames(nameClusters(n), 2); got != want {
			t.Errorf("%d names: %q, want %q", n, got, want)
		}
	}
}

func TestAgesAreShort(t *testing.T) {
	for age, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 119 * time.Second: "119s", 2 * time.Minute: "2m", 2*time.Hour - time.Second: "119m",
		2 * time.Hour: "2h", 48*time.Hour - time.Second: "47h", 48 * time.Hour: "2d", 71 * time.Hour: "2d", 72 * time.Hour: "3d",
	} {
		if got := (Explanation{now: testTime}).formatAge(testTime.Add(-age)); got != want {
			t.Errorf("%s: %q, want %q", age, got, want)
		}
	}
}

// The verdict on a deleted object names the clusters that still hold it.
func TestVerdictsOnDeletedObjects(t *testing.T) {
	holding := []BundleExplanation{{Holders: []string{"oslo", "lima"}}, {Holders: []string{"oslo"}}}
	for want, e := range map[string]Explanation{
		"Deployment/web in namespace shop is deleted, and on its way out of lima, oslo.":                                   {Group: "apps", Kind: "Deployment", Bundles: holding},
		"Deployment/web in namespace shop is not on the hub.":                                                              {Group: "apps", Kind: "Deployment"},
		"Deployment/web in namespace shop is being deleted: it goes once lima, oslo released it.":                          {Group: "apps", Kind: "Deployment", Exists: true, DeletedAt: &testTime, Bundles: holding},
		"Deployment/web in namespace shop is being deleted.":                                                               {Group: "apps", Kind: "Deployment", Exists: true, DeletedAt: &testTime},
		"Placement/web in namespace shop places nothing: no object that exists is selected by it, or others win them all.": {Group: "atoll.dev", Kind: "Placement"},
	} {
		e.Namespace, e.Name, e.now = "shop", "web", testTime
		if got := e.verdictSentence(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The verdict on what is in no Bundle is why.
func TestVerdictsOnUnplacedObjects(t *testing.T) {
	space := Explanation{Kind: "Namespace", Name: "shop"}
	annotated, won, own := space, space, space
	annotated.Annotation = "tokyo"
	won.PolicyMatch = &PolicyMatch{Winner: &Candidate{Kind: "ClusterPropagationPolicy", Name: "spaces"}}
	own.PolicyMatch = &PolicyMatch{Why: "nothing selects it"}
	web := func(m *PolicyMatch) Explanation {
		return Explanation{Group: "apps", Kind: "Deployment", Name: "web", PolicyMatch: m}
	}
	const unannotated = "Namespace/shop has no annotation atoll.dev/clusters, so what is in it goes where its own annotations and policies place it; `atoll get bundles -n shop` lists that."
	for want, e := range map[string]Explanation{
		`Namespace/shop is annotated atoll.dev/clusters: "tokyo", and nothing in it is placed by that.`: annotated,
		unannotated: space,
		"Namespace/shop is about to be placed by ClusterPropagationPolicy spaces.":                                               won,
		"Deployment/web is no object that is placed.":                                                                            web(nil),
		"Deployment/web is in no cluster: nothing selects it.":                                                                   web(&PolicyMatch{Why: "nothing selects it"}),
		"Deployment/web is in no cluster: that is what its own annotation asks for.":                                             web(&PolicyMatch{Winner: &Candidate{Kind: v1alpha1.SourceAnnotation, Matched: `atoll.dev/clusters: ""`}}),
		"Deployment/web is not placed by PropagationPolicy p yet: it waits.":                                                     web(&PolicyMatch{Winner: &Candidate{Kind: "PropagationPolicy", Name: "p"}, WaitsFor: "it waits"}),
		"Deployment/web is in no cluster: the annotation of its namespace leaves it out (a token), and nothing else selects it.": web(&PolicyMatch{Skipped: "a token"}),
		"Deployment/web stays on the hub: it says so.":                                                                           web(&PolicyMatch{HubOnly: "it says so"}),
		"PropagationPolicy/p places nothing: its namespace is bound to no set.":                                                  {Group: "atoll.dev", Kind: "PropagationPolicy", Name: "p", Policy: &Policy{Problem: "its namespace is bound to no set."}},
		"PropagationPolicy/q places nothing: no object that exists is selected by it, or others win them all.":                   {Group: "atoll.dev", Kind: "PropagationPolicy", Name: "q", Policy: &Policy{}},
	} {
		e.Exists = true
		if got := e.verdictSentence(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if e := own; e.unplacedReason() != space.unplacedReason() {
		t.Errorf("a namespace that no policy selects: %q", e.unplacedReason())
	}
}

// The verdict on a policy, a Bundle or an annotated Namespace is on what it places.
func TestVerdictsNameTheirSubject(t *testing.T) {
	for want, e := range map[string]Explanation{
		"What PropagationPolicy/x places":           {Group: "atoll.dev", Kind: "PropagationPolicy"},
		"Bundle/x":                                  {Group: "atoll.dev", Kind: "Bundle"},
		"ClusterBundle/x":                           {Group: "atoll.dev", Kind: "ClusterBundle"},
		"What the annotation of Namespace/x places": {Kind: "Namespace", Annotation: "*"},
		"Namespace/x":                               {Kind: "Namespace"},
		"Deployment/x in namespace shop":            {Group: "apps", Kind: "Deployment", Namespace: "shop", Annotation: "*"},
		"Bundle/x in namespace shop":                {Group: "atoll.dev", Kind: "Bundle", Namespace: "shop"},
		"What Placement/x in namespace shop places": {Group: "atoll.dev", Kind: "Placement", Namespace: "shop"},
		"Bundle/x in namespace other":               {Group: "example.com", Kind: "Bundle", Namespace: "other"},
		"Namespace/x in namespace of another group": {Group: "example.com", Kind: "Namespace", Namespace: "of another group", Annotation: "*"},
	} {
		e.Name = "x"
		if got := e.placedSubject(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The verdict on rows counts the clusters, and names those that are not done.
func TestVerdictsOnRows(t *testing.T) {
	row := func(cluster string, change func(*RowExplanation)) ClusterExplanation {
		r := newDoneRow()
		if change != nil {
			change(r)
		}
		return ClusterExplanation{Cluster: cluster, Verdict: schedule.OutcomePlaced, Row: r}
	}
	waits := func(r *RowExplanation) { r.WaitsFor, r.Health = "pods", atoll.Progressing }
	held := func(r *RowExplanation) { r.Phase = atoll.RowHeld }
	planned := func(r *RowExplanation) {
		r.Reason = atoll.RowReason{Reason: atoll.ReasonReplacementsNotReady, Plan: "p"}.String()
	}
	phase := func(p atoll.RowPhase) func(*RowExplanation) { return func(r *RowExplanation) { r.Phase = p } }
	away := func(r *RowExplanation) { r.Online = false }
	goneAway := func(r *RowExplanation) { r.Online, r.Phase = false, atoll.RowRemoving }
	coming := ClusterExplanation{Cluster: "new", Verdict: schedule.OutcomePlaced}
	full := ClusterExplanation{Cluster: "full", Verdict: schedule.OutcomeOut, Filter: schedule.FilterCapacity}
	out := ClusterExplanation{Cluster: "out", Verdict: schedule.OutcomeOut, Filter: "labelSelector"}
	for want, clusters := range map[string][]ClusterExplanation{
		"is in 1 cluster and ready there":                                    {row("a", nil)},
		"is in 2 clusters and ready in all of them":                          {row("a", nil), row("b", nil), out},
		"is in 2 clusters and ready in 1; not done in b":                     {row("a", nil), row("b", waits)},
		"is in 1 cluster; not done in b":                                     {row("b", waits)},
		"is in 1 cluster and ready there; not in full for want of capacity":  {row("a", nil), full},
		"is in 1 cluster and ready there; about to go to 1 more":             {row("a", nil), coming},
		"is about to go to 1 cluster":                                        {coming, row("a", phase(atoll.RowRemoving))},
		"is in no cluster that it stays in; on its way out of a, b":          {row("a", phase(atoll.RowRemoving)), row("b", phase(atoll.RowLeaving))},
		"is in 1 cluster and ready there; on its way out of a":               {row("a", phase(atoll.RowLeaving)), row("b", nil)},
		"is in 2 clusters; a removal waits for a confirmation in 2 clusters": {row("a", held), row("b", planned)},
		"is in 1 cluster and ready there, as last reported: a away":          {row("a", away)},
		"is in no cluster that it stays in; on its way out of a":             {row("a", goneAway)},
		"is in no cluster": {out},
	} {
		if got := explainRows(clusters...).rowsSentence(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	e := explainRows(row("a", nil), full)
	const ready = "is in 1 cluster and ready there"
	for _, c := range []struct {
		change func(*BundleExplanation)
		want   string
	}{
		{func(b *BundleExplanation) { b.Clusters, b.Short = b.Clusters[:1], []Shortage{{Unplaced: 1}} }, ready + "; 1 replica without a place"},
		{func(b *BundleExplanation) { b.Choice = &Choice{} }, ready},
		{func(b *BundleExplanation) { b.Affinities = []schedule.AffinityGroup{{}} }, ready},
	} {
		b := e.Bundles[0]
		c.change(&b)
		if got := (Explanation{Bundles: []BundleExplanation{b}}).rowsSentence(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	nowhere, noFit := explainRows(), explainRows()
	nowhere.Bundles[0].Nowhere, noFit.Bundles[0].NoFit = true, true
	if got := nowhere.rowsSentence(); got != "is in no cluster, on purpose: its placement names none" {
		t.Error(got)
	}
	if got := noFit.rowsSentence(); got != "is in no cluster: none fits its placement" {
		t.Error(got)
	}
}

// A sentence names three clusters of each kind, or four where there are no more.
func TestSentencesNameFewClusters(t *testing.T) {
	row := func(prefix string, change func(*RowExplanation)) (out []ClusterExplanation) {
		for i := range 5 {
			r := newDoneRow()
			change(r)
			out = append(out, ClusterExplanation{Cluster: fmt.Sprintf("%s%d", prefix, i), Verdict: schedule.OutcomePlaced, Row: r})
		}
		return out
	}
	var full []ClusterExplanation
	for i := range 5 {
		full = append(full, ClusterExplanation{Cluster: fmt.Sprintf("full%d", i), Verdict: schedule.OutcomeOut, Filter: schedule.FilterCapacity})
	}
	all := slices.Concat(
		row("leaving", func(r *RowExplanation) { r.Phase = atoll.RowLeaving }), row("waiting", func(r *RowExplanation) { r.WaitsFor, r.Health = "pods", atoll.Degraded }),
		row("other", func(r *RowExplanation) { r.WaitsFor = "another item" }), row("away", func(r *RowExplanation) { r.Online = false }), full)
	const want = "is in 15 clusters and ready in 10; not done in waiting0, waiting1, waiting2 and 2 more; not in full0, full1, full2 and 2 more for want of capacity" +
		"; other items of its Bundle are not done in other0, other1, other2 and 2 more, as last reported: away0, away1, away2 and 2 more away; on its way out of leaving0, leaving1, leaving2 and 2 more"
	if got := explainRows(all...).rowsSentence(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	holders := []BundleExplanation{{Holders: nameClusters(5)}}
	gone := Explanation{Kind: "Secret", Name: "s", Bundles: holders}
	if got, want := gone.verdictSentence(), "Secret/s is deleted, and on its way out of c00, c01, c02 and 2 more."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	gone.Exists, gone.DeletedAt = true, &testTime
	if got, want := gone.verdictSentence(), "Secret/s is being deleted: it goes once c00, c01, c02 and 2 more released it."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	one := Explanation{Kind: "Secret", Name: "s", Bundles: []BundleExplanation{{Holders: []string{"a"}}}}
	if got, want := one.verdictSentence(), "Secret/s is deleted, and on its way out of a."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	one.Exists, one.DeletedAt = true, &testTime
	if got, want := one.verdictSentence(), "Secret/s is being deleted: it goes once a released it."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// With all, no list of a Placement or of a Bundle is folded.
func TestWithAllNothingIsFolded(t *testing.T) {
	var clusters []ClusterExplanation
	for i, name := range nameClusters(2 * maxRows) {
		clusters = append(clusters, ClusterExplanation{Cluster: name, Verdict: schedule.OutcomeOut, Filter: "f", Reason: fmt.Sprint("reason ", i)})
	}
	for name, write := range map[string]func(*strings.Builder, bool){
		"a Placement": func(b *strings.Builder, all bool) {
			Explanation{Chosen: &PlacementExplanation{Decision: BundleExplanation{Clusters: clusters}}}.writePlacement(b, all)
		},
		"a Bundle": func(b *strings.Builder, all bool) {
			Explanation{}.writeBundle(b, BundleExplanation{Clusters: clusters}, all)
		},
	} {
		few, all := writtenBy(func(b *strings.Builder) { write(b, false) }), writtenBy(func(b *strings.Builder) { write(b, true) })
		if strings.Count(few, ": reason ") != maxNames || !strings.Contains(few, "and 80 clusters for 80 reasons more") || strings.Count(all, ": reason ") != len(clusters) || strings.Contains(all, "more") {
			t.Errorf("%s: folded\n%s\nall\n%s", name, few, all)
		}
	}
	placed := Explanation{Verdict: "V.", Kind: "Namespace", Name: "shop", Skipped: []Skipped{{Key: secretKey, Why: "a token"}}}
	if got := placed.FormatText(false); got != "V.\n\nLeft out by the annotation of namespace shop (atoll.dev/clusters: \"\"):\n  Secret/db-password: a token\n" {
		t.Errorf("%q", got)
	}
}

// A row is well where its cluster is online and has the object healthy at the generation that is wanted.
func TestARowThatWaitsForOthersIsDone(t *testing.T) {
	well := RowExplanation{Phase: atoll.RowActive, Online: true, Health: atoll.Healthy, Generation: 3, Reported: 3, WaitsFor: "Secret/a"}
	for name, c := range map[string]struct {
		change func(*RowExplanation)
		done   bool
	}{
		"well":                {func(*RowExplanation) {}, true},
		"away":                {func(r *RowExplanation) { r.Online = false }, false},
		"not healthy":         {func(r *RowExplanation) { r.Health = atoll.Progressing }, false},
		"with a problem":      {func(r *RowExplanation) { r.Problem = "Conflict" }, false},
		"reported before":     {func(r *RowExplanation) { r.Reported = 2 }, false},
		"the cluster is full": {func(r *RowExplanation) { r.Reason = string(atoll.ReasonNoCapacity) + ": full" }, false},
	} {
		r, t2 := well, rowTally{}
		c.change(&r)
		t2.countProgress("a", &r)
		want := rowTally{waiting: []string{"a"}}
		if c.done {
			want = rowTally{done: 1, othersWaiting: []string{"a"}}
		}
		if fmt.Sprint(t2) != fmt.Sprint(want) {
			t.Errorf("%s: %+v, want %+v", name, t2, want)
		}
	}
}

// An object that no Bundle has in its content is in no cluster, and stays on the hub where it states it.
func TestOnlyWhatABundleHasIsInClusters(t *testing.T) {
	unsent, sent := BundleExplanation{Item: unsentItem}, BundleExplanation{Item: plainItem}
	for _, c := range []struct {
		bundles      []BundleExplanation
		unsent, kept bool
	}{{nil, true, true}, {[]BundleExplanation{unsent}, true, true}, {[]BundleExplanation{unsent, sent}, false, false}} {
		e := Explanation{Bundles: c.bundles, PolicyMatch: &PolicyMatch{HubOnly: "it says so"}}
		if e.isInNoBundleContent() != c.unsent || e.isKeptOnHub() != c.kept {
			t.Errorf("%d Bundles: unsent %t, kept %t", len(c.bundles), e.isInNoBundleContent(), e.isKeptOnHub())
		}
	}
	if (Explanation{}).isKeptOnHub() || (Explanation{PolicyMatch: &PolicyMatch{}}).isKeptOnHub() {
		t.Error("an object is kept on the hub without a reason")
	}
}

// The verdict on a Placement says what is wrong with it.
func TestVerdictsOnPlacements(t *testing.T) {
	clusters := make([]ClusterExplanation, 3)
	for want, c := range map[string]PlacementExplanation{
		"Placement/p chooses no cluster, as it states.":                                                          {Decision: BundleExplanation{Nowhere: true, NoFit: true}},
		"Placement/p changes nothing, since its spread cannot be had: too few zones.":                            {Decision: BundleExplanation{Unmet: "too few zones", NoFit: true}},
		"Placement/p changes nothing, since its spread cannot be had: too few zones; what it chose stays: a, b.": {Published: []string{"a", "b"}, Decision: BundleExplanation{Unmet: "too few zones"}},
		"Placement/p chooses none of 3 clusters: no cluster fits.":                                               {Decision: BundleExplanation{NoFit: true, Clusters: clusters}},
		"Placement/p keeps what it chose, since no cluster fits any more: a, b.":                                 {Published: []string{"a", "b"}, Decision: BundleExplanation{NoFit: true, Clusters: clusters}},
		"Placement/p chooses 2 of 3 clusters.":                                                                   {Published: []string{"a", "b"}, Decision: BundleExplanation{Clusters: clusters}},
	} {
		e := Explanation{Group: "atoll.dev", Kind: "Placement", Name: "p", Exists: true, Chosen: &c}
		if got := e.verdictSentence(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A Placement's clusters are explained by its decision, and those that are published are named.
func TestAPlacementIsExplained(t *testing.T) {
	b := chosenBundle(v1alpha1.PlacementSpec{MaxClusters: 1}, []schedule.Cluster{testCluster("a", nil), testCluster("b", nil), testCluster("c", nil)}, nil)
	in := ExplanationInput{
		Object: atoll.ItemKey{Group: "atoll.dev", Kind: "Placement", Namespace: "shop", Name: "p"}, Exists: true, Now: testTime,
		Chosen: &Chosen{UID: "u", Spec: b.Spec.Placement, Decision: b.Decision},
	}
	e := Explain(in)
	if e.Chosen.Published == nil || len(e.Chosen.Published) > 0 || e.Chosen.Decision.UID != "u" || e.Chosen.Decision.Name != "p" || e.Chosen.Decision.Namespace != "shop" || e.Chosen.Decision.Placement.MaxClusters != 1 {
		t.Errorf("%+v", e.Chosen)
	}
	if want := "Placement/p in namespace shop chooses 0 of 3 clusters."; e.Verdict != want {
		t.Errorf("%q, want %q", e.Verdict, want)
	}
	chosen := ""
	for _, c := range e.Chosen.Decision.Clusters {
		if c.Verdict == schedule.OutcomePlaced {
			chosen = c.Cluster
		}
	}
	if text := e.FormatText(false); chosen == "" || !strings.Contains(text, "\n  "+chosen+" is chosen now, and about to be published.\n") || strings.Contains(text, "CLUSTER  WHY") {
		t.Errorf("before it is published:\n%s", text)
	}
	in.Chosen.Published = []string{chosen}
	if text := Explain(in).FormatText(false); !strings.Contains(text, "\n\n  CLUSTER  WHY\n  "+chosen+"  fits, scores ") || strings.Contains(text, "about to be published") {
		t.Errorf("once it is published:\n%s", text)
	}
	one, found := Explain(in).FilterCluster(chosen)
	if !found || len(one.Chosen.Decision.Clusters) != 1 || one.Chosen.Decision.Clusters[0].Cluster != chosen {
		t.Errorf("one cluster: %t, %+v", found, one.Chosen)
	}
	if none, found := Explain(in).FilterCluster("nosuch"); found || len(none.Chosen.Decision.Clusters) > 0 {
		t.Error("an unknown cluster has a part in it")
	}
	if (ExplanationInput{}).explainPlacement() != nil {
		t.Error("what is no Placement chooses")
	}
}

// Only the cluster that is asked about is left, and of the whole only the list of clusters.
func TestOneClusterIsFiltered(t *testing.T) {
	e := Explain(explainInput(webKey, shopBundle()))
	all := len(e.Bundles[0].Clusters)
	one, found := e.FilterCluster("tokyo")
	if !found || len(one.Bundles[0].Clusters) != 1 || one.Bundles[0].Clusters[0].Cluster != "tokyo" || one.Verdict != e.Verdict || one.Chosen != nil {
		t.Errorf("%t, %+v", found, one.Bundles[0].Clusters)
	}
	if len(e.Bundles[0].Clusters) != all {
		t.Error("the explanation itself is changed")
	}
	if _, found := e.FilterCluster("nosuch"); found {
		t.Error("an unknown cluster has a part in it")
	}
}

// A name of a candidate says by what it selects.
func TestNamesOfCandidates(t *testing.T) {
	for want, c := range map[string]Candidate{
		"its own annotation":                                 {Kind: v1alpha1.SourceAnnotation, Name: "web"},
		"the annotation of Shop/a":                           {Kind: v1alpha1.SourceAnnotation, Name: "web", Selects: "Shop/a"},
		"the annotation of namespace shop":                   {Kind: v1alpha1.SourceNamespaceAnnotation, Name: "shop"},
		"the default placement of the hub":                   {Kind: v1alpha1.SourceHubSettings, Name: "hub"},
		"PropagationPolicy web (priority -1)":                {Kind: "PropagationPolicy", Name: "web", Priority: -1},
		"PropagationPolicy web (by name)":                    {Kind: "PropagationPolicy", Name: "web", Matched: "by name"},
		"ClusterPropagationPolicy all (priority 2, by kind)": {Kind: "ClusterPropagationPolicy", Name: "all", Priority: 2, Matched: "by kind"},
		"PropagationPolicy web":                              {Kind: "PropagationPolicy", Name: "web"},
	} {
		if got := c.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// An object moves to another Bundle where another policy wins it from the one that holds it.
func TestOnlyItemsMoveToAnotherBundle(t *testing.T) {
	winner := &Candidate{Kind: "PropagationPolicy", Name: "web"}
	source := func(kind, name string) v1alpha1.BundleSource { return v1alpha1.BundleSource{Kind: kind, Name: name} }
	for _, c := range []struct {
		match  *PolicyMatch
		bundle BundleExplanation
		want   string
	}{
		{nil, BundleExplanation{Item: plainItem}, ""},
		{&PolicyMatch{}, BundleExplanation{Item: plainItem}, ""},
		{&PolicyMatch{Winner: winner}, BundleExplanation{Item: plainItem, Source: source("PropagationPolicy", "web")}, ""},
		{&PolicyMatch{Winner: winner}, BundleExplanation{Item: plainItem, Source: source("PropagationPolicy", "old")}, "PropagationPolicy web"},
		{&PolicyMatch{Winner: winner}, BundleExplanation{Item: dividedItem, Source: source("ClusterPropagationPolicy", "web")}, "PropagationPolicy web"},
		{&PolicyMatch{Winner: winner}, BundleExplanation{Item: dependencyItem, Source: source("PropagationPolicy", "old")}, ""},
	} {
		if got := (Explanation{PolicyMatch: c.match}).takeoverSource(c.bundle); got != c.want {
			t.Errorf("%+v, %+v: %q, want %q", c.match, c.bundle, got, c.want)
		}
	}
}

// Items that wait for the answers of scripts are shown once, with the names of the interpreters.
func TestAnswersOfATemplate(t *testing.T) {
	replicas := int64(3)
	for _, c := range []struct {
		answers *atoll.InterpreterAnswers
		want    string
	}{
		{nil, ""},
		{&atoll.InterpreterAnswers{}, ""},
		{&atoll.InterpreterAnswers{Replicas: &replicas}, "replicas"},
		{&atoll.InterpreterAnswers{Pods: []atoll.PodSet{}}, "components"},
		{&atoll.InterpreterAnswers{Replicas: &replicas, Pods: []atoll.PodSet{}, DependenciesComplete: true}, "replicas dependencies"},
		{&atoll.InterpreterAnswers{DependenciesComplete: true}, "dependencies"},
		{&atoll.InterpreterAnswers{Dependencies: []atoll.ItemKey{webKey}}, "dependencies"},
	} {
		if got := strings.Join(interpretedAnswers(c.answers), " "); got != c.want {
			t.Errorf("%+v: %q, want %q", c.answers, got, c.want)
		}
	}
}

// A row that has a share of one item and a first ordinal shows those to a user that may read the item.
func TestSharesAreShownToReaders(t *testing.T) {
	web, db := webKey.String(), atoll.ItemKey{Group: "apps", Kind: "StatefulSet", Namespace: "shop", Name: "db"}.String()
	spec := atoll.RowSpec{Assigned: map[string]int64{web: 2, db: 3, "text": 4}, OrdinalStarts: map[string]int64{db: 5}}
	whole := atoll.ItemKey{Group: "atoll.dev", Kind: "Bundle", Namespace: "shop", Name: "b"}
	bundle := Bundle{}
	bundle.Ref.Namespace = "shop"
	for name, c := range map[string]struct {
		in                 ExplanationInput
		assigned, ordinals string
	}{
		"of the object":   {ExplanationInput{Object: webKey}, fmt.Sprint(map[string]int64{web: 2}), "map[]"},
		"of the Bundle":   {ExplanationInput{Object: whole}, fmt.Sprint(map[string]int64{web: 2, db: 3}), fmt.Sprint(map[string]int64{db: 5})},
		"of what is read": {ExplanationInput{Object: whole, MayRead: func(k atoll.ItemKey) bool { return k == webKey }}, fmt.Sprint(map[string]int64{web: 2}), "map[]"},
	} {
		assigned, ordinals := c.in.visibleAssignments(bundle, spec)
		if fmt.Sprint(assigned) != c.assigned || fmt.Sprint(ordinals) != c.ordinals || ordinals != nil && len(ordinals) == 0 {
			t.Errorf("%s: %v, %v, want %s, %s", name, assigned, ordinals, c.assigned, c.ordinals)
		}
	}
}

// The health of the object is that of the last report: what a report leaves out is healthy once it is
// applied.
func TestHealthOfAnObjectAsReported(t *testing.T) {
	item := func(h atoll.Health, reason atoll.Reason, isError bool) []atoll.ItemStatus {
		return []atoll.ItemStatus{{Key: secretKey, Health: atoll.Degraded}, {Key: webKey, Health: h, Reason: reason, Error: isError, Message: "it is so"}}
	}
	for name, c := range map[string]struct {
		status  atoll.RowStatus
		health  atoll.Health
		reason  atoll.Reason
		problem string
	}{
		"removed":               {atoll.RowStatus{State: atoll.RowRemoved, Applied: true, Items: item(atoll.Degraded, "Bad", false)}, "", "", ""},
		"left out, and applied": {atoll.RowStatus{Applied: true, State: atoll.RowProgressing}, atoll.Healthy, "", ""},
		"left out, and ready":   {atoll.RowStatus{State: atoll.RowReady}, atoll.Healthy, "", ""},
		"left out":              {atoll.RowStatus{State: atoll.RowProgressing}, "", "", ""},
		"healthy":               {atoll.RowStatus{Items: item(atoll.Healthy, "Fine", false)}, atoll.Healthy, "", ""},
		"healthy with an error": {atoll.RowStatus{Items: item(atoll.Healthy, "Conflict", true)}, atoll.Healthy, "Conflict", "Conflict: it is so"},
		"healthy and denied":    {atoll.RowStatus{Items: item(atoll.Healthy, atoll.ReasonDeniedByPolicy, false)}, atoll.Healthy, atoll.ReasonDeniedByPolicy, string(atoll.ReasonDeniedByPolicy) + ": it is so"},
		"degraded":              {atoll.RowStatus{Items: item(atoll.Degraded, "Bad", false)}, atoll.Degraded, "Bad", "Bad: it is so"},
	} {
		health, reason, problem := (ExplanationInput{Object: webKey}).reportedHealth(&c.status)
		if health != c.health || reason != c.reason || problem != c.problem {
			t.Errorf("%s: %s, %s, %q", name, health, reason, problem)
		}
	}
	silent := atoll.RowStatus{Items: []atoll.ItemStatus{{Key: webKey, Health: atoll.Degraded, Reason: "Bad"}}}
	if _, _, problem := (ExplanationInput{Object: webKey}).reportedHealth(&silent); problem != "Bad" {
		t.Errorf("a problem without a message: %q", problem)
	}
}

// A wait is worded from the items that the user may read, wherever the row is on its way.
func TestWaitsOfRemovingRowsForReaders(t *testing.T) {
	in := ExplanationInput{MayRead: func(k atoll.ItemKey) bool { return k != secretKey }}
	removing := rollout.Row{Spec: atoll.RowSpec{Phase: atoll.RowRemoving, Generation: 2}}
	if got := in.visibleWait(removing, rollout.RowWait{For: "the cluster"}); got != "the cluster" {
		t.Errorf("%q", got)
	}
	removing.Spec.Reason = atoll.RowReason{Reason: atoll.ReasonRemovalHeld, Plan: "p"}.String()
	if got := in.visibleWait(removing, rollout.RowWait{For: "the cluster"}); got != "a confirmation of plan p" {
		t.Errorf("%q", got)
	}
	if got := nextStep(atoll.RowSpec{UID: "u", ExcludedPending: map[string]int64{webKey.String(): 1}}, &atoll.RowSpec{UID: "u", Generation: 1}); got != "loses what is not ordered there" {
		t.Errorf("%q", got)
	}
}
