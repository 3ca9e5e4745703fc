package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/testwait"
)

// applyIn applies YAML to a member.
func applyIn(t *testing.T, member, text string) {
	t.Helper()
	for _, o := range decodeObjects(t, "", text) {
		testwait.UntilNil(t, "apply "+o.GetName()+" in "+member, func(ctx context.Context) error {
			if err := sharedWorld.clients[member].Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("kubectl"), client.ForceOwnership); err != nil {
				return err // the kind may not be served yet
			}
			return nil
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

// A ClusterProperty in a member steers placement when the hub's admin has listed it, and
// not before.
func TestAPropertyOfAMemberSteersPlacement(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "property")
	const policy = `
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
`
	applyIn(t, "member2", clusterProperties+`---
apiVersion: about.k8s.io/v1alpha1
kind: ClusterProperty
metadata: {name: accelerator.example.com}
spec: {value: h100}
`)
	testwait.UntilNil(t, "the agent's report", func(ctx context.Context) error {
		c, err := get(ctx, "hub", "atoll.dev/v1alpha1", "Cluster", "", "member2")
		if err != nil || c == nil {
			return fmt.Errorf("no Cluster member2: %v", err)
		}
		properties, _, _ := unstructured.NestedSlice(c.Object, "status", "properties")
		for _, p := range properties {
			if fmt.Sprint(p) == "map[name:accelerator.example.com value:h100]" {
				return nil
			}
		}
		return fmt.Errorf("member2 has the properties %v", properties)
	})
	for _, o := range decodeObjects(t, ns, policy) {
		err := hubClient().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("kubectl"))
		if refused := err != nil && strings.Contains(err.Error(), "the hub's admin listed none that steer placement"); refused != (o.GetKind() == "PropagationPolicy") {
			t.Fatalf("%s, before the property is listed: %v", o.GetKind(), err)
		}
	}
	apply(t, ns, `
apiVersion: atoll.dev/v1alpha1
kind: HubSettings
metadata: {name: hub}
spec: {placementProperties: [accelerator.example.com]}
`)
	testwait.UntilNil(t, "a policy by the property", func(ctx context.Context) error {
		for _, o := range decodeObjects(t, ns, policy) {
			if err := hubClient().Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("kubectl")); err != nil {
				return err // the list may not have come round yet
			}
		}
		return nil
	})
	testwait.UntilNil(t, "placed where the property is", allChecks(
		inCluster("member2", "v1", "ConfigMap", ns, "model", true), inCluster("member1", "v1", "ConfigMap", ns, "model", false),
		inCluster("member3", "v1", "ConfigMap", ns, "model", false),
		explanationMatches("configmap/model -n "+ns, `^ +member2 +fits`, `member1, .*member3.*: .*accelerator.example.com`),
	))
}

// The free capacity of nodes, as agents report it, divides replicas; a cluster of unknown
// capacity gets only the rest.
func TestRoomOfMembersDividesReplicas(t *testing.T) {
	t.Parallel()
	for member, widgets := range map[string]string{"member1": "6", "member2": "3"} {
		var nodes corev1.NodeList
		if err := sharedWorld.clients[member].List(t.Context(), &nodes); err != nil || len(nodes.Items) == 0 {
			t.Fatalf("%s has %d nodes: %v", member, len(nodes.Items), err)
		}
		was := nodes.Items[0].DeepCopy()
		for _, list := range []corev1.ResourceList{nodes.Items[0].Status.Capacity, nodes.Items[0].Status.Allocatable} {
			list["example.com/widget"] = resource.MustParse(widgets)
		}
		if err := sharedWorld.clients[member].Status().Patch(t.Context(), &nodes.Items[0], client.MergeFrom(was)); err != nil {
			t.Fatal(err)
		}
	}
	reported := func(ctx context.Context) error {
		for member, widgets := range map[string]string{"member1": "6", "member2": "3"} {
			c, err := get(ctx, "hub", "atoll.dev/v1alpha1", "Cluster", "", member)
			if err != nil || c == nil {
				return fmt.Errorf("no %s: %v", member, err)
			}
			if n, _, _ := unstructured.NestedString(c.Object, "status", "resources", "allocatable", "example.com/widget"); n != widgets {
				return fmt.Errorf("%s is reported with %q widgets", member, n)
			}
			if _, known, _ := unstructured.NestedMap(c.Object, "status", "resources", "freeCapacity"); !known {
				return errors.New(member + " reports no free capacity")
			}
		}
		return nil
	}
	testwait.UntilNil(t, "reports of the agents", reported)
	ns := createNamespace(t, "room")
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
    clusterAffinity: {clusterNames: [member1, member2, member3]}
    replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {dynamicWeight: AvailableReplicas}}
