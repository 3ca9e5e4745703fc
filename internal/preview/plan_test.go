package preview

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bundlecontent"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
)

var (
	webKey    = atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	secretKey = atoll.ItemKey{Kind: "Secret", Namespace: "shop", Name: "key"}
)

func testItem(k atoll.ItemKey, object string) atoll.Item {
	return atoll.Item{Key: k, APIVersion: "v1", UID: k.Name, Object: []byte(object), Hash: atoll.HashParts([]byte(object))}
}

func dividedItem(k atoll.ItemKey, object string) atoll.Item {
	i := testItem(k, object)
	i.Divided = true
	return i
}

func testContent(items ...atoll.Item) *atoll.Content {
	return &atoll.Content{Items: items, Removal: v1alpha1.RemoveDelete}
}

// shopChange is Bundle shop/web as it is: in oslo and tokyo, at revision r1.
func shopChange() BundleChange {
	was := testContent(testItem(secretKey, `{"data":{"token":"aHVudGVyMg=="}}`), testItem(webKey, `{"spec":{"containers":[{"name":"web","image":"web:1"},{"name":"log","image":"log:1"}]}}`))
	row := atoll.RowSpec{UID: "u", Revision: "r1", Phase: atoll.RowActive}
	rows := map[string]atoll.RowSpec{"oslo": row, "tokyo": row}
	return BundleChange{
		ID: policymatch.BundleID{Namespace: "shop", Name: "web"}, Source: v1alpha1.BundleSource{Kind: "PropagationPolicy", Name: "web"},
		Revision: "r1", Content: was, Contents: map[string]*atoll.Content{"r1": was}, Before: rows, After: rows,
	}
}

func withRevision(c BundleChange, next *atoll.Content) BundleChange {
	row := atoll.RowSpec{UID: "u", Revision: "r2", Phase: atoll.RowActive}
	c.Revision, c.Content, c.After = "r2", next, map[string]atoll.RowSpec{"oslo": row, "tokyo": row}
	return c
}

func planText(in Input) string { return BuildPlan(in).FormatText(false) }

