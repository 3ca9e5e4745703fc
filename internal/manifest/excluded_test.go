package manifest_test

import (
	"strings"
	"testing"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
	"atoll.dev/atoll/internal/overrides"
)

// An item that a rule excludes from a cluster is not sent there, and a tombstone removes it. The
// last rule with notHere decides.
func TestNotHereExcludesItems(t *testing.T) {
	no := v1alpha1.Overriders{NotHere: pointerOf(true)}
	build := func(c *atoll.Content, phase atoll.RowPhase, rules ...int) (m atoll.Manifest, notes []overrides.Provenance) {
		items, notes := manifest.RenderItems(c, manifest.RenderInput{Rules: rules})
		return manifest.BuildManifest(manifest.ManifestInput{
			Bundle: enginev1.BundleRef{UID: "b"}, Content: c, Items: items, Rules: rules, Row: atoll.RowSpec{Generation: 1, Phase: phase},
		}), notes
	}
	has := func(m atoll.Manifest, key atoll.ItemKey) bool {
		for _, i := range m.Items {
			if i.Key == key {
				return true
			}
		}
		return false
	}
	c := newContent(newRule("OverridePolicy/shop/p", no, webKey), newRule("OverridePolicy/shop/q", v1alpha1.Overriders{NotHere: pointerOf(false), Replicas: pointerOf(int32(9))}, webKey))
	m, notes := build(c, atoll.RowActive, 0)
	if has(m, webKey) || len(m.Items) != 3 || len(m.Tombstones) != 1 {
		t.Fatalf("items %d, tombstones %+v", len(m.Items), m.Tombstones)
	}
	if want := (atoll.Tombstone{Key: webKey, UID: "u-web", Cause: atoll.CauseExcluded}); m.Tombstones[0].ID() != want.ID() || m.Tombstones[0].Cause != want.Cause || m.Tombstones[0].Orphan {
		t.Errorf("tombstone %+v", m.Tombstones[0])
	}
	if len(notes) != 1 || notes[0].Overrider != "notHere" || notes[0].Item != webKey || notes[0].Policy != "OverridePolicy/shop/p" {
		t.Errorf("provenance %+v", notes)
	}
	if back, _ := build(c, atoll.RowActive, 0, 1); !has(back, webKey) || len(back.Tombstones) != 0 || back.Content == m.Content {
		t.Errorf("taken back: %+v", back.Tombstones)
	}
	if elsewhere, _ := build(c, atoll.RowActive); !has(elsewhere, webKey) || len(elsewhere.Tombstones) != 0 {
		t.Errorf("where no rule applies: %+v", elsewhere.Tombstones)
	}
	if gone, _ := build(c, atoll.RowRemoving, 0); !gone.Remove || len(gone.Tombstones) != 0 {
		t.Errorf("a row that goes: %+v", gone.Tombstones)
	}
	c.Removal = v1alpha1.RemoveOrphan
	if left, _ := build(c, atoll.RowActive, 0); !left.Tombstones[0].Orphan {
		t.Error("removal Orphan deletes")
	}
	c.Items[1].State = atoll.ItemRemovalHeld
	if held, _ := build(c, atoll.RowActive, 0); len(held.Tombstones) != 0 {
		t.Errorf("an item that is held until a decision is removed: %+v", held.Tombstones)
	}

	// Not what is divided, nor RBAC by a tenant.
	c = newContent(newRule("OverridePolicy/shop/p", no, webKey, roleKey))
	c.Items[1].Divided = true
	items, _ := manifest.RenderItems(c, manifest.RenderInput{Rules: []int{0}, Assigned: map[string]int64{webKey.String(): 2}})
	if len(items) != 4 || !strings.Contains(items[1].Error, "divides") || !strings.Contains(items[3].Error, "only a ClusterOverridePolicy") {
		t.Errorf("%+v", items)
	}
	if out := manifest.AbsentItems(c, manifest.RenderInput{Rules: []int{0}}); len(out) != 0 || len(manifest.ExcludedItems(c, []int{0})) != 0 || !overrides.CanSetReplicas(no) {
		t.Errorf("kept out: %v", out)
	}
}

