package apply

import (
	"encoding/json"
	"reflect"
	"testing"

	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/agent/report"
	"atoll.dev/atoll/internal/atoll"
)

// expectEqualItem compares the status of an item as a whole.
func expectEqualItem(t *testing.T, got, want report.Item) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the status is\n%+v, want\n%+v", got, want)
	}
}

// healthyConf is the status of an applied and healthy object.
func healthyConf() report.Item {
	return report.Item{Key: confKey, Applied: true, Observed: true, Health: atoll.Healthy}
}

// The status of an item tells its health, why it fails, and what it waits for.
func TestTheStatusOfAnItem(t *testing.T) {
	with := func(edit func(*report.Item)) report.Item {
		it := healthyConf()
		edit(&it)
		return it
	}
	other := wantedRecord(confItem("x"))
	other.Owner, other.Claims["b2"] = "b2", ownership.Claim{State: ownership.Wanted, Template: "t0"}
	sameTemplate := other
	other.Template = "t0"
	unmade := wantedRecord(confItem("x"))
	unmade.UID = ""
	degraded := seenConf()
	degraded.Health, degraded.Reason, degraded.Message, degraded.Reflected = atoll.Degraded, "Why", "so", json.RawMessage(`{}`)
	failed := confItem("x")
	failed.Error = "it cannot be rendered"
	for name, c := range map[string]struct {
		record    ownership.Record
		item      atoll.RenderedItem
		view      *observe.View
		failure   *Failure
		forbidden string
		want      report.Item
	}{
		"it is healthy":      {record: wantedRecord(confItem("x")), want: healthyConf()},
		"it is not seen yet": {record: wantedRecord(confItem("x")), view: &observe.View{}, want: report.Item{Key: confKey, Applied: true}},
		"it is degraded": {record: wantedRecord(confItem("x")), view: &degraded, want: with(func(it *report.Item) {
			it.Health, it.Why, it.Text, it.Reflected = atoll.Degraded, "Why", "so", json.RawMessage(`{}`)
		})},
		"it is not made":      {record: unmade, want: report.Item{Key: confKey}},
		"it fails":            {record: wantedRecord(confItem("x")), failure: &Failure{Reason: atoll.ReasonInvalid, Message: "wrong"}, forbidden: "denied", want: with(func(it *report.Item) { it.Reason, it.Message, it.Error = atoll.ReasonInvalid, "wrong", true })},
		"it waits":            {record: wantedRecord(confItem("x")), failure: &Failure{Reason: atoll.ReasonTerminating, Message: "soon", Waits: true}, want: with(func(it *report.Item) { it.Reason, it.Message = atoll.ReasonTerminating, "soon" })},
		"it is forbidden now": {record: wantedRecord(confItem("x")), forbidden: "denied", want: with(func(it *report.Item) { it.Why, it.Text = atoll.ReasonDeniedByPolicy, "it stays as it is: denied" })},
		"it is forbidden and degraded": {record: wantedRecord(confItem("x")), view: &degraded, forbidden: "denied", want: with(func(it *report.Item) {
			it.Health, it.Why, it.Text, it.Reflected = atoll.Degraded, "Why", "so", json.RawMessage(`{}`)
		})},
		"another bundle's template": {record: other, want: with(func(it *report.Item) {
			it.Applied, it.Reason, it.Message = false, atoll.ReasonWaitsForObjects, "another bundle still holds the object that this one replaces: bundle b2"
		})},
		"another bundle's content": {record: sameTemplate, want: healthyConf()},
		"it cannot be rendered":    {record: wantedRecord(confItem("x")), item: failed, want: with(func(it *report.Item) { it.RenderError = "it cannot be rendered" })},
	} {
		t.Run(name, func(t *testing.T) {
			item := confItem("x")
			if c.item.Error != "" {
				item = c.item
			}
			e := newStubEngine(t, newMemoryMember(t), []ownership.Record{c.record})
			v := seenConf()
			if c.view != nil {
				v = *c.view
			}
			e.views[confKey] = view{View: v}
			e.holdTask(confKey).failure = c.failure
			if c.forbidden != "" {
				e.forbidden[confKey] = c.forbidden
			}
			expectEqualItem(t, e.itemStatus("b1", &item, nil), c.want)
		})
	}
}

