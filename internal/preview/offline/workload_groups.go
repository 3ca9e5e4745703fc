package offline

import (
	"atoll.dev/atoll/internal/schedule"
)

// joinGroups returns the groups of workloadAffinity of a Bundle with the Bundles that were decided before; nil: it has none.
// It sets the groups and the name of one, by which later Bundles find it.
func (f *fleetState) joinGroups(b *Bundle, one *placedBundle) (*schedule.WorkloadGroups, error) {
	if b.Spec.Placement.WorkloadAffinity == nil {
		return nil, nil
	}
	labels, err := schedule.LabelsOfTemplates(b.Content)
	if err != nil {
		return nil, err
	}
	one.name = labels.NameMember(b.ID.Name)
	one.groups = map[[2]string]bool{}
	out := &schedule.WorkloadGroups{Terms: schedule.WorkloadTermsOf(b.Spec.Placement.WorkloadAffinity, labels)}
	out.AddGroups(func(key, value string, apart bool) schedule.WorkloadGroup {
		one.groups[[2]string{key, value}] = true
		return f.othersOfGroup(b.ID.Namespace, key, value, apart)
	})
	return out, nil
}

// othersOfGroup returns a group of a namespace as the Bundles form it that were decided before.
func (f *fleetState) othersOfGroup(namespace, key, value string, apart bool) schedule.WorkloadGroup {
	names := map[string]schedule.MemberName{}
	g := schedule.WorkloadGroup{Key: key, Value: value, KeepsApart: apart, Others: map[string]bool{}, NameAt: func(cluster string) schedule.MemberName { return names[cluster] }}
	for i := range f.placedBundles {
		other := &f.placedBundles[i]
		if other.id.Namespace != namespace || !other.groups[[2]string{key, value}] {
			continue
		}
		for _, c := range other.views {
			if g.Others[c.Name] = true; names[c.Name].Text == "" || other.name.Text < names[c.Name].Text {
				names[c.Name] = other.name
			}
		}
	}
	return g
}
