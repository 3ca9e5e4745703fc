package policymatch

import (
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

func TestTheHubDefaultPlacesWhatNothingElsePlaces(t *testing.T) {
	all := &v1alpha1.DefaultPlacement{Type: v1alpha1.DefaultPlacementAll}
	nowhere, star := "", "*"
	web := Subject{Key: webKey, UID: "u"}
	annotated := func(value *string) Namespace {
		ns := Namespace{Name: "shop", UID: "n"}
		if value != nil {
			ns.Annotations = map[string]string{atoll.AnnotationClusters: *value}
		}
		return ns
	}
	clusterRole := Subject{Key: atoll.ItemKey{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "reader"}}
	for name, c := range map[string]struct {
		byDefault *v1alpha1.DefaultPlacement
		policies  []any
		sub       Subject
		ns        *string
		want      string // kind of the source; empty: none
		reason    atoll.Reason
	}{
		"no default":                      {sub: web, reason: atoll.ReasonNotSelected},
		"None":                            {byDefault: &v1alpha1.DefaultPlacement{Type: v1alpha1.DefaultPlacementNone}, sub: web, reason: atoll.ReasonNotSelected},
		"All":                             {byDefault: all, sub: web, want: v1alpha1.SourceHubSettings, reason: atoll.ReasonDefaultPlacement},
		"a policy wins":                   {byDefault: all, policies: []any{clusterPolicy("p", 0, policySpec(-5, deploymentSelector("")))}, sub: web, want: v1alpha1.SourceClusterPropagationPolicy, reason: atoll.ReasonOnlyCandidate},
		"a namespace's annotation wins":   {byDefault: all, sub: web, ns: &star, want: v1alpha1.SourceNamespaceAnnotation, reason: atoll.ReasonOnlyCandidate},
		"a namespace turns it off":        {byDefault: all, sub: web, ns: &nowhere, want: v1alpha1.SourceNamespaceAnnotation, reason: atoll.ReasonOnlyCandidate},
		"a system namespace":              {byDefault: all, sub: Subject{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "kube-system", Name: "c"}}, reason: atoll.ReasonMachineMade},
		"what a controller made":          {byDefault: all, sub: Subject{Key: webKey, Controller: "Shop/a"}, reason: atoll.ReasonMachineMade},
		"a user's ReplicaSet":             {byDefault: all, sub: Subject{Key: atoll.ItemKey{Group: "apps", Kind: "ReplicaSet", Namespace: "shop", Name: "r"}}, want: v1alpha1.SourceHubSettings, reason: atoll.ReasonDefaultPlacement},
		"a user's slice":                  {byDefault: all, sub: Subject{Key: atoll.ItemKey{Group: "discovery.k8s.io", Kind: "EndpointSlice", Namespace: "shop", Name: "s"}}, want: v1alpha1.SourceHubSettings, reason: atoll.ReasonDefaultPlacement},
		"a slice of a Service":            {byDefault: all, sub: Subject{Key: atoll.ItemKey{Group: "discovery.k8s.io", Kind: "EndpointSlice", Namespace: "shop", Name: "s"}, Controller: "Service/s"}, reason: atoll.ReasonMachineMade},
		"a cluster role":                  {byDefault: all, sub: clusterRole, want: v1alpha1.SourceHubSettings, reason: atoll.ReasonDefaultPlacement},
		"one of the API server":           {byDefault: all, sub: Subject{Key: clusterRole.Key, Labels: map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"}}, reason: atoll.ReasonMachineMade},
		"one of the hub":                  {byDefault: all, sub: Subject{Key: atoll.ItemKey{Group: clusterRole.Key.Group, Kind: "ClusterRole", Name: "atoll:view"}}, reason: atoll.ReasonMachineMade},
		"one for the hub":                 {byDefault: all, sub: Subject{Key: clusterRole.Key, Labels: map[string]string{atoll.LabelHub: "true"}}, reason: atoll.ReasonMachineMade},
		"a flow schema of the API server": {byDefault: all, sub: Subject{Key: atoll.ItemKey{Group: "flowcontrol.apiserver.k8s.io", Kind: "FlowSchema", Name: "probes"}, Annotations: map[string]string{"apf.kubernetes.io/autoupdate-spec": "true"}}, reason: atoll.ReasonMachineMade},
		"a CRD of the hub":                {byDefault: all, sub: Subject{Key: atoll.ItemKey{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "bundles.atoll.dev"}}, reason: atoll.ReasonMachineMade},
		"a user's CRD":                    {byDefault: all, sub: Subject{Key: atoll.ItemKey{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "shops.example.com"}}, want: v1alpha1.SourceHubSettings, reason: atoll.ReasonDefaultPlacement},
		"a namespace":                     {byDefault: all, sub: Subject{Key: atoll.NamespaceKey("shop")}, want: v1alpha1.SourceHubSettings, reason: atoll.ReasonDefaultPlacement},
		"a namespace of every cluster":    {byDefault: all, sub: Subject{Key: atoll.NamespaceKey("default")}, reason: atoll.ReasonMachineMade},
		"a namespace that a system has":   {byDefault: all, sub: Subject{Key: atoll.NamespaceKey("kube-public")}, reason: atoll.ReasonMachineMade},
		"the inventory's namespace":       {byDefault: all, sub: Subject{Key: atoll.NamespaceKey("atoll-inventory")}, reason: atoll.ReasonMachineMade},
		"a namespace of a controller":     {byDefault: all, sub: Subject{Key: atoll.NamespaceKey("shop"), Controller: "Tenant/a"}, reason: atoll.ReasonMachineMade},
		"a namespace for the hub":         {byDefault: all, sub: Subject{Key: atoll.NamespaceKey("shop"), Labels: map[string]string{atoll.LabelHub: "true"}}, reason: atoll.ReasonMachineMade},
	} {
		t.Run(name, func(t *testing.T) {
			x := newIndex(c.policies...)
			x.SetHubDefault(c.byDefault)
			ns := Namespace{}
			if c.sub.Key.Namespace != "" {
				ns = annotated(c.ns)
			}
			d, got := DecidePolicy(x, c.sub, ns, nil), ""
			if d.Winner != nil {
				got = d.Winner.Source.Kind
			}
			if got != c.want || d.ReasonCode != c.reason || d.Reason == "" {
				t.Errorf("placed by %q (%s: %s), want %q (%s)", got, d.ReasonCode, d.Reason, c.want, c.reason)
			}
		})
	}
}

// A Bundle of the default holds what is placed in one namespace, and a policy that selects an object
// of it takes the object over at once.
func TestTheHubDefaultHoldsNothingAgainstAPolicy(t *testing.T) {
	x := newIndex(namespacePolicy("late", 9, policySpec(0, deploymentSelector("web"))))
	x.SetHubDefault(&v1alpha1.DefaultPlacement{Type: v1alpha1.DefaultPlacementAll})
	holder := &v1alpha1.BundleSource{Kind: v1alpha1.SourceHubSettings, Name: v1alpha1.HubSettingsName}
	if d := DecidePolicy(x, Subject{Key: webKey}, Namespace{Name: "shop"}, holder); d.Winner == nil || d.Winner.Source.Name != "late" {
		t.Errorf("%+v", d.Winner)
	}
	other := webKey
	other.Name = "api"
	var bundles []BundleID
	for _, key := range []atoll.ItemKey{other, {Kind: "ConfigMap", Namespace: "shop", Name: "c"}} {
		sub := Subject{Key: key}
		d := DecidePolicy(x, sub, Namespace{Name: "shop"}, holder)
		if d.Winner == nil {
			t.Fatalf("%s is not placed: %s", key, d.Reason)
		}
		id, _ := BundleForSubject(*d.Winner, sub)
		bundles = append(bundles, id)
	}
	if bundles[0] != bundles[1] || bundles[0].Namespace != "shop" {
		t.Errorf("the Bundles are %v", bundles)
	}
}

func TestHubDefaultSpec(t *testing.T) {
	if s := HubDefaultSpec(&v1alpha1.DefaultPlacement{Type: v1alpha1.DefaultPlacementClusterSet, Name: "prod"}); len(s.Placement.ClusterSets) != 1 || s.Placement.ClusterSets[0] != "prod" || s.PlacementRef != nil {
		t.Errorf("%+v", s)
	}
	if s := HubDefaultSpec(&v1alpha1.DefaultPlacement{Type: v1alpha1.DefaultPlacementClusterPlacement, Name: "spare"}); s.PlacementRef == nil || s.PlacementRef.Name != "spare" {
		t.Errorf("%+v", s)
	}
	if s := HubDefaultSpec(nil); s != nil {
		t.Errorf("%+v", s)
	}
}