// An object that is claimed and no longer listed is reported by what becomes of it.
func TestTheStatusOfAnObjectThatIsNotListed(t *testing.T) {
	for state, want := range map[ownership.State]report.Item{
		ownership.Kept:    {Health: atoll.Healthy, Why: atoll.ReasonUnaccounted, Text: "it is no longer in the bundle and has no tombstone: kept as it is; delete its template, or the object in the member"},
		ownership.Parked:  {Health: atoll.Progressing, Why: atoll.ReasonMoving, Text: "kept for the bundle that takes it over"},
		ownership.Leaving: {Health: atoll.Progressing, Why: atoll.ReasonRemoving, Text: "it is being removed"},
	} {
		record := wantedRecord(confItem("x"))
		record.Claims["b1"] = ownership.Claim{State: state, Template: "t"}
		e := newStubEngine(t, newMemoryMember(t), []ownership.Record{record})
		want.Key, want.Extra, want.Observed = confKey, true, true
		expectEqualItem(t, e.unlistedItemStatus("b1", confKey), want)
		e.holdTask(confKey).failure = &Failure{Reason: atoll.ReasonInvalid, Message: "wrong"}
		want.Reason, want.Message, want.Error = atoll.ReasonInvalid, "wrong", true
		expectEqualItem(t, e.unlistedItemStatus("b1", confKey), want)
	}
}

// An object that ran to completion and is gone keeps its last report, from the record or from the report before.
func TestTheStatusOfARunThatIsGone(t *testing.T) {
	key := atoll.ItemKey{Group: "batch", Kind: "Job", Namespace: "shop", Name: "once"}
	item := atoll.RenderedItem{Key: key, APIVersion: "batch/v1", UID: "t", Hash: "h", Object: []byte(`{}`)}
	done := atoll.ItemStatus{Key: key, Health: atoll.Degraded, Reason: "Failed", Message: "so", ReflectedStatus: json.RawMessage(`{}`)}
	running, failed := done, done
	running.Health, failed.Error = atoll.Progressing, true
	other := done
	other.Key.Name = "other"
	for name, c := range map[string]struct {
		last *atoll.ItemStatus
		prev *atoll.RowStatus
		want report.Item
	}{
		"nothing is known":               {nil, nil, report.Item{Health: atoll.Healthy}},
		"the record has it":              {&done, &atoll.RowStatus{Items: []atoll.ItemStatus{running}}, report.Item{Health: atoll.Degraded, Why: "Failed", Text: "so", Reflected: json.RawMessage(`{}`)}},
		"the report before has it":       {nil, &atoll.RowStatus{Items: []atoll.ItemStatus{other, done}}, report.Item{Health: atoll.Degraded, Why: "Failed", Text: "so", Reflected: json.RawMessage(`{}`)}},
		"the report before has it first": {nil, &atoll.RowStatus{Items: []atoll.ItemStatus{done, other}}, report.Item{Health: atoll.Degraded, Why: "Failed", Text: "so", Reflected: json.RawMessage(`{}`)}},
		"the report has only another":    {nil, &atoll.RowStatus{Items: []atoll.ItemStatus{other}}, report.Item{Health: atoll.Healthy}},
		"it was an error":                {&failed, nil, report.Item{Health: atoll.Healthy}},
		"it was running":                 {&running, nil, report.Item{Health: atoll.Unknown, Why: atoll.ReasonGoneUnseen, Text: "it ended while it was not watched, so its result is not known; it is not run again"}},
	} {
		t.Run(name, func(t *testing.T) {
			record := wantedRecord(item)
			record.UID, record.Ran, record.Last = "", "t", c.last
			e := newStubEngine(t, newMemoryMember(t), []ownership.Record{record})
			c.want.Key, c.want.Observed, c.want.Applied = key, true, true
			expectEqualItem(t, e.itemStatus("b1", &item, c.prev), c.want)
		})
	}
}

