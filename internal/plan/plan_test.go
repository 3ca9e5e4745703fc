package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
)

var (
	web = atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	key = atoll.ItemKey{Kind: "Secret", Namespace: "shop", Name: "key"}
)

func item(k atoll.ItemKey, object string) atoll.Item {
	return atoll.Item{Key: k, APIVersion: "v1", UID: k.Name, Object: []byte(object), Hash: atoll.Hash([]byte(object))}
}

func divided(k atoll.ItemKey, object string) atoll.Item {
	i := item(k, object)
	i.Divided = true
	return i
}

func content(items ...atoll.Item) *atoll.Content {
	return &atoll.Content{Items: items, Removal: v1alpha1.RemoveDelete}
}

// shop is Bundle shop/web as it is: in oslo and tokyo, at revision r1.
func shop() Change {
	was := content(item(key, `{"data":{"token":"aHVudGVyMg=="}}`), item(web, `{"spec":{"containers":[{"name":"web","image":"web:1"},{"name":"log","image":"log:1"}]}}`))
	row := atoll.RowSpec{UID: "u", Revision: "r1", Phase: atoll.RowActive}
	rows := map[string]atoll.RowSpec{"oslo": row, "tokyo": row}
	return Change{
		ID: claim.BundleID{Namespace: "shop", Name: "web"}, Source: v1alpha1.BundleSource{Kind: "PropagationPolicy", Name: "web"},
		Revision: "r1", Content: was, Contents: map[string]*atoll.Content{"r1": was}, Before: rows, After: rows,
	}
}

func to(c Change, next *atoll.Content) Change {
	row := atoll.RowSpec{UID: "u", Revision: "r2", Phase: atoll.RowActive}
	c.Revision, c.Content, c.After = "r2", next, map[string]atoll.RowSpec{"oslo": row, "tokyo": row}
	return c
}

func text(in Input) string { return Of(in).Text(false) }