func TestText(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*BundleChange, *Input)
		want   string
	}{
		"nothing": {func(*BundleChange, *Input) {}, "Nothing would change in any cluster.\n"},
		"fields, elements of lists by their names": {func(c *BundleChange, _ *Input) {
			*c = withRevision(*c, testContent(testItem(secretKey, `{"data":{"token":"aHVudGVyMg=="}}`), testItem(webKey, `{"spec":{"paused":true,"containers":[{"name":"log","image":"log:1"},{"name":"web","image":"web:2"}]}}`)))
		}, `Bundle shop/web (PropagationPolicy web)
  ~ oslo, tokyo
      ~ Deployment/web
          /spec/containers/name=web/image: "web:1" -> "web:2"
          /spec/paused: + true
1 Bundle: 0 added, 0 removed, 2 changed.
`},
		"a field is left to the member": {func(c *BundleChange, _ *Input) {
			web := c.Content.Items[1]
			web.Treatment = &atoll.Treatment{IgnoreFields: []string{"/spec/containers"}}
			*c = withRevision(*c, testContent(c.Content.Items[0], web))
		}, `Bundle shop/web (PropagationPolicy web)
  ~ oslo, tokyo
      ~ Deployment/web
          left to the member: /spec/containers
1 Bundle: 0 added, 0 removed, 2 changed.
`},
		"an edit of a field that belongs to the member, with one of another field": {func(c *BundleChange, _ *Input) {
			c.Content.Items[1].Treatment = &atoll.Treatment{IgnoreFields: []string{"/spec/replicas"}}
			web := testItem(webKey, `{"spec":{"replicas":2,"paused":true}}`)
			web.Treatment = c.Content.Items[1].Treatment
			c.Content.Items[1].Object = []byte(`{"spec":{"replicas":1}}`)
			*c = withRevision(*c, testContent(c.Content.Items[0], web))
		}, `Bundle shop/web (PropagationPolicy web)
  ~ oslo, tokyo
      ~ Deployment/web
          /spec/paused: + true
          /spec/replicas: 1 -> 2 (only in new objects: the field belongs to the member)
1 Bundle: 0 added, 0 removed, 2 changed.
`},
		"a field is corrected again": {func(c *BundleChange, _ *Input) {
			web := c.Content.Items[1]
			c.Content.Items[1].Treatment = &atoll.Treatment{Update: v1alpha1.UpdateCreateOnly}
			*c = withRevision(*c, testContent(c.Content.Items[0], web))
		}, `Bundle shop/web (PropagationPolicy web)
  ~ oslo, tokyo
      ~ Deployment/web
          corrected from now on: /spec
1 Bundle: 0 added, 0 removed, 2 changed.
`},
		"an edit that may recreate": {func(c *BundleChange, _ *Input) {
			web := testItem(webKey, `{"spec":{"containers":[{"name":"web","image":"web:2"},{"name":"log","image":"log:1"}]}}`)
			web.Treatment = &atoll.Treatment{Update: v1alpha1.UpdateRecreate}
			*c = withRevision(*c, testContent(c.Content.Items[0], web))
		}, `Bundle shop/web (PropagationPolicy web)
  ~ oslo, tokyo
      ~ Deployment/web (deleted and created again where the cluster refuses the edit)
          /spec/containers/name=web/image: "web:1" -> "web:2"
1 Bundle: 0 added, 0 removed, 2 changed.
`},
		"existing objects are overwritten": {func(c *BundleChange, _ *Input) {
			web := c.Content.Items[1]
			web.Treatment = &atoll.Treatment{ConflictResolution: v1alpha1.ConflictOverwrite}
			*c = withRevision(*c, testContent(c.Content.Items[0], web))
		}, `Bundle shop/web (PropagationPolicy web)
  ~ oslo, tokyo
      ~ Deployment/web
          objects that are not Atoll's: as the policy states -> Overwrite
1 Bundle: 0 added, 0 removed, 2 changed.
`},
		"a ServiceAccount is named": {func(c *BundleChange, _ *Input) {
			web := c.Content.Items[1]
			web.Treatment = &atoll.Treatment{ServiceAccount: "shop/deployer"}
			conf := testItem(atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "c"}, `{}`)
			conf.Treatment = web.Treatment
			*c = withRevision(*c, testContent(c.Content.Items[0], web, conf))
		}, `Bundle shop/web (PropagationPolicy web)
  ~ oslo, tokyo
      + ConfigMap/c
          needs rights of ServiceAccount: shop/deployer
      ~ Deployment/web
          needs rights of ServiceAccount: the agent's alone -> shop/deployer
1 Bundle: 0 added, 0 removed, 2 changed.
`},
		"drift is only reported": {func(c *BundleChange, _ *Input) {
			web := c.Content.Items[1]
			web.Treatment = &atoll.Treatment{Drift: v1alpha1.DriftReport}
			*c = withRevision(*c, testContent(c.Content.Items[0], web))
		}, `Bundle shop/web (PropagationPolicy web)
  ~ oslo, tokyo
      ~ Deployment/web would not be written, and differences would be reported
1 Bundle: 0 added, 0 removed, 2 changed.
`},
		"an object is written again": {func(c *BundleChange, _ *Input) {
			web := c.Content.Items[1]
			c.Content.Items[1].Treatment = &atoll.Treatment{Update: v1alpha1.UpdateReadOnly}
			*c = withRevision(*c, testContent(c.Content.Items[0], web))
		}, `Bundle shop/web (PropagationPolicy web)
  ~ oslo, tokyo
      ~ Deployment/web would be written from now on
1 Bundle: 0 added, 0 removed, 2 changed.
`},
		"a new object is read only": {func(c *BundleChange, _ *Input) {
			conf := testItem(atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "c"}, `{}`)
			conf.Treatment = &atoll.Treatment{Update: v1alpha1.UpdateReadOnly}
			*c = withRevision(*c, testContent(c.Content.Items[0], c.Content.Items[1], conf))
		}, `Bundle shop/web (PropagationPolicy web)
  ~ oslo, tokyo
      + ConfigMap/c would not be written, and its health would be reported
1 Bundle: 0 added, 0 removed, 2 changed.
`},
		"an item stays where the Bundle goes": {func(c *BundleChange, _ *Input) {
			c.Content.Items[0].Treatment = &atoll.Treatment{Removal: v1alpha1.RemoveOrphan}
			c.After = map[string]atoll.RowSpec{"oslo": c.Before["oslo"]}
		}, `Bundle shop/web (PropagationPolicy web)
  - tokyo: left running: Secret/key
1 Bundle: 0 added, 1 removed, 0 changed.
`},
		"values of Secrets are not shown": {func(c *BundleChange, _ *Input) {
			*c = withRevision(*c, testContent(testItem(secretKey, `{"data":{"token":"c2VjcmV0"}}`), c.Content.Items[1]))
		}, `Bundle shop/web (PropagationPolicy web)
  ~ oslo, tokyo
      ~ Secret/key
          /data/token: (not shown)
1 Bundle: 0 added, 0 removed, 2 changed.
`},
		"an item comes, one goes": {func(c *BundleChange, _ *Input) {
			*c = withRevision(*c, testContent(testItem(atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "c"}, `{}`), c.Content.Items[1]))
		}, `Bundle shop/web (PropagationPolicy web)
  ~ oslo, tokyo
      + ConfigMap/c
      - Secret/key
1 Bundle: 0 added, 0 removed, 2 changed.
`},
		"what the asker may not read is not there": {func(c *BundleChange, in *Input) {
			*c = withRevision(*c, testContent(c.Content.Items[0], testItem(webKey, `{"x":1}`)))
			in.MayReadItem = func(k atoll.ItemKey) bool { return k != webKey }
		}, "Nothing would change in any cluster.\n"},
		"a Bundle that the asker may not know is counted": {func(c *BundleChange, in *Input) {
			*c = withRevision(*c, testContent(c.Content.Items[0], testItem(webKey, `{"x":1}`)))
			in.MayKnowBundle = func(policymatch.BundleID) bool { return false }
		}, "1 more Bundles would be affected that you may not read.\n1 Bundle: 0 added, 0 removed, 0 changed.\n"},
		"a move": {func(c *BundleChange, _ *Input) {
			c.After = map[string]atoll.RowSpec{"oslo": c.Before["oslo"], "lima": {UID: "v", Revision: "r1", Phase: atoll.RowActive}}
		}, `Bundle shop/web (PropagationPolicy web), moves from tokyo to lima
  + lima
      + Secret/key
      + Deployment/web
  - tokyo
1 Bundle: 1 added, 1 removed, 0 changed.
`},
		"a row that waits to leave": {func(c *BundleChange, _ *Input) {
			leaving := c.Before["tokyo"]
			leaving.Phase = atoll.RowLeaving
			c.After = map[string]atoll.RowSpec{"oslo": c.Before["oslo"], "tokyo": leaving}
			c.Waiting = []rollout.RowWait{{Cluster: "tokyo", For: "lima to become ready"}}
			c.Content = testContent(c.Content.Items...)
			c.Content.Removal = v1alpha1.RemoveOrphan
		}, `Bundle shop/web (PropagationPolicy web)
  - tokyo: what runs there is left running; waits for lima to become ready
1 Bundle: 0 added, 1 removed, 0 changed.
`},
		"a Cluster that would be gone": {func(c *BundleChange, in *Input) {
			c.After = map[string]atoll.RowSpec{"oslo": c.Before["oslo"]}
			in.ViewsBefore = map[string]atoll.ClusterView{"oslo": {Name: "oslo"}, "tokyo": {Name: "tokyo"}}
			in.ViewsAfter = map[string]atoll.ClusterView{"oslo": {Name: "oslo"}}
		}, `Bundle shop/web (PropagationPolicy web)
  - tokyo: its Cluster would be gone; what runs there is given up
1 Bundle: 0 added, 1 removed, 0 changed.
`},
		"held": {func(c *BundleChange, _ *Input) {
			held := c.Before["tokyo"]
			held.Phase = atoll.RowHeld
			c.After = map[string]atoll.RowSpec{"oslo": c.Before["oslo"], "tokyo": held}
			c.Held = &rollout.PendingRemoval{Hash: "h", Lines: []string{"remove from tokyo (PlacementEdited)"}}
			c.Waiting = []rollout.RowWait{{Cluster: "tokyo", For: "a confirmation of plan h: PlacementEdited", Actor: atoll.ActorConfirmer}}
		}, "Bundle shop/web (PropagationPolicy web)\n  - tokyo: waits for a confirmation\n  Would wait for `atoll confirm`, being over the removal budget, not replaced, or stated so:\n    remove from tokyo (PlacementEdited)\n" +
			"1 Bundle: 0 added, 1 removed, 0 changed. 1 removal would wait for a confirmation.\n"},
		"held, of items that the asker may not all read": {func(c *BundleChange, in *Input) {
			c.Held = &rollout.PendingRemoval{Hash: "h", Lines: []string{"remove from tokyo: /Secret/shop/key u"}}
			in.MayReadItem = func(k atoll.ItemKey) bool { return k == webKey }
		}, "Bundle shop/web (PropagationPolicy web)\n  Would wait for `atoll confirm`, being over the removal budget, not replaced, or stated so:\n    RemovalHeld: removals of items that you may not all read\nNothing would change in any cluster.\n"},
		"problems and what is waited for": {func(c *BundleChange, _ *Input) {
			c.Problems = []bundlecontent.TemplateProblem{{Key: webKey, Err: errors.New("it is too large")}, {Key: secretKey, Err: errors.New("key is too large")}}
			c.Waits = "objects of kind X are not read yet"
		}, `Bundle shop/web (PropagationPolicy web)
  Nothing would be sent: objects of kind X are not read yet.
  ! Deployment/web could not be sent: it is too large
  ! an object could not be sent: cannot be sent; an Event on it would have the reason
Nothing would change in any cluster.
`},
		"a name that no cluster has": {func(c *BundleChange, in *Input) {
			c.Placement = v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{ClusterNames: []string{"tokyo", "toyko", "oslo"}}}
			c.After = map[string]atoll.RowSpec{"oslo": c.Before["oslo"]}
			in.ViewsAfter = map[string]atoll.ClusterView{"oslo": {Name: "oslo"}, "tokyo": {Name: "tokyo"}}
		}, "Bundle shop/web (PropagationPolicy web)\n  There is no cluster toyko, which the placement names.\n  - tokyo\n1 Bundle: 0 added, 1 removed, 0 changed.\n"},
		"an edit that only names what is not there": {func(c *BundleChange, in *Input) {
			c.Placement = v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{ClusterNames: []string{"tokyo", "toyko"}}}
			c.PlacementEdited, in.ViewsAfter = true, map[string]atoll.ClusterView{"tokyo": {Name: "tokyo"}}
		}, "Bundle shop/web (PropagationPolicy web)\n  There is no cluster toyko, which the placement names.\nNothing would change in any cluster.\n"},
		"an edit that suspends what is not there": {func(c *BundleChange, in *Input) {
			c.Suspension = &v1alpha1.Suspension{DispatchingOnClusters: &v1alpha1.SuspendedClusters{ClusterNames: []string{"tokyo", "toyko"}}}
			c.SuspensionEdited, in.ViewsAfter = true, map[string]atoll.ClusterView{"tokyo": {Name: "tokyo"}}
		}, "Bundle shop/web (PropagationPolicy web)\n  There is no cluster toyko, which the suspension names.\nNothing would change in any cluster.\n"},
		"an edit that depends on what places nothing": {func(c *BundleChange, _ *Input) { c.UnplacedDependencies = []string{"PropagationPolicy db"} },
			"Bundle shop/web (PropagationPolicy web)\n  PropagationPolicy db would place nothing, and dependsOn names it: further changes would wait.\nNothing would change in any cluster.\n"},
		"a suspended name without an object, which no write edits": {func(c *BundleChange, _ *Input) {
			c.Suspension = &v1alpha1.Suspension{DispatchingOnClusters: &v1alpha1.SuspendedClusters{ClusterNames: []string{"toyko"}}}
		}, "Nothing would change in any cluster.\n"},
		"a name without an object, which no write edits": {func(c *BundleChange, _ *Input) {
			c.Placement = v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{ClusterNames: []string{"toyko"}}}
		}, "Nothing would change in any cluster.\n"},
		"an item without a policy afterwards": {func(c *BundleChange, _ *Input) {
			*c = withRevision(*c, testContent(c.Content.Items[0], c.Content.Items[1]))
			c.Content.Items[1].State, c.NewRevision = atoll.ItemUnclaimed, true
		}, "Bundle shop/web (PropagationPolicy web)\n  Deployment/web would have no policy any more: what runs stays as it is, and edits would not be sent.\nNothing would change in any cluster.\n"},
		"an item without a policy already": {func(c *BundleChange, _ *Input) {
			c.Contents["r1"].Items[1].State = atoll.ItemUnclaimed
			*c = withRevision(*c, testContent(c.Content.Items...))
			c.NewRevision = true
		}, "Nothing would change in any cluster.\n"},
		"no cluster fits": {func(c *BundleChange, _ *Input) {
			c.Decision = schedule.Decision{NoFit: true, UnmetSpread: "3 regions are asked for"}
		},
			"Bundle shop/web (PropagationPolicy web)\n  No cluster would fit: 3 regions are asked for; what runs is kept.\nNothing would change in any cluster.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c, in := shopChange(), Input{}
			tc.change(&c, &in)
			in.Bundles = []BundleChange{c}
			if got := planText(in); got != tc.want {
				t.Errorf("says\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

func TestReplicas(t *testing.T) {
	c := shopChange()
	c.Content = testContent(dividedItem(webKey, `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":9}}`))
	c.Contents["r1"] = c.Content
	share := func(n int64) atoll.RowSpec {
		return atoll.RowSpec{UID: "u", Revision: "r1", Phase: atoll.RowActive, Assigned: map[string]int64{webKey.String(): n}}
	}
	c.Before = map[string]atoll.RowSpec{"oslo": share(4), "tokyo": share(5), "bergen": share(0)}
	c.After = map[string]atoll.RowSpec{"oslo": share(8), "lima": share(1), "bergen": share(0)}
	p := BuildPlan(Input{Bundles: []BundleChange{c}})
	got := p.FormatText(false)
	want := `Bundle shop/web (PropagationPolicy web), moves from tokyo to lima
  + lima: Deployment/web 1 replica
      + Deployment/web
  ~ oslo: Deployment/web 4 -> 8 replicas
      ~ Deployment/web
          /spec/replicas: 4 -> 8
  - tokyo: Deployment/web 5 -> no replicas
1 Bundle: 1 added, 1 removed, 1 changed.
`
	if got != want {
		t.Errorf("says\n%s\nwant\n%s", got, want)
	}
	if p.Bundles[0].Unchanged != 1 {
		t.Errorf("%d rows unchanged, want 1", p.Bundles[0].Unchanged)
	}
}

// A row that would be added for overflow has its reason.
func TestRowsThatTakeOverflow(t *testing.T) {
	c := shopChange()
	c.Before, c.After = map[string]atoll.RowSpec{}, map[string]atoll.RowSpec{}
	for _, cluster := range []string{"lima", "oslo"} {
		c.After[cluster] = atoll.RowSpec{UID: "u", Revision: "r1", Phase: atoll.RowActive}
	}
	c.Decision = schedule.Decision{Verdicts: []schedule.Verdict{{Cluster: "lima", Outcome: schedule.OutcomePlaced, OverflowStep: 1}, {Cluster: "oslo", Outcome: schedule.OutcomePlaced}}}
	p := BuildPlan(Input{Bundles: []BundleChange{c}})
	reasons := map[string]atoll.Reason{}
	for _, row := range p.Bundles[0].Rows {
		for _, cluster := range row.Clusters {
			reasons[cluster] = row.Reason
		}
	}
	if reasons["lima"] != atoll.ReasonTakesOverflow || reasons["oslo"] != "" || !strings.Contains(p.FormatText(false), "+ lima: it takes replicas that have no place in the chosen clusters") {
		t.Errorf("reasons %v:\n%s", reasons, p.FormatText(false))
	}
}

// A rule that does not apply any more keeps the cluster at what it has, and returns why.
func TestARuleThatDoesNotApply(t *testing.T) {
	c := shopChange()
	next := testContent(c.Content.Items...)
	next.Rules = []atoll.Rule{{Policy: "OverridePolicy/shop/o", Items: []atoll.ItemKey{webKey}, Target: &v1alpha1.ClusterTarget{ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"oslo"}}},
		Overriders: v1alpha1.Overriders{Plaintext: []v1alpha1.PlaintextOverrider{{Path: "/spec/none/such", Operator: "replace"}}}}}
	c = withRevision(c, next)
	views := map[string]atoll.ClusterView{"oslo": {Name: "oslo"}, "tokyo": {Name: "tokyo"}}
	got := planText(Input{Bundles: []BundleChange{c}, ViewsBefore: views, ViewsAfter: views})
	if !strings.Contains(got, "~ oslo\n      ~ Deployment/web could not be rendered, and stays as it is there: OverridePolicy/shop/o rule 0") || strings.Contains(got, "tokyo") {
		t.Error(got)
	}
}

// An object that waits in a cluster for a confirmation is there, and gone once it is confirmed.
func TestWhatWaitsIsThere(t *testing.T) {
	c := shopChange()
	c.Content = testContent(c.Content.Items...)
	c.Content.Rules = []atoll.Rule{{Policy: "OverridePolicy/shop/o", Items: []atoll.ItemKey{webKey}, Overriders: v1alpha1.Overriders{NotHere: new(true)}}}
	c.Contents = map[string]*atoll.Content{"r1": c.Content}
	confirmed := atoll.RowSpec{UID: "u", Revision: "r1", Phase: atoll.RowActive}
	waits := confirmed
	waits.ExcludedPending = map[string]int64{webKey.String(): 1}
	c.Before = map[string]atoll.RowSpec{"oslo": waits, "tokyo": waits}
	c.After = map[string]atoll.RowSpec{"oslo": confirmed, "tokyo": waits}
	if got := planText(Input{Bundles: []BundleChange{c}}); !strings.Contains(got, "~ oslo\n      - Deployment/web\n") || strings.Contains(got, "tokyo") {
		t.Error(got)
	}
}

// The same where nothing is there yet: nothing stays.
func TestARuleThatNeverApplied(t *testing.T) {
	c := shopChange()
	c.Content.Rules = []atoll.Rule{{Policy: "OverridePolicy/shop/o", Items: []atoll.ItemKey{webKey}, Target: &v1alpha1.ClusterTarget{ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"oslo"}}},
		Overriders: v1alpha1.Overriders{Plaintext: []v1alpha1.PlaintextOverrider{{Path: "/spec/none/such", Operator: "replace"}}}}}
	c.Before = nil
	views := map[string]atoll.ClusterView{"oslo": {Name: "oslo"}, "tokyo": {Name: "tokyo"}}
	got := planText(Input{Bundles: []BundleChange{c}, ViewsBefore: views, ViewsAfter: views})
	if !strings.Contains(got, "+ Deployment/web could not be rendered, and would not be sent: OverridePolicy/shop/o rule 0") {
		t.Error(got)
	}
}

