package manifest_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
)

func TestFieldsThatATreatmentLeavesToTheMember(t *testing.T) {
	for name, c := range map[string]struct {
		treatment *atoll.Treatment
		want      []string
	}{
		"none":          {},
		"removal alone": {treatment: &atoll.Treatment{Removal: v1alpha1.RemoveOrphan}},
		"fields":        {&atoll.Treatment{IgnoreFields: []string{"/metadata/labels/app", "/spec/replicas"}}, []string{"/metadata/labels/app", "/spec/replicas"}},
		"of an element": {&atoll.Treatment{IgnoreFields: []string{"/spec/template/spec/containers/1/image"}}, []string{"/spec/template/spec/containers/1/image"}},
		"absent fields": {treatment: &atoll.Treatment{IgnoreFields: []string{"/spec/paused", "/spec/template/spec/containers/2/image", "/spec/replicas/x"}}},
		"create only":   {&atoll.Treatment{Update: v1alpha1.UpdateCreateOnly, IgnoreFields: []string{"/spec/replicas"}}, []string{"/spec", "/metadata/labels/app"}},
	} {
		t.Run(name, func(t *testing.T) {
			content := newContent()
			plain, _ := renderedItem(t, content, manifest.RenderInput{}, webKey)
			content.Items[1].Treatment = c.treatment
			got, _ := renderedItem(t, content, manifest.RenderInput{}, webKey)
			if !reflect.DeepEqual(got.MemberOwned, c.want) {
				t.Errorf("left to the member: %q, want %q", got.MemberOwned, c.want)
			}
			if string(got.Object) != string(plain.Object) || got.Error != "" {
				t.Errorf("a new object would not have all values: %s %s", got.Object, got.Error)
			}
			if (got.Hash == plain.Hash) != (len(c.want) == 0) {
				t.Error("the hash does not follow what is left to the member")
			}
		})
	}
}

func TestAnElementOfAListBelongsToNoMember(t *testing.T) {
	content := newContent()
	content.Items[1].Treatment = &atoll.Treatment{IgnoreFields: []string{"/spec/template/spec/containers/1"}}
	got, _ := renderedItem(t, content, manifest.RenderInput{}, webKey)
	if !strings.Contains(got.Error, "/spec/template/spec/containers/1 is an element of a list") || got.Object != nil {
		t.Errorf("%+v", got)
	}
}

// A row that goes removes each item as the item states, and all others as the policy does.
func TestRemovalOfItemsOfARowThatGoes(t *testing.T) {
	content := newContent()
	content.Items[1].Treatment = &atoll.Treatment{Removal: v1alpha1.RemoveOrphan}
	build := func(row atoll.RowSpec) atoll.Manifest {
		return manifest.BuildManifest(manifest.ManifestInput{Row: row, Content: content})
	}
	m := build(atoll.RowSpec{Phase: atoll.RowRemoving})
	if len(m.Tombstones) != 1 || m.Tombstones[0].Key != webKey || !m.Tombstones[0].Orphan || m.Removal != v1alpha1.RemoveDelete {
		t.Errorf("%+v, removal %s", m.Tombstones, m.Removal)
	}
	if m = build(atoll.RowSpec{Phase: atoll.RowRemoving, Orphan: true}); len(m.Tombstones) != 0 || m.Removal != v1alpha1.RemoveOrphan {
		t.Errorf("a row that is orphaned as a whole: %+v, removal %s", m.Tombstones, m.Removal)
	}
	if m = build(atoll.RowSpec{Phase: atoll.RowActive}); len(m.Tombstones) != 0 {
		t.Errorf("a row that stays: %+v", m.Tombstones)
	}
	content.Removal = v1alpha1.RemoveOrphan
	content.Items[0].Treatment = &atoll.Treatment{Removal: v1alpha1.RemoveDelete}
	m = build(atoll.RowSpec{Phase: atoll.RowRemoving})
	if len(m.Tombstones) != 1 || m.Tombstones[0].Key != secretKey || m.Tombstones[0].Orphan || m.Removal != v1alpha1.RemoveOrphan {
		t.Errorf("one item deleted of a Bundle that is orphaned: %+v, removal %s", m.Tombstones, m.Removal)
	}
	for _, mode := range []v1alpha1.RemovalMode{v1alpha1.RemoveDelete, v1alpha1.RemoveOrphan} {
		content.Removal, content.Items[0].Treatment, content.Items[1].Treatment = mode, nil, &atoll.Treatment{Removal: v1alpha1.RemoveLast}
		m = build(atoll.RowSpec{Phase: atoll.RowRemoving})
		if len(m.Tombstones) != 1 || m.Tombstones[0].Key != webKey || m.Tombstones[0].Orphan || !m.Tombstones[0].Last {
			t.Errorf("one item removed last, others by %s: %+v", mode, m.Tombstones)
		}
	}
}