`
	share := func(member string, n int64) func(context.Context) error {
		return fieldIs(member, ns, "widgets", "spec.replicas", n)
	}
	apply(t, ns, fmt.Sprintf(widgets, 9))
	testwait.UntilNil(t, "shares by room", allChecks(share("member1", 6), share("member2", 3), explanationMatches("deploy/widgets -n "+ns, `^ +member1 +fits, room for 0 more of widgets`)))
	apply(t, ns, fmt.Sprintf(widgets, 11))
	testwait.UntilNil(t, "two without a place", explanationMatches("deploy/widgets -n "+ns, `2 of 11 replicas of Deployment/widgets have no place for \d+s: .*; to act: `))
	ignore := func(ctx context.Context, is string) error {
		o := decodeObjects(t, ns, "apiVersion: atoll.dev/v1alpha1\nkind: Cluster\nmetadata: {name: member3}\nspec: {reportedRoom: "+is+"}")[0]
		return hubClient().Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("room-test"), client.ForceOwnership)
	}
	if err := ignore(t.Context(), "Ignore"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ignore(context.Background(), "Use"); err != nil {
			t.Error(err)
		}
	})
	testwait.UntilNil(t, "the rest is in the cluster of unknown capacity", allChecks(share("member1", 6), share("member2", 3), share("member3", 2),
		explanationMatches("deploy/widgets -n "+ns, `^ +member3 +fits, room unknown`)))
}

// A Deployment that selects nodes goes to the member that has such nodes. It is placed
// all the same when no member has them.
func TestPodsGoToNodesThatTheySelect(t *testing.T) {
	t.Parallel()
	label := func(member, value string) {
		var nodes corev1.NodeList
		if err := sharedWorld.clients[member].List(t.Context(), &nodes); err != nil || len(nodes.Items) == 0 {
			t.Fatalf("%s has %d nodes: %v", member, len(nodes.Items), err)
		}
		for i := range nodes.Items {
			was := nodes.Items[i].DeepCopy()
			metav1.SetMetaDataLabel(&nodes.Items[i].ObjectMeta, "example.com/disk", value)
			if err := sharedWorld.clients[member].Patch(t.Context(), &nodes.Items[i], client.MergeFrom(was)); err != nil {
				t.Fatal(err)
			}
		}
	}
	disks := map[string]string{"member1": "plain", "member2": "fast", "member3": "plain"}
	for member, disk := range disks {
		label(member, disk)
	}
	testwait.UntilNil(t, "reports of the agents", func(ctx context.Context) error {
		for member, disk := range disks {
			c, err := get(ctx, "hub", "atoll.dev/v1alpha1", "Cluster", "", member)
			if err != nil || c == nil {
				return fmt.Errorf("no %s: %v", member, err)
			}
			groups, _, _ := unstructured.NestedSlice(c.Object, "status", "resources", "freeCapacity", "nodeGroups")
			if len(groups) == 0 || !strings.Contains(fmt.Sprint(groups[0]), "example.com/disk:"+disk) {
				return fmt.Errorf("%s reports the groups %v", member, groups)
			}
		}
		return nil
	})
	ns := createNamespace(t, "nodes")
	const workload = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: $NAME, namespace: $NS}
spec:
  replicas: 1
  selector: {matchLabels: {app: $NAME}}
  template:
    metadata: {labels: {app: $NAME}}
    spec:
      nodeSelector: {example.com/disk: $NAME}
      containers: [{name: c, image: "disk:1"}]
---
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: $NAME, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: $NAME}]
  placement: {clusterAffinity: {clusterNames: [member1, member2, member3]}, maxClusters: 1}
`
	apply(t, ns, strings.ReplaceAll(workload, "$NAME", "fast"))
	testwait.UntilNil(t, "placed where the nodes are", allChecks(
		inCluster("member2", "apps/v1", "Deployment", ns, "fast", true), inCluster("member1", "apps/v1", "Deployment", ns, "fast", false), inCluster("member3", "apps/v1", "Deployment", ns, "fast", false),
	))
	apply(t, ns, strings.ReplaceAll(workload, "$NAME", "none"))
	testwait.UntilNil(t, "placed although no nodes are selected", func(ctx context.Context) error {
		for member := range disks {
			if inCluster(member, "apps/v1", "Deployment", ns, "none", true)(ctx) == nil {
				return nil
			}
		}
		return errors.New("it is in no member")
	})
}
