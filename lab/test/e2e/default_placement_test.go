package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"

	"atoll.dev/atoll/internal/testwait"
)

// installation is an unmodified manifest of several kinds, in no particular order.
const installation = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {serviceAccountName: web, containers: [{name: web, image: registry.example/web:1}]}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: web, namespace: shop}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: shop-reader}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: legacy-1, namespace: shop, labels: {kubernetes.io/service-name: legacy}}
addressType: IPv4
ports: [{name: http, port: 80}]
endpoints: [{addresses: [192.0.2.7]}]
---
apiVersion: v1
kind: Service
metadata: {name: legacy, namespace: shop}
spec: {ports: [{name: http, port: 80}]}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: offers.shop.example}
spec:
  group: shop.example
  scope: Namespaced
  names: {plural: offers, singular: offer, kind: Offer}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

// TestPlacementByDefault: on a hub with a default placement, an unmodified installation runs in the
// members, and nothing else does. An empty namespace is in the members, too, and an Event reports what keeps it there
// after its deletion. A namespace turns the default off. Without the default, members keep
// what they have, and a new object gets an Event.
func TestPlacementByDefault(t *testing.T) {
	l := newOwnLab(t, 1, "--default-placement", "All")
	hub, member := l.KubeconfigPath("hub"), l.KubeconfigPath("member1")
	before := sets.New(strings.Fields(kubectlAt(t, member, "", "get clusterroles,crds,clusterrolebindings,validatingwebhookconfigurations,priorityclasses -o name"))...)
	kubectlAt(t, hub, "", "create namespace shop")
	kubectlAt(t, hub, "{apiVersion: v1, kind: Namespace, metadata: {name: quiet, annotations: {atoll.dev/clusters: ''}}}", "create -f -")
	kubectlAt(t, hub, installation, "apply -f -")
	kubectlAt(t, hub, "", "create configmap stays -n quiet")
	has := func(kubeconfig, query, want string) func(context.Context) error {
		return func(context.Context) error {
			if out := kubectlAt(t, kubeconfig, "", query); !strings.Contains(out, want) {
				return errors.New("the output is: " + out)
			}
			return nil
		}
	}
	testwait.UntilNil(t, "the hub shows the application as available", has(hub, "get deployment web -n shop -o jsonpath={.status.availableReplicas}", "1"))
	testwait.UntilNil(t, "the member has the kind", has(member, "get crd offers.shop.example -o name", "offers.shop.example"))
	testwait.UntilNil(t, "the member has the role", has(member, "get clusterrole shop-reader -o name", "shop-reader"))
	testwait.UntilNil(t, "the member has the addresses of a Service without a selector", has(member, "get endpointslice legacy-1 -n shop -o jsonpath={.endpoints[0].addresses[0]}", "192.0.2.7"))
	kubectlAt(t, hub, "{apiVersion: shop.example/v1, kind: Offer, metadata: {name: half, namespace: shop}}", "apply -f -")
	testwait.UntilNil(t, "the member has an object of the new kind", has(member, "get offers -n shop -o name", "half"))

	now := sets.New(strings.Fields(kubectlAt(t, member, "", "get clusterroles,crds,clusterrolebindings,validatingwebhookconfigurations,priorityclasses -o name"))...)
	want := sets.New("clusterrole.rbac.authorization.k8s.io/shop-reader", "customresourcedefinition.apiextensions.k8s.io/offers.shop.example")
	if got := now.Difference(before); !got.Equal(want) {
		t.Errorf("without a namespace, the member got %v", got.UnsortedList())
	}
	if out := kubectlAt(t, hub, "", "get bundles -A -o jsonpath={.items[*].metadata.namespace}"); out != "shop" {
		t.Errorf("the hub has Bundles in %q, want one in shop", out)
	}
	if out := kubectlAt(t, member, "", "get namespaces -o name"); strings.Contains(out, "quiet") {
		t.Errorf("the namespace that turns the default off is in the member: %s", out)
	}
	if out, err := l.runCLI("explain", "deployment/web", "-n", "shop"); err != nil || !strings.Contains(out, "the default placement of the hub") {
		t.Errorf("explain: %v\n%s", err, out)
	}

	kubectlAt(t, hub, "{apiVersion: v1, kind: Namespace, metadata: {name: vacant, labels: {team: web}}}", "create -f -")
	testwait.UntilNil(t, "the member has the empty namespace", has(member, "get namespace vacant -o jsonpath={.metadata.labels.team}", "web"))
	kubectlAt(t, hub, "", "label namespace vacant team=shop --overwrite")
	testwait.UntilNil(t, "the member has the namespace's new label", has(member, "get namespace vacant -o jsonpath={.metadata.labels.team}", "shop"))
	testwait.UntilNil(t, "the Bundle is complete", has(hub, "get bundles -n vacant -o jsonpath={.items[0].status.conditions[?(@.type=='Ready')].status}", "True"))
	if out, err := l.runCLI("explain", "namespace/vacant"); err != nil || !strings.Contains(out, "the default placement of the hub") {
		t.Errorf("explain: %v\n%s", err, out)
	}
	kubectlAt(t, member, "", "create configmap mine -n vacant")
	const keeps = "Warning: cluster member1 keeps the namespace vacant until objects that Atoll did not apply are deleted there: 1 object (configmaps/mine)"
	expectOutput(t, "the dry run of the deletion", kubectlAt(t, hub, "", "delete namespace vacant --dry-run=server"), keeps)
	expectOutput(t, "the deletion", kubectlAt(t, hub, "", "delete namespace vacant"), keeps)
	testwait.UntilNil(t, "an Event reports what keeps the namespace", has(hub, "get events -n default --field-selector involvedObject.name=vacant,reason=ForeignObjects", "cluster member1: Namespace vacant is kept"))
	kubectlAt(t, member, "", "delete configmap mine -n vacant")
	testwait.UntilNil(t, "the namespace goes with the last foreign object", func(context.Context) error {
		if out := kubectlAt(t, member, "", "get namespaces -o name"); strings.Contains(out, "vacant") {
			return errors.New(out)
		}
		return nil
	})

	kubectlAt(t, hub, "", `patch hubsettings hub --type=merge -p {"spec":{"defaultPlacement":{"type":"None"}}}`)
	expectOutput(t, "a new object", kubectlAt(t, hub, "", "create deployment late -n shop --image registry.example/late:1"), "Warning: nothing places it", "deployment.apps/late created")
	testwait.UntilNil(t, "the object has an Event", has(hub, "get events -n shop --field-selector involvedObject.name=late,reason=NotSelected", "kubectl annotate deployments.apps/late -n shop"))
	if out := kubectlAt(t, member, "", "get deployments -n shop -o name"); strings.TrimSpace(out) != "deployment.apps/web" {
		t.Errorf("the member has %s", out)
	}
	const available = `get deployment late -n shop -o jsonpath={.status.conditions[?(@.type=="Available")].reason}{.status.availableReplicas}`
	testwait.UntilNil(t, "the object has a condition", has(hub, available, "NotSelected"))
	kubectlAt(t, hub, "", "annotate deployment/late -n shop atoll.dev/clusters=*")
	testwait.UntilNil(t, "the condition goes once the object is placed", func(context.Context) error {
		if out := kubectlAt(t, hub, "", available); strings.Contains(out, "NotSelected") {
			return errors.New(out)
		}
		return nil
	})
}
