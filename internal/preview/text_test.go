package preview

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bundlecontent"
	"atoll.dev/atoll/internal/policymatch"
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

func newInt(n int64) *int64 { return &n }

// The text of a plan begins with what is refused, and ends with the sum.
func TestTextsOfPlans(t *testing.T) {
	row := func(change ChangeKind, clusters ...string) RowGroup {
		return RowGroup{Change: change, Clusters: clusters}
	}
	const nothing = "Nothing would change in any cluster.\n"
	for name, c := range map[string]struct {
		plan Plan
		want string
	}{
		"nothing": {Plan{}, nothing},
		"refused": {Plan{Refused: []Refusal{{Object: "Secret a", Why: "no right"}}}, "! Secret a would be refused: no right\nNothing would change in any cluster: what is refused changes nothing.\n"},
		"others": {Plan{
			Unchecked: []Refusal{{Object: "Secret a", Why: "no hub"}}, Notes: []PolicyNote{{Object: "PropagationPolicy p", Note: "it is so"}},
			Unplaced: []UnplacedTemplate{{Key: secretKey, Why: "nothing selects it"}}, Hidden: 2, More: 3, Holding: "it was restored",
		}, "? Secret a was not checked by the hub: no hub\nnote: PropagationPolicy p: it is so\n? Secret/key would be placed nowhere: nothing selects it\n" +
			"2 more Bundles would be affected that you may not read.\n3 more Bundles were not looked at.\nThe hub holds and would send nothing now: it was restored. `atoll restore accept` ends that.\n" + nothing},
		"rows": {Plan{Changes: true, Hidden: 1, Bundles: []BundlePlan{{Namespace: "shop", Name: "web", Source: "Annotation web", New: true, Rows: []RowGroup{row(ChangeAdded, "b", "a"), row(ChangeRemoved, "c"), row(ChangeChanged, "d")}, Held: []string{"x", "y"}}}},
			"Bundle shop/web (Annotation web), new, moves from c to a, b\n  + b, a\n  - c\n  ~ d\n  Would wait for `atoll confirm`, being over the removal budget, not replaced, or stated so:\n    x\n    y\n" +
				"1 more Bundles would be affected that you may not read.\n2 Bundles: 2 added, 1 removed, 1 changed. 2 removals would wait for a confirmation.\n"},
		"a Placement": {Plan{Changes: true, Placements: []PlacementPlan{{Namespace: "shop", Name: "p", Chosen: 1, Added: []string{"a"}, Removed: []string{"b", "c"}}}},
			"Placement shop/p would choose 1 cluster\n  + a\n  - b, c\n1 Placement would choose others.\n"},
		"a ClusterPlacement": {Plan{Placements: []PlacementPlan{{Name: "p", Chosen: 2, NoFit: true, Unmet: "too few zones"}}},
			"ClusterPlacement p would choose 2 clusters\n  No cluster would fit: too few zones; what is chosen stays.\n" + nothing},
		"a Placement without a place": {Plan{Placements: []PlacementPlan{{Namespace: "shop", Name: "p", NoFit: true}}},
			"Placement shop/p would choose 0 clusters\n  No cluster would fit; what is chosen stays.\n" + nothing},
	} {
		if got := c.plan.FormatText(false); got != c.want {
			t.Errorf("%s: got\n%swant\n%s", name, got, c.want)
		}
	}
}

