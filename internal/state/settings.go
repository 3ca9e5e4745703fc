package state

import (
	"cmp"
	"reflect"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
)

// HubSettingsTable is what the hub's admin decides for all, beside the properties that Views keeps.
type HubSettingsTable struct {
	views *ClusterViews

	mu   sync.RWMutex
	spec v1alpha1.HubSettingsSpec
	notifier[string]
}

func newSettings(views *ClusterViews) *HubSettingsTable { return &HubSettingsTable{views: views} }

// PublishesProfiles reports whether the clusters are published as ClusterProfiles.
func (s *HubSettingsTable) PublishesProfiles() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.spec.ClusterProfiles != v1alpha1.ProfilesNone
}

// DefaultPlacement returns where objects go that nothing else places; nil: they stay on the hub.
// It is shared, and not to be changed.
func (s *HubSettingsTable) DefaultPlacement() *v1alpha1.DefaultPlacement {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.spec.DefaultPlacement
}

// ChildPlacement returns where objects go that controllers on the hub make of placed objects.
func (s *HubSettingsTable) ChildPlacement() v1alpha1.ChildPlacement {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return cmp.Or(s.spec.ChildPlacement, v1alpha1.ChildPlacementNone)
}

// CreatesEmptyNamespaces reports whether placed namespaces without objects appear in their clusters.
func (s *HubSettingsTable) CreatesEmptyNamespaces() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.spec.EmptyNamespaces == v1alpha1.EmptyNamespacesCreate
}

// UndoWindow returns how long changes of users are kept for undo; 0: they are not kept.
func (s *HubSettingsTable) UndoWindow() time.Duration {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.spec.UndoWindow == nil {
		return v1alpha1.DefaultUndoWindow
	}
	return s.spec.UndoWindow.Duration
}

// Failover returns when the hub taints lost clusters; nil: it taints none. It is shared, and not to be changed.
func (s *HubSettingsTable) Failover() *v1alpha1.ClusterFailover {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.spec.Failover
}

// Freeze returns the freeze of all changes, which may have ended; nil: there is none. It is shared, and not to be changed.
func (s *HubSettingsTable) Freeze() *v1alpha1.ChangeFreeze {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.spec.Freeze
}

// StatesPlacement reports whether the HubSettings state a placement.
func (s *HubSettingsTable) StatesPlacement() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.spec.DefaultPlacement != nil || s.spec.ChildPlacement != ""
}

// Subscribe subscribes to changes; the name is that of the settings.
func (s *HubSettingsTable) Subscribe(fn func(name string)) { s.addSubscriber(fn) }

func (s *HubSettingsTable) put(obj client.Object) {
	s.views.put(obj)
	if o, ok := obj.(*v1alpha1.HubSettings); ok && o.Name == v1alpha1.HubSettingsName {
		s.setSpec(o.Spec)
	}
}

func (s *HubSettingsTable) removeObject(obj client.Object) {
	s.views.removeObject(obj)
	if obj.GetName() == v1alpha1.HubSettingsName {
		s.setSpec(v1alpha1.HubSettingsSpec{})
	}
}

// SupposeWritten returns a copy of the settings as they would be if the HubSettings among the objects
// were written, or, with a deletion timestamp, deleted. It notifies no subscriber and does not follow
// the original.
func (s *HubSettingsTable) SupposeWritten(written ...client.Object) *HubSettingsTable {
	s.mu.RLock()
	out := &HubSettingsTable{spec: s.spec}
	s.mu.RUnlock()
	applyWritten(written, func(o *v1alpha1.HubSettings) { out.setSpec(o.Spec) }, func(*v1alpha1.HubSettings) { out.setSpec(v1alpha1.HubSettingsSpec{}) })
	return out
}

func (s *HubSettingsTable) setSpec(spec v1alpha1.HubSettingsSpec) {
	spec.PlacementProperties = nil // which Views keeps
	s.mu.Lock()
	changed := !reflect.DeepEqual(s.spec, spec)
	s.spec = spec
	s.mu.Unlock()
	if changed {
		s.notifyAll(v1alpha1.HubSettingsName)
	}
}