// TestNotHereExcludesOnlyItsItem: what waits for a confirmation is sent as any other item, with
// what all other rules make of it, and nothing else of the row waits with it.
func TestNotHereExcludesOnlyItsItem(t *testing.T) {
	c := newContent(newRule("OverridePolicy/shop/p", v1alpha1.Overriders{NotHere: pointerOf(true), Replicas: pointerOf(int32(9))}, webKey))
	row := atoll.RowSpec{Generation: 1, Phase: atoll.RowActive, ExcludedPending: map[string]int64{webKey.String(): 1}}
	in := manifest.RenderInputOf(row, []int{0}, nil)
	items, notes := manifest.RenderItems(c, in)
	m := manifest.BuildManifest(manifest.ManifestInput{Content: c, Row: row, Rules: in.Rules, Items: items})
	if len(m.Items) != 4 || len(m.Tombstones) != 0 || len(manifest.AbsentItems(c, in)) != 0 {
		t.Errorf("what waits goes: %d items, tombstones %+v", len(m.Items), m.Tombstones)
	}
	if len(notes) != 1 || notes[0].Overrider != "replicas" || !strings.Contains(string(items[1].Object), `"replicas":9`) {
		t.Errorf("other overriders of what waits: %+v\n%s", notes, items[1].Object)
	}
	if out := manifest.ExcludedItems(c, in.Rules); len(out) != 1 || out[0] != webKey {
		t.Errorf("unwanted: %v", out)
	}

	// An atomic rule that fails stops all of the row, a removal too.
	c.Rules = append(c.Rules, newRule("OverridePolicy/shop/q", v1alpha1.Overriders{Plaintext: []v1alpha1.PlaintextOverrider{{Path: "/none/x", Operator: "remove"}}}, c.Items[0].Key))
	c.Rules[1].Atomic = true
	in = manifest.RenderInput{Rules: []int{0, 1}}
	items, _ = manifest.RenderItems(c, in)
	m = manifest.BuildManifest(manifest.ManifestInput{Content: c, Rules: in.Rules, Items: items})
	if len(m.Items) != 4 || m.Items[1].Key != webKey || !strings.Contains(m.Items[1].Error, "atomic") || len(m.Tombstones) != 0 {
		t.Errorf("under an atomic rule that fails: %+v, tombstones %+v", m.Items, m.Tombstones)
	}
}

// TestNotHereOfOverriddenReplicas: where the placement hands its replicas over, notHere takes a
// cluster's share away; the object goes once the share is gone, and not before.
func TestNotHereOfOverriddenReplicas(t *testing.T) {
	c := newContent(newRule("OverridePolicy/shop/p", v1alpha1.Overriders{NotHere: pointerOf(true)}, webKey))
	c.Items[1].Divided, c.Items[1].ReplicaOverrides = true, true
	if shares := manifest.OverriddenReplicas(c, []int{0}, nil); len(shares) != 1 || shares[webKey.String()] != 0 {
		t.Errorf("shares %v", shares)
	}
	for n, want := range map[int64]int{3: 4, 0: 3} {
		row := atoll.RowSpec{Phase: atoll.RowActive, Assigned: map[string]int64{webKey.String(): n}}
		items, _ := manifest.RenderItems(c, manifest.RenderInputOf(row, []int{0}, nil))
		m := manifest.BuildManifest(manifest.ManifestInput{Content: c, Row: row, Rules: []int{0}, Items: items})
		if len(m.Items) != want || len(m.Tombstones) != 4-want || want == 4 && items[1].Error != "" {
			t.Errorf("with %d replicas: %d items, tombstones %+v, %s", n, len(m.Items), m.Tombstones, items[1].Error)
		}
	}
}
