package policymatch

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/clustermatch"
)

var webKey = atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}

func deploymentSelector(name string) v1alpha1.ResourceSelector {
	return v1alpha1.ResourceSelector{APIVersion: "apps/v1", Kind: "Deployment", Name: name}
}

func withLabelSelector(rs v1alpha1.ResourceSelector, key, value string) v1alpha1.ResourceSelector {
	rs.Name, rs.LabelSelector = "", &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	return rs
}

func policySpec(priority int32, selectors ...v1alpha1.ResourceSelector) v1alpha1.PropagationSpec {
	return v1alpha1.PropagationSpec{ResourceSelectors: selectors, Priority: priority, Preemption: v1alpha1.PreemptNever}
}

func withPreemption(s v1alpha1.PropagationSpec) v1alpha1.PropagationSpec {
	s.Preemption = v1alpha1.PreemptAlways
	return s
}

// metaCreatedAt makes objects that were created so many minutes after the first.
func metaCreatedAt(name, ns string, minutes int) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: ns, UID: "uid-" + "x", CreationTimestamp: metav1.NewTime(time.Unix(int64(minutes)*60, 0))}
}

func namespacePolicy(name string, minutes int, s v1alpha1.PropagationSpec) *v1alpha1.PropagationPolicy {
	return &v1alpha1.PropagationPolicy{ObjectMeta: metaCreatedAt(name, "shop", minutes), Spec: s}
}

func clusterPolicy(name string, minutes int, s v1alpha1.PropagationSpec) *v1alpha1.ClusterPropagationPolicy {
	return &v1alpha1.ClusterPropagationPolicy{ObjectMeta: metaCreatedAt(name, "", minutes), Spec: s}
}

func newIndex(policies ...any) *PolicyIndex {
	var own []*v1alpha1.PropagationPolicy
	var cluster []*v1alpha1.ClusterPropagationPolicy
	for _, p := range policies {
		switch p := p.(type) {
		case *v1alpha1.PropagationPolicy:
			own = append(own, p)
		case *v1alpha1.ClusterPropagationPolicy:
			cluster = append(cluster, p)
		}
	}
	x := &PolicyIndex{}
	x.SetNamespacePolicies("shop", own)
	x.SetClusterPolicies(cluster)
	return x
}

const (
	namespacePolicyKind = v1alpha1.SourcePropagationPolicy
	clusterPolicyKind   = v1alpha1.SourceClusterPropagationPolicy
)

