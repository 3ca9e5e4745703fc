package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

const namedAccountTemplates = `
apiVersion: v1
kind: ConfigMap
metadata: {name: conf, namespace: $NS}
data: {colour: blue}
---
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: shop, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: conf}]
  placement: {clusterAffinity: {clusterNames: [member1, member2]}}
`

// grantInMember lets ServiceAccount deployer of a namespace use verbs on ConfigMaps there, by the member's own API.
func grantInMember(t *testing.T, member, ns, role, verbs string) {
	t.Helper()
	direct := sharedWorld.lab.KubeconfigPath(member)
	expectOutput(t, "create the role", kubectlAt(t, direct, "", "create role "+role+" -n "+ns+" --resource configmaps --verb "+verbs), "created")
	expectOutput(t, "bind it", kubectlAt(t, direct, "", "create rolebinding "+role+" -n "+ns+" --role "+role+" --serviceaccount "+ns+":deployer"), "created")
}

// A tenant's day under a ServiceAccount that the hub's administrator names by the annotation of the Namespace. Each
// member's own RBAC decides, and each refusal names the right that is missing.
func TestMembersDecideByAServiceAccount(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "named-account")
	mustKubectl(t, "", "annotate namespace "+ns+" atoll.dev/service-account=deployer")
	direct := sharedWorld.lab.KubeconfigPath("member1")
	kubectlAtEnd(t, "member1", "delete namespace "+ns+" --wait=false --ignore-not-found")
	kubectlAtEnd(t, "member2", "delete namespace "+ns+" --wait=false --ignore-not-found")
	if out := kubectlAt(t, sharedWorld.lab.KubeconfigPath("hub"), "", "annotate namespace "+ns+" --overwrite atoll.dev/service-account=a/b/c"); !strings.Contains(out, "names no ServiceAccount") {
		t.Errorf("a malformed name is answered by:\n%s", out)
	}

	// The account may create no namespace, so that none is made and the reason is shown.
	apply(t, ns, namedAccountTemplates)
	testwait.UntilNil(t, "the missing namespace is explained", explanationMatches("cm/conf -n "+ns,
		`write only what their ServiceAccount `+ns+`/deployer has the right to`,
		`ServiceAccountForbidden: .*namespace `+ns+` is not there, and ServiceAccount `+ns+`/deployer may not get namespaces `+ns+` in this cluster`))
	if err := inCluster("member1", "v1", "Namespace", "", ns, false)(t.Context()); err != nil {
		t.Error(err)
	}

	// The member's administrator makes the namespace and grants the rights of an edit.
	expectOutput(t, "create the namespace", kubectlAt(t, direct, "", "create namespace "+ns), "created")
	testwait.UntilNil(t, "the missing right is explained", explanationMatches("cm/conf -n "+ns,
		`ServiceAccountForbidden: .*ServiceAccount `+ns+`/deployer may not get configmaps conf in namespace `+ns+`: grant it .*to act: the member's administrator`))
	testwait.UntilNil(t, "an Event and the Bundle have the reason", allChecks(eventOf(ns, "ConfigMap", "conf", "ServiceAccountForbidden"), func(context.Context) error {
		if out := mustKubectl(t, "", "get bundles -o yaml -n "+ns); !strings.Contains(out, "ServiceAccountForbidden") {
			return errors.New(out)
		}
		return nil
	}))
	grantInMember(t, "member1", ns, "edits", "get,create,patch")
	testwait.UntilNil(t, "the object is there", inCluster("member1", "v1", "ConfigMap", ns, "conf", true))
	if err := inCluster("member2", "v1", "ConfigMap", ns, "conf", false)(t.Context()); err != nil {
		t.Errorf("a member without a grant: %v", err)
	}

	// A rule of the tenant's policy does not replace the annotation. Without the annotation it counts.
	policy := strings.ReplaceAll(namedAccountTemplates, "$NS", ns) + "  itemRules: [{serviceAccount: other}]\n"
	mustKubectl(t, policy, "apply -f -")
	expectOutput(t, "a plan of the annotation's end", runCLI(t, "plan", "-f", writeManifest(t, "namespace.yaml", ns, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+ns+", annotations: {atoll.dev/service-account: third}}")),
		"needs rights of ServiceAccount: "+ns+"/deployer -> "+ns+"/third")

	// A removal needs the right to delete.
	mustKubectl(t, "", "delete cm/conf -n "+ns+" --wait=false")
	testwait.UntilNil(t, "the removal waits with its reason", explanationMatches("cm/conf -n "+ns,
		`ServiceAccount `+ns+`/deployer may not delete configmaps conf in namespace `+ns))
	if err := inCluster("member1", "v1", "ConfigMap", ns, "conf", true)(t.Context()); err != nil {
		t.Error(err)
	}
	grantInMember(t, "member1", ns, "deletes", "delete")
	testwait.UntilNil(t, "the object is removed", allChecks(inCluster("member1", "v1", "ConfigMap", ns, "conf", false), inCluster("hub", "v1", "ConfigMap", ns, "conf", false)))
}
