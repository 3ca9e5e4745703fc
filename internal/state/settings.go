package state

import (
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
)

// Settings is what the hub's admin decides for all, beside the properties that Views keeps.
type Settings struct {
	views *Views

	mu       sync.RWMutex
	profiles v1alpha1.ClusterProfilesPolicy
	notifier[string]
}

func newSettings(views *Views) *Settings { return &Settings{views: views} }

// Profiles tells whether the clusters are published as ClusterProfiles.
func (s *Settings) Profiles() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.profiles != v1alpha1.ProfilesNone
}

// Subscribe to changes; the name is that of the settings.
func (s *Settings) Subscribe(fn func(name string)) { s.subscribe(fn) }

func (s *Settings) put(obj client.Object) {
	s.views.put(obj)
	if o, ok := obj.(*v1alpha1.HubSettings); ok && o.Name == v1alpha1.HubSettingsName {
		s.set(o.Spec.ClusterProfiles)
	}
}

func (s *Settings) drop(obj client.Object) {
	s.views.drop(obj)
	if obj.GetName() == v1alpha1.HubSettingsName {
		s.set("")
	}
}

func (s *Settings) set(profiles v1alpha1.ClusterProfilesPolicy) {
	s.mu.Lock()
	changed := s.profiles != profiles
	s.profiles = profiles
	s.mu.Unlock()
	if changed {
		s.notify(v1alpha1.HubSettingsName)
	}
}