func TestAFleetIsFolded(t *testing.T) {
	c := shopChange()
	c.Before, c.After = nil, map[string]atoll.RowSpec{}
	for i := range 1000 {
		c.After["c"+string(rune('a'+i%26))+strings.Repeat("x", i/26)] = atoll.RowSpec{UID: "u", Revision: "r1", Phase: atoll.RowActive}
	}
	p := BuildPlan(Input{Bundles: []BundleChange{c}})
	if got := p.FormatText(false); strings.Count(got, "\n") != 5 || !strings.Contains(got, "and 992 more") {
		t.Error(got)
	}
	if got := p.FormatText(true); strings.Count(got, ", ") < 999 {
		t.Error("--all leaves clusters out")
	}
}

// A changed choice of a Placement is reported, for a cluster-scoped one by its kind.
func TestPlacements(t *testing.T) {
	p := BuildPlan(Input{Placements: []PlacementPlan{
		{Namespace: "shop", Name: "same", Chosen: 3},
		{Namespace: "shop", Name: "near", Chosen: 2, Added: []string{"tokyo"}, Removed: []string{"oslo"}},
		{Name: "all", Chosen: 1, NoFit: true, Unmet: "3 regions are asked for"},
	}})
	want := `ClusterPlacement all would choose 1 cluster
  No cluster would fit: 3 regions are asked for; what is chosen stays.
Placement shop/near would choose 2 clusters
  + tokyo
  - oslo
2 Placements would choose others.
`
	if got := p.FormatText(false); got != want || !p.Changes {
		t.Errorf("says\n%s\nwant\n%s", got, want)
	}
}

