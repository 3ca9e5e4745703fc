package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
)

// in applies YAML to a member.
func in(t *testing.T, member, text string) {
	t.Helper()
	for _, o := range objects(t, "", text) {
		eventually(t, converge, "apply "+o.GetName()+" in "+member, func(ctx context.Context) string {
			if err := world.clients[member].Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("kubectl"), client.ForceOwnership); err != nil {
				return err.Error() // the kind may not be served yet
			}
			return ""
		})
	}
}

const clusterProperties = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: clusterproperties.about.k8s.io
  annotations: {api-approved.kubernetes.io: "unapproved, for a test"}
spec:
  group: about.k8s.io
  scope: Cluster
  names: {kind: ClusterProperty, plural: clusterproperties, singular: clusterproperty}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {value: {type: string}}}}}}
`

// What stands in a member as a ClusterProperty steers placement, once the hub's admin has
// listed it, and not before.
func TestAPropertyOfAMemberSteersPlacement(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "property")
	apply(t, ns, `
apiVersion: v1
kind: ConfigMap
metadata: {name: model, namespace: $NS}
---
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: model, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: model}]
  placement: {clusterAffinity: {fieldSelector: {matchExpressions: [{key: accelerator.example.com, operator: In, values: [h100]}]}}}
`)
	in(t, "member2", clusterProperties+`---
apiVersion: about.k8s.io/v1alpha1
kind: ClusterProperty
metadata: {name: accelerator.example.com}
spec: {value: h100}
`)
	eventually(t, converge, "the agent's report", func(ctx context.Context) string {
		var c v1alpha1.Cluster
		if err := hub().Get(ctx, client.ObjectKey{Name: "member2"}, &c); err != nil {
			return err.Error()
		}
		for _, p := range c.Status.Properties {
			if p.Name == "accelerator.example.com" && p.Value == "h100" {
				return ""
			}
		}
		return fmt.Sprintf("member2 has the properties %v", c.Status.Properties)
	})
	eventually(t, converge, "not listed", explains("configmap/model -n "+ns, `is in no cluster: none fits its placement`, `member1, member2, member3: .*accelerator.example.com`))
	apply(t, ns, `
apiVersion: atoll.dev/v1alpha1
kind: HubSettings
metadata: {name: hub}
spec: {placementProperties: [accelerator.example.com]}
`)
	eventually(t, converge, "placed where the property is", all(
		inCluster("member2", "v1", "ConfigMap", ns, "model", true), inCluster("member1", "v1", "ConfigMap", ns, "model", false),
		inCluster("member3", "v1", "ConfigMap", ns, "model", false),
	))
}

// What nodes have left, as agents tell it, divides replicas; a cluster of which nobody knows
// that gets only what the others have no room for.
func TestRoomOfMembersDividesReplicas(t *testing.T) {
	t.Parallel()
	for member, widgets := range map[string]string{"member1": "6", "member2": "3"} {
		var nodes corev1.NodeList
		if err := world.clients[member].List(t.Context(), &nodes); err != nil || len(nodes.Items) == 0 {
			t.Fatalf("%s has %d nodes: %v", member, len(nodes.Items), err)
		}
		was := nodes.Items[0].DeepCopy()
		for _, list := range []corev1.ResourceList{nodes.Items[0].Status.Capacity, nodes.Items[0].Status.Allocatable} {
			list["example.com/widget"] = resource.MustParse(widgets)
		}
		if err := world.clients[member].Status().Patch(t.Context(), &nodes.Items[0], client.MergeFrom(was)); err != nil {
			t.Fatal(err)
		}
	}
	reported := func(ctx context.Context) string {
		for member, widgets := range map[string]string{"member1": "6", "member2": "3"} {
			var c v1alpha1.Cluster
			if err := hub().Get(ctx, client.ObjectKey{Name: member}, &c); err != nil {
				return err.Error()
			}
			if q := c.Status.Resources.Allocatable["example.com/widget"]; q.String() != widgets {
				return fmt.Sprintf("%s is reported with %s widgets", member, q.String())
			}
			if c.Status.Resources.Room == nil {
				return member + " reports no room"
			}
		}
		return ""
	}
	eventually(t, converge, "reports of the agents", reported)
	ns := namespace(t, "room")
	const widgets = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: widgets, namespace: $NS}
spec:
  replicas: %d
  selector: {matchLabels: {app: widgets}}
  template:
    metadata: {labels: {app: widgets}}
    spec:
      containers:
      - {name: c, image: "widgets:1", resources: {requests: {example.com/widget: 1}, limits: {example.com/widget: 1}}}
---
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: widgets, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: widgets}]
  placement:
    replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {dynamicWeight: AvailableReplicas}}
`
	share := func(member string, n int64) func(context.Context) string {
		return field(member, ns, "widgets", "spec.replicas", n)
	}
	apply(t, ns, fmt.Sprintf(widgets, 9))
	eventually(t, converge, "shares by room", all(share("member1", 6), share("member2", 3), explains("deploy/widgets -n "+ns, `^ +member1 +fits, room for 0 more of widgets`)))
	cluster := &v1alpha1.Cluster{}
	setRoom := func(ctx context.Context, is v1alpha1.ReportedRoom) string {
		if err := hub().Get(ctx, client.ObjectKey{Name: "member3"}, cluster); err != nil {
			return err.Error()
		}
		was := cluster.DeepCopy()
		cluster.Spec.ReportedRoom = is
		if err := hub().Patch(ctx, cluster, client.MergeFrom(was)); err != nil {
			return err.Error()
		}
		return ""
	}
	apply(t, ns, fmt.Sprintf(widgets, 11))
	eventually(t, converge, "two without a place", explains("deploy/widgets -n "+ns, `2 of 11 replicas of Deployment/widgets have no place for \d+s: .*; to act: `))
	if why := setRoom(t.Context(), v1alpha1.RoomIgnore); why != "" {
		t.Fatal(why)
	}
	t.Cleanup(func() { setRoom(context.Background(), "") })
	eventually(t, converge, "what the others have no room for, where nobody knows", all(share("member1", 6), share("member2", 3), share("member3", 2),
		explains("deploy/widgets -n "+ns, `^ +member3 +fits, room unknown`)))
}