// An item that is removed with its Bundle stays in a cluster that the Bundle leaves, and goes with a deleted Bundle.
func TestAnItemIsRemovedWithItsBundle(t *testing.T) {
	content := newContent()
	content.Items[1].Treatment = &atoll.Treatment{Removal: v1alpha1.RemoveWithBundle}
	for reason, orphan := range map[atoll.Reason]bool{
		atoll.ReasonPlacementEdited: true, atoll.ReasonClusterRemoved: true, "": true, atoll.ReasonBundleDeleted: false,
	} {
		m := manifest.BuildManifest(manifest.ManifestInput{Row: atoll.RowSpec{Phase: atoll.RowRemoving, Reason: atoll.RowReason{Reason: reason}.String()}, Content: content})
		if stays := len(m.Tombstones) == 1 && m.Tombstones[0].Key == webKey && m.Tombstones[0].Orphan; stays != orphan || !m.Remove || m.Removal != v1alpha1.RemoveDelete {
			t.Errorf("a row that goes by %q: %+v, removal %s", reason, m.Tombstones, m.Removal)
		}
	}
}

// An item with an assessment has its content and its hash, so that other rules apply nothing again, and an error for
// agents that would not assess it. An item that cannot be rendered has none.
func TestAssessedItems(t *testing.T) {
	assessment := &atoll.Assessment{Completion: "has(object.done)"}
	content := newContent()
	plain, _ := renderedItem(t, content, manifest.RenderInput{}, webKey)
	content.Items[1].Treatment = &atoll.Treatment{Assessment: assessment}
	got, _ := renderedItem(t, content, manifest.RenderInput{}, webKey)
	if got.Assessment != assessment || got.Error != atoll.UnknownAssessment || got.Hash != plain.Hash || !got.IsWritten() || got.Failed() || got.HasLostField() || !got.StatesCompletion() {
		t.Errorf("%+v", got)
	}
	if text, err := json.Marshal(plain); err != nil || strings.Contains(string(text), "ssess") {
		t.Errorf("an item without rules has a byte of them: %s, %v", text, err)
	}
	stored := got
	if stored.Assessment = nil; !stored.HasLostField() || !stored.Failed() {
		t.Errorf("as an older agent stored it: %+v", stored)
	}
	content.Items[1].Treatment = &atoll.Treatment{Assessment: assessment, Drift: v1alpha1.DriftReport}
	if got, _ = renderedItem(t, content, manifest.RenderInput{}, webKey); got.Assessment != assessment || got.Error != atoll.UnknownObservation || got.Observe == "" {
		t.Errorf("observed: %+v", got)
	}

	rule := newRule("OverridePolicy/shop/o", plaintextOverriders("replace", "/spec/none/of/this", `1`), webKey)
	for _, atomic := range []bool{false, true} {
		rule.Atomic = atomic
		content = newContent(rule)
		content.Items[1].Treatment = &atoll.Treatment{Assessment: assessment}
		if got, _ := renderedItem(t, content, manifest.RenderInput{Rules: []int{0}}, webKey); !got.Failed() || got.Assessment != nil {
			t.Errorf("atomic %t: %+v", atomic, got)
		}
	}
}