// A long plan is cut, and says what is left out. With all, nothing is.
func TestLongPlansAreCut(t *testing.T) {
	plan := func(n int) (p Plan) {
		for _, name := range nameClusters(n) {
			p.Refused, p.Unchecked = append(p.Refused, Refusal{Object: name}), append(p.Unchecked, Refusal{Object: name})
			p.Notes, p.Unplaced = append(p.Notes, PolicyNote{Object: name}), append(p.Unplaced, UnplacedTemplate{Key: secretKey})
		}
		return p
	}
	for _, c := range []struct {
		n    int
		all  bool
		more int
	}{{maxLines, false, 0}, {maxLines + 1, false, 1}, {maxLines + 3, false, 3}, {maxLines + 3, true, 0}} {
		text := plan(c.n).FormatText(c.all)
		for _, more := range []string{"! and %d more would be refused\n", "? and %d more were not checked by the hub\n", "and %d more notes\n", "? and %d more would be placed nowhere\n"} {
			if says := strings.Contains(text, fmt.Sprintf(more, c.more)); says != (c.more > 0) {
				t.Errorf("%d lines, all %t: %q is said: %t", c.n, c.all, more, says)
			}
		}
		if got, want := strings.Count(text, "would be refused: "), c.n-c.more; got != want {
			t.Errorf("%d lines, all %t: %d are shown, want %d", c.n, c.all, got, want)
		}
	}
	for _, c := range []struct {
		n    int
		all  bool
		more int
	}{{maxBundles, false, 0}, {maxBundles + 2, false, 2}, {maxBundles + 2, true, 0}} {
		text := Plan{Bundles: make([]BundlePlan, c.n)}.FormatText(c.all)
		if got := strings.Count(text, "Bundle  ("); got != c.n-c.more || strings.Contains(text, fmt.Sprintf("and %d more Bundles; --all shows them\n", c.more)) != (c.more > 0) {
			t.Errorf("%d Bundles, all %t: %d are shown", c.n, c.all, got)
		}
		held := BundlePlan{Held: make([]string, c.n-maxBundles+maxRows)}.formatPlan(c.all)
		if strings.Contains(held, fmt.Sprintf("    and %d more\n", c.more)) != (c.more > 0) || strings.Count(held, "\n    \n") == 0 {
			t.Errorf("%d held removals, all %t:\n%s", len(held), c.all, held)
		}
		item := ItemChange{Key: webKey, Change: ChangeChanged, Fields: make([]FieldChange, c.n-maxBundles+maxFieldsShown)}
		fields := BundlePlan{Rows: []RowGroup{{Change: ChangeChanged, Clusters: []string{"a"}, Items: []ItemChange{item}}}}.formatPlan(c.all)
		if got := strings.Count(fields, ": + null"); got != len(item.Fields)-c.more || strings.Contains(fields, fmt.Sprintf("          and %d more fields\n", c.more)) != (c.more > 0) {
			t.Errorf("%d fields, all %t: %d are shown\n%s", len(item.Fields), c.all, got, fields)
		}
	}
	for n, want := range map[int]string{8: "c00, c01, c02, c03, c04, c05, c06, c07", 9: "c00, c01, c02, c03, c04, c05, c06, c07 and 1 more", 10: "c00, c01, c02, c03, c04, c05, c06, c07 and 2 more"} {
		if got := abbreviateNames(nameClusters(n), false); got != want {
			t.Errorf("%d names: %q, want %q", n, got, want)
		}
	}
	if got := abbreviateNames(nameClusters(9), true); strings.Contains(got, "more") || !strings.HasSuffix(got, ", c08") {
		t.Errorf("all names: %q", got)
	}
}

// formatPlan returns the text of a plan of the Bundle alone, without its sum.
func (x BundlePlan) formatPlan(all bool) string {
	var b strings.Builder
	x.writeText(&b, all)
	return b.String()
}

