package apply

import (
	"strings"
	"testing"
)

func TestWhoIsForbiddenHearsWhichRuleToAdd(t *testing.T) {
	const account = "system:serviceaccount:atoll-system:atoll-agent"
	for _, c := range []struct{ message, want string }{
		{
			`deployments.apps "web" is forbidden: User "` + account + `" cannot patch resource "deployments" in API group "apps" in the namespace "shop"`,
			`this cluster's RBAC forbids the agent to patch deployments: its administrator adds a ClusterRole labelled rbac.atoll.dev/aggregate-to-agent=true with {apiGroups: [apps], resources: [deployments], verbs: [get, list, watch, create, update, patch, delete]}`,
		},
		{
			`roles.rbac.authorization.k8s.io "a" is forbidden: User "` + account + `" cannot patch resource "roles" in API group "rbac.authorization.k8s.io" in the namespace "shop"`,
			`forbids the agent to patch roles.rbac.authorization.k8s.io: its administrator installs it again by atoll join --allow rbac, or adds a ClusterRole labelled rbac.atoll.dev/aggregate-to-agent=true`,
		},
		{
			`a is forbidden: User "` + account + `" cannot create resource "customresourcedefinitions" in API group "apiextensions.k8s.io" at the cluster scope`,
			`forbids the agent to create customresourcedefinitions.apiextensions.k8s.io: its administrator installs it again by atoll join --allow crds`,
		},
		{
			`users "jane" is forbidden: User "` + account + `" cannot impersonate resource "users" in API group "" at the cluster scope`,
			`forbids the agent to impersonate users: its administrator installs it again by atoll join --allow impersonate`,
		},
		{
			`configmaps "a" is forbidden: User "jane" cannot get resource "configmaps" in API group "" in the namespace "shop"`,
			`forbids the agent to get configmaps: its administrator adds a ClusterRole labelled rbac.atoll.dev/aggregate-to-agent=true with {apiGroups: [""], resources: [configmaps],`,
		},
		{
			`serviceaccounts "deployer" is forbidden: User "` + account + `" cannot impersonate resource "serviceaccounts" in API group "" in the namespace "shop"`,
			`{apiGroups: [""], resources: [serviceaccounts], verbs: [impersonate]}`,
		},
		{
			`deployments.apps "web" is forbidden: User "system:serviceaccount:shop:deployer" cannot patch resource "deployments" in API group "apps" in the namespace "shop"`,
			`forbids ServiceAccount shop/deployer, as which the agent writes there, to patch deployments: its administrator grants it {apiGroups: [apps],`,
		},
		{
			`clusterroles.rbac.authorization.k8s.io "x" is forbidden: user "` + account + `" (groups=["a"]) is attempting to grant RBAC permissions not currently held: {APIGroups:[""], Resources:["nodes"], Verbs:["get"]}`,
			`the agent cannot grant rights in this cluster that it does not have`,
		},
		{`pods "a" is forbidden: exceeded quota: compute, requested: pods=1, used: pods=3, limited: pods=3`, ""},
	} {
		got := missingRightAdvice(c.message)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s:\n%s\nwanted %s", c.message, got, c.want)
		}
		if c.want != "" && !strings.Contains(c.message, "attempting") && truncateText(got) != got {
			t.Errorf("%d bytes do not fit into a report: %s", len(got), got)
		}
	}
}