// The JSON does not grow with clusters of equal changes, and the text not with Bundles beyond a
// readable length.
func TestAPlanOfManyIsSmall(t *testing.T) {
	c := shopChange()
	next := testContent(testItem(secretKey, `{}`), testItem(webKey, `{"spec":{"long":"`+strings.Repeat("x", 1000)+`"}}`))
	c.Revision, c.Content, c.Before, c.After = "r2", next, map[string]atoll.RowSpec{}, map[string]atoll.RowSpec{}
	for i := range 1000 {
		name := fmt.Sprintf("cluster-%d", i)
		c.Before[name], c.After[name] = atoll.RowSpec{UID: "u", Revision: "r1", Phase: atoll.RowActive}, atoll.RowSpec{UID: "u", Revision: "r2", Phase: atoll.RowActive}
	}
	p := BuildPlan(Input{Bundles: []BundleChange{c}})
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Bundles[0].Rows) != 1 || len(p.Bundles[0].Rows[0].Clusters) != 1000 || len(raw) > 20_000 {
		t.Errorf("%d rows in %d bytes", len(p.Bundles[0].Rows), len(raw))
	}
	var many []BundleChange
	for i := range 300 {
		one := shopChange()
		one.ID.Name = fmt.Sprintf("web-%d", i)
		one.Before = nil
		many = append(many, one)
	}
	p = BuildPlan(Input{Bundles: many})
	if got := p.FormatText(false); strings.Count(got, "Bundle shop/") != maxBundles || !strings.Contains(got, "and 200 more Bundles; --all shows them\n") || !strings.Contains(got, "300 Bundles: 600 added") {
		t.Error(got)
	}
	p.Unchecked = slices.Repeat([]Refusal{{Object: "ConfigMap c", Why: "its namespace comes with the same files"}}, 50)
	if got := p.FormatText(false); strings.Count(got, "? ConfigMap c was not checked") != maxLines || !strings.Contains(got, "? and 30 more were not checked by the hub\n") {
		t.Error(got)
	}
	if got := p.FormatText(true); strings.Count(got, "Bundle shop/") != 300 || strings.Count(got, "? ConfigMap c was not checked") != 50 {
		t.Error("--all leaves Bundles out")
	}
}