var decisionCases = map[string]struct {
	policies []any
	labels   map[string]string
	object   *string // annotation
	ns       *string
	holder   *v1alpha1.BundleSource
	want     string // KIND/NAME, empty for none
	why      string
}{
	"no policy":         {want: "", why: "no policy"},
	"by name":           {policies: []any{namespacePolicy("a", 0, policySpec(0, deploymentSelector("web")))}, want: "PropagationPolicy/a"},
	"by another name":   {policies: []any{namespacePolicy("a", 0, policySpec(0, deploymentSelector("db")))}},
	"by kind":           {policies: []any{namespacePolicy("a", 0, policySpec(0, deploymentSelector("")))}, want: "PropagationPolicy/a"},
	"by labels":         {policies: []any{namespacePolicy("a", 0, policySpec(0, withLabelSelector(deploymentSelector(""), "x", "y")))}, labels: map[string]string{"x": "y"}, want: "PropagationPolicy/a"},
	"by other labels":   {policies: []any{namespacePolicy("a", 0, policySpec(0, withLabelSelector(deploymentSelector(""), "x", "y")))}},
	"another version":   {policies: []any{namespacePolicy("a", 0, policySpec(0, v1alpha1.ResourceSelector{APIVersion: "apps/v1beta1", Kind: "Deployment"}))}, want: "PropagationPolicy/a"},
	"another group":     {policies: []any{namespacePolicy("a", 0, policySpec(0, v1alpha1.ResourceSelector{APIVersion: "extensions/v1", Kind: "Deployment"}))}},
	"another namespace": {policies: []any{clusterPolicy("c", 0, policySpec(0, v1alpha1.ResourceSelector{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "other"}))}},
	"cluster policy":    {policies: []any{clusterPolicy("c", 0, policySpec(0, deploymentSelector("web")))}, want: "ClusterPropagationPolicy/c"},
	"policy over cluster policy": {
		policies: []any{namespacePolicy("a", 9, policySpec(0, deploymentSelector(""))), clusterPolicy("c", 0, policySpec(99, deploymentSelector("web")))},
		want:     "PropagationPolicy/a", why: "kind of policy",
	},
	"priority": {
		policies: []any{namespacePolicy("a", 0, policySpec(1, deploymentSelector("web"))), namespacePolicy("b", 9, policySpec(2, deploymentSelector("")))},
		want:     "PropagationPolicy/b", why: "priority",
	},
	"specificity: name over labels": {
		policies: []any{namespacePolicy("a", 0, policySpec(0, withLabelSelector(deploymentSelector(""), "x", "y"))), namespacePolicy("b", 9, policySpec(0, deploymentSelector("web")))},
		labels:   map[string]string{"x": "y"}, want: "PropagationPolicy/b", why: "specificity",
	},
	"specificity: labels over kind": {
		policies: []any{namespacePolicy("a", 0, policySpec(0, deploymentSelector(""))), namespacePolicy("b", 9, policySpec(0, withLabelSelector(deploymentSelector(""), "x", "y")))},
		labels:   map[string]string{"x": "y"}, want: "PropagationPolicy/b",
	},
	"age": {
		policies: []any{namespacePolicy("b", 0, policySpec(0, deploymentSelector("web"))), namespacePolicy("a", 9, policySpec(0, deploymentSelector("web")))},
		want:     "PropagationPolicy/b", why: "age",
	},
	"name": {
		policies: []any{namespacePolicy("b", 0, policySpec(0, deploymentSelector("web"))), namespacePolicy("a", 0, policySpec(0, deploymentSelector("web")))},
		want:     "PropagationPolicy/a", why: "name",
	},
	"object annotation over all": {
		policies: []any{namespacePolicy("a", 0, withPreemption(policySpec(1000, deploymentSelector("web"))))},
		object:   new("*"), ns: new("b"), want: "Annotation/web",
	},
	"namespace annotation over policies": {
		policies: []any{namespacePolicy("a", 0, policySpec(1000, deploymentSelector("web")))}, ns: new("b"), want: "NamespaceAnnotation/shop",
	},
	"annotation over a holder": {
		policies: []any{namespacePolicy("a", 0, policySpec(0, deploymentSelector("web")))}, object: new("x"),
		holder: &v1alpha1.BundleSource{Kind: namespacePolicyKind, Name: "a"}, want: "Annotation/web",
	},
	"malformed annotation freezes": {
		policies: []any{namespacePolicy("a", 0, policySpec(0, deploymentSelector("web")))}, object: new("a b"), want: "", why: "malformed",
	},
	"malformed namespace annotation freezes": {
		policies: []any{namespacePolicy("a", 0, policySpec(0, deploymentSelector("web")))}, ns: new("selector:"), want: "", why: "malformed",
	},
	"the holder stays": {
		policies: []any{namespacePolicy("a", 0, policySpec(5, deploymentSelector("web"))), clusterPolicy("c", 0, policySpec(0, deploymentSelector("")))},
		holder:   &v1alpha1.BundleSource{Kind: clusterPolicyKind, Name: "c"}, want: "ClusterPropagationPolicy/c", why: "none of the others preempts",
	},
	"preemption by kind": {
		policies: []any{namespacePolicy("a", 0, withPreemption(policySpec(0, deploymentSelector("web")))), clusterPolicy("c", 0, policySpec(99, deploymentSelector("")))},
		holder:   &v1alpha1.BundleSource{Kind: clusterPolicyKind, Name: "c"}, want: "PropagationPolicy/a", why: "preempts ClusterPropagationPolicy c",
	},
	"preemption by priority": {
		policies: []any{namespacePolicy("a", 0, withPreemption(policySpec(2, deploymentSelector("")))), namespacePolicy("b", 0, policySpec(1, deploymentSelector("web")))},
		holder:   &v1alpha1.BundleSource{Kind: namespacePolicyKind, Name: "b"}, want: "PropagationPolicy/a",
	},
	"no preemption at the same priority": {
		policies: []any{namespacePolicy("a", 0, withPreemption(policySpec(1, deploymentSelector("web")))), namespacePolicy("b", 9, policySpec(1, deploymentSelector("")))},
		holder:   &v1alpha1.BundleSource{Kind: namespacePolicyKind, Name: "b"}, want: "PropagationPolicy/b",
	},
	"the best that preempts, not the best": {
		policies: []any{
			namespacePolicy("a", 0, policySpec(9, deploymentSelector("web"))), namespacePolicy("b", 0, withPreemption(policySpec(5, deploymentSelector("web")))),
			namespacePolicy("c", 0, policySpec(1, deploymentSelector("web"))),
		},
		holder: &v1alpha1.BundleSource{Kind: namespacePolicyKind, Name: "c"}, want: "PropagationPolicy/b",
	},
	"a holder that no longer selects": {
		policies: []any{namespacePolicy("a", 0, policySpec(0, deploymentSelector("db"))), namespacePolicy("b", 0, policySpec(0, deploymentSelector("")))},
		holder:   &v1alpha1.BundleSource{Kind: namespacePolicyKind, Name: "a"}, want: "PropagationPolicy/b",
	},
}

