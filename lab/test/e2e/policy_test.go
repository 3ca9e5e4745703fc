package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// limitMember limits a member by an AgentPolicy, while the test runs. The definition is the
// one of the agent's manifest.
func limitMember(t *testing.T, member string) (by func(spec string)) {
	t.Helper()
	direct := sharedWorld.lab.KubeconfigPath(member)
	definition, err := filepath.Abs("../../../deploy/charts/atoll-agent/files/agent.atoll.dev_agentpolicies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	expectOutput(t, "install the definition", kubectlAt(t, direct, "", "apply --server-side -f "+definition), "serverside-applied")
	kubectlAtEnd(t, member, "delete crd agentpolicies.agent.atoll.dev --ignore-not-found")
	expectOutput(t, "wait for it", kubectlAt(t, direct, "", "wait --for=condition=Established crd/agentpolicies.agent.atoll.dev --timeout 60s"), "condition met")
	return func(spec string) {
		t.Helper()
		file := writeManifest(t, "policy.yaml", "", "apiVersion: agent.atoll.dev/v1alpha1\nkind: AgentPolicy\nmetadata: {name: agent}\nspec: "+spec)
		testwait.UntilNil(t, "the policy is written", func(context.Context) error {
			if out := kubectlAt(t, direct, "", "apply --server-side -f "+file); !strings.Contains(out, "serverside-applied") {
				return errors.New("the output is: " + out)
			}
			return nil
		})
	}
}

// TestAMemberLimitsWhatTheHubApplies: a refused object has a reason in its row, the rest
// continues, other members are unaffected, and present objects stay. The test is alone in
// its lab, because it limits a member for all tests.
func TestAMemberLimitsWhatTheHubApplies(t *testing.T) {
	by := limitMember(t, "member1")
	ns := createNamespace(t, "limited")
	via := proxiedKubeconfig(t, "member1")
	grantRole(t, "member1", "limited-admins", "--clusterrole cluster-admin --group atoll:masters")
	by(`{kinds: {denied: [{group: "", kinds: [PodTemplate]}]}, reach: {requests: []}}`)
	// The agent's own manifest has the definition before the agent runs. Here it comes later,
	// and an agent looks what a member serves within seconds of a change.
	testwait.UntilNil(t, "the agent has heard of the policy", func(context.Context) error {
		if out := kubectlAt(t, via, "", "get --raw /api"); !strings.Contains(out, "does not allow requests of the sort Read through the hub (spec.reach.requests)") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	apply(t, ns, strings.Replace(everywherePolicy, "name: web}]", "name: web}, {apiVersion: v1, kind: PodTemplate, name: web}]", 1)+"---\n"+webDeployment+`---
apiVersion: v1
kind: PodTemplate
metadata: {name: web, namespace: $NS}
template: {spec: {containers: [{name: web, image: web:1}]}}
`)
	testwait.UntilNil(t, "what is allowed is there, and all of it elsewhere", allChecks(
		inCluster("member1", "apps/v1", "Deployment", ns, "web", true),
		inCluster("member2", "v1", "PodTemplate", ns, "web", true),
		inCluster("member3", "v1", "PodTemplate", ns, "web", true),
	))
	testwait.UntilNil(t, "the refusal is explained", explanationMatches("podtemplate/web -n "+ns,
		`DeniedByPolicy: .*AgentPolicy agent \(generation 1\) does not allow kind PodTemplate \(spec\.kinds\.denied\): the administrator of this cluster must allow it`))
	if err := inCluster("member1", "v1", "PodTemplate", ns, "web", false)(t.Context()); err != nil {
		t.Error(err)
	}

	by(`{namespaces: {denied: [` + ns + `]}, reach: {requests: [Read]}}`)
	testwait.UntilNil(t, "what is there stays, and that is said", explanationMatches("deploy/web -n "+ns, `DeniedByPolicy: .*it stays as it is: AgentPolicy agent \(generation 2\) does not allow namespace `+ns))
	if err := inCluster("member1", "apps/v1", "Deployment", ns, "web", true)(t.Context()); err != nil {
		t.Error(err)
	}
	expectOutput(t, "a read through the hub", kubectlAt(t, via, "", "get nodes"), "Ready")
	expectOutput(t, "a write through the hub", kubectlAt(t, via, "", "create configmap x -n default"), "AgentPolicy agent (generation 2) does not allow requests of the sort Write through the hub (spec.reach.requests)")

	by(`{serviceAccounts: [{namespaces: [` + ns + `], name: deployer}]}`)
	testwait.UntilNil(t, "whose rights are missing is said", explanationMatches("podtemplate/web -n "+ns,
		`Forbidden: .*this cluster's RBAC forbids ServiceAccount `+ns+`/deployer, as which the agent writes there, to patch podtemplates`))
	expectOutput(t, "grant them", kubectlAt(t, sharedWorld.lab.KubeconfigPath("member1"), "", "create rolebinding deployer -n "+ns+" --clusterrole admin --serviceaccount "+ns+":deployer"), "created")
	expectOutput(t, "grant more", kubectlAt(t, sharedWorld.lab.KubeconfigPath("member1"), "", "create rolebinding deployer-all -n "+ns+" --clusterrole cluster-admin --serviceaccount "+ns+":deployer"), "created")
	testwait.UntilNil(t, "all is there", inCluster("member1", "v1", "PodTemplate", ns, "web", true))

	by(`{changes: {hold: {reason: year end}}}`)
	stated := 2
	testwait.UntilNil(t, "a change waits", func(context.Context) error { // one before the agent has heard of the hold is carried out
		stated++
		expectOutput(t, "an edit", kubectlAt(t, sharedWorld.lab.KubeconfigPath("hub"), "", fmt.Sprintf("scale deployment/web -n %s --replicas %d", ns, stated)), "scaled")
		return explanationMatches("deploy/web -n "+ns, `HeldByPolicy: .*AgentPolicy agent \(generation 4\) holds all changes in this cluster \(spec\.changes\.hold\): year end`)(t.Context())
	})
	hasReplicas := func(member string) func(context.Context) error {
		return func(context.Context) error {
			if out := kubectlAt(t, sharedWorld.lab.KubeconfigPath(member), "", "get deployment/web -n "+ns+" -o jsonpath={.spec.replicas}"); out != fmt.Sprint(stated) {
				return fmt.Errorf("%s has %s replicas, and %d are stated", member, out, stated)
			}
			return nil
		}
	}
	testwait.UntilNil(t, "other members are not held", hasReplicas("member2"))
	if hasReplicas("member1")(t.Context()) == nil {
		t.Error("the change is carried out")
	}
	by("{}")
	testwait.UntilNil(t, "the change is carried out", hasReplicas("member1"))
}