// The text on a Bundle shows what has no place, and what could not be sent.
func TestTextsOfBundlePlans(t *testing.T) {
	var full []FullCluster
	for i, name := range nameClusters(maxRows + 1) {
		full = append(full, FullCluster{Cluster: name, Why: fmt.Sprint("reason ", i)})
	}
	for name, c := range map[string]struct {
		plan BundlePlan
		want string
	}{
		"it waits":       {BundlePlan{Waits: "its namespace"}, "  Nothing would be sent: its namespace.\n"},
		"no fit":         {BundlePlan{NoFit: true}, "  No cluster would fit; what runs is kept.\n"},
		"unmet":          {BundlePlan{NoFit: true, Unmet: "too few zones"}, "  No cluster would fit: too few zones; what runs is kept.\n"},
		"a problem":      {BundlePlan{Problems: []Refusal{{Object: "Secret/a", Why: "too large"}}}, "  ! Secret/a could not be sent: too large\n"},
		"full":           {BundlePlan{Full: []FullCluster{{Cluster: "a", Why: "9 of 9"}, {Cluster: "b", RowStays: true, Why: "9 of 9"}, {Cluster: "c", Why: "9 of 9"}}}, "  a, c would be left out: 9 of 9\n  b would stay as it is there: 9 of 9\n"},
		"unknown":        {BundlePlan{Unknown: []string{"a", "b"}}, "  There is no cluster a, b, which the placement names.\n"},
		"unweighed":      {BundlePlan{Unweighed: true, EvenDivision: true}, "  No entry of staticWeightList would match a cluster that is chosen: each would keep the replicas that it has.\n"},
		"even":           {BundlePlan{EvenDivision: true}, "  No entry of staticWeightList would match a cluster that is chosen: replicas would be divided evenly.\n"},
		"later":          {BundlePlan{OverridesLater: []string{"a"}}, "  a would keep their overrides until the next change of what is sent there: the newer ones are of a policy with apply: WithNextChange.\n"},
		"frozen":         {BundlePlan{Frozen: []string{"Secret/a"}}, "  Secret/a would have no policy any more: what runs stays as it is, and edits would not be sent.\n"},
		"short, and why": {BundlePlan{Short: []Shortage{{"Deployment/web", 5, 2, "they fit after scale-up of nodes with pool=gpu in a"}}}, "  2 of 5 replicas of Deployment/web would have no place.\n    they fit after scale-up of nodes with pool=gpu in a\n"},
		"unfit": {BundlePlan{Unfit: []UnfitCluster{{"a", schedule.FitNever, "Deployment/web: no node"}, {"b", schedule.FitAfterScaleUp, "Deployment/web: later"}, {"c", schedule.FitNever, "Deployment/web: no node"}}},
			"  a, c would get pods that never fit: Deployment/web: no node\n  b would get pods that fit after a scale-up: Deployment/web: later\n"},
		"short":       {BundlePlan{Short: []Shortage{{"Deployment/web", 5, 2, ""}}}, "  2 of 5 replicas of Deployment/web would have no place.\n"},
		"only added":  {BundlePlan{Rows: []RowGroup{{Change: ChangeAdded, Clusters: []string{"a"}}}}, "  + a\n"},
		"only remove": {BundlePlan{Rows: []RowGroup{{Change: ChangeRemoved, Clusters: []string{"a"}}}}, "  - a\n"},
	} {
		c.plan.Name, c.plan.Source = "b", "Annotation b"
		if got := c.plan.formatPlan(false); got != "Bundle b (Annotation b)\n"+c.want {
			t.Errorf("%s: got\n%swant\n%s", name, got, c.want)
		}
	}
	if text := (BundlePlan{Full: full}).formatPlan(false); strings.Count(text, "left out") != maxRows || !strings.HasSuffix(text, "\n  and more that are full, or where pods do not fit\n") {
		t.Errorf("full for many reasons:\n%s", text)
	}
	if text := (BundlePlan{Full: full}).formatPlan(true); strings.Count(text, "left out") != maxRows+1 || strings.Contains(text, "and more") {
		t.Errorf("all that is full:\n%s", text)
	}
}

// A row shows what would become of it, with shares by item.
func TestTextsOfRowPlans(t *testing.T) {
	web := webKey.String()
	gone := []ItemChange{{Key: webKey, Change: ChangeRemoved}}
	for name, c := range map[string]struct {
		row  RowGroup
		want string
	}{
		"plain":      {RowGroup{Change: ChangeChanged}, "  ~ a\n"},
		"a reason":   {RowGroup{Change: ChangeRemoved, Why: "excluded", Orphaned: true, Waits: "oslo"}, "  - a: excluded; what runs there is left running; waits for oslo\n"},
		"it stays":   {RowGroup{Change: ChangeRemoved, Stays: []string{"Secret/a", "Secret/b"}}, "  - a: left running: Secret/a, Secret/b\n"},
		"its hooks":  {RowGroup{Change: ChangeRemoved, Hooks: []string{"Job/backup (PreDelete)", "Job/bye (PostDelete)"}}, "  - a: runs hooks: Job/backup (PreDelete), Job/bye (PostDelete)\n"},
		"a share":    {RowGroup{Change: ChangeAdded, Replicas: map[string]ReplicaChange{web: {After: newInt(1)}, "text": {Before: newInt(2), After: newInt(5)}}}, "  + a: Deployment/web 1 replica; text 2 -> 5 replicas\n"},
		"no share":   {RowGroup{Change: ChangeRemoved, Replicas: map[string]ReplicaChange{web: {Before: newInt(3)}}}, "  - a: Deployment/web 3 -> no replicas\n"},
		"undivided":  {RowGroup{Change: ChangeChanged, Replicas: map[string]ReplicaChange{web: {Before: newInt(3)}}}, "  ~ a: Deployment/web would be divided no more\n"},
		"it is gone": {RowGroup{Change: ChangeChanged, Items: gone, Replicas: map[string]ReplicaChange{web: {Before: newInt(3)}}}, "  ~ a: Deployment/web 3 -> no replicas\n      - Deployment/web\n"},
	} {
		c.row.Clusters = []string{"a"}
		var b strings.Builder
		if c.row.writeText(&b, false); b.String() != c.want {
			t.Errorf("%s: %q, want %q", name, b.String(), c.want)
		}
	}
}