func TestDecide(t *testing.T) {
	for name, tc := range decisionCases {
		t.Run(name, func(t *testing.T) {
			sub := Subject{Key: webKey, UID: "u", Labels: tc.labels}
			ns := Namespace{Name: "shop", UID: "n"}
			if tc.object != nil {
				sub.Annotations = map[string]string{atoll.AnnotationClusters: *tc.object}
			}
			if tc.ns != nil {
				ns.Annotations = map[string]string{atoll.AnnotationClusters: *tc.ns}
			}
			d := DecidePolicy(newIndex(tc.policies...), sub, ns, tc.holder)
			got := ""
			if d.Winner != nil {
				got = d.Winner.Source.Kind + "/" + d.Winner.Source.Name
			}
			if got != tc.want || !strings.Contains(d.Reason, tc.why) {
				t.Errorf("%q because %q; want %q because %q", got, d.Reason, tc.want, tc.why)
			}
			for _, o := range d.Others {
				if d.Winner != nil && o.Source == d.Winner.Source {
					t.Error("the winner is among the others")
				}
			}
		})
	}
}

func TestNamespaceAnnotationScope(t *testing.T) {
	x := newIndex(clusterPolicy("all", 0, policySpec(0,
		v1alpha1.ResourceSelector{APIVersion: "v1", Kind: "Secret"}, v1alpha1.ResourceSelector{APIVersion: "v1", Kind: "ConfigMap"},
		v1alpha1.ResourceSelector{APIVersion: "v1", Kind: "ServiceAccount"}, v1alpha1.ResourceSelector{APIVersion: "apps/v1", Kind: "ReplicaSet"},
		v1alpha1.ResourceSelector{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "RoleBinding"},
		v1alpha1.ResourceSelector{APIVersion: "v1", Kind: "Endpoints"}, v1alpha1.ResourceSelector{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		v1alpha1.ResourceSelector{APIVersion: "apps/v1", Kind: "ControllerRevision"})))
	key := func(group, kind, ns, name string) Subject {
		return Subject{Key: atoll.ItemKey{Group: group, Kind: kind, Namespace: ns, Name: name}}
	}
	with := func(s Subject, secretType, controller string) Subject {
		s.SecretType, s.Controller = secretType, controller
		return s
	}
	labelled := func(s Subject, key, value string) Subject {
		s.Labels = map[string]string{key: value}
		return s
	}
	endpoints, slice := key("", "Endpoints", "shop", "a"), key("discovery.k8s.io", "EndpointSlice", "shop", "a")
	revision := key("apps", "ControllerRevision", "shop", "a")
	tenants := key("rbac.authorization.k8s.io", "RoleBinding", "shop", "atoll:tenant")
	tenants.Labels = map[string]string{atoll.LabelTenant: "shop"}
	for name, tc := range map[string]struct {
		sub           Subject
		scope, policy bool
	}{
		"RoleBinding":          {key("rbac.authorization.k8s.io", "RoleBinding", "shop", "a"), true, true},
		"a tenant's rights":    {tenants, false, false},
		"ConfigMap":            {key("", "ConfigMap", "shop", "a"), true, true},
		"root CA":              {key("", "ConfigMap", "shop", "kube-root-ca.crt"), false, false},
		"default account":      {key("", "ServiceAccount", "shop", "default"), false, false},
		"account":              {key("", "ServiceAccount", "shop", "a"), true, true},
		"opaque Secret":        {with(key("", "Secret", "shop", "a"), "Opaque", ""), true, true},
		"token":                {with(key("", "Secret", "shop", "a"), "kubernetes.io/service-account-token", ""), false, false},
		"Helm release":         {with(key("", "Secret", "shop", "a"), "helm.sh/release.v1", ""), false, false},
		"ReplicaSet":           {key("apps", "ReplicaSet", "shop", "a"), false, true},
		"made by a controller": {with(key("", "ConfigMap", "shop", "a"), "", "Thing/x"), false, true},
		"Lease":                {key("coordination.k8s.io", "Lease", "shop", "a"), false, false},
		"slice":                {slice, false, true},
		"slice of a person":    {labelled(slice, "endpointslice.kubernetes.io/managed-by", "staff"), false, true},
		"slice of a Service":   {labelled(slice, "endpointslice.kubernetes.io/managed-by", "endpointslice-controller.k8s.io"), false, false},
		"mirrored slice":       {labelled(slice, "endpointslice.kubernetes.io/managed-by", "endpointslicemirroring-controller.k8s.io"), false, false},
		"owned slice":          {with(slice, "", "Service/a"), false, false},
		"Endpoints":            {endpoints, false, true},
		"Service's Endpoints":  {labelled(endpoints, "endpoints.kubernetes.io/managed-by", "endpoint-controller"), false, false},
		"ControllerRevision":   {revision, false, true},
		"a set's revision":     {with(revision, "", "StatefulSet/a"), false, false},
		"system namespace":     {key("", "ConfigMap", "kube-system", "a"), false, false},
		"Atoll's namespace":    {key("", "Secret", "atoll-system", "a"), false, false},
		"Atoll's kind":         {key("atoll.dev", "PropagationPolicy", "shop", "a"), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			ns := Namespace{Name: tc.sub.Key.Namespace, Annotations: map[string]string{atoll.AnnotationClusters: "*"}}
			d := DecidePolicy(&PolicyIndex{}, tc.sub, ns, nil)
			if in := d.Winner != nil; in != tc.scope || in == (d.SkippedReason != "") {
				t.Errorf("in the namespace's scope: %v (skipped: %q), want %v", in, d.SkippedReason, tc.scope)
			}
			if in := DecidePolicy(x, tc.sub, Namespace{Name: tc.sub.Key.Namespace}, nil).Winner != nil; in != tc.policy {
				t.Errorf("selected by kind: %v, want %v", in, tc.policy)
			}
		})
	}
	named := newIndex(clusterPolicy("named", 0, policySpec(0, v1alpha1.ResourceSelector{APIVersion: "v1", Kind: "ServiceAccount", Namespace: "kube-system", Name: "default"})))
	if DecidePolicy(named, key("", "ServiceAccount", "kube-system", "default"), Namespace{Name: "kube-system"}, nil).Winner == nil {
		t.Error("what a selector names is not selected")
	}
}