// A namespace that the agent made and may not change is noted at its first item that has nothing else to say.
func TestTheFailureOfANamespaceIsNotedOnce(t *testing.T) {
	denied := &Failure{Reason: atoll.ReasonDeniedByPolicy, Message: "denied"}
	waits := *denied
	waits.Waits = true
	foreign, unmade := shopNamespace, shopNamespace
	foreign.Implicit, unmade.UID = false, ""
	for name, c := range map[string]struct {
		namespace ownership.Record
		failure   *Failure
		want      bool
	}{
		"it fails":               {shopNamespace, denied, true},
		"it waits":               {shopNamespace, &waits, false},
		"it is as it should be":  {shopNamespace, nil, false},
		"it is not Atoll's":      {foreign, denied, false},
		"it is not made":         {unmade, denied, false},
		"it is another one":      {ownership.Record{Key: atoll.NamespaceKey("blog"), UID: "n0", Implicit: true}, denied, false},
		"it is not known at all": {ownership.Record{Key: confKey}, denied, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := newStubEngine(t, newMemoryMember(t), []ownership.Record{c.namespace})
			e.holdTask(shopNamespace.Key).failure = c.failure
			clusterWide, failing, first, second := healthyConf(), healthyConf(), healthyConf(), healthyConf()
			clusterWide.Key.Namespace = ""
			failing.Reason = atoll.ReasonInvalid
			first.Key.Name, second.Key.Name = "first", "second"
			unseen := healthyConf()
			unseen.Observed = false
			items := []report.Item{clusterWide, failing, unseen, first, second}
			want := []report.Item{clusterWide, failing, unseen, first, second}
			if c.want {
				want[3].Why, want[3].Text = atoll.ReasonDeniedByPolicy, "labels and annotations of namespace shop stay as they are: denied"
			}
			e.noteNamespaceFailures(items)
			for i := range items {
				expectEqualItem(t, items[i], want[i])
			}
		})
	}
}

// A manifest's namespaces without an item in them are reported, also one that exists and is not Atoll's.
func TestTheStatusOfEmptyNamespaces(t *testing.T) {
	m := newManifest("b1", 1, confItem("x"))
	m.Namespaces = map[string]atoll.NamespaceMeta{"shop": {}, "blog": {}, "wiki": {}, "docs": {}}
	blog := ownership.Record{Key: atoll.NamespaceKey("blog"), UID: "n0", Implicit: true}
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{blog})
	e.foreign["docs"] = true
	e.holdTask(atoll.NamespaceKey("wiki")).failure = &Failure{Reason: atoll.ReasonForbidden, Message: "no"}
	got := e.emptyNamespaceStatuses(&m)
	want := []report.Item{
		{Key: atoll.NamespaceKey("blog"), Applied: true, Observed: true, Health: atoll.Healthy},
		{Key: atoll.NamespaceKey("docs"), Applied: true, Observed: true, Health: atoll.Healthy},
		{Key: atoll.NamespaceKey("wiki"), Health: atoll.Healthy, Reason: atoll.ReasonForbidden, Message: "no", Error: true},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("they are\n%+v, want\n%+v", got, want)
	}
	if len(m.Namespaces) != 4 {
		t.Errorf("the manifest was changed: %v", m.Namespaces)
	}
	if m.Remove = true; e.emptyNamespaceStatuses(&m) != nil {
		t.Error("a Bundle that goes reports its namespaces")
	}
}

// A removal is done once the namespaces that were deleted on the hub are gone, or stay for a reason that lasts.
func TestARemovalWaitsForItsNamespaces(t *testing.T) {
	doomed := shopNamespace
	doomed.Doomed = true
	m := remove("b1", 2)
	m.DeletedNamespaces = []string{"shop"}
	for name, c := range map[string]struct {
		records []ownership.Record
		failure *Failure
		done    bool
		kept    string
	}{
		"it is gone":                        {nil, nil, true, ""},
		"it is needed again":                {[]ownership.Record{shopNamespace}, nil, true, ""},
		"another object is in it":           {[]ownership.Record{doomed, wantedRecord(confItem("x"))}, nil, true, ""},
		"its work is still to begin":        {[]ownership.Record{doomed}, nil, false, ""},
		"it goes later":                     {[]ownership.Record{doomed}, &Failure{Reason: atoll.ReasonTerminating, Message: "later"}, false, ""},
		"a foreign object is in it":         {[]ownership.Record{doomed}, &Failure{Reason: atoll.ReasonForeignObjects, Message: "foreign"}, true, "foreign"},
		"it is not known what is in it":     {[]ownership.Record{doomed}, &Failure{Reason: atoll.ReasonAPISilent, Message: "silent"}, true, "silent"},
		"its deletion is denied by the API": {[]ownership.Record{doomed}, &Failure{Reason: atoll.ReasonForbidden, Message: "no"}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := newStubEngine(t, newMemoryMember(t), c.records)
			if c.failure != nil || name == "its work is still to begin" {
				e.holdTask(shopNamespace.Key).failure = c.failure
			}
			if done, kept := e.areDeletedNamespacesGone(&m); done != c.done || kept != c.kept {
				t.Errorf("done is %t, kept for %q; want %t, %q", done, kept, c.done, c.kept)
			}
		})
	}
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{doomed})
	if done, _ := e.areDeletedNamespacesGone(&m); done {
		t.Error("a namespace without a task counts as gone")
	}
}

