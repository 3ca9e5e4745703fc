package policymatch

import (
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// An annotation stands for a spec with the API's defaults, which takes dependencies along.
func TestTheSpecThatAnAnnotationStandsFor(t *testing.T) {
	budget := intstr.FromString("10%")
	spec := func(p v1alpha1.PlacementSpec) *Intent {
		p.ReplicaScheduling.ReplicaSchedulingType = v1alpha1.Duplicated
		return &Intent{Spec: v1alpha1.PropagationSpec{
			Placement: p, PropagateDeps: true, ConflictResolution: v1alpha1.ConflictAbort, GroupBy: v1alpha1.GroupBy{Type: v1alpha1.GroupByNamespace},
			Removal: v1alpha1.Removal{Mode: v1alpha1.RemoveDelete, Budget: &budget}, WhenUnfit: v1alpha1.UnfitKeep,
		}}
	}
	labels := func(s metav1.LabelSelector) v1alpha1.PlacementSpec {
		return v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{LabelSelector: &s}}
	}
	in := func(key string, operator metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: values}
	}
	for value, want := range map[string]*Intent{
		"*":                              spec(v1alpha1.PlacementSpec{}),
		"":                               spec(v1alpha1.PlacementSpec{ClusterAffinity: atoll.NowherePlacement().ClusterAffinity}),
		"b, a,b":                         spec(v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{ClusterNames: []string{"b", "a"}}}),
		"selector: a=b,c==d":             spec(labels(metav1.LabelSelector{MatchLabels: map[string]string{"a": "b", "c": "d"}, MatchExpressions: []metav1.LabelSelectorRequirement{}})),
		"selector: a=b,a=c":              spec(labels(metav1.LabelSelector{MatchLabels: map[string]string{"a": "c"}, MatchExpressions: []metav1.LabelSelectorRequirement{in("a", metav1.LabelSelectorOpIn, "b")}})),
		"selector: a in (b),a notin (c)": spec(labels(metav1.LabelSelector{MatchLabels: map[string]string{}, MatchExpressions: []metav1.LabelSelectorRequirement{in("a", metav1.LabelSelectorOpIn, "b"), in("a", metav1.LabelSelectorOpNotIn, "c")}})),
		"a b":                            nil,
		"selector:":                      nil,
	} {
		if got := IntentFromAnnotation(map[string]string{atoll.AnnotationClusters: value}); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, want %+v", value, got, want)
		}
	}
	if got := IntentFromAnnotation(map[string]string{"a": "b"}); got != nil {
		t.Errorf("without the annotation: %+v", got)
	}
	for value, want := range map[string]string{
		"selector: ":        `"selector:" selects nothing in particular: write "*" for all clusters`,
		"selector: a==b==c": `"a==b==c" is not a label selector: `,
		"a,":                `"" is not the name of a cluster: a lowercase RFC 1123 subdomain`,
		"Tokyo":             `"Tokyo" is not the name of a cluster: a lowercase RFC 1123 subdomain`,
	} {
		if _, err := ParseClustersAnnotation(value); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", value, err, want)
		}
	}
}

// A source divides replicas, and lets overrides set them, where its placement states it.
func TestIntentsOnReplicas(t *testing.T) {
	for _, c := range []struct {
		scheduling       v1alpha1.ReplicaScheduling
		divides, allowed bool
	}{
		{v1alpha1.ReplicaScheduling{}, false, false}, {v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Duplicated}, false, false},
		{v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Divided, ReplicaOverrides: v1alpha1.AllowReplicaOverrides}, true, true},
	} {
		i := Intent{Spec: v1alpha1.PropagationSpec{Placement: v1alpha1.PlacementSpec{ReplicaScheduling: c.scheduling}}}
		if i.DividesReplicas() != c.divides || i.AllowsReplicaOverrides() != c.allowed {
			t.Errorf("%+v: divides %t, allows %t", c.scheduling, i.DividesReplicas(), i.AllowsReplicaOverrides())
		}
	}
}

