package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// shelfDefinition is the kind of an operator that runs against the hub: the test is the operator.
const shelfDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shelves.children.example}
spec:
  group: children.example
  scope: Namespaced
  names: {plural: shelves, singular: shelf, kind: Shelf}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

const shelf = `
apiVersion: children.example/v1
kind: Shelf
metadata: {name: books, namespace: children, annotations: {atoll.dev/clusters: member1}}
spec: {length: 3}
`

// shelfChildren are what the operator makes of a Shelf; $UID is that of the Shelf.
const shelfChildren = `
apiVersion: v1
kind: ConfigMap
metadata: {name: books, namespace: children, ownerReferences: [{apiVersion: children.example/v1, kind: Shelf, name: books, uid: $UID, controller: true}]}
data: {length: "$LENGTH"}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: books, namespace: children, ownerReferences: [{apiVersion: children.example/v1, kind: Shelf, name: books, uid: $UID, controller: true}]}
spec:
  serviceName: books
  replicas: 1
  selector: {matchLabels: {shelf: books}}
  template:
    metadata: {labels: {shelf: books}}
    spec: {containers: [{name: shelf, image: registry.example/shelf:1}]}
`

// TestChildrenGoWithTheirParent: what an operator on the hub makes of a placed object goes to members
// without its owner, moves with the object, stays when the object is taken back to the hub, and goes when
// it is deleted there, by the operator or with its owner.
func TestChildrenGoWithTheirParent(t *testing.T) {
	t.Parallel()
	const ns = "children"
	createNamespace(t, ns)
	kubectlAtEnd(t, "hub", "delete crd shelves.children.example --ignore-not-found --wait=false")
	hub := sharedWorld.lab.KubeconfigPath("hub")
	member := map[string]string{"member1": sharedWorld.lab.KubeconfigPath("member1"), "member2": sharedWorld.lab.KubeconfigPath("member2")}
	awaitOutput := func(what, kubeconfig, query string, isWanted func(string) bool) {
		t.Helper()
		testwait.UntilNil(t, what, func(context.Context) error {
			if out := strings.TrimSpace(kubectlAt(t, kubeconfig, "", query)); !isWanted(out) {
				return fmt.Errorf("the output is: %s", out)
			}
			return nil
		})
	}
	is := func(want string) func(string) bool { return func(out string) bool { return out == want } }
	contains := func(want string) func(string) bool {
		return func(out string) bool { return strings.Contains(out, want) }
	}

	kubectlAt(t, hub, shelfDefinition, "apply -f -")
	kubectlAt(t, hub, "", "wait crd/shelves.children.example --for=condition=Established --timeout=60s")
	kubectlAt(t, hub, shelf, "apply -f -")
	awaitOutput("member1 has the Shelf", member["member1"], "get shelves -n children --ignore-not-found -o name", contains("books"))

	uid := strings.TrimSpace(kubectlAt(t, hub, "", "get shelf books -n children -o jsonpath={.metadata.uid}"))
	children := func(length string) string {
		return strings.NewReplacer("$UID", uid, "$LENGTH", length).Replace(shelfChildren)
	}
	out := kubectlAt(t, hub, children("3"), "apply --server-side --field-manager=shelf-operator -f -")
	expectOutput(t, "the operator's writes", out, "Warning: a controller on the hub acts on Shelf books", "kubectl annotate shelves.children.example/books -n children atoll.dev/hub-only=true")
	awaitOutput("member1 has the StatefulSet, without its owner", member["member1"], "get statefulset books -n children --ignore-not-found -o jsonpath={.spec.replicas}/{.metadata.ownerReferences}", is("1/"))
	awaitOutput("the hub shows the StatefulSet as ready", hub, "get statefulset books -n children -o jsonpath={.status.readyReplicas}", is("1"))
	awaitOutput("the Shelf has an Event", hub, "get events -n children --field-selector involvedObject.kind=Shelf,reason=TwoControllers", contains("atoll.dev/hub-only=true"))
	explained := binaryOutput(t, "", "atoll", "explain", "statefulset/books", "-n", ns, "--kubeconfig", hub)
	expectOutput(t, "explain", explained, "Placed with its parent Shelf/books, by the annotation of Shelf/books")

	kubectlAt(t, hub, "", "annotate shelf books -n children --overwrite atoll.dev/clusters=member2")
	awaitOutput("member2 has the StatefulSet", member["member2"], "get statefulset books -n children --ignore-not-found -o name", contains("books"))
	awaitOutput("member1 has it no more", member["member1"], "get statefulset books -n children --ignore-not-found -o name", is(""))
	awaitOutput("member1 has the ConfigMap no more", member["member1"], "get configmap books -n children --ignore-not-found -o name", is(""))

	kubectlAt(t, hub, "", "annotate shelf books -n children atoll.dev/hub-only=true")
	awaitOutput("member2 has the Shelf no more", member["member2"], "get shelves -n children --ignore-not-found -o name", is(""))
	kubectlAt(t, hub, children("4"), "apply --server-side --field-manager=shelf-operator -f -")
	awaitOutput("member2 has the operator's edit", member["member2"], "get configmap books -n children -o jsonpath={.data.length}", is("4"))
	explained = binaryOutput(t, "", "atoll", "explain", "shelf/books", "-n", ns, "--kubeconfig", hub)
	expectOutput(t, "explain of the Shelf", explained, "stays on the hub", "What controllers on the hub make of it is placed by its own annotation")

	kubectlAt(t, hub, "", "delete configmap books -n children")
	awaitOutput("member2 has the ConfigMap no more", member["member2"], "get configmap books -n children --ignore-not-found -o name", is(""))
	if out := kubectlAt(t, member["member2"], "", "get statefulset books -n children -o name"); !strings.Contains(out, "books") {
		t.Errorf("with the ConfigMap went the StatefulSet: %s", out)
	}
	kubectlAt(t, hub, "", "delete shelf books -n children")
	awaitOutput("member2 has the StatefulSet no more", member["member2"], "get statefulset books -n children --ignore-not-found -o name", is(""))
	awaitOutput("the hub has it no more", hub, "get statefulset books -n children --ignore-not-found -o name", is(""))
}
