package apply

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/deploy"
	"atoll.dev/atoll/internal/agent/agenttest"
	"atoll.dev/atoll/internal/atoll"
)

// withAccount returns the item as a hub sends it that names a ServiceAccount of the test's namespace.
func (w *world) withAccount(it atoll.RenderedItem) atoll.RenderedItem {
	it.ServiceAccount, it.Error = w.ns+"/deployer", atoll.UnknownServiceAccount
	return it
}

// expectMissingRight waits until the item is refused because its ServiceAccount lacks a right.
func (w *world) expectMissingRight(key atoll.ItemKey, words string) {
	w.t.Helper()
	w.waitForStatus("b1", func(s atoll.RowStatus) bool {
		it, ok := saidOf(s, key)
		return ok && it.Error && it.Reason == atoll.ReasonServiceAccountForbidden && strings.Contains(it.Message, words)
	})
}

// grantRule gives the ServiceAccount of the test's namespace a rule there.
func (w *world) grantRule(name, rule string) {
	w.t.Helper()
	const group = "apiVersion: rbac.authorization.k8s.io/v1\n"
	w.createObject(group + "kind: Role\nmetadata: {name: " + name + "}\nrules:\n- " + rule)
	w.createObject(group + "kind: RoleBinding\nmetadata: {name: " + name + "}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: " + name +
		"}\nsubjects:\n- {kind: ServiceAccount, name: deployer, namespace: " + w.ns + "}")
}

// The RBAC of a real member decides about the ServiceAccount that the hub names: for a new object, a correction, and a
// removal. A right that is granted counts without another manifest.
func TestTheRightsOfTheServiceAccountThatTheHubNames(t *testing.T) {
	w := newWorld(t)
	w.access.age = 50 * time.Millisecond
	w.makeNamespace()
	a := w.withAccount(w.configMap("a", "x"))
	w.storeManifest(newManifest("b1", 1, a))
	w.expectMissingRight(a.Key, "ServiceAccount "+w.ns+"/deployer may not get configmaps a in namespace "+w.ns)
	if w.get(a.Key) != nil {
		t.Error("the object was created without the right")
	}
	w.grantRule("first", `{apiGroups: [""], resources: [configmaps], verbs: [get, create, patch]}`)
	w.waitForReady("b1", 1)
	w.patchObject(a.Key, `{"data":{"a":"y"}}`)
	w.waitUntil("the object is corrected", func() (bool, string) {
		got := w.get(a.Key).Object["data"].(map[string]any)["a"].(string)
		return got == "x", got
	})
	m := newManifest("b1", 2)
	m.Tombstones = []atoll.Tombstone{{Key: a.Key, UID: a.UID}}
	w.storeManifest(m)
	w.expectMissingRight(a.Key, "may not delete configmaps a")
	w.stop()
	w.start() // what is stored still names the ServiceAccount
	w.access.age = 50 * time.Millisecond
	w.expectMissingRight(a.Key, "may not delete configmaps a")
	if w.get(a.Key) == nil {
		t.Error("the object was deleted without the right")
	}
	w.grantRule("second", `{apiGroups: [""], resources: [configmaps], resourceNames: [a], verbs: [delete]}`)
	w.expectAbsent(a.Key)
}

// A ServiceAccount that may write bindings, and not bind the role, binds nothing by the rights of the agent.
func TestAServiceAccountGrantsNoMoreThanItMay(t *testing.T) {
	w := newWorld(t) // whose agent is the administrator of the member
	w.access.age = 50 * time.Millisecond
	w.makeNamespace()
	binding := w.withAccount(w.newItem("u1", "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: escape}\n"+
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}\nsubjects:\n- {kind: ServiceAccount, name: deployer, namespace: "+w.ns+"}"))
	w.grantRule("writes", "{apiGroups: [rbac.authorization.k8s.io], resources: [rolebindings], verbs: ['*']}")
	w.storeManifest(newManifest("b1", 1, binding))
	w.expectMissingRight(binding.Key, "may not bind clusterroles.rbac.authorization.k8s.io cluster-admin in namespace "+w.ns)
	if w.get(binding.Key) != nil {
		t.Error("the binding was created")
	}
	w.grantRule("binds", "{apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], resourceNames: [cluster-admin], verbs: [bind]}")
	w.expectExists(binding.Key)
}

// The rights of the agent bound what a ServiceAccount gives, however mighty the one is that a hub names.
func TestNoServiceAccountAddsToTheRightsOfTheAgent(t *testing.T) {
	agenttest.SkipIfShort(t)
	installManifest(t, deploy.Agent, func(*unstructured.Unstructured) bool { return true })
	awaitRights(t)
	w := newWorldAs(t, theAgent)
	mighty := func(it atoll.RenderedItem) atoll.RenderedItem {
		it.ServiceAccount, it.Error = "kube-system/clusterrole-aggregation-controller", atoll.UnknownServiceAccount
		return it
	}
	const group = "apiVersion: rbac.authorization.k8s.io/v1\n"
	w.createObject(group + "kind: ClusterRoleBinding\nmetadata: {name: " + w.ns + "}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}\n" +
		"subjects:\n- {kind: ServiceAccount, name: clusterrole-aggregation-controller, namespace: kube-system}")
	may := mighty(w.configMap("a", "x"))
	mayNot := mighty(w.newClusterItem("u2", "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: "+w.ns+"}\nvalue: 1"))
	w.storeManifest(newManifest("b1", 1, may, mayNot))
	w.expectExists(may.Key)
	w.waitForStatus("b1", func(s atoll.RowStatus) bool {
		it, ok := saidOf(s, mayNot.Key)
		return ok && it.Error && it.Reason == atoll.ReasonForbidden && strings.HasPrefix(it.Message, "this cluster's RBAC forbids the agent to get priorityclasses")
	})
	if w.get(mayNot.Key) != nil {
		t.Error("the object was created beyond the rights of the agent")
	}
}

// The administrator of the member may require a ServiceAccount, and bound which one.
func TestTheAgentPolicyRequiresAServiceAccount(t *testing.T) {
	w := newWorld(t)
	w.access.age = 50 * time.Millisecond
	w.makeNamespace()
	w.grantRule("writes", `{apiGroups: [""], resources: [configmaps], verbs: [get, create, patch]}`)
	w.limitAgent("{namedServiceAccount: Required}")
	a := w.configMap("a", "x")
	w.storeManifest(newManifest("b1", 1, a))
	w.expectDenied("b1", a.Key, "AgentPolicy agent (generation 1) requires a ServiceAccount for each object (spec.namedServiceAccount)")
	elsewhere := w.withAccount(a)
	elsewhere.ServiceAccount = "kube-system/deployer"
	w.limitAgent("{namedServiceAccount: OwnNamespace}")
	w.storeManifest(newManifest("b1", 2, elsewhere))
	w.expectDenied("b1", a.Key, "requires a ServiceAccount of the object's own namespace (spec.namedServiceAccount)")
	w.storeManifest(newManifest("b1", 3, w.withAccount(a)))
	w.waitForReady("b1", 3)
}