// An object that the hub's default placement leaves out has a reason that people read.
func TestReasonsForWhichTheDefaultLeavesAnObjectOut(t *testing.T) {
	const rbac, crds = "rbac.authorization.k8s.io", "apiextensions.k8s.io"
	key := func(group, kind, namespace, name string) atoll.ItemKey {
		return atoll.ItemKey{Group: group, Kind: kind, Namespace: namespace, Name: name}
	}
	role := key(rbac, "ClusterRole", "", "reader")
	for name, c := range map[string]struct {
		sub  Subject
		want string
	}{
		"a role":                       {Subject{Key: role}, ""},
		"a role of the API server":     {Subject{Key: role, Labels: map[string]string{"kubernetes.io/bootstrapping": ""}}, "made by the hub's API server"},
		"an APIService":                {Subject{Key: key("apiregistration.k8s.io", "APIService", "", "v1."), Labels: map[string]string{"kube-aggregator.kubernetes.io/automanaged": "onstart"}}, "made by the hub's API server"},
		"a flow schema":                {Subject{Key: key("flowcontrol.apiserver.k8s.io", "FlowSchema", "", "a"), Annotations: map[string]string{"apf.kubernetes.io/autoupdate-spec": "true"}}, "made by the hub's API server"},
		"a role for the hub":           {Subject{Key: role, Labels: map[string]string{atoll.LabelHub: "true"}}, "labelled atoll.dev/hub=true: it is for the hub"},
		"a label of another value":     {Subject{Key: role, Labels: map[string]string{atoll.LabelHub: "false"}}, ""},
		"a namespace":                  {Subject{Key: atoll.NamespaceKey("shop")}, ""},
		"a namespace of every cluster": {Subject{Key: atoll.NamespaceKey("default")}, "made in every member"},
		"a system namespace":           {Subject{Key: atoll.NamespaceKey("kube-node-lease")}, "made in every member"},
		"the hub's own namespace":      {Subject{Key: atoll.NamespaceKey("atoll-system")}, "made in every member"},
		"the inventory's namespace":    {Subject{Key: atoll.NamespaceKey("atoll-inventory")}, "made by the hub"},
		"a role of the hub":            {Subject{Key: key(rbac, "ClusterRole", "", "atoll:view")}, "made by the hub"},
		"a role of the system":         {Subject{Key: key(rbac, "ClusterRoleBinding", "", "system:basic-user")}, "made by the hub"},
		"a kind of the hub":            {Subject{Key: key(crds, "CustomResourceDefinition", "", "bundles.atoll.dev")}, "made by the hub"},
		"a kind that the hub installs": {Subject{Key: key(crds, "CustomResourceDefinition", "", "clusterprofiles.multicluster.x-k8s.io")}, "made by the hub"},
		"a kind of a user":             {Subject{Key: key(crds, "CustomResourceDefinition", "", "things.example.com")}, ""},
		"another object of that name":  {Subject{Key: key("example.com", "Thing", "", "bundles.atoll.dev")}, ""},
		"a role of a controller":       {Subject{Key: role, Controller: "Tenant/a"}, "made by Tenant/a"},
		"a Cluster":                    {Subject{Key: key("atoll.dev", "Cluster", "", "tokyo")}, "of Atoll's own API"},
		"a Deployment":                 {Subject{Key: key("apps", "Deployment", "shop", "web")}, ""},
		"a child":                      {Subject{Key: key("apps", "Deployment", "shop", "web"), Controller: "Shop/a"}, "made by Shop/a"},
		"in a system namespace":        {Subject{Key: key("apps", "Deployment", "kube-public", "web")}, "in a system namespace"},
		"in namespace default":         {Subject{Key: key("apps", "Deployment", "default", "web")}, ""},
		"an event":                     {Subject{Key: key("events.k8s.io", "Event", "shop", "e")}, "an event"},
		"a lease":                      {Subject{Key: key("coordination.k8s.io", "Lease", "shop", "l")}, "a lease"},
		"the default account":          {Subject{Key: key("", "ServiceAccount", "shop", "default")}, "made by the hub in every namespace"},
		"another account":              {Subject{Key: key("", "ServiceAccount", "shop", "web")}, ""},
		"the CA of the hub":            {Subject{Key: key("", "ConfigMap", "shop", "kube-root-ca.crt")}, "made by the hub in every namespace"},
		"another ConfigMap":            {Subject{Key: key("", "ConfigMap", "shop", "default")}, ""},
		"the rights of a tenant":       {Subject{Key: key(rbac, "RoleBinding", "shop", "tenant"), Labels: map[string]string{atoll.LabelTenant: "shop"}}, "gives a tenant its rights on the hub"},
		"a role of a tenant":           {Subject{Key: key(rbac, "Role", "shop", "tenant"), Labels: map[string]string{atoll.LabelTenant: "shop"}}, ""},
		"other rights":                 {Subject{Key: key(rbac, "RoleBinding", "shop", "tenant")}, ""},
		"a Secret":                     {Subject{Key: key("", "Secret", "shop", "s"), SecretType: "Opaque"}, ""},
		"a token":                      {Subject{Key: key("", "Secret", "shop", "s"), SecretType: "kubernetes.io/service-account-token"}, "a token that the hub issued"},
		"a release of Helm":            {Subject{Key: key("", "Secret", "shop", "s"), SecretType: "helm.sh/release.v1"}, "a record that Helm keeps of its release"},
		"a custom kind called Secret":  {Subject{Key: key("example.com", "Secret", "shop", "s"), SecretType: "helm.sh/release.v1"}, ""},
		"Endpoints":                    {Subject{Key: key("", "Endpoints", "shop", "e")}, ""},
		"Endpoints of a controller":    {Subject{Key: key("", "Endpoints", "shop", "e"), Labels: map[string]string{"endpoints.kubernetes.io/managed-by": "endpoint-controller"}}, "made from a Service"},
		"a slice of a user":            {Subject{Key: key("discovery.k8s.io", "EndpointSlice", "shop", "e"), Labels: map[string]string{"endpointslice.kubernetes.io/managed-by": "me"}}, ""},
		"a slice of a controller":      {Subject{Key: key("discovery.k8s.io", "EndpointSlice", "shop", "e"), Labels: map[string]string{"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}}, "made from a Service"},
		"a slice of a Service":         {Subject{Key: key("discovery.k8s.io", "EndpointSlice", "shop", "e"), Controller: "Service/a"}, "made from a Service"},
		"a revision of a controller":   {Subject{Key: key("apps", "ControllerRevision", "shop", "r"), Controller: "StatefulSet/a"}, "made from a workload"},
		"a revision of a user":         {Subject{Key: key("apps", "ControllerRevision", "shop", "r")}, ""},
	} {
		if got := DefaultExclusionReason(c.sub); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := NamespaceAnnotationSkipReason(Subject{Key: key("apps", "ReplicaSet", "shop", "r")}); got != "made from a Deployment" {
		t.Errorf("a ReplicaSet under an annotation: %q", got)
	}
}

// The hub's default placement has a text, and an unknown type places nothing.
func TestTextsOfTheHubDefault(t *testing.T) {
	for want, d := range map[string]*v1alpha1.DefaultPlacement{
		"":                                  nil,
		"defaultPlacement: All":             {Type: v1alpha1.DefaultPlacementAll},
		"defaultPlacement: ClusterSet prod": {Type: v1alpha1.DefaultPlacementClusterSet, Name: "prod"},
	} {
		x := &PolicyIndex{hubDefaultText: "before"}
		if x.SetHubDefault(d); x.hubDefaultText != want || (x.hubDefault == nil) != (d == nil) {
			t.Errorf("%q, want %q", x.hubDefaultText, want)
		}
	}
	if got := HubDefaultSpec(&v1alpha1.DefaultPlacement{Type: "Other"}); got != nil {
		t.Errorf("an unknown type: %+v", got)
	}
	ref := HubDefaultSpec(&v1alpha1.DefaultPlacement{Type: v1alpha1.DefaultPlacementClusterPlacement, Name: "spare"})
	if !reflect.DeepEqual(ref.Placement, v1alpha1.PlacementSpec{}) || *ref.PlacementRef != (v1alpha1.PlacementRef{Name: "spare"}) {
		t.Errorf("%+v", ref)
	}
	x := &PolicyIndex{}
	x.SetHubDefault(&v1alpha1.DefaultPlacement{Type: v1alpha1.DefaultPlacementAll})
	d := DecidePolicy(x, Subject{Key: atoll.NamespaceKey("default")}, Namespace{}, nil)
	if want := "no policy and no annotation selects it, and the hub's default placement leaves it out: made in every member"; d.Reason != want {
		t.Errorf("%q, want %q", d.Reason, want)
	}
	d = DecidePolicy(x, Subject{Key: webKey}, Namespace{Name: "shop"}, nil)
	if d.Winner == nil || d.Winner.MatchedBy != "defaultPlacement: All" || d.Winner.Source != (v1alpha1.BundleSource{Kind: v1alpha1.SourceHubSettings, Name: v1alpha1.HubSettingsName}) {
		t.Errorf("%+v", d.Winner)
	}
}

// A Bundle is known by its name: whether it is one object's, and whether it is that of an annotation.
func TestBundlesAreKnownByTheirNames(t *testing.T) {
	own := v1alpha1.BundleSource{Kind: v1alpha1.SourceAnnotation, Name: "web"}
	id, _ := BundleForSubject(Candidate{Source: own, Spec: &v1alpha1.PropagationSpec{}, level: levelObject}, Subject{Key: webKey})
	other := webKey
	other.Kind = "StatefulSet"
	if !IsBundleOfAnnotation(id, webKey) || IsBundleOfAnnotation(id, other) || IsBundleOfAnnotation(BundleID{Namespace: "shop", Name: "web"}, webKey) {
		t.Errorf("%s is known by another annotation", id)
	}
	policy := v1alpha1.BundleSource{Kind: v1alpha1.SourcePropagationPolicy, Name: "web"}
	spec := &v1alpha1.PropagationSpec{GroupBy: v1alpha1.GroupBy{Type: v1alpha1.GroupByObject}}
	_, group := BundleForSubject(Candidate{Source: policy, Spec: spec, level: levelPolicy}, Subject{Key: webKey})
	for _, c := range []struct {
		src   v1alpha1.BundleSource
		group string
		want  bool
	}{{own, "", true}, {policy, group, true}, {policy, "", false}, {policy, "label", false}} {
		if got := IsSingleObjectBundle(c.src, c.group); got != c.want {
			t.Errorf("%s %q: %t", c.src.Kind, c.group, got)
		}
	}
	if got := (BundleID{Namespace: "shop", Name: "b"}).OwnNamespace(); got != atoll.NamespaceKey("shop") {
		t.Errorf("%v", got)
	}
	if got := (BundleID{Name: "b"}).OwnNamespace(); got != (atoll.ItemKey{}) {
		t.Errorf("of a ClusterBundle: %v", got)
	}
	for _, c := range []struct {
		a, b BundleID
		want int
	}{{BundleID{"a", "z"}, BundleID{"b", "a"}, -1}, {BundleID{"a", "b"}, BundleID{"a", "a"}, 1}, {BundleID{"a", "b"}, BundleID{"a", "b"}, 0}} {
		if got := c.a.Compare(c.b); got != c.want {
			t.Errorf("%s and %s: %d", c.a, c.b, got)
		}
	}
}

// The kind of a selector may stand for all kinds of a group or of all groups. A malformed version has none.
func TestKindsOfSelectors(t *testing.T) {
	for _, c := range []struct {
		apiVersion, kind string
		want             schema.GroupKind
	}{
		{"apps/v1", "Deployment", schema.GroupKind{Group: "apps", Kind: "Deployment"}}, {"v1", "Secret", schema.GroupKind{Kind: "Secret"}},
		{"*", "*", schema.GroupKind{Group: "*", Kind: "*"}}, {"apps/*", "*", schema.GroupKind{Group: "apps", Kind: "*"}}, {"a/b/c", "X", schema.GroupKind{}},
	} {
		if got := SelectorKind(v1alpha1.ResourceSelector{APIVersion: c.apiVersion, Kind: c.kind}); got != c.want {
			t.Errorf("%s %s: %v", c.apiVersion, c.kind, got)
		}
	}
}

// The reason of a loss names what the winner has.
func TestReasonsForWhichCandidatesLose(t *testing.T) {
	at := time.Unix(1000, 0)
	with := func(level int, priority int32, specificity int, age time.Duration) Candidate {
		return Candidate{Source: v1alpha1.BundleSource{Kind: "P", Name: "p"}, Spec: &v1alpha1.PropagationSpec{Priority: priority}, level: level, specificity: specificity, created: at.Add(-age)}
	}
	named := with(levelPolicy, 0, 0, 0)
	named.Source.Name = "z"
	const annotations, stays = "annotations win over policies", ", but what is placed already stays where it is unless a policy has preemption: Always"
	for name, c := range map[string]struct {
		winner, loser Candidate
		reason        atoll.Reason
		want          string
	}{
		"of a namespace's annotation":  {with(levelObject, 0, 0, 0), with(levelNamespace, 0, 0, 0), atoll.ReasonAnnotationWins, "an object's own annotation wins over its namespace's"},
		"of a policy, by its own":      {with(levelObject, 0, 0, 0), with(levelPolicy, 9, 0, 0), atoll.ReasonAnnotationWins, annotations},
		"of a policy, by a namespace":  {with(levelNamespace, 0, 0, 0), with(levelPolicy, 9, 0, 0), atoll.ReasonAnnotationWins, annotations},
		"of a cluster policy":          {with(levelPolicy, 0, 0, 0), with(levelClusterPolicy, 9, 0, 0), atoll.ReasonRanksHighest, "a namespace's own policy wins over a cluster policy"},
		"of less priority":             {with(levelPolicy, 2, 0, 0), with(levelPolicy, 1, 9, 9), atoll.ReasonRanksHighest, "the winner is ahead by priority"},
		"less specific":                {with(levelPolicy, 1, 2, 0), with(levelPolicy, 1, 1, 9), atoll.ReasonRanksHighest, "the winner is ahead by specificity"},
		"younger":                      {with(levelPolicy, 1, 1, time.Second), with(levelPolicy, 1, 1, 0), atoll.ReasonRanksHighest, "the winner is ahead by age"},
		"of a later name":              {with(levelPolicy, 0, 0, 0), named, atoll.ReasonRanksHighest, "the winner is ahead by name"},
		"better, and the other stays":  {with(levelPolicy, 1, 0, 0), with(levelPolicy, 2, 0, 0), atoll.ReasonHoldsObject, "it ranks higher by priority" + stays},
		"a policy before a cluster's ": {with(levelClusterPolicy, 1, 0, 0), with(levelPolicy, 0, 0, 0), atoll.ReasonHoldsObject, "it ranks higher by kind of policy" + stays},
	} {
		if reason, got := ExplainLoss(c.winner, c.loser); got != c.want || reason != c.reason {
			t.Errorf("%s: %s, %q, want %s, %q", name, reason, got, c.reason, c.want)
		}
	}
}