// The effect of newer overrides with the next change is reported, and only for clusters that they
// change.
func TestOverridesThatWaitAreTold(t *testing.T) {
	for name, tc := range map[string]struct {
		anew bool
		base int64
		want string
	}{
		"new overrides":      {true, 1, "\n  oslo would keep their overrides until the next change of what is sent there: the newer ones are of a policy with apply: WithNextChange.\nNothing would change in any cluster.\n"},
		"old ones":           {false, 1, "Nothing would change in any cluster.\n"},
		"none that may wait": {true, 0, "Nothing would change in any cluster.\n"},
	} {
		c := shopChange()
		first, second := atoll.RevisionName("u", 1, atoll.HashParts([]byte("a"))), atoll.RevisionName("u", 2, atoll.HashParts([]byte("b")))
		row := atoll.RowSpec{UID: "u", Revision: first, Phase: atoll.RowActive}
		c.Before = map[string]atoll.RowSpec{"oslo": row, "tokyo": row}
		c.After, c.Contents = c.Before, map[string]*atoll.Content{first: c.Content}
		next := testContent(c.Content.Items...)
		next.MinRevision = tc.base
		next.Rules = []atoll.Rule{{Policy: "OverridePolicy/shop/o", Items: []atoll.ItemKey{webKey}, Target: &v1alpha1.ClusterTarget{ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"oslo"}}},
			Overriders: v1alpha1.Overriders{Plaintext: []v1alpha1.PlaintextOverrider{{Path: "/spec/containers", Operator: "remove"}}}}}
		c.Revision, c.Content, c.NewRevision = second, next, tc.anew
		views := map[string]atoll.ClusterView{"oslo": {Name: "oslo"}, "tokyo": {Name: "tokyo"}}
		p := BuildPlan(Input{Bundles: []BundleChange{c}, ViewsBefore: views, ViewsAfter: views})
		if got := p.FormatText(false); !strings.HasSuffix(got, tc.want) || p.Changes || tc.want[0] != '\n' && got != tc.want {
			t.Errorf("%s: changes %t, says\n%s\nwant\n%s", name, p.Changes, got, tc.want)
		}
	}
}