// An observed item has its content, and an error for agents that would apply it otherwise.
func TestObservedItems(t *testing.T) {
	for name, c := range map[string]struct {
		treatment *atoll.Treatment
		want      atoll.Observation
	}{
		"written":               {&atoll.Treatment{Removal: v1alpha1.RemoveOrphan}, ""},
		"read only":             {&atoll.Treatment{Update: v1alpha1.UpdateReadOnly}, atoll.ObserveHealth},
		"drift is approved":     {&atoll.Treatment{Drift: v1alpha1.DriftApprove}, atoll.ObserveForApproval},
		"drift is reported":     {&atoll.Treatment{Drift: v1alpha1.DriftReport}, atoll.ObserveDrift},
		"read only comes first": {&atoll.Treatment{Update: v1alpha1.UpdateReadOnly, Drift: v1alpha1.DriftReport}, atoll.ObserveHealth},
	} {
		content := newContent()
		plain, _ := renderedItem(t, content, manifest.RenderInput{}, webKey)
		content.Items[1].Treatment = c.treatment
		got, _ := renderedItem(t, content, manifest.RenderInput{}, webKey)
		if got.Observe != c.want || (got.Error == atoll.UnknownObservation) != (c.want != "") || got.Failed() || string(got.Object) != string(plain.Object) {
			t.Errorf("%s: observed %q, error %q, %s", name, got.Observe, got.Error, got.Object)
		}
		if (got.Hash == plain.Hash) != (c.want == "") {
			t.Errorf("%s: the hash does not follow what is observed", name)
		}
	}
}

// Nothing is made for observed items, so their namespace is not needed.
func TestTheNamespaceOfObservedItems(t *testing.T) {
	in := manifest.ManifestInput{
		Row: atoll.RowSpec{Phase: atoll.RowActive}, Content: newContent(),
		Items:      []atoll.RenderedItem{{Key: webKey, Observe: atoll.ObserveDrift}},
		Namespaces: map[string]atoll.NamespaceMeta{webKey.Namespace: {}},
	}
	if m := manifest.BuildManifest(in); len(m.Namespaces) != 0 {
		t.Errorf("namespaces %v", m.Namespaces)
	}
	in.Items = append(in.Items, atoll.RenderedItem{Key: jobKey})
	if m := manifest.BuildManifest(in); len(m.Namespaces) != 1 {
		t.Errorf("with an item that is written: namespaces %v", m.Namespaces)
	}
}

// An approval reaches its item alone, where it waits for one, with its namespace. The row's items are shared with
// other rows, and stay as they are.
func TestApprovalsOfARow(t *testing.T) {
	const id = "0123456789abcdef"
	in := manifest.ManifestInput{
		Row: atoll.RowSpec{Phase: atoll.RowActive}, Content: newContent(),
		Items: []atoll.RenderedItem{
			{Key: webKey, Observe: atoll.ObserveForApproval, Hash: "web"}, {Key: jobKey, Observe: atoll.ObserveDrift, Hash: "job"},
		},
		Namespaces: map[string]atoll.NamespaceMeta{webKey.Namespace: {}},
	}
	without := manifest.BuildManifest(in)
	in.Row.Approvals = []atoll.DriftApproval{{Item: jobKey.String(), ID: id}, {Item: webKey.String(), ID: id}}
	m := manifest.BuildManifest(in)
	if m.Items[0].Approval != id || m.Items[1].Approval != "" || m.Items[0].Hash != "web" || len(m.Namespaces) != 1 {
		t.Errorf("the manifest is %+v", m)
	}
	if in.Items[0].Approval != "" || len(without.Namespaces) != 0 || without.Content == m.Content {
		t.Errorf("without approvals: %+v", without)
	}
}