// An item shows what its cluster would do with it, and which fields would change.
func TestTextsOfItemPlans(t *testing.T) {
	for name, c := range map[string]struct {
		item ItemChange
		want string
	}{
		"added":         {ItemChange{Change: ChangeAdded}, "      + Deployment/web\n"},
		"not rendered":  {ItemChange{Change: ChangeAdded, Error: "no"}, "      + Deployment/web could not be rendered, and would not be sent: no\n"},
		"as it is":      {ItemChange{Change: ChangeChanged, Error: "no"}, "      ~ Deployment/web could not be rendered, and stays as it is there: no\n"},
		"approval":      {ItemChange{Change: ChangeChanged, Observe: atoll.ObserveForApproval}, "      ~ Deployment/web would not be written before a person approves the differences that are reported\n"},
		"drift":         {ItemChange{Change: ChangeChanged, Observe: atoll.ObserveDrift}, "      ~ Deployment/web would not be written, and differences would be reported\n"},
		"health":        {ItemChange{Change: ChangeChanged, Observe: atoll.ObserveHealth}, "      ~ Deployment/web would not be written, and its health would be reported\n"},
		"recreated":     {ItemChange{Change: ChangeChanged, Recreate: true, Written: true}, "      ~ Deployment/web (deleted and created again where the cluster refuses the edit)\n"},
		"written":       {ItemChange{Change: ChangeChanged, Written: true}, "      ~ Deployment/web would be written from now on\n"},
		"a resolution":  {ItemChange{Change: ChangeChanged, ConflictAfter: v1alpha1.ConflictOverwrite}, "      ~ Deployment/web\n          objects that are not Atoll's: as the policy states -> Overwrite\n"},
		"no resolution": {ItemChange{Change: ChangeChanged, ConflictBefore: v1alpha1.ConflictAbort}, "      ~ Deployment/web\n          objects that are not Atoll's: Abort -> as the policy states\n"},
		"other rules":   {ItemChange{Change: ChangeChanged, Reassessed: true}, "      ~ Deployment/web\n          assessed by other rules of feedback, health, completion or ttlSecondsAfterFinished\n"},
		"added wave":    {ItemChange{Change: ChangeAdded, WaveAfter: -1}, "      + Deployment/web\n          wave: -1\n"},
		"added hook":    {ItemChange{Change: ChangeAdded, HookAfter: "PreSync"}, "      + Deployment/web\n          hook: PreSync\n"},
		"hook runs":     {ItemChange{Change: ChangeChanged, HookRuns: true}, "      ~ Deployment/web\n          hook: runs again\n"},
		"no hook":       {ItemChange{Change: ChangeChanged, HookBefore: "PreSync"}, "      ~ Deployment/web\n          hook: PreSync -> no hook\n"},
		"no wave":       {ItemChange{Change: ChangeChanged, WaveBefore: 3}, "      ~ Deployment/web\n          wave: 3 -> 0\n"},
		"no account":    {ItemChange{Change: ChangeChanged, ServiceAccountBefore: "shop/a"}, "      ~ Deployment/web\n          needs rights of ServiceAccount: shop/a -> the agent's alone\n"},
		"owned":         {ItemChange{Change: ChangeChanged, Released: []string{"/a"}, Corrected: []string{"/b", "/c"}}, "      ~ Deployment/web\n          left to the member: /a\n          corrected from now on: /b, /c\n"},
		"fields": {ItemChange{Change: ChangeChanged, Fields: []FieldChange{{Path: "/a", After: "x"}, {Path: "/b", Before: 1, After: 2, MemberOwned: true}, {Path: "/c", Before: true}, {Path: "/d", Hidden: true}}},
			"      ~ Deployment/web\n          /a: + \"x\"\n          /b: 1 -> 2 (only in new objects: the field belongs to the member)\n          /c: - true\n          /d: (not shown)\n"},
	} {
		c.item.Key = webKey
		var b strings.Builder
		if c.item.writeText(&b, false); b.String() != c.want {
			t.Errorf("%s: %q, want %q", name, b.String(), c.want)
		}
	}
}

