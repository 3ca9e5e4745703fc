package policymatch

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

func TestSelectorsOfAllKinds(t *testing.T) {
	everything := v1alpha1.ResourceSelector{APIVersion: "*", Kind: "*"}
	apps, core := v1alpha1.ResourceSelector{APIVersion: "apps/*", Kind: "*"}, v1alpha1.ResourceSelector{APIVersion: "v1", Kind: "*"}
	labelled := everything
	labelled.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	web := Subject{Key: webKey, Labels: map[string]string{"team": "a"}}
	config := Subject{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "c"}}
	role := Subject{Key: atoll.ItemKey{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "reader"}}
	for name, c := range map[string]struct {
		policies []any
		sub      Subject
		want     string
	}{
		"everything":                      {[]any{clusterPolicy("all", 0, policySpec(0, everything))}, web, "all"},
		"everything, cluster-scoped":      {[]any{clusterPolicy("all", 0, policySpec(0, everything))}, role, "all"},
		"everything, of the API server":   {[]any{clusterPolicy("all", 0, policySpec(0, everything))}, Subject{Key: role.Key, Labels: map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"}}, ""},
		"everything, of a controller":     {[]any{clusterPolicy("all", 0, policySpec(0, everything))}, Subject{Key: webKey, Controller: "Shop/a"}, ""},
		"everything, of a system":         {[]any{clusterPolicy("all", 0, policySpec(0, everything))}, Subject{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "kube-system", Name: "c"}}, ""},
		"everything in a namespace":       {[]any{namespacePolicy("own", 0, policySpec(0, everything))}, config, "own"},
		"a group":                         {[]any{clusterPolicy("apps", 0, policySpec(0, apps))}, web, "apps"},
		"another group":                   {[]any{clusterPolicy("apps", 0, policySpec(0, apps))}, config, ""},
		"the core group":                  {[]any{clusterPolicy("core", 0, policySpec(0, core))}, config, "core"},
		"by labels":                       {[]any{clusterPolicy("a", 0, policySpec(0, labelled))}, web, "a"},
		"by other labels":                 {[]any{clusterPolicy("a", 0, policySpec(0, labelled))}, config, ""},
		"a group before everything":       {[]any{clusterPolicy("all", 0, policySpec(0, everything)), clusterPolicy("apps", 1, policySpec(0, apps))}, web, "apps"},
		"a kind before a group":           {[]any{clusterPolicy("apps", 0, policySpec(0, apps)), clusterPolicy("kind", 1, policySpec(0, deploymentSelector("")))}, web, "kind"},
		"labels before a kind":            {[]any{clusterPolicy("kind", 0, policySpec(0, deploymentSelector(""))), clusterPolicy("labels", 1, policySpec(0, labelled))}, web, "labels"},
		"one policy by two selectors":     {[]any{clusterPolicy("both", 0, policySpec(0, everything, deploymentSelector("web")))}, web, "both"},
		"a namespace's own before a name": {[]any{clusterPolicy("name", 0, policySpec(0, deploymentSelector("web"))), namespacePolicy("own", 1, policySpec(0, everything))}, web, "own"},
	} {
		d := DecidePolicy(newIndex(c.policies...), c.sub, Namespace{Name: c.sub.Key.Namespace}, nil)
		got := ""
		if d.Winner != nil {
			got = d.Winner.Source.Name
		}
		if got != c.want || len(d.Others) != max(0, len(c.policies)-1) && c.want != "" {
			t.Errorf("%s: placed by %q, beside %d others; want %q", name, got, len(d.Others), c.want)
		}
	}
}

// A clone of an index decides as the original does, and does not follow it.
func TestACloneHasTheHubDefault(t *testing.T) {
	x := newIndex(clusterPolicy("all", 0, policySpec(0, v1alpha1.ResourceSelector{APIVersion: "apps/*", Kind: "*"})))
	x.SetHubDefault(&v1alpha1.DefaultPlacement{Type: v1alpha1.DefaultPlacementAll})
	clone := x.Clone()
	x.SetHubDefault(nil)
	config := Subject{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "c"}}
	for sub, want := range map[*Subject]string{{Key: webKey}: "all", &config: v1alpha1.HubSettingsName} {
		if d := DecidePolicy(&clone, *sub, Namespace{Name: "shop"}, nil); d.Winner == nil || d.Winner.Source.Name != want {
			t.Errorf("%s: %+v", sub.Key, d)
		}
	}
	if d := DecidePolicy(x, config, Namespace{Name: "shop"}, nil); d.Winner != nil {
		t.Errorf("the original still has the default: %+v", d.Winner)
	}
}