func TestText(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Change, *Input)
		want   string
	}{
		"nothing": {func(*Change, *Input) {}, "Nothing would change in any cluster.\n"},
		"fields, elements of lists by their names": {func(c *Change, _ *Input) {
			*c = to(*c, content(item(key, `{"data":{"token":"aHVudGVyMg=="}}`), item(web, `{"spec":{"paused":true,"containers":[{"name":"log","image":"log:1"},{"name":"web","image":"web:2"}]}}`)))
		}, `Bundle shop/web (PropagationPolicy web)
  ~ oslo, tokyo
      ~ Deployment/web
          /spec/containers/name=web/image: "web:1" -> "web:2"
          /spec/paused: + true
1 Bundle: 0 added, 0 removed, 2 changed.
`},
		"values of Secrets are not shown": {func(c *Change, _ *Input) {
			*c = to(*c, content(item(key, `{"data":{"token":"c2VjcmV0"}}`), c.Content.Items[1]))
		}, `Bundle shop/web (PropagationPolicy web)
  ~ oslo, tokyo
      ~ Secret/key
          /data/token: (not shown)
1 Bundle: 0 added, 0 removed, 2 changed.
`},
		"an item comes, one goes": {func(c *Change, _ *Input) {
			*c = to(*c, content(item(atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "c"}, `{}`), c.Content.Items[1]))
		}, `Bundle shop/web (PropagationPolicy web)
  ~ oslo, tokyo
      + ConfigMap/c
      - Secret/key
1 Bundle: 0 added, 0 removed, 2 changed.
`},
		"what the asker may not read is not there": {func(c *Change, in *Input) {
			*c = to(*c, content(c.Content.Items[0], item(web, `{"x":1}`)))
			in.Visible = func(k atoll.ItemKey) bool { return k != web }
		}, "Nothing would change in any cluster.\n"},
		"a Bundle that the asker may not know is counted": {func(c *Change, in *Input) {
			*c = to(*c, content(c.Content.Items[0], item(web, `{"x":1}`)))
			in.Known = func(claim.BundleID) bool { return false }
		}, "1 more Bundles would be affected that you may not read.\n1 Bundle: 0 added, 0 removed, 0 changed.\n"},
		"a move": {func(c *Change, _ *Input) {
			c.After = map[string]atoll.RowSpec{"oslo": c.Before["oslo"], "lima": {UID: "v", Revision: "r1", Phase: atoll.RowActive}}
		}, `Bundle shop/web (PropagationPolicy web), moves from tokyo to lima
  + lima
      + Secret/key
      + Deployment/web
  - tokyo
1 Bundle: 1 added, 1 removed, 0 changed.
`},
		"a row that waits to leave": {func(c *Change, _ *Input) {
			leaving := c.Before["tokyo"]
			leaving.Phase = atoll.RowLeaving
			c.After = map[string]atoll.RowSpec{"oslo": c.Before["oslo"], "tokyo": leaving}
			c.Waiting = []rollout.Wait{{Cluster: "tokyo", For: "lima to become ready"}}
			c.Content = content(c.Content.Items...)
			c.Content.Removal = v1alpha1.RemoveOrphan
		}, `Bundle shop/web (PropagationPolicy web)
  - tokyo: what runs there is left running; waits for lima to become ready
1 Bundle: 0 added, 1 removed, 0 changed.
`},
		"a Cluster that would be gone": {func(c *Change, in *Input) {
			c.After = map[string]atoll.RowSpec{"oslo": c.Before["oslo"]}
			in.ViewsBefore = map[string]atoll.ClusterView{"oslo": {Name: "oslo"}, "tokyo": {Name: "tokyo"}}
			in.ViewsAfter = map[string]atoll.ClusterView{"oslo": {Name: "oslo"}}
		}, `Bundle shop/web (PropagationPolicy web)
  - tokyo: its Cluster would be gone; what runs there is given up
1 Bundle: 0 added, 1 removed, 0 changed.
`},
		"held": {func(c *Change, _ *Input) {
			held := c.Before["tokyo"]
			held.Phase = atoll.RowHeld
			c.After = map[string]atoll.RowSpec{"oslo": c.Before["oslo"], "tokyo": held}
			c.Held = &rollout.Plan{Hash: "h", Lines: []string{"remove from tokyo (PlacementEdited)"}}
			c.Waiting = []rollout.Wait{{Cluster: "tokyo", For: "a confirmation of plan h: PlacementEdited", Who: rollout.WhoConfirm}}
		}, "Bundle shop/web (PropagationPolicy web)\n  - tokyo: waits for a confirmation\n  Would wait for `atoll confirm`, being over the removal budget or not replaced:\n    remove from tokyo (PlacementEdited)\n" +
			"1 Bundle: 0 added, 1 removed, 0 changed. 1 removal would wait for a confirmation.\n"},
		"held, of items that the asker may not all read": {func(c *Change, in *Input) {
			c.Held = &rollout.Plan{Hash: "h", Lines: []string{"remove from tokyo: /Secret/shop/key u"}}
			in.Visible = func(k atoll.ItemKey) bool { return k == web }
		}, "Bundle shop/web (PropagationPolicy web)\n  Would wait for `atoll confirm`, being over the removal budget or not replaced:\n    RemovalHeld: removals of items that you may not all read\nNothing would change in any cluster.\n"},
		"problems and what is waited for": {func(c *Change, _ *Input) {
			c.Problems = []claim.Problem{{Key: web, Err: errors.New("it is too large")}, {Key: key, Err: errors.New("key is too large")}}
			c.Waits = "objects of kind X are not read yet"
		}, `Bundle shop/web (PropagationPolicy web)
  Nothing would be sent: objects of kind X are not read yet.
  ! Deployment/web could not be sent: it is too large
  ! an object could not be sent: cannot be sent; an Event on it would say why
Nothing would change in any cluster.
`},
		"a name that no cluster has": {func(c *Change, in *Input) {
			c.Placement = v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{ClusterNames: []string{"tokyo", "toyko", "oslo"}}}
			c.After = map[string]atoll.RowSpec{"oslo": c.Before["oslo"]}
			in.ViewsAfter = map[string]atoll.ClusterView{"oslo": {Name: "oslo"}, "tokyo": {Name: "tokyo"}}
		}, "Bundle shop/web (PropagationPolicy web)\n  There is no cluster toyko, which the placement names.\n  - tokyo\n1 Bundle: 0 added, 1 removed, 0 changed.\n"},
		"an edit that only names what is not there": {func(c *Change, in *Input) {
			c.Placement = v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{ClusterNames: []string{"tokyo", "toyko"}}}
			c.Edited, in.ViewsAfter = true, map[string]atoll.ClusterView{"tokyo": {Name: "tokyo"}}
		}, "Bundle shop/web (PropagationPolicy web)\n  There is no cluster toyko, which the placement names.\nNothing would change in any cluster.\n"},
		"a name that is not there, and that nobody edits": {func(c *Change, _ *Input) {
			c.Placement = v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{ClusterNames: []string{"toyko"}}}
		}, "Nothing would change in any cluster.\n"},
		"an item that nobody would place": {func(c *Change, _ *Input) {
			*c = to(*c, content(c.Content.Items[0], c.Content.Items[1]))
			c.Content.Items[1].State, c.Anew = atoll.ItemUnclaimed, true
		}, "Bundle shop/web (PropagationPolicy web)\n  Deployment/web would be placed by nobody any more: what runs stays as it is, and edits would not be sent.\nNothing would change in any cluster.\n"},
		"an item that nobody places already": {func(c *Change, _ *Input) {
			c.Contents["r1"].Items[1].State = atoll.ItemUnclaimed
			*c = to(*c, content(c.Content.Items...))
			c.Anew = true
		}, "Nothing would change in any cluster.\n"},
		"no cluster fits": {func(c *Change, _ *Input) {
			c.Decision = schedule.Decision{NoFit: true, Unmet: "3 regions are asked for"}
		},
			"Bundle shop/web (PropagationPolicy web)\n  No cluster would fit: 3 regions are asked for; what runs is kept.\nNothing would change in any cluster.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c, in := shop(), Input{}
			tc.change(&c, &in)
			in.Bundles = []Change{c}
			if got := text(in); got != tc.want {
				t.Errorf("says\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

func TestReplicas(t *testing.T) {
	c := shop()
	c.Content = content(divided(web, `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":9}}`))
	c.Contents["r1"] = c.Content
	share := func(n int64) atoll.RowSpec {
		return atoll.RowSpec{UID: "u", Revision: "r1", Phase: atoll.RowActive, Assigned: map[string]int64{web.String(): n}}
	}
	c.Before = map[string]atoll.RowSpec{"oslo": share(4), "tokyo": share(5), "bergen": share(0)}
	c.After = map[string]atoll.RowSpec{"oslo": share(8), "lima": share(1), "bergen": share(0)}
	p := Of(Input{Bundles: []Change{c}})
	got := p.Text(false)
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

// A rule that does not apply any more keeps the cluster at what it has, and says why.
func TestARuleThatDoesNotApply(t *testing.T) {
	c := shop()
	next := content(c.Content.Items...)
	next.Rules = []atoll.Rule{{Policy: "OverridePolicy/shop/o", Items: []atoll.ItemKey{web}, Target: &v1alpha1.ClusterTarget{ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"oslo"}}},
		Overriders: v1alpha1.Overriders{Plaintext: []v1alpha1.PlaintextOverrider{{Path: "/spec/none/such", Operator: "replace"}}}}}
	c = to(c, next)
	views := map[string]atoll.ClusterView{"oslo": {Name: "oslo"}, "tokyo": {Name: "tokyo"}}
	got := text(Input{Bundles: []Change{c}, ViewsBefore: views, ViewsAfter: views})
	if !strings.Contains(got, "~ oslo\n      ~ Deployment/web could not be rendered, and stays as it is there: OverridePolicy/shop/o rule 0") || strings.Contains(got, "tokyo") {
		t.Error(got)
	}
}

// What waits in a cluster for a confirmation is there, and gone once it is confirmed.
func TestWhatWaitsIsThere(t *testing.T) {
	c := shop()
	c.Content = content(c.Content.Items...)
	c.Content.Rules = []atoll.Rule{{Policy: "OverridePolicy/shop/o", Items: []atoll.ItemKey{web}, Overriders: v1alpha1.Overriders{NotHere: new(true)}}}
	c.Contents = map[string]*atoll.Content{"r1": c.Content}
	confirmed := atoll.RowSpec{UID: "u", Revision: "r1", Phase: atoll.RowActive}
	waits := confirmed
	waits.NotYet = map[string]int64{web.String(): 1}
	c.Before = map[string]atoll.RowSpec{"oslo": waits, "tokyo": waits}
	c.After = map[string]atoll.RowSpec{"oslo": confirmed, "tokyo": waits}
	if got := text(Input{Bundles: []Change{c}}); !strings.Contains(got, "~ oslo\n      - Deployment/web\n") || strings.Contains(got, "tokyo") {
		t.Error(got)
	}
}

// The same where nothing is there yet: nothing stays.
func TestARuleThatNeverApplied(t *testing.T) {
	c := shop()
	c.Content.Rules = []atoll.Rule{{Policy: "OverridePolicy/shop/o", Items: []atoll.ItemKey{web}, Target: &v1alpha1.ClusterTarget{ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"oslo"}}},
		Overriders: v1alpha1.Overriders{Plaintext: []v1alpha1.PlaintextOverrider{{Path: "/spec/none/such", Operator: "replace"}}}}}
	c.Before = nil
	views := map[string]atoll.ClusterView{"oslo": {Name: "oslo"}, "tokyo": {Name: "tokyo"}}
	got := text(Input{Bundles: []Change{c}, ViewsBefore: views, ViewsAfter: views})
	if !strings.Contains(got, "+ Deployment/web could not be rendered, and would not be sent: OverridePolicy/shop/o rule 0") {
		t.Error(got)
	}
}

