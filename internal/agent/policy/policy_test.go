package policy

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/trust/person"
)

// read a policy whose spec is the YAML.
func read(t *testing.T, spec string) *Policy {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte("apiVersion: agent.atoll.dev/v1alpha1\nkind: AgentPolicy\nmetadata: {name: agent, generation: 7}\nspec: " + spec))
	if err != nil {
		t.Fatal(err)
	}
	return ParsePolicy(text)
}

// parseKey of "group/Kind/namespace/name".
func parseKey(text string) atoll.ItemKey {
	p := strings.Split(text, "/")
	return atoll.ItemKey{Group: p[0], Kind: p[1], Namespace: p[2], Name: p[3]}
}

const (
	deployment = "apps/Deployment/shop/web"
	secret     = "/Secret/shop/web"
	namespace  = "/Namespace//shop"
	role       = "rbac.authorization.k8s.io/ClusterRole//web"
)

func TestApply(t *testing.T) {
	team := Namespace{Labels: map[string]string{"team": "a"}}
	for _, c := range []struct {
		what, spec, object string
		at                 Namespace
		refuse             string // a part of the answer; empty: allowed
	}{
		{what: "no limits", spec: "{}", object: deployment},
		{what: "no limits, cluster-scoped", spec: "{}", object: role},
		{what: "namespaces.allowed", spec: "{namespaces: {allowed: [shop]}}", object: deployment},
		{what: "namespaces.allowed by a pattern", spec: `{namespaces: {allowed: ["s*p"]}}`, object: deployment},
		{what: "namespaces.allowed, another", spec: "{namespaces: {allowed: [bank]}}", object: deployment, refuse: "AgentPolicy agent (generation 7) does not allow namespace shop (spec.namespaces): the administrator"},
		{what: "namespaces.allowed means the namespace itself", spec: "{namespaces: {allowed: [bank]}}", object: namespace, refuse: "does not allow namespace shop"},
		{what: "namespaces.allowed says nothing of what lies in none", spec: "{namespaces: {allowed: [bank]}}", object: role},
		{what: "namespaces.denied", spec: `{namespaces: {denied: ["sh*"]}}`, object: deployment, refuse: "spec.namespaces.denied"},
		{what: "namespaces.denied, although allowed", spec: `{namespaces: {allowed: ["*"], denied: [shop]}}`, object: deployment, refuse: "spec.namespaces.denied"},
		{what: "namespaces.denied, another", spec: "{namespaces: {denied: [bank]}}", object: deployment},
		{what: "namespaces.selector", spec: "{namespaces: {selector: {matchLabels: {team: a}}}}", object: deployment, at: team},
		{what: "namespaces.selector, no match", spec: "{namespaces: {selector: {matchLabels: {team: b}}}}", object: deployment, at: team, refuse: "does not allow namespace shop"},
		{what: "namespaces.selector of a namespace that is not there", spec: "{namespaces: {selector: {}}}", object: namespace, refuse: "does not allow namespace shop"},
		{what: "namespaces.selector by labels that a hub set", spec: "{namespaces: {selector: {matchLabels: {team: a}}}}", object: deployment,
			at: Namespace{Labels: map[string]string{"team": "a"}, Ours: true}, refuse: "does not allow namespace shop"},
		{what: "namespaces.selector by matchExpressions", spec: "{namespaces: {selector: {matchExpressions: [{key: team, operator: In, values: [a, c]}]}}}", object: deployment, at: team},
		{what: "namespaces.selector or allowed", spec: "{namespaces: {allowed: [shop], selector: {matchLabels: {team: b}}}}", object: deployment, at: team},
		{what: "kinds.allowed", spec: "{kinds: {allowed: [{group: apps}]}}", object: deployment},
		{what: "kinds.allowed by name", spec: "{kinds: {allowed: [{group: apps, kinds: [Deployment]}]}}", object: deployment},
		{what: "kinds.allowed, another", spec: "{kinds: {allowed: [{group: apps, kinds: [StatefulSet]}]}}", object: deployment, refuse: "kind Deployment.apps (spec.kinds.allowed)"},
		{what: "kinds.allowed, another group", spec: `{kinds: {allowed: [{group: ""}]}}`, object: deployment, refuse: "kind Deployment.apps"},
		{what: "kinds.allowed of the core group", spec: `{kinds: {allowed: [{group: "", kinds: [Secret]}]}}`, object: secret},
		{what: "kinds.denied", spec: `{kinds: {denied: [{group: "", kinds: [Secret]}]}}`, object: secret, refuse: "kind Secret (spec.kinds.denied)"},
		{what: "kinds.denied of all groups", spec: `{kinds: {denied: [{group: "*.k8s.io"}]}}`, object: role, refuse: "kind ClusterRole.rbac.authorization.k8s.io (spec.kinds.denied)"},
		{what: "clusterScoped: Deny", spec: "{clusterScoped: Deny}", object: role, refuse: "outside of namespaces (spec.clusterScoped)"},
		{what: "clusterScoped: Deny, a namespace", spec: "{clusterScoped: Deny}", object: namespace, refuse: "outside of namespaces"},
		{what: "clusterScoped: Deny, in a namespace", spec: "{clusterScoped: Deny}", object: deployment},
		{what: "clusterScoped: NamespacesOnly", spec: "{clusterScoped: NamespacesOnly}", object: namespace},
		{what: "clusterScoped: NamespacesOnly, something else", spec: "{clusterScoped: NamespacesOnly}", object: role, refuse: "but namespaces themselves"},
		{what: "the agent's limits", spec: "{}", object: "agent.atoll.dev/AgentPolicy//agent", refuse: "administrator's alone"},
		{what: "their definition", spec: "{}", object: "apiextensions.k8s.io/CustomResourceDefinition//agentpolicies.agent.atoll.dev", refuse: "administrator's alone"},
		{what: "the APIService that serves them", spec: "{}", object: "apiregistration.k8s.io/APIService//v1alpha1.agent.atoll.dev", refuse: "administrator's alone"},
		{what: "the APIService of another group", spec: "{}", object: "apiregistration.k8s.io/APIService//v1.example.com"},
		{what: "the agent's namespace", spec: `{namespaces: {allowed: ["*"]}}`, object: "/Secret/atoll-system/x", refuse: "the agent's own"},
		{what: "the agent's namespace itself", spec: "{}", object: "/Namespace//atoll-system", refuse: "the agent's own"},
		{what: "a field that is not known", spec: "{namespace: [shop]}", object: deployment, refuse: `unknown field "spec.namespace"`},
		{what: "a value that is not known", spec: "{clusterScoped: Perhaps}", object: deployment, refuse: `"Perhaps" has no meaning`},
		{what: "a value that is not known, of removal", spec: "{removal: Perhaps}", object: deployment, refuse: `"Perhaps" has no meaning`},
		{what: "a sort of requests that is not known", spec: "{reach: {requests: [Sing]}}", object: deployment, refuse: `"Sing" has no meaning`},
		{what: "a ServiceAccount without namespaces", spec: "{serviceAccounts: [{name: a}]}", object: deployment, refuse: "needs a name and namespaces"},
		{what: "another type", spec: "[]", object: deployment, refuse: "cannot be read"},
		{what: "a selector that means nothing", spec: "{namespaces: {selector: {matchExpressions: [{key: a, operator: Like}]}}}", object: deployment, refuse: "spec.namespaces.selector"},
	} {
		t.Run(c.what, func(t *testing.T) {
			got := read(t, c.spec).ApplyRefusal(parseKey(c.object), c.at)
			if (got == "") != (c.refuse == "") || !strings.Contains(got, c.refuse) {
				t.Errorf("%s: %q; wanted %q", c.object, got, c.refuse)
			}
		})
	}
}