// A workload that is divided no more has the replicas of its template, and not none; a removed one
// has none.
func TestWhatIsDividedNoMore(t *testing.T) {
	of := func(object string, divide bool) atoll.Item {
		i := testItem(webKey, object)
		i.Divided = divide
		return i
	}
	object := `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":9}}`
	for name, tc := range map[string]struct {
		items []atoll.Item
		want  string
	}{
		"duplicated": {[]atoll.Item{of(object, false)}, "  ~ oslo: Deployment/web would be divided no more\n      ~ Deployment/web\n          /spec/replicas: 4 -> 9\n"},
		"gone":       {nil, "  ~ oslo: Deployment/web 4 -> no replicas\n      - Deployment/web\n"},
	} {
		c := shopChange()
		was := testContent(of(object, true))
		c.Contents, c.Revision, c.Content = map[string]*atoll.Content{"r1": was}, "r2", testContent(tc.items...)
		c.Before = map[string]atoll.RowSpec{"oslo": {UID: "u", Revision: "r1", Phase: atoll.RowActive, Assigned: map[string]int64{webKey.String(): 4}}}
		c.After = map[string]atoll.RowSpec{"oslo": {UID: "u", Revision: "r2", Phase: atoll.RowActive}}
		if got := planText(Input{Bundles: []BundleChange{c}}); !strings.Contains(got, tc.want) {
			t.Errorf("%s: says\n%s\nwant\n%s", name, got, tc.want)
		}
	}
}
