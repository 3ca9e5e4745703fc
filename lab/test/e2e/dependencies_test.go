package e2e

import (
	"context"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// albumInterpreter defines the dependencies of an Album; $RULE is the rule.
const albumInterpreter = `
apiVersion: atoll.dev/v1alpha1
kind: ResourceInterpreter
metadata: {name: $NS}
spec:
  target: {apiVersion: $NS.example/v1, kinds: [Album]}
  dependencies:
    lua: |
      function GetDependencies(obj)
        return {$RULE}
      end
`

const (
	albumByLabels = `{apiVersion = "v1", kind = "ConfigMap", namespace = obj.metadata.namespace, labelSelector = {matchLabels = {of = obj.spec.of}}}`
	albumOfRights = `{apiVersion = "rbac.authorization.k8s.io/v1", kind = "RoleBinding", namespace = obj.metadata.namespace, name = "all"}`
)

const albumObjects = `
apiVersion: v1
kind: ConfigMap
metadata: {name: tabby, namespace: $NS, labels: {of: cats}}
data: {age: "1"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: rex, namespace: $NS, labels: {of: dogs}}
data: {age: "2"}
---
apiVersion: $NS.example/v1
kind: Album
metadata: {name: mine, namespace: $NS}
spec: {of: cats}
---
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: albums, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: $NS.example/v1, kind: Album}]
  propagateDeps: true
  placement: {clusterAffinity: {clusterNames: [member1]}}
`

// Objects that a script selects by labels follow when they begin to match, and go when the
// template's user selects others. Changes of their labels or of the interpreter remove
// nothing.
func TestDependenciesByLabels(t *testing.T) {
	t.Parallel()
	const ns = "albums"
	createNamespace(t, ns)
	for _, c := range append([]string{"hub"}, memberNames...) {
		kubectlAtEnd(t, c, "delete crd albums."+ns+".example --wait=false")
	}
	kubectlAtEnd(t, "hub", "delete resourceinterpreter "+ns)
	apply(t, ns, kindDefinition("Album", "albums"))
	mustKubectl(t, "", "wait --for=condition=Established crd/albums."+ns+".example --timeout=60s")
	teach := func(rule string) {
		t.Helper()
		apply(t, ns, strings.ReplaceAll(albumInterpreter, "$RULE", rule))
	}
	has := func(name string, clusters ...string) func(context.Context) error {
		return existsIn("v1", "ConfigMap", ns, name, clusters...)
	}
	label := func(name, of string) {
		t.Helper()
		mustKubectl(t, "", "label configmap "+name+" -n "+ns+" --overwrite "+of)
	}

	teach(albumByLabels)
	apply(t, ns, albumObjects)
	testwait.UntilNil(t, "what matches goes along", allChecks(has("tabby", "member1"), has("rex")))
	apply(t, ns, "\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: felix, namespace: $NS, labels: {of: cats}}\n")
	testwait.UntilNil(t, "what comes later, too", allChecks(has("felix", "member1"), has("rex")))

	// An object that stops matching stays with its last content, and its status shows it.
	label("felix", "of-")
	testwait.UntilNil(t, "it says so", explanationMatches("configmap/felix -n "+ns, "Unnamed"))
	patch(t, "v1", "ConfigMap", ns, "felix", `{"data":{"age":"9"}}`)
	patch(t, "v1", "ConfigMap", ns, "tabby", `{"data":{"age":"9"}}`)
	testwait.UntilNil(t, "edits of what matches are sent, and of what does not are not", allChecks(
		fieldShows([]string{"member1"}, objectName{"v1", "ConfigMap", ns, "tabby"}, "data.age", "9"),
		fieldShows([]string{"member1"}, objectName{"v1", "ConfigMap", ns, "felix"}, "data.age", "<nil>"),
	))
	label("felix", "of=cats")
	testwait.UntilNil(t, "and it follows again", fieldShows([]string{"member1"}, objectName{"v1", "ConfigMap", ns, "felix"}, "data.age", "9"))

	// Another edition of the interpreter takes nothing away, nor does one that is refused.
	teach("")
	testwait.UntilNil(t, "they stay", allChecks(
		explanationMatches("configmap/felix -n "+ns, "Unnamed"), explanationMatches("configmap/tabby -n "+ns, "Unnamed"), has("felix", "member1"), has("tabby", "member1"),
	))
	teach(albumOfRights)
	testwait.UntilNil(t, "rights are not sent along", allChecks(explanationMatches("album/mine -n "+ns, "it gives rights"), has("felix", "member1"), has("tabby", "member1")))
	teach(albumByLabels)
	testwait.UntilNil(t, "they follow again", explanationMatches("configmap/felix -n "+ns, "a dependency"))

	// The user of the template selects others: the previous objects are removed.
	mustKubectl(t, "", "patch album mine -n "+ns+` --type=merge -p {"spec":{"of":"dogs"}}`)
	testwait.UntilNil(t, "others", allChecks(has("rex", "member1"), has("felix"), has("tabby")))
	mustKubectl(t, "", "delete album mine -n "+ns)
	testwait.UntilNil(t, "they go with it", has("rex"))
}