// The source of the objects of a namespace places the Namespace in their Bundle. A policy that selects Namespaces by name or
// by kind has them in a ClusterBundle.
func TestANamespaceIsInTheBundleOfItsObjects(t *testing.T) {
	everything := policySpec(0, v1alpha1.ResourceSelector{APIVersion: AllKinds, Kind: AllKinds})
	kind := policySpec(0, v1alpha1.ResourceSelector{APIVersion: "v1", Kind: "Namespace"})
	for name, c := range map[string]struct {
		index      *PolicyIndex
		namespace  string
		annotation string
		want       string // namespace of the Bundle, and the kind of its source
	}{
		"its annotation":              {newIndex(), "shop", "*", "shop/" + v1alpha1.SourceNamespaceAnnotation},
		"a policy for all kinds":      {newIndex(clusterPolicy("all", 0, everything)), "shop", "", "shop/" + v1alpha1.SourceClusterPropagationPolicy},
		"a policy for Namespaces":     {newIndex(clusterPolicy("spaces", 0, kind)), "shop", "", "/" + v1alpha1.SourceClusterPropagationPolicy},
		"no source":                   {newIndex(), "shop", "", "none"},
		"annotated, of the system":    {newIndex(), "kube-system", "*", "none"},
		"annotated, in every cluster": {newIndex(), "default", "*", "none"},
	} {
		t.Run(name, func(t *testing.T) {
			sub := Subject{Key: atoll.NamespaceKey(c.namespace)}
			if c.annotation != "" {
				sub.Annotations = map[string]string{atoll.AnnotationClusters: c.annotation}
			}
			d, got := DecidePolicy(c.index, sub, Namespace{}, nil), "none"
			if d.Winner != nil {
				id, _ := d.BundleOf(sub)
				got = id.Namespace + "/" + d.Winner.Source.Kind
				object := Subject{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: c.namespace, Name: "c"}}
				with := DecidePolicy(c.index, object, Namespace{Name: c.namespace, Annotations: sub.Annotations}, nil)
				if d.PlacesNamespaceWithObjects(sub) {
					if of, _ := with.BundleOf(object); of != id {
						t.Errorf("the Namespace is in %s, and an object in %s", id, of)
					}
				}
			}
			if got != c.want {
				t.Errorf("placed in %s, want %s: %s", got, c.want, d.Reason)
			}
		})
	}
}