func TestWithoutAPolicyOnlyWhatIsTheAgentsOwnIsRefused(t *testing.T) {
	var none *Policy
	for object, refuse := range map[string]bool{deployment: false, role: false, "agent.atoll.dev/AgentPolicy//agent": true, "/Secret/atoll-system/x": true} {
		if why := none.ApplyRefusal(parseKey(object), Namespace{}); (why != "") != refuse {
			t.Errorf("%s: %q", object, why)
		}
	}
	if why := none.RemovalRefusal(parseKey("/Secret/atoll-system/x"), Namespace{}); why != "" {
		t.Errorf("what lies there from earlier may not go: %s", why)
	}
}

func TestRemove(t *testing.T) {
	for _, c := range []struct{ what, spec, refuse string }{
		{"what may be applied", "{removal: Deny}", ""},
		{"removal: Allow, what may not be applied any more", "{namespaces: {denied: [shop]}}", ""},
		{"removal: Deny, what may not be applied any more", "{namespaces: {denied: [shop]}, removal: Deny}", "nor may it be removed (spec.removal)"},
		{"a policy that cannot be read", "{what: 1}", "is not understood, so nothing is allowed"},
	} {
		if got := read(t, c.spec).RemovalRefusal(parseKey(deployment), Namespace{}); (got == "") != (c.refuse == "") || !strings.Contains(got, c.refuse) {
			t.Errorf("%s: %q; wanted %q", c.what, got, c.refuse)
		}
	}
}