// A value is written as JSON. A long one is cut at a whole character.
func TestValuesAreWrittenAsJSON(t *testing.T) {
	text := func(n int) string { return strings.Repeat("x", n) }
	for _, c := range []struct {
		value any
		all   bool
		want  string
	}{
		{map[string]any{"a": []any{1, nil}}, false, `{"a":[1,null]}`},
		{text(maxValueLength - 2), false, `"` + text(maxValueLength-2) + `"`},
		{text(maxValueLength - 1), false, `"` + text(maxValueLength-1) + "…"},
		{text(maxValueLength - 1), true, `"` + text(maxValueLength-1) + `"`},
		{text(maxValueLength-2) + "ö" + text(9), false, `"` + text(maxValueLength-2) + "…"},
		{math.NaN(), false, "NaN"},
	} {
		if got := FormatValue(c.value, c.all); got != c.want {
			t.Errorf("%v: %q, want %q", c.value, got, c.want)
		}
	}
}

// A Secret's values are hidden. Fields that a member owns are marked, and no more than 200 are listed.
func TestFieldsThatWouldChange(t *testing.T) {
	item := func(key atoll.ItemKey, object string, owned ...string) *atoll.RenderedItem {
		return &atoll.RenderedItem{Key: key, Object: []byte(object), MemberOwned: owned}
	}
	for name, c := range map[string]struct {
		was, now *atoll.RenderedItem
		want     string
	}{
		"an edit":            {item(webKey, `{"a":1,"b":2}`), item(webKey, `{"a":1,"b":3}`), "[{/b 2 3 false false}]"},
		"of a Secret":        {item(secretKey, `{"data":{"a":"x"}}`), item(secretKey, `{"data":{"a":"y"}}`), "[{/data/a <nil> <nil> true false}]"},
		"a member's field":   {item(webKey, `{"a":1}`), item(webKey, `{"a":2}`, "/a"), "[{/a 1 2 false true}]"},
		"a part of one":      {item(webKey, `{"a":{"b":1}}`), item(webKey, `{"a":{"b":2}}`, "/a"), "[{/a/b 1 2 false true}]"},
		"a longer name":      {item(webKey, `{"ab":1}`), item(webKey, `{"ab":2}`, "/a"), "[{/ab 1 2 false false}]"},
		"no JSON before":     {item(webKey, `text`), item(webKey, `{"a":2}`), "[]"},
		"no JSON afterwards": {item(webKey, `{"a":2}`), item(webKey, `text`), "[]"},
	} {
		if got := fmt.Sprint(changedFields(c.was, c.now)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	var fields []string
	for i := range maxFields + 5 {
		fields = append(fields, fmt.Sprintf(`"f%03d":1`, i))
	}
	if got := changedFields(item(webKey, "{}"), item(webKey, "{"+strings.Join(fields, ",")+"}")); len(got) != maxFields {
		t.Errorf("%d fields are listed", len(got))
	}
}

// A plan lists what its reader may know of, by name.
func TestPlansShowWhatTheirReaderMayKnow(t *testing.T) {
	change := func(namespace, name string) BundleChange {
		c := withRevision(shopChange(), testContent(testItem(webKey, `{"spec":{"paused":true}}`), testItem(secretKey, `{"data":{"token":"aHVudGVyMg=="}}`)))
		c.ID = policymatch.BundleID{Namespace: namespace, Name: name}
		return c
	}
	in := Input{
		Bundles:    []BundleChange{change("shop", "web"), change("shop", "api"), change("blog", "web"), change("hidden", "web")},
		Placements: []PlacementPlan{{Namespace: "shop", Name: "b", Added: []string{"a"}}, {Namespace: "shop", Name: "a", Removed: []string{"a"}}, {Namespace: "blog", Name: "b", NoFit: true}, {Namespace: "blog", Name: "same"}},
		Unplaced:   []UnplacedTemplate{{Key: webKey, Why: "x"}, {Key: secretKey, Why: "x"}, {Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "c"}, Why: "x"}},
		Refused:    []Refusal{{Object: "r"}}, Unchecked: []Refusal{{Object: "u"}}, MoreBundles: 4, Holding: "it was restored",
		MayKnowBundle: func(id policymatch.BundleID) bool { return id.Namespace != "hidden" },
		MayReadItem:   func(key atoll.ItemKey) bool { return !key.IsSecret() },
	}
	p := BuildPlan(in)
	var bundles, placements, unplaced []string
	for _, b := range p.Bundles {
		bundles = append(bundles, b.Namespace+"/"+b.Name)
	}
	for _, pl := range p.Placements {
		placements = append(placements, pl.Namespace+"/"+pl.Name)
	}
	for _, u := range p.Unplaced {
		unplaced = append(unplaced, u.Key.Kind)
	}
	if got := strings.Join(bundles, " "); got != "blog/web shop/api shop/web" {
		t.Errorf("Bundles %s", got)
	}
	if got := strings.Join(placements, " "); got != "blog/b shop/a shop/b" {
		t.Errorf("Placements %s", got)
	}
	if got := strings.Join(unplaced, " "); got != "ConfigMap Deployment" {
		t.Errorf("unplaced %s", got)
	}
	if !p.Changes || p.Hidden != 1 || p.More != 4 || p.Holding != "it was restored" || p.HoldingReason != atoll.ReasonHubHolds || len(p.Refused) != 1 || len(p.Unchecked) != 1 {
		t.Errorf("%+v", p)
	}
	for name, c := range map[string]struct {
		in      Input
		changes bool
		hidden  int
	}{
		"nothing":                        {Input{}, false, 0},
		"a Placement that fits nowhere":  {Input{Placements: []PlacementPlan{{NoFit: true}}}, false, 0},
		"a Placement that chooses":       {Input{Placements: []PlacementPlan{{Added: []string{"a"}}}}, true, 0},
		"a Placement, then one that not": {Input{Placements: []PlacementPlan{{Added: []string{"a"}}, {NoFit: true}}}, true, 0},
		"only a hidden Bundle":           {Input{Bundles: in.Bundles[3:], MayKnowBundle: in.MayKnowBundle}, true, 1},
		"a hidden one without rows":      {Input{Bundles: []BundleChange{{ID: policymatch.BundleID{Namespace: "hidden"}, Waits: "it"}}, MayKnowBundle: in.MayKnowBundle}, false, 1},
		"a Bundle as it is":              {Input{Bundles: []BundleChange{shopChange()}}, false, 0},
	} {
		if got := BuildPlan(c.in); got.Changes != c.changes || got.Hidden != c.hidden || got.HoldingReason != "" || got.Bundles == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A Bundle is shown where a row, a wait or a problem is to be said. Notes on its placement need an edit of
// the placement.
func TestBundlesThatAreShown(t *testing.T) {
	for name, c := range map[string]struct {
		plan   BundlePlan
		edited bool
		want   bool
	}{
		"nothing":                    {BundlePlan{}, true, false},
		"rows":                       {BundlePlan{Rows: make([]RowGroup, 1)}, false, true},
		"held removals":              {BundlePlan{Held: []string{"x"}}, false, true},
		"problems":                   {BundlePlan{Problems: make([]Refusal, 1)}, false, true},
		"overrides later":            {BundlePlan{OverridesLater: []string{"a"}}, false, true},
		"frozen":                     {BundlePlan{Frozen: []string{"a"}}, false, true},
		"unweighed":                  {BundlePlan{Unweighed: true}, false, false},
		"unweighed by an edit":       {BundlePlan{Unweighed: true}, true, true},
		"even by an edit":            {BundlePlan{EvenDivision: true}, true, true},
		"unknown":                    {BundlePlan{Unknown: []string{"a"}}, false, false},
		"unknown by an edit":         {BundlePlan{Unknown: []string{"a"}}, true, true},
		"it waits":                   {BundlePlan{Waits: "x"}, false, true},
		"no fit":                     {BundlePlan{NoFit: true}, false, true},
		"a cluster that is full":     {BundlePlan{Full: []FullCluster{{Cluster: "a"}}}, false, false},
		"a row in a cluster as full": {BundlePlan{Full: []FullCluster{{Cluster: "a"}, {Cluster: "b", RowStays: true}}}, false, true},
	} {
		if got := c.plan.isShown(c.edited); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Problems and held removals of what the reader may not read are only counted.
func TestSecretsStaySecretInPlans(t *testing.T) {
	content := testContent(testItem(webKey, "{}"), testItem(secretKey, "{}"))
	bundle := func() BundleChange {
		return BundleChange{
			ID: policymatch.BundleID{Namespace: "shop", Name: "web"}, Content: content, Held: &rollout.PendingRemoval{Lines: []string{"remove Secret/key"}},
			Problems: []bundlecontent.TemplateProblem{{Key: webKey, Err: errors.New("too large")}, {Key: secretKey, Err: errors.New("too secret")}, {Err: errors.New("of all")}},
			Short:    []schedule.Shortage{{Key: webKey, Replicas: 3, Unplaced: 1}, {Key: secretKey, Replicas: 3, Unplaced: 1}},
		}
	}
	const hidden = "  ! an object could not be sent: cannot be sent; an Event on it would have the reason\n"
	const heading = "  Would wait for `atoll confirm`, being over the removal budget, not replaced, or stated so:\n"
	const short = "  1 of 3 replicas of %s would have no place.\n"
	web, all := fmt.Sprintf(short, "Deployment/web"), fmt.Sprintf(short, "Deployment/web")+fmt.Sprintf(short, "Secret/key")
	for name, c := range map[string]struct {
		mayRead func(atoll.ItemKey) bool
		want    string
	}{
		"a reader of all": {nil, all + "  ! Deployment/web could not be sent: too large\n" + hidden + "  ! its content could not be sent: of all\n" + heading + "    remove Secret/key\n"},
		"another":         {func(k atoll.ItemKey) bool { return k == webKey }, web + "  ! Deployment/web could not be sent: too large\n" + hidden + "  ! its content could not be sent: of all\n" + heading + "    RemovalHeld: removals of items that you may not all read\n"},
	} {
		p := BuildPlan(Input{Bundles: []BundleChange{bundle()}, MayReadItem: c.mayRead})
		if got, want := p.Bundles[0].formatPlan(false), "Bundle shop/web ( )\n"+c.want; got != want {
			t.Errorf("%s: got\n%swant\n%s", name, got, want)
		}
	}
}

// A plan names what workloadAffinity refuses, and terms that do nothing.
func TestWorkloadAffinityInPlans(t *testing.T) {
	group := schedule.WorkloadGroup{Key: "tier", Value: "db", Others: map[string]bool{"lima": true}, NameAt: func(string) schedule.MemberName {
		return schedule.MemberName{Text: "Deployment shop/a", Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "a"}}
	}}
	d := schedule.DecidePlacement(schedule.Input{
		BundleUID: "web", Clusters: []schedule.Cluster{{ClusterView: atoll.ClusterView{Name: "oslo"}, UID: "u", Accepted: true}},
		WorkloadGroups: &schedule.WorkloadGroups{List: []schedule.WorkloadGroup{group}, Terms: []schedule.WorkloadTerm{{Term: "affinity", Key: "tier", Values: []string{"db"}}, {Term: "antiAffinity", Key: "stack"}}},
	})
	x := BundlePlan{Namespace: "shop", Name: "web", NoFit: d.NoFit, WorkloadAffinity: explainWorkloadAffinity(&d, nil)}
	var b strings.Builder
	x.writeText(&b, false)
	for _, want := range []string{
		"  workloadAffinity.antiAffinity does nothing: no template of the Bundle has the label stack.\n",
		"  clusters that fit otherwise are refused: it is kept together with Deployment shop/a, which runs in lima (group tier=db).\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	hidden := explainWorkloadAffinity(&d, func(atoll.ItemKey) bool { return false })
	if text := strings.Join(hidden, " "); strings.Contains(text, "shop/a") || !strings.Contains(text, "kept together with another member of the group, which runs in lima") {
		t.Errorf("a reader of other kinds is shown %s", text)
	}
}
