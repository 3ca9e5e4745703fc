package preview

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
)

// compareShopRows returns the plan of Bundle shop/web with these rows before and after, in cluster oslo.
func compareShopRows(before, after *atoll.RowSpec, change func(*BundleChange, *Input)) BundlePlan {
	c := shopChange()
	c.Before, c.After = map[string]atoll.RowSpec{}, map[string]atoll.RowSpec{}
	if before != nil {
		c.Before["oslo"] = *before
	}
	if after != nil {
		c.After["oslo"] = *after
	}
	in := Input{}
	if change != nil {
		change(&c, &in)
	}
	in.Bundles = []BundleChange{c}
	plan := BuildPlan(in)
	if len(plan.Bundles) == 0 {
		return BundlePlan{}
	}
	return plan.Bundles[0]
}

// A row comes, goes or changes with the verdict on its cluster as the reason. A row that is on its way out
// counts as gone.
func TestWhatWouldBecomeOfARow(t *testing.T) {
	row := func(phase atoll.RowPhase) *atoll.RowSpec {
		return &atoll.RowSpec{UID: "u", Revision: "r1", Phase: phase}
	}
	active, leaving, held, removing := row(atoll.RowActive), row(atoll.RowLeaving), row(atoll.RowHeld), row(atoll.RowRemoving)
	views := func(before, after bool) func(*BundleChange, *Input) {
		return func(_ *BundleChange, in *Input) {
			in.ViewsBefore, in.ViewsAfter = map[string]atoll.ClusterView{}, map[string]atoll.ClusterView{}
			if before {
				in.ViewsBefore["oslo"] = atoll.ClusterView{Name: "oslo"}
			}
			if after {
				in.ViewsAfter["oslo"] = atoll.ClusterView{Name: "oslo"}
			}
		}
	}
	verdict := func(v schedule.Verdict) func(*BundleChange, *Input) {
		v.Cluster = "oslo"
		return func(c *BundleChange, _ *Input) { c.Decision.Verdicts = []schedule.Verdict{v} }
	}
	excluded := schedule.Verdict{Outcome: schedule.OutcomeOut, Filter: "exclude", Reason: "named in exclude"}
	excluded.Cluster = "oslo"
	excludedReason := excluded.ReasonCode()
	for name, c := range map[string]struct {
		before, after *atoll.RowSpec
		change        func(*BundleChange, *Input)
		want          string // of the group; empty: no row changes
	}{
		"it comes":                    {nil, active, nil, "Added"},
		"it comes back":               {leaving, active, nil, "Added"},
		"it comes, whatever was said": {nil, active, verdict(excluded), "Added"},
		"it takes overflow":           {nil, active, verdict(schedule.Verdict{Outcome: schedule.OutcomePlaced, OverflowStep: 1}), "Added it takes replicas that have no place in the chosen clusters TakesOverflow"},
		"it goes":                     {active, nil, nil, "Removed"},
		"it leaves":                   {active, leaving, verdict(excluded), "Removed named in exclude " + string(excludedReason)},
		"it is held":                  {active, held, nil, "Removed"},
		"it is removed":               {active, removing, nil, "Removed"},
		"its Cluster goes":            {active, nil, views(true, false), "Removed its Cluster would be gone; what runs there is given up ClusterDeleted"},
		"its Cluster comes":           {nil, active, views(false, true), "Added"},
		"its Cluster stays":           {active, nil, views(true, true), "Removed"},
		"it is on its way out":        {leaving, removing, nil, ""},
		"it stays":                    {active, active, nil, ""},
		"it was never there":          {nil, removing, nil, ""},
	} {
		b := compareShopRows(c.before, c.after, c.change)
		got := ""
		for _, r := range b.Rows {
			got += string(r.Change)
			if r.Why != "" {
				got += fmt.Sprint(" ", r.Why, " ", r.Reason)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if c.want == "" && b.Unchanged != 0 {
			t.Errorf("%s: a Bundle without changes is shown", name)
		}
	}
}

// The wait of a row is shown to a user that may read all of its Bundle. A plan that is none yet has no name.
func TestWhatARowWouldWaitFor(t *testing.T) {
	active := &atoll.RowSpec{UID: "u", Revision: "r1", Phase: atoll.RowActive}
	waits := func(actor atoll.Actor, held *rollout.PendingRemoval, mayRead func(atoll.ItemKey) bool) func(*BundleChange, *Input) {
		return func(c *BundleChange, in *Input) {
			c.Waiting = []rollout.RowWait{{Cluster: "oslo", For: "plan p", Reason: "R", Actor: actor}}
			c.Held, in.MayReadItem = held, mayRead
		}
	}
	held := &rollout.PendingRemoval{Hash: "p", Lines: []string{"remove"}}
	for name, c := range map[string]struct {
		change func(*BundleChange, *Input)
		want   string
	}{
		"a person, with a plan":    {waits(atoll.ActorConfirmer, held, nil), "a confirmation R"},
		"a person, without a plan": {waits(atoll.ActorConfirmer, nil, nil), "plan p R"},
		"another, with a plan":     {waits(atoll.ActorHub, held, nil), "plan p R"},
		"a reader of a part":       {waits(atoll.ActorHub, nil, func(k atoll.ItemKey) bool { return !k.IsSecret() }), " "},
	} {
		b := compareShopRows(nil, active, c.change)
		if len(b.Rows) != 1 || fmt.Sprint(b.Rows[0].Waits, " ", b.Rows[0].WaitsReason) != c.want {
			t.Errorf("%s: %+v, want %q", name, b.Rows, c.want)
		}
	}
	tombstone := compareShopRows(nil, active, func(c *BundleChange, in *Input) {
		content := *c.Content
		content.Items, content.Tombstones = content.Items[1:], []atoll.Tombstone{{Key: secretKey}}
		c.Content = &content
		waits(atoll.ActorHub, nil, func(k atoll.ItemKey) bool { return !k.IsSecret() })(c, in)
	})
	if len(tombstone.Rows) != 1 || tombstone.Rows[0].Waits != "" {
		t.Errorf("a removal that the user may not read: %+v", tombstone.Rows)
	}
}

// Shares of items that the user may read are compared.
func TestSharesAreCompared(t *testing.T) {
	web, secret := webKey.String(), secretKey.String()
	row := func(assigned map[string]int64) *atoll.RowSpec {
		return &atoll.RowSpec{UID: "u", Revision: "r1", Phase: atoll.RowActive, Assigned: assigned}
	}
	for name, c := range map[string]struct {
		before, after map[string]int64
		want          map[string]ReplicaChange
	}{
		"more":         {map[string]int64{web: 1}, map[string]int64{web: 2}, map[string]ReplicaChange{web: {newInt(1), newInt(2)}}},
		"a first one":  {nil, map[string]int64{web: 0}, map[string]ReplicaChange{web: {nil, newInt(0)}}},
		"none":         {map[string]int64{web: 0}, nil, map[string]ReplicaChange{web: {newInt(0), nil}}},
		"the same":     {map[string]int64{web: 2}, map[string]int64{web: 2}, nil},
		"of a Secret":  {map[string]int64{secret: 2}, map[string]int64{secret: 3}, nil},
		"of no object": {map[string]int64{"text": 2}, map[string]int64{"text": 3}, nil},
	} {
		b := compareShopRows(row(c.before), row(c.after), func(_ *BundleChange, in *Input) {
			in.MayReadItem = func(k atoll.ItemKey) bool { return !k.IsSecret() }
		})
		var got map[string]ReplicaChange
		for _, r := range b.Rows {
			got = r.Replicas
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// A cluster without capacity for the Bundle is listed: one that is left out, and one whose row stays as it is.
func TestFullClustersAreListed(t *testing.T) {
	out := schedule.Verdict{Cluster: "a", Outcome: schedule.OutcomeOut, Filter: schedule.FilterCapacity, Reason: "9 of 9"}
	stays := schedule.Verdict{Cluster: "b", Outcome: schedule.OutcomePlaced}
	stays.SetNotes(schedule.RowNotes{CapacityReason: "8 of 8"})
	other := schedule.Verdict{Cluster: "c", Outcome: schedule.OutcomeOut, Filter: "exclude", Reason: "x"}
	kept := schedule.Verdict{Cluster: "d", Outcome: schedule.OutcomeKept, Filter: schedule.FilterCapacity, Reason: "7 of 7"}
	b := compareShopRows(nil, &atoll.RowSpec{UID: "u", Revision: "r1", Phase: atoll.RowActive}, func(c *BundleChange, _ *Input) {
		c.Decision.Verdicts = []schedule.Verdict{out, stays, other, kept}
	})
	want := []FullCluster{{"a", false, out.ReasonCode(), "9 of 9"}, {"b", true, atoll.ReasonNoCapacity, "8 of 8"}}
	if !reflect.DeepEqual(b.Full, want) {
		t.Errorf("%+v, want %+v", b.Full, want)
	}
}

// A new cluster where undivided pods do not fit now is listed, with the item for those that may read it.
func TestUnfitClustersAreListed(t *testing.T) {
	fit := func(cluster string, when schedule.FitTime) schedule.Verdict {
		v := schedule.Verdict{Cluster: cluster, Outcome: schedule.OutcomePlaced}
		v.SetPodFit(schedule.PodFit{When: when, Reason: "as judged", Item: webKey})
		return v
	}
	verdicts := []schedule.Verdict{fit("a", schedule.FitNow), fit("b", schedule.FitAfterScaleUp), fit("c", schedule.FitNever), fit("d", "")}
	for mayRead, prefix := range map[bool]string{true: "Deployment/web: ", false: ""} {
		b := compareShopRows(nil, &atoll.RowSpec{UID: "u", Revision: "r1", Phase: atoll.RowActive}, func(c *BundleChange, in *Input) {
			c.Decision.Verdicts = verdicts
			if !mayRead {
				in.MayReadItem = func(k atoll.ItemKey) bool { return k != webKey }
			}
		})
		want := []UnfitCluster{{"b", schedule.FitAfterScaleUp, prefix + "as judged"}, {"c", schedule.FitNever, prefix + "as judged"}}
		if !reflect.DeepEqual(b.Unfit, want) {
			t.Errorf("may read %t: %+v, want %+v", mayRead, b.Unfit, want)
		}
	}
}

// A row that goes leaves behind what its policy or the item says. Without a policy, what runs stays too.
func TestWhatARowLeavesBehind(t *testing.T) {
	active := &atoll.RowSpec{UID: "u", Revision: "r1", Phase: atoll.RowActive}
	orphan := compareShopRows(active, nil, func(c *BundleChange, _ *Input) {
		content := *c.Content
		content.Removal = v1alpha1.RemoveOrphan
		c.Content = &content
	})
	if len(orphan.Rows) != 1 || !orphan.Rows[0].Orphaned || orphan.Rows[0].Stays != nil {
		t.Errorf("%+v", orphan.Rows)
	}
	item := compareShopRows(active, nil, func(c *BundleChange, in *Input) {
		content := *c.Content
		content.Items = append([]atoll.Item(nil), content.Items...)
		for i := range content.Items {
			content.Items[i].Treatment = &atoll.Treatment{Removal: v1alpha1.RemoveOrphan}
		}
		c.Content, in.MayReadItem = &content, func(k atoll.ItemKey) bool { return k == webKey }
	})
	if len(item.Rows) != 1 || item.Rows[0].Orphaned || !reflect.DeepEqual(item.Rows[0].Stays, []string{"Deployment/web"}) {
		t.Errorf("%+v", item.Rows)
	}
	without := compareShopRows(active, nil, func(c *BundleChange, _ *Input) { c.Content = nil })
	if len(without.Rows) != 1 || without.Rows[0].Orphaned || without.Rows[0].Stays != nil {
		t.Errorf("%+v", without.Rows)
	}
}

// Items that lose their policy are frozen: those that were placed, and that the user may read.
func TestItemsThatLoseTheirPolicyAreListed(t *testing.T) {
	config := atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "c"}
	item := func(key atoll.ItemKey, state atoll.ItemState) atoll.Item {
		i := testItem(key, "{}")
		i.State = state
		return i
	}
	active := &atoll.RowSpec{UID: "u", Revision: "r1", Phase: atoll.RowActive}
	frozen := func(isNew bool, mayRead func(atoll.ItemKey) bool, was, is []atoll.Item) []string {
		b := compareShopRows(nil, active, func(c *BundleChange, in *Input) {
			c.NewRevision, c.Revision, c.Content = isNew, "r2", testContent(is...)
			c.Contents, in.MayReadItem = map[string]*atoll.Content{"r0": nil, "r1": testContent(was...)}, mayRead
		})
		return b.Frozen
	}
	placed := []atoll.Item{item(webKey, ""), item(config, ""), item(secretKey, atoll.ItemUnclaimed)}
	lost := []atoll.Item{item(webKey, atoll.ItemUnclaimed), item(config, atoll.ItemUnreferenced), item(secretKey, atoll.ItemUnclaimed)}
	for name, c := range map[string]struct {
		got, want []string
	}{
		"two":                  {frozen(true, nil, placed, lost), []string{"ConfigMap/c", "Deployment/web"}},
		"of a reader of one":   {frozen(true, func(k atoll.ItemKey) bool { return k == webKey }, placed, lost), []string{"Deployment/web"}},
		"no new revision":      {frozen(false, nil, placed, lost), nil},
		"they were lost":       {frozen(true, nil, lost, lost), nil},
		"they are still there": {frozen(true, nil, placed, placed), nil},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
}

// The items of a row are compared as they are rendered.
func TestItemsAreComparedAsRendered(t *testing.T) {
	item := func(key atoll.ItemKey, hash string) atoll.RenderedItem {
		return atoll.RenderedItem{Key: key, Hash: hash, Object: []byte(`{"a":1}`)}
	}
	failed := item(webKey, "2")
	failed.Error, failed.ErrorReason, failed.Object = "no", "R", nil
	adopts, observed, recreated, owned := item(webKey, "1"), item(webKey, "2"), item(webKey, "2"), item(webKey, "2")
	adopts.ConflictResolution, observed.Observe, recreated.Recreate, owned.MemberOwned = v1alpha1.ConflictOverwrite, atoll.ObserveDrift, true, []string{"/a"}
	c := bundleComparison{in: &Input{MayReadItem: func(k atoll.ItemKey) bool { return !k.IsSecret() }}, BundleChange: &BundleChange{}}
	one := func(i atoll.RenderedItem) []atoll.RenderedItem { return []atoll.RenderedItem{i} }
	web := item(webKey, "1")
	for name, x := range map[string]struct {
		before, after []atoll.RenderedItem
		want          []ItemChange
	}{
		"the same":       {one(web), one(web), nil},
		"new":            {nil, one(web), []ItemChange{{Key: webKey, Change: ChangeAdded}}},
		"gone":           {one(web), nil, []ItemChange{{Key: webKey, Change: ChangeRemoved}}},
		"another hash":   {one(web), one(item(webKey, "2")), []ItemChange{{Key: webKey, Change: ChangeChanged}}},
		"failed":         {one(web), one(failed), []ItemChange{{Key: webKey, Change: ChangeChanged, Error: "no", ErrorReason: "R"}}},
		"a resolution":   {one(web), one(adopts), []ItemChange{{Key: webKey, Change: ChangeChanged, ConflictAfter: v1alpha1.ConflictOverwrite}}},
		"observed":       {one(web), one(observed), []ItemChange{{Key: webKey, Change: ChangeChanged, Observe: atoll.ObserveDrift}}},
		"written again":  {one(observed), one(web), []ItemChange{{Key: webKey, Change: ChangeChanged, Written: true}}},
		"recreated":      {one(web), one(recreated), []ItemChange{{Key: webKey, Change: ChangeChanged, Recreate: true}}},
		"left to it":     {one(web), one(owned), []ItemChange{{Key: webKey, Change: ChangeChanged, Released: []string{"/a"}}}},
		"corrected":      {one(owned), one(web), []ItemChange{{Key: webKey, Change: ChangeChanged, Corrected: []string{"/a"}}}},
		"a Secret":       {one(item(secretKey, "1")), one(item(secretKey, "2")), nil},
		"a Secret, gone": {one(item(secretKey, "1")), nil, nil},
		"several, by key": {one(web), []atoll.RenderedItem{item(atoll.ItemKey{Kind: "B", Name: "b"}, "1"), item(atoll.ItemKey{Kind: "A", Name: "a"}, "1")},
			[]ItemChange{{Key: atoll.ItemKey{Kind: "A", Name: "a"}, Change: ChangeAdded}, {Key: atoll.ItemKey{Kind: "B", Name: "b"}, Change: ChangeAdded}, {Key: webKey, Change: ChangeRemoved}}},
	} {
		got := c.compareItems(x.before, x.after)
		for i := range got { // nothing and no list are the same to readers
			if len(got[i].Released) == 0 {
				got[i].Released = nil
			}
			if len(got[i].Corrected) == 0 {
				got[i].Corrected = nil
			}
		}
		if !reflect.DeepEqual(got, x.want) {
			t.Errorf("%s: %+v, want %+v", name, got, x.want)
		}
	}
}

// Removals of single objects that would wait for a confirmation are listed, but for objects that the user may not read.
func TestRemovalsOfObjectsThatWouldWaitAreListed(t *testing.T) {
	waits := func(key atoll.ItemKey) atoll.Item {
		i := testItem(key, "{}")
		i.State = atoll.ItemUnconfirmed
		return i
	}
	active := &atoll.RowSpec{UID: "u", Revision: "r1", Phase: atoll.RowActive}
	for name, tc := range map[string]struct {
		mayRead func(atoll.ItemKey) bool
		want    []string
	}{
		"a reader of all": {nil, []string{"remove Deployment/web, as the object states (removal: Confirm)", "remove Secret/key, as the object states (removal: Confirm)"}},
		"a reader of one": {func(k atoll.ItemKey) bool { return k == webKey }, []string{"remove Deployment/web, as the object states (removal: Confirm)", "RemovalHeld: removals of items that you may not all read"}},
	} {
		b := compareShopRows(active, active, func(c *BundleChange, in *Input) {
			c.NewRevision, c.Revision, c.Content, in.MayReadItem = true, "r2", testContent(waits(webKey), waits(secretKey)), tc.mayRead
		})
		if !reflect.DeepEqual(b.Held, tc.want) {
			t.Errorf("%s: %q, want %q", name, b.Held, tc.want)
		}
	}
}

// A change of another object runs hooks again, and is listed with them.
func TestHooksThatAChangeRunsAgainAreListed(t *testing.T) {
	hook := func(name, events string) atoll.RenderedItem {
		h, _ := atoll.ParseHook(events, "")
		return atoll.RenderedItem{Key: atoll.ItemKey{Group: "batch", Kind: "Job", Namespace: "shop", Name: name}, Hash: "h", Hook: h}
	}
	web := atoll.RenderedItem{Key: webKey, Hash: "1"}
	edited := atoll.RenderedItem{Key: webKey, Hash: "2"}
	scaled := atoll.RenderedItem{Key: webKey, Hash: "3", SharedHash: "1"}
	pre, install, alarm := hook("pre", "PreSync"), hook("install", "PreInstall"), hook("alarm", "SyncFail")
	all := func(it ...atoll.RenderedItem) []atoll.RenderedItem { return append(it, pre, install, alarm) }
	c := bundleComparison{in: &Input{MayReadItem: func(atoll.ItemKey) bool { return true }}, BundleChange: &BundleChange{}}
	for name, x := range map[string]struct {
		before, after []atoll.RenderedItem
		want          []string
	}{
		"the same":    {all(web), all(web), nil},
		"an edit":     {all(web), all(edited), []string{"Deployment/web", "Job/pre runs"}},
		"a removal":   {all(web), all(), []string{"Deployment/web", "Job/pre runs"}},
		"replicas":    {all(atoll.RenderedItem{Key: webKey, Hash: "1", SharedHash: "1"}), all(scaled), []string{"Deployment/web"}},
		"a new hook":  {[]atoll.RenderedItem{web, pre}, []atoll.RenderedItem{web, pre, install}, []string{"Job/install", "Job/pre runs"}},
		"a new row":   {nil, []atoll.RenderedItem{pre}, []string{"Job/pre"}},
		"no hook now": {[]atoll.RenderedItem{web, pre}, []atoll.RenderedItem{web, {Key: pre.Key, Hash: "h"}}, []string{"Job/pre"}},
	} {
		var got []string
		for _, change := range c.compareItems(x.before, x.after) {
			text := change.Key.Kind + "/" + change.Key.Name
			if change.HookRuns {
				text += " runs"
			}
			got = append(got, text)
		}
		if slices.Sort(got); !slices.Equal(got, x.want) {
			t.Errorf("%s: %v, want %v", name, got, x.want)
		}
	}
}