// Items state a resolution of conflicts where it is not that of all others. An agent that knows only the one of
// all others takes over nothing that an item forbids.
func TestConflictResolutionsOfItems(t *testing.T) {
	for name, c := range map[string]struct {
		content, web       v1alpha1.ConflictResolution
		ofAll, ofWeb, rest v1alpha1.ConflictResolution
	}{
		"none stated":          {content: v1alpha1.ConflictAdoptIfSame, ofAll: v1alpha1.ConflictAdoptIfSame},
		"an item takes more":   {content: v1alpha1.ConflictAbort, web: v1alpha1.ConflictOverwrite, ofAll: v1alpha1.ConflictAbort, ofWeb: v1alpha1.ConflictOverwrite},
		"an item takes less":   {content: v1alpha1.ConflictOverwrite, web: v1alpha1.ConflictAbort, ofAll: v1alpha1.ConflictAbort, rest: v1alpha1.ConflictOverwrite},
		"an item takes as all": {content: v1alpha1.ConflictOverwrite, web: v1alpha1.ConflictOverwrite, ofAll: v1alpha1.ConflictOverwrite},
	} {
		content := newContent()
		content.ConflictResolution = c.content
		plain, _ := manifest.RenderItems(content, manifest.RenderInput{})
		if c.web != "" {
			content.Items[1].Treatment = &atoll.Treatment{ConflictResolution: c.web}
		}
		items, _ := manifest.RenderItems(content, manifest.RenderInput{})
		m := manifest.BuildManifest(manifest.ManifestInput{Row: atoll.RowSpec{Phase: atoll.RowActive}, Content: content, Items: items})
		if m.ConflictResolution != c.ofAll {
			t.Errorf("%s: %s for all, want %s", name, m.ConflictResolution, c.ofAll)
		}
		for i, it := range m.Items {
			want := c.rest
			if it.Key == webKey {
				want = c.ofWeb
			}
			if it.ConflictResolution != want || it.Hash != plain[i].Hash {
				t.Errorf("%s: %s has %q, want %q", name, it.Key, it.ConflictResolution, want)
			}
		}
		if c.web != "" && items[slices.IndexFunc(items, func(it atoll.RenderedItem) bool { return it.Key == webKey })].ConflictResolution != c.web {
			t.Errorf("%s: the rendered items changed", name)
		}
	}
}

// An item is recreated by its own statement alone, which is no part of its hash.
func TestRecreatedItems(t *testing.T) {
	content := newContent()
	plain, _ := renderedItem(t, content, manifest.RenderInput{}, webKey)
	content.Items[1].Treatment = &atoll.Treatment{Update: v1alpha1.UpdateRecreate}
	got, _ := renderedItem(t, content, manifest.RenderInput{}, webKey)
	if plain.Recreate || !got.Recreate || got.Hash != plain.Hash || len(got.MemberOwned) != 0 {
		t.Errorf("%+v, without a statement %+v", got, plain)
	}
}

// Members get the wave of an item, also of one that cannot be rendered. It is no part of the hash, so that another wave
// applies nothing again.
func TestWavesOfItems(t *testing.T) {
	content := newContent()
	plain, _ := renderedItem(t, content, manifest.RenderInput{}, webKey)
	content.Items[1].Treatment = &atoll.Treatment{Wave: -3}
	got, _ := renderedItem(t, content, manifest.RenderInput{}, webKey)
	if plain.Wave != 0 || got.Wave != -3 || got.Hash != plain.Hash || !bytes.Equal(got.Object, plain.Object) || got.Failed() {
		t.Errorf("%+v, without a wave %+v", got, plain)
	}
	if text, err := json.Marshal(plain); err != nil || strings.Contains(string(text), "wave") {
		t.Errorf("an item without a wave is %s (%v)", text, err)
	}
	content.Items[1].Object = []byte("no object")
	if failed, _ := renderedItem(t, content, manifest.RenderInput{}, webKey); !failed.Failed() || failed.Wave != -3 {
		t.Errorf("an item that cannot be rendered is %+v", failed)
	}
}