func TestParseClusters(t *testing.T) {
	for value, want := range map[string]string{
		"":                            "nowhere",
		"  ":                          "nowhere",
		"*":                           "everywhere",
		"a":                           "[a]",
		" a , b.c,a ":                 "[a b.c]",
		"selector: env=prod":          "env=prod",
		"selector:env in (a,b),!gone": "env in (a,b),!gone",
	} {
		p, err := ParseClustersAnnotation(value)
		if err != nil {
			t.Errorf("%q: %v", value, err)
			continue
		}
		got := "everywhere"
		switch a := p.ClusterAffinity; {
		case atoll.IsNowhere(p):
			got = "nowhere"
		case a != nil && a.LabelSelector != nil:
			got = metav1.FormatLabelSelector(a.LabelSelector)
		case a != nil:
			got = "[" + strings.Join(a.ClusterNames, " ") + "]"
		}
		if got != want {
			t.Errorf("%q means %s, want %s", value, got, want)
		}
		for _, name := range []string{"", "a", "z"} {
			if ok, _ := clustermatch.MatchesAffinity(p.ClusterAffinity, atoll.ClusterView{Name: name + "x"}); ok && want == "nowhere" {
				t.Errorf("%q matches cluster %q", value, name)
			}
		}
	}
	for _, value := range []string{"a,", ",", "a b", "A", "a,*", "selector:", "selector: a==b==c", "**"} {
		if p, err := ParseClustersAnnotation(value); err == nil {
			t.Errorf("%q means %+v, want an error", value, p)
		}
	}
}