func TestAFleetIsFolded(t *testing.T) {
	c := shop()
	c.Before, c.After = nil, map[string]atoll.RowSpec{}
	for i := range 1000 {
		c.After["c"+string(rune('a'+i%26))+strings.Repeat("x", i/26)] = atoll.RowSpec{UID: "u", Revision: "r1", Phase: atoll.RowActive}
	}
	p := Of(Input{Bundles: []Change{c}})
	if got := p.Text(false); strings.Count(got, "\n") != 5 || !strings.Contains(got, "and 992 more") {
		t.Error(got)
	}
	if got := p.Text(true); strings.Count(got, ", ") < 999 {
		t.Error("--all leaves clusters out")
	}
}

// Placements that would choose others are told, of a cluster-scoped one by its kind.
func TestPlacements(t *testing.T) {
	p := Of(Input{Placements: []Placement{
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
	if got := p.Text(false); got != want || !p.Changes {
		t.Errorf("says\n%s\nwant\n%s", got, want)
	}
}

// What is written for programs does not grow with clusters in which the same happens, and
// text not with Bundles beyond what anybody reads.
func TestAPlanOfManyIsSmall(t *testing.T) {
	c := shop()
	next := content(item(key, `{}`), item(web, `{"spec":{"long":"`+strings.Repeat("x", 1000)+`"}}`))
	c.Revision, c.Content, c.Before, c.After = "r2", next, map[string]atoll.RowSpec{}, map[string]atoll.RowSpec{}
	for i := range 1000 {
		name := fmt.Sprintf("cluster-%d", i)
		c.Before[name], c.After[name] = atoll.RowSpec{UID: "u", Revision: "r1", Phase: atoll.RowActive}, atoll.RowSpec{UID: "u", Revision: "r2", Phase: atoll.RowActive}
	}
	p := Of(Input{Bundles: []Change{c}})
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Bundles[0].Rows) != 1 || len(p.Bundles[0].Rows[0].Clusters) != 1000 || len(raw) > 20_000 {
		t.Errorf("%d rows in %d bytes", len(p.Bundles[0].Rows), len(raw))
	}
	var many []Change
	for i := range 300 {
		one := shop()
		one.ID.Name = fmt.Sprintf("web-%d", i)
		one.Before = nil
		many = append(many, one)
	}
	p = Of(Input{Bundles: many})
	if got := p.Text(false); strings.Count(got, "Bundle shop/") != bundlesShown || !strings.Contains(got, "and 200 more Bundles; --all shows them\n") || !strings.Contains(got, "300 Bundles: 600 added") {
		t.Error(got)
	}
	p.Unchecked = slices.Repeat([]Refusal{{"ConfigMap c", "its namespace comes with the same files"}}, 50)
	if got := p.Text(false); strings.Count(got, "? ConfigMap c was not checked") != linesShown || !strings.Contains(got, "? and 30 more were not checked by the hub\n") {
		t.Error(got)
	}
	if got := p.Text(true); strings.Count(got, "Bundle shop/") != 300 || strings.Count(got, "? ConfigMap c was not checked") != 50 {
		t.Error("--all leaves Bundles out")
	}
}

// What newer overrides would make of a cluster with the next change is told, and only of
// those clusters of which they would make something, when they are new.
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
		c := shop()
		first, second := atoll.RevisionName("u", 1, atoll.Hash([]byte("a"))), atoll.RevisionName("u", 2, atoll.Hash([]byte("b")))
		row := atoll.RowSpec{UID: "u", Revision: first, Phase: atoll.RowActive}
		c.Before = map[string]atoll.RowSpec{"oslo": row, "tokyo": row}
		c.After, c.Contents = c.Before, map[string]*atoll.Content{first: c.Content}
		next := content(c.Content.Items...)
		next.Base = tc.base
		next.Rules = []atoll.Rule{{Policy: "OverridePolicy/shop/o", Items: []atoll.ItemKey{web}, Target: &v1alpha1.ClusterTarget{ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"oslo"}}},
			Overriders: v1alpha1.Overriders{Plaintext: []v1alpha1.PlaintextOverrider{{Path: "/spec/containers", Operator: "remove"}}}}}
		c.Revision, c.Content, c.Anew = second, next, tc.anew
		views := map[string]atoll.ClusterView{"oslo": {Name: "oslo"}, "tokyo": {Name: "tokyo"}}
		p := Of(Input{Bundles: []Change{c}, ViewsBefore: views, ViewsAfter: views})
		if got := p.Text(false); !strings.HasSuffix(got, tc.want) || p.Changes || tc.want[0] != '\n' && got != tc.want {
			t.Errorf("%s: changes %t, says\n%s\nwant\n%s", name, p.Changes, got, tc.want)
		}
	}
}

// What is divided no more has the replicas that its template states, and not none; what goes
// has none.
func TestWhatIsDividedNoMore(t *testing.T) {
	of := func(object string, divide bool) atoll.Item {
		i := item(web, object)
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
		c := shop()
		was := content(of(object, true))
		c.Contents, c.Revision, c.Content = map[string]*atoll.Content{"r1": was}, "r2", content(tc.items...)
		c.Before = map[string]atoll.RowSpec{"oslo": {UID: "u", Revision: "r1", Phase: atoll.RowActive, Assigned: map[string]int64{web.String(): 4}}}
		c.After = map[string]atoll.RowSpec{"oslo": {UID: "u", Revision: "r2", Phase: atoll.RowActive}}
		if got := text(Input{Bundles: []Change{c}}); !strings.Contains(got, tc.want) {
			t.Errorf("%s: says\n%s\nwant\n%s", name, got, tc.want)
		}
	}
}
