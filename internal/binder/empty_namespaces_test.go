package binder

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
)

// emptyNamespaces are the settings of a hub that creates empty namespaces, or does not.
type emptyNamespaces struct {
	hubDefault
	create bool
}

func (s *emptyNamespaces) CreatesEmptyNamespaces() bool { return s.create }

// An edit of the settings plans the Bundles again that place their own namespace, and no others.
func TestTheHubsSettingsDecideAboutEmptyNamespaces(t *testing.T) {
	settings := &emptyNamespaces{}
	_, b := newShopTables(t)
	b.Options.Settings, b.lastEmptyNamespaces = settings, false
	shop := policymatch.BundleID{Namespace: "shop", Name: "ns"}
	b.ownership.assignTemplate(atoll.NamespaceKey("shop"), shop, bundleOrigin{})
	var touched []policymatch.BundleID
	b.touchBundle = func(id policymatch.BundleID) { touched = append(touched, id) }
	b.emptyNamespaceSettingChanged()
	if len(touched) > 0 || b.createsEmptyNamespaces() {
		t.Errorf("without a change: %v", touched)
	}
	settings.create = true
	b.emptyNamespaceSettingChanged()
	b.emptyNamespaceSettingChanged()
	if len(touched) != 1 || touched[0] != shop || !b.createsEmptyNamespaces() {
		t.Errorf("touched %v, want %v", touched, shop)
	}
}