func TestServiceAccounts(t *testing.T) {
	p := read(t, `{serviceAccounts: [{namespaces: [shop, "team-*"], name: deployer}, {namespaces: ["*"], name: other}]}`)
	for ns, want := range map[string]string{"shop": "deployer", "team-a": "deployer", "bank": "other", "": ""} {
		if got := p.ServiceAccount(ns); got != want {
			t.Errorf("in %q written as %q, wanted %q", ns, got, want)
		}
	}
}

func TestAsks(t *testing.T) {
	selecting := read(t, "{namespaces: {allowed: [shop], selector: {}, denied: [bank]}}")
	for object, want := range map[string]bool{deployment: false, namespace: false, "/Secret/bank/a": false, "/Secret/other/a": true, "/Namespace//other": true, role: false} {
		if got := selecting.NeedsNamespaceLabels(parseKey(object)); got != want {
			t.Errorf("%s: %t", object, got)
		}
	}
	if read(t, "{}").NeedsNamespaceLabels(parseKey(deployment)) || (*Policy)(nil).NeedsNamespaceLabels(parseKey(deployment)) {
		t.Error("labels are asked for which nothing depends on")
	}
}

func TestReach(t *testing.T) {
	jane := person.Person{Name: "jane@example.com", Groups: []string{"dev", "ops"}}
	for _, c := range []struct{ what, spec, groups, refuse string }{
		{what: "no limits", spec: "{}", groups: "dev ops"},
		{what: "users", spec: `{reach: {users: ["*@example.com"]}}`, groups: "dev ops"},
		{what: "users, another", spec: "{reach: {users: [joe]}}", refuse: `does not let user "jane@example.com" in (spec.reach.users)`},
		{what: "groups", spec: `{reach: {groups: ["d*"]}}`, groups: "dev"},
		{what: "groups, another", spec: "{reach: {groups: [hr]}}", groups: ""},
		{what: "requests", spec: "{reach: {requests: [Read]}}", groups: "dev ops"},
		{what: "requests, another", spec: "{reach: {requests: [Logs, Write, Connect]}}", refuse: "of the sort Read"},
		{what: "requests, none", spec: "{reach: {requests: []}}", refuse: "of the sort Read"},
		{what: "a policy that cannot be read", spec: "{what: 1}", refuse: "nothing is allowed"},
	} {
		t.Run(c.what, func(t *testing.T) {
			who, err := read(t, c.spec).AdmitPerson(jane, "GET", "/api/v1/pods", false)
			switch {
			case c.refuse != "" && (err == nil || !strings.Contains(err.Error(), c.refuse)):
				t.Errorf("%v; wanted %q", err, c.refuse)
			case c.refuse == "" && (err != nil || strings.Join(who.Groups, " ") != c.groups || who.Name != jane.Name):
				t.Errorf("%+v, %v; wanted the groups %q", who, err, c.groups)
			}
		})
	}
	if jane.Groups[0] != "dev" || len(jane.Groups) != 2 {
		t.Errorf("the requester was changed: %+v", jane)
	}
}

