package e2e

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
)

// limit a member by an AgentPolicy, while the test runs. The definition comes from where the
// agent's manifest has it.
func limit(t *testing.T, member string) (by func(spec string)) {
	t.Helper()
	direct := world.lab.Kubeconfig(member)
	definition, err := filepath.Abs("../../deploy/charts/atoll-agent/files/agent.atoll.dev_agentpolicies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "install the definition", at(t, direct, "", "apply --server-side -f "+definition), "serverside-applied")
	afterwards(t, member, "delete crd agentpolicies.agent.atoll.dev --ignore-not-found")
	expect(t, "wait for it", at(t, direct, "", "wait --for=condition=Established crd/agentpolicies.agent.atoll.dev --timeout 60s"), "condition met")
	return func(spec string) {
		t.Helper()
		file := manifest(t, "policy.yaml", "", "apiVersion: agent.atoll.dev/v1alpha1\nkind: AgentPolicy\nmetadata: {name: agent}\nspec: "+spec)
		eventually(t, converge, "the policy is written", func(context.Context) string {
			if out := at(t, direct, "", "apply --server-side -f "+file); !strings.Contains(out, "serverside-applied") {
				return "the output is: " + out
			}
			return ""
		})
	}
}

// TestAMemberLimitsWhatTheHubApplies: what it refuses is a reason in the row, the rest goes
// on, other members do not care, and what is there stays. It is alone in its lab meanwhile,
// since it limits a member for everybody.
func TestAMemberLimitsWhatTheHubApplies(t *testing.T) {
	by := limit(t, "member1")
	ns := namespace(t, "limited")
	via := through(t, "member1")
	grant(t, "member1", "limited-admins", "--clusterrole cluster-admin --group atoll:masters")
	by(`{kinds: {denied: [{group: "", kinds: [PodTemplate]}]}, reach: {requests: []}}`)
	// The agent's own manifest has the definition before the agent runs. Here it comes later,
	// and an agent looks what a member serves within seconds of a change.
	eventually(t, converge, "the agent has heard of the policy", func(context.Context) string {
		if out := at(t, via, "", "get --raw /api"); !strings.Contains(out, "does not allow requests of the sort Read through the hub (spec.reach.requests)") {
			return "the output is: " + out
		}
		return ""
	})
	apply(t, ns, strings.Replace(everywhere, "name: web}]", "name: web}, {apiVersion: v1, kind: PodTemplate, name: web}]", 1)+"---\n"+web+`---
apiVersion: v1
kind: PodTemplate
metadata: {name: web, namespace: $NS}
template: {spec: {containers: [{name: web, image: web:1}]}}
`)
	eventually(t, converge, "what is allowed is there, and all of it elsewhere", all(
		inCluster("member1", "apps/v1", "Deployment", ns, "web", true),
		inCluster("member2", "v1", "PodTemplate", ns, "web", true),
		inCluster("member3", "v1", "PodTemplate", ns, "web", true),
	))
	eventually(t, converge, "the refusal is explained", explains("podtemplate/web -n "+ns,
		`DeniedByPolicy: .*AgentPolicy agent \(generation 1\) does not allow kind PodTemplate \(spec\.kinds\.denied\): the administrator of this cluster must allow it`))
	if why := inCluster("member1", "v1", "PodTemplate", ns, "web", false)(t.Context()); why != "" {
		t.Error(why)
	}

	by(`{namespaces: {denied: [` + ns + `]}, reach: {requests: [Read]}}`)
	eventually(t, converge, "what is there stays, and that is said", explains("deploy/web -n "+ns, `DeniedByPolicy: .*it stays as it is: AgentPolicy agent \(generation 2\) does not allow namespace `+ns))
	if why := inCluster("member1", "apps/v1", "Deployment", ns, "web", true)(t.Context()); why != "" {
		t.Error(why)
	}
	expect(t, "a read through the hub", at(t, via, "", "get nodes"), "Ready")
	expect(t, "a write through the hub", at(t, via, "", "create configmap x -n default"), "AgentPolicy agent (generation 2) does not allow requests of the sort Write through the hub (spec.reach.requests)")

	by(`{serviceAccounts: [{namespaces: [` + ns + `], name: deployer}]}`)
	eventually(t, converge, "whose rights are missing is said", explains("podtemplate/web -n "+ns,
		`Forbidden: .*this cluster's RBAC forbids ServiceAccount `+ns+`/deployer, as which the agent writes there, to patch podtemplates`))
	expect(t, "grant them", at(t, world.lab.Kubeconfig("member1"), "", "create rolebinding deployer -n "+ns+" --clusterrole admin --serviceaccount "+ns+":deployer"), "created")
	expect(t, "grant more", at(t, world.lab.Kubeconfig("member1"), "", "create rolebinding deployer-all -n "+ns+" --clusterrole cluster-admin --serviceaccount "+ns+":deployer"), "created")
	eventually(t, converge, "all is there", inCluster("member1", "v1", "PodTemplate", ns, "web", true))
}