// TestHubSecretsAreNeverPlaced: not by their names, not by annotation.
func TestHubSecretsAreNeverPlaced(t *testing.T) {
	key := atoll.ItemKey{Kind: "Secret", Namespace: "shop", Name: "push-oslo"}
	byName := namespacePolicy("by-name", 0, policySpec(0, v1alpha1.ResourceSelector{APIVersion: "v1", Kind: "Secret", Name: key.Name}))
	for secretType, placed := range map[string]bool{
		"Opaque": true, "kubernetes.io/tls": true, "example.com/push": true,
		"atoll.dev/push": false, "atoll.dev/join-token": false, "engine.atoll.dev/revision-part": false,
	} {
		sub := Subject{Key: key, UID: "1", SecretType: secretType, Annotations: map[string]string{atoll.AnnotationClusters: "*"}}
		for what, d := range map[string]Decision{
			"policy":     DecidePolicy(newIndex(byName), Subject{Key: key, UID: "1", SecretType: secretType}, Namespace{}, nil),
			"annotation": DecidePolicy(newIndex(), sub, Namespace{}, nil),
		} {
			if got := d.Winner != nil; got != placed {
				t.Errorf("a Secret of type %s is placed by %s: %t (%s)", secretType, what, got, d.Reason)
			}
		}
	}
}

// A candidate that did not win gets the reason by which it ranks behind, or the holder's.
func TestExplainLoss(t *testing.T) {
	base := Candidate{Spec: &v1alpha1.PropagationSpec{Priority: 5}, level: levelPolicy, specificity: 2, created: time.Unix(60, 0), Source: v1alpha1.BundleSource{Name: "m"}}
	with := func(change func(*Candidate)) Candidate { c := base; change(&c); return c }
	for _, c := range []struct {
		name   string
		winner Candidate
		loser  Candidate
		reason atoll.Reason
		text   string
	}{
		{"priority", base, with(func(c *Candidate) { c.Spec = &v1alpha1.PropagationSpec{Priority: 4} }), atoll.ReasonRanksHighest, "the winner is ahead by priority"},
		{"specificity", base, with(func(c *Candidate) { c.specificity = 1 }), atoll.ReasonRanksHighest, "the winner is ahead by specificity"},
		{"age", base, with(func(c *Candidate) { c.created = time.Unix(61, 0) }), atoll.ReasonRanksHighest, "the winner is ahead by age"},
		{"name", base, with(func(c *Candidate) { c.Source.Name = "n" }), atoll.ReasonRanksHighest, "the winner is ahead by name"},
		{"kind", base, with(func(c *Candidate) { c.level = levelClusterPolicy }), atoll.ReasonRanksHighest, "a namespace's own policy wins over a cluster policy"},
		{"annotation", with(func(c *Candidate) { c.level = levelNamespace }), base, atoll.ReasonAnnotationWins, "annotations win over policies"},
		{"object's annotation", with(func(c *Candidate) { c.level = levelObject }), with(func(c *Candidate) { c.level = levelNamespace }), atoll.ReasonAnnotationWins,
			"an object's own annotation wins over its namespace's"},
		{"holder", with(func(c *Candidate) { c.Spec = &v1alpha1.PropagationSpec{Priority: 4} }), base, atoll.ReasonHoldsObject,
			"it ranks higher by priority, but what is placed already stays where it is unless a policy has preemption: Always"},
	} {
		if reason, text := ExplainLoss(c.winner, c.loser); reason != c.reason || text != c.text {
			t.Errorf("%s: %s %q, want %s %q", c.name, reason, text, c.reason, c.text)
		}
	}
}

// A policy that is created or deleted has no former or no later selectors.
func TestSelectedNamesOfOnePolicy(t *testing.T) {
	meta := metaCreatedAt("a", "shop", 0)
	spec := policySpec(0, deploymentSelector("web"), withLabelSelector(v1alpha1.ResourceSelector{APIVersion: "v1", Kind: "Secret"}, "app", "x"))
	p := CompilePolicy(v1alpha1.SourcePropagationPolicy, &meta, &spec)
	for name, of := range map[string][]*CompiledPolicy{"created": {nil, p}, "deleted": {p, nil}} {
		names, open := SelectedNames(of...)
		if len(names) != 1 || names[0] != (atoll.ItemKey{Group: "apps", Kind: "Deployment", Name: "web"}) || len(open) != 1 || !open[schema.GroupKind{Kind: "Secret"}] {
			t.Errorf("%s: names %v, kinds %v", name, names, open)
		}
	}
	if names, open := SelectedNames(nil, nil); len(names)+len(open) > 0 {
		t.Errorf("without a policy: names %v, kinds %v", names, open)
	}
}