// TestShow: what the hub requests in its own name is bounded by the sort of request alone.
func TestShow(t *testing.T) {
	const pods, log = "/api/v1/pods", "/api/v1/namespaces/shop/pods/web/log"
	for _, c := range []struct{ what, spec, path, refuse string }{
		{what: "no limits", spec: "{}", path: log},
		{what: "users and groups", spec: "{reach: {users: [joe], groups: [hr]}}", path: pods},
		{what: "requests", spec: "{reach: {requests: [Read]}}", path: pods},
		{what: "requests, another", spec: "{reach: {requests: [Read]}}", path: log, refuse: "of the sort Logs"},
		{what: "requests, none", spec: "{reach: {requests: []}}", path: pods, refuse: "of the sort Read"},
		{what: "a policy that cannot be read", spec: "{what: 1}", path: pods, refuse: "nothing is allowed"},
	} {
		err := read(t, c.spec).CheckLiveRequest("GET", c.path)
		if c.refuse == "" && err != nil || c.refuse != "" && (err == nil || !strings.Contains(err.Error(), c.refuse)) {
			t.Errorf("%s: %v; wanted %q", c.what, err, c.refuse)
		}
	}
	if err := (*Policy)(nil).CheckLiveRequest("GET", pods); err != nil {
		t.Errorf("without a policy: %v", err)
	}
}

func TestSortsOfRequests(t *testing.T) {
	for _, c := range []struct {
		method, path string
		upgrades     bool
		want         string
	}{
		{"GET", "/api/v1/namespaces/shop/pods", false, "Read"},
		{"GET", "/api/v1/namespaces/shop/pods/web/log", false, "Logs"},
		{"GET", "/api/v1/namespaces/log/pods/log", false, "Read"},
		{"GET", "/api/v1/namespaces/exec/status", false, "Read"},
		{"GET", "/apis/apps/v1/namespaces/shop/deployments/exec", false, "Read"},
		{"GET", "/apis/example.io/v1/widgets/w/log", false, "Read"},
		{"GET", "/version", false, "Read"},
		{"GET", "/api", false, "Read"},
		{"GET", "/apis/apps", false, "Read"},
		{"PATCH", "/apis/apps/v1/namespaces/shop/deployments/web", false, "Write"},
		{"DELETE", "/api/v1/nodes/a", false, "Write"},
		{"POST", "/api/v1/namespaces/shop/pods/web/eviction", false, "Write"},
		{"POST", "/api/v1/namespaces/shop/pods/web/exec", false, "Connect"},
		{"GET", "/api/v1/namespaces/shop/pods/web/attach", false, "Connect"},
		{"GET", "/api/v1/namespaces/shop/pods/web/portforward", true, "Connect"},
		{"GET", "/api/v1/namespaces/shop/services/web/proxy/index.html", false, "Connect"},
		{"GET", "/api/v1/nodes/a/proxy/logs", false, "Connect"},
		{"GET", "/api/v1/proxy/namespaces/shop/pods/web", false, "Connect"},
		{"GET", "//api//v1/namespaces/shop/pods/web//exec", false, "Connect"},
		{"GET", "/api/v1/watch/namespaces/shop/pods", false, "Read"},
		{"GET", "/api/v1/pods", true, "Connect"},
	} {
		if got := ClassifyRequest(c.method, c.path, c.upgrades); string(got) != c.want {
			t.Errorf("%s %s: %s, wanted %s", c.method, c.path, got, c.want)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"*", "", true}, {"*", "a", true}, {"a*", "abc", true}, {"*c", "abc", true}, {"a*c", "abc", true},
		{"a*c", "ac", true}, {"a*a", "a", false}, {"a*b*c", "a-b-b-c", true}, {"a*b*c", "a-c-b", false}, {"*b*", "abc", true}, {"*bb*b", "abb", false},
		{"a.c", "abc", false}, {"[a]", "a", false}, {"a*b", "abc", false}, {"", "", true}, {"", "a", false},
	} {
		if got := matchWildcard(c.pattern, c.name); got != c.want {
			t.Errorf("%q of %q: %t", c.name, c.pattern, got)
		}
	}
}

func TestEqual(t *testing.T) {
	a, b := read(t, "{removal: Deny}"), read(t, "{removal: Allow}")
	if !a.Equal(read(t, "{removal: Deny}")) || a.Equal(b) || a.Equal(nil) || !(*Policy)(nil).Equal(nil) || DenyAllPolicy("x").Equal(DenyAllPolicy("y")) {
		t.Error("policies that differ are taken for equal, or the other way round")
	}
}