// A removed Bundle reports its namespace as kept where the agent made it and nothing needs it.
func TestTheNamespaceOfARemovedBundleIsReportedAsKept(t *testing.T) {
	with := func(edit func(*ownership.Record)) []ownership.Record {
		r := shopNamespace
		edit(&r)
		return []ownership.Record{r}
	}
	made := with(func(*ownership.Record) {})
	claimed := with(func(r *ownership.Record) {
		r.Claims = map[string]ownership.Claim{"b2": {State: ownership.Kept, Template: "t"}}
	})
	for name, c := range map[string]struct {
		records   []ownership.Record
		namespace string
		deleted   []string
		want      bool
	}{
		"it was made by the agent": {made, "shop", nil, true},
		"no namespace is named":    {made, "", nil, false},
		"it is deleted on the hub": {made, "shop", []string{"shop"}, false},
		"something is in it":       {append(made[:1:1], wantedRecord(confItem("x"))), "shop", nil, false},
		"it is not the agent's":    {with(func(r *ownership.Record) { r.Implicit = false }), "shop", nil, false},
		"it is not made":           {with(func(r *ownership.Record) { r.UID = "" }), "shop", nil, false},
		"another Bundle claims it": {claimed, "shop", nil, false},
		"it is not known":          {nil, "shop", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := remove("b1", 2)
			m.Namespace, m.DeletedNamespaces = c.namespace, c.deleted
			e := newStubEngine(t, newMemoryMember(t), c.records)
			if got := e.isAgentMadeNamespaceUnneeded(&m); got != c.want {
				t.Errorf("it is reported as kept: %t, want %t", got, c.want)
			}
		})
	}
}

// The status of a Bundle has its listed items and the objects that it only claims.
func TestTheStatusOfABundle(t *testing.T) {
	kept := wantedRecord(confItem("x"))
	kept.Key.Name = "kept"
	kept.Claims = map[string]ownership.Claim{"b1": {State: ownership.Kept, Template: "t"}}
	gone := atoll.Tombstone{Key: webItem("1").Key, UID: "t", Cause: atoll.CauseDeleted}
	m := withTombstones(newManifest("b1", 4, confItem("x")), gone)
	m.Content = "c"
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{wantedRecord(confItem("x")), kept}, m)
	e.ObjectSeen(seenConf())
	for range 2 {
		s, held := e.StatusOf("b1", nil, testNow)
		if !held || s.Generation != 4 || s.Content != "c" || s.Total != 1 || s.Ready != 1 || !s.Applied || s.Since != testNow.Unix() {
			t.Errorf("the status is %+v", s)
		}
		if len(s.Items) != 1 || s.Items[0].Key != kept.Key || s.Items[0].Reason != atoll.ReasonUnaccounted {
			t.Errorf("its items are %+v", s.Items)
		}
		if len(s.DoneTombstones) != 1 || s.DoneTombstones[0] != ownership.TombstoneID(gone) {
			t.Errorf("its tombstones are %q", s.DoneTombstones)
		}
		if _, held := e.StatusOf("b9", nil, testNow); held {
			t.Error("an unknown Bundle has a status")
		}
	}
}

// A removed Bundle is removed once all is gone, with a note of the namespace that stays.
func TestTheStatusOfARemovedBundle(t *testing.T) {
	m := remove("b1", 2)
	m.Namespace = "shop"
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{shopNamespace}, m)
	if s, _ := e.StatusOf("b1", nil, testNow); s.State != atoll.RowRemoved || !s.NamespaceKept {
		t.Errorf("the status is %+v", s)
	}
	doomed := shopNamespace
	doomed.Doomed = true
	m.DeletedNamespaces = []string{"shop"}
	e = newStubEngine(t, newMemoryMember(t), []ownership.Record{doomed}, m)
	if s, _ := e.StatusOf("b1", nil, testNow); s.State != atoll.RowProgressing || s.NamespaceKept {
		t.Errorf("while its namespace goes, the status is %+v", s)
	}
	going := wantedRecord(confItem("x"))
	e = newStubEngine(t, newMemoryMember(t), []ownership.Record{shopNamespace, going}, m)
	if s, _ := e.StatusOf("b1", nil, testNow); s.State != atoll.RowProgressing || s.NamespaceKept || len(s.Items) != 1 || s.Items[0].Reason != atoll.ReasonRemoving {
		t.Errorf("while an object goes, the status is %+v", s)
	}
}
