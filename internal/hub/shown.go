package hub

import (
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/hub/view"
)

// shown gives the tables by which it is known what runs where; false until they are read.
func (l *lateParts) shown() (view.Tables, bool) {
	p, ok := l.parts.Get()
	return tables{p}, ok
}

// tables are the state's.
type tables struct{ *parts }

func (t tables) Cluster(name string) (*v1alpha1.Cluster, bool) { return t.state.Clusters.Get(name) }

func (t tables) Clusters() []*v1alpha1.Cluster { return t.state.Clusters.List() }

func (t tables) Placed(namespace string) map[string][]string { return t.state.Rows.Placed(namespace) }

func (t tables) PlacedAt(namespace, cluster string) bool {
	return t.state.Rows.PlacedAt(namespace, cluster)
}

func (t tables) Template(key atoll.ItemKey) (types.UID, bool) {
	obj, ok := t.state.Templates.Get(key)
	if !ok {
		return "", false
	}
	return obj.GetUID(), true
}
