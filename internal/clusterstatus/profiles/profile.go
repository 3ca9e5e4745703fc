package profiles

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	multicluster "atoll.dev/atoll/api/multicluster/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

const (
	// Namespace of the profiles: their readers need not see the hub's own.
	Namespace = multicluster.InventoryNamespace
	// Manager is the name under which the hub publishes clusters.
	Manager = "atoll"
	// Access is the name of the way to a cluster that leads through the hub.
	Access = "atoll"
)

// Hub is where the hub's API is.
type Hub struct {
	// Address is HOST:PORT; CA in PEM verifies it.
	Address string
	CA      []byte
}

// ProfileOf returns the published profile of a Cluster; nil where it is not accepted, or goes. It
// is a pure function of users' and agents' statements. Liveness is only in the condition Ready.
func ProfileOf(c *v1alpha1.Cluster, hub Hub) *multicluster.ClusterProfile {
	if !c.Spec.Accepted || c.DeletionTimestamp != nil {
		return nil
	}
	labels := maps.Clone(c.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[multicluster.LabelClusterManager] = Manager
	p := &multicluster.ClusterProfile{
		ObjectMeta: metav1.ObjectMeta{Name: c.Name, Namespace: Namespace, Labels: labels},
		Spec:       multicluster.ClusterProfileSpec{DisplayName: c.Name, ClusterManager: multicluster.ClusterManager{Name: Manager}},
	}
	p.Status.Version.Kubernetes = c.Status.KubernetesVersion
	p.Status.Properties = profileProperties(c)
	for _, as := range []struct{ from, to string }{{v1alpha1.ClusterReady, multicluster.ConditionControlPlaneHealthy}, {v1alpha1.ClusterJoined, multicluster.ConditionJoined}} {
		if is := meta.FindStatusCondition(c.Status.Conditions, as.from); is != nil {
			p.Status.Conditions = append(p.Status.Conditions, metav1.Condition{
				Type: as.to, Status: is.Status, Reason: is.Reason, LastTransitionTime: is.LastTransitionTime,
			})
		}
	}
	p.Status.AccessProviders = []multicluster.AccessProvider{{Name: Access, Cluster: multicluster.AccessCluster{
		Server: "https://" + hub.Address + "/" + strings.TrimPrefix(atoll.ClusterProxyPath(c.Name), "/"), CertificateAuthorityData: hub.CA,
	}}}
	return p
}

// profileProperties returns the properties that the agent reports, and the region and zone of the Cluster on the hub.
// Several zones are one value, with commas between them.
func profileProperties(c *v1alpha1.Cluster) []multicluster.Property {
	all := map[string]string{}
	for _, p := range c.Status.Properties {
		all[p.Name] = p.Value
	}
	for name, value := range map[string]string{
		"topology.kubernetes.io/region": c.Spec.Region, "topology.kubernetes.io/zone": strings.Join(c.Spec.ListZones(), ","), "provider.atoll.dev": c.Spec.Provider,
	} {
		if value != "" {
			all[name] = value
		}
	}
	var out []multicluster.Property
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name] != "" {
			out = append(out, multicluster.Property{Name: name, Value: all[name]})
		}
	}
	return out
}

// fingerprintProfile returns a fingerprint what is published; "" of nothing.
func fingerprintProfile(p *multicluster.ClusterProfile) string {
	if p == nil {
		return ""
	}
	status := p.Status
	status.Conditions = slices.Clone(status.Conditions)
	for i := range status.Conditions { // times are stored to the second
		status.Conditions[i].LastTransitionTime = metav1.NewTime(status.Conditions[i].LastTransitionTime.UTC().Truncate(1e9))
	}
	return atoll.HashJSON([]any{p.Labels, p.Spec, status})[:16]
}
