package e2e

import (
	"context"
	"strings"
	"testing"
)

// albumInterpreter says what goes along with an Album; $RULE is how.
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

const album = `
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

// What a script names by labels comes along when it begins to match, and goes when the
// template's user asks for others; neither the labels of what came along nor another edition
// of the interpreter take anything away.
func TestDependenciesByLabels(t *testing.T) {
	t.Parallel()
	const ns = "albums"
	namespace(t, ns)
	for _, c := range append([]string{"hub"}, members...) {
		afterwards(t, c, "delete crd albums."+ns+".example --wait=false")
	}
	afterwards(t, "hub", "delete resourceinterpreter "+ns)
	apply(t, ns, definition("Album", "albums"))
	sh(t, "", "wait --for=condition=Established crd/albums."+ns+".example --timeout=60s")
	teach := func(rule string) {
		t.Helper()
		apply(t, ns, strings.ReplaceAll(albumInterpreter, "$RULE", rule))
	}
	has := func(name string, clusters ...string) func(context.Context) string {
		return there("v1", "ConfigMap", ns, name, clusters...)
	}
	label := func(name, of string) {
		t.Helper()
		sh(t, "", "label configmap "+name+" -n "+ns+" --overwrite "+of)
	}

	teach(albumByLabels)
	apply(t, ns, album)
	eventually(t, converge, "what matches goes along", all(has("tabby", "member1"), has("rex")))
	apply(t, ns, "\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: felix, namespace: $NS, labels: {of: cats}}\n")
	eventually(t, converge, "what comes later, too", all(has("felix", "member1"), has("rex")))

	// What does not match any more stays as it was sent last, and says so.
	label("felix", "of-")
	eventually(t, converge, "it says so", explains("configmap/felix -n "+ns, "Unnamed"))
	patch(t, "v1", "ConfigMap", ns, "felix", `{"data":{"age":"9"}}`)
	patch(t, "v1", "ConfigMap", ns, "tabby", `{"data":{"age":"9"}}`)
	eventually(t, converge, "edits of what matches are sent, and of what does not are not", all(
		shows([]string{"member1"}, object{"v1", "ConfigMap", ns, "tabby"}, "data.age", "9"),
		shows([]string{"member1"}, object{"v1", "ConfigMap", ns, "felix"}, "data.age", "<nil>"),
	))
	label("felix", "of=cats")
	eventually(t, converge, "and it follows again", shows([]string{"member1"}, object{"v1", "ConfigMap", ns, "felix"}, "data.age", "9"))

	// Another edition of the interpreter takes nothing away, nor does one that is refused.
	teach("")
	eventually(t, converge, "they stay", all(
		explains("configmap/felix -n "+ns, "Unnamed"), explains("configmap/tabby -n "+ns, "Unnamed"), has("felix", "member1"), has("tabby", "member1"),
	))
	teach(albumOfRights)
	eventually(t, converge, "rights are not sent along", all(explains("album/mine -n "+ns, "it gives rights"), has("felix", "member1"), has("tabby", "member1")))
	teach(albumByLabels)
	eventually(t, converge, "they follow again", explains("configmap/felix -n "+ns, "a dependency"))

	// The user of the template asks for others: that takes out what was asked for before.
	sh(t, "", "patch album mine -n "+ns+` --type=merge -p {"spec":{"of":"dogs"}}`)
	eventually(t, converge, "others", all(has("rex", "member1"), has("felix"), has("tabby")))
	sh(t, "", "delete album mine -n "+ns)
	eventually(t, converge, "they go with it", has("rex"))
}
