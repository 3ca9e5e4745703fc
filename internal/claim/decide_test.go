package claim

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

var web = atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}

func deployments(name string) v1alpha1.ResourceSelector {
	return v1alpha1.ResourceSelector{APIVersion: "apps/v1", Kind: "Deployment", Name: name}
}

func labelled(rs v1alpha1.ResourceSelector, key, value string) v1alpha1.ResourceSelector {
	rs.Name, rs.LabelSelector = "", &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	return rs
}

func policySpec(priority int32, selectors ...v1alpha1.ResourceSelector) v1alpha1.PropagationSpec {
	return v1alpha1.PropagationSpec{ResourceSelectors: selectors, Priority: priority, Preemption: v1alpha1.PreemptNever}
}

func preempting(s v1alpha1.PropagationSpec) v1alpha1.PropagationSpec {
	s.Preemption = v1alpha1.PreemptAlways
	return s
}

// age makes objects that were created so many minutes after the first.
func age(name, ns string, minutes int) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: ns, UID: "uid-" + "x", CreationTimestamp: metav1.NewTime(time.Unix(int64(minutes)*60, 0))}
}

func pp(name string, minutes int, s v1alpha1.PropagationSpec) *v1alpha1.PropagationPolicy {
	return &v1alpha1.PropagationPolicy{ObjectMeta: age(name, "shop", minutes), Spec: s}
}

func cpp(name string, minutes int, s v1alpha1.PropagationSpec) *v1alpha1.ClusterPropagationPolicy {
	return &v1alpha1.ClusterPropagationPolicy{ObjectMeta: age(name, "", minutes), Spec: s}
}

func indexOf(policies ...any) *Index {
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
	x := &Index{}
	x.SetNamespace("shop", own)
	x.SetCluster(cluster)
	return x
}

const (
	ppKind  = v1alpha1.SourcePropagationPolicy
	cppKind = v1alpha1.SourceClusterPropagationPolicy
)

var decisions = map[string]struct {
	policies []any
	labels   map[string]string
	object   *string // annotation
	ns       *string
	holder   *v1alpha1.BundleSource
	want     string // KIND/NAME, empty for nobody
	why      string
}{
	"nobody":            {want: "", why: "no policy"},
	"by name":           {policies: []any{pp("a", 0, policySpec(0, deployments("web")))}, want: "PropagationPolicy/a"},
	"by another name":   {policies: []any{pp("a", 0, policySpec(0, deployments("db")))}},
	"by kind":           {policies: []any{pp("a", 0, policySpec(0, deployments("")))}, want: "PropagationPolicy/a"},
	"by labels":         {policies: []any{pp("a", 0, policySpec(0, labelled(deployments(""), "x", "y")))}, labels: map[string]string{"x": "y"}, want: "PropagationPolicy/a"},
	"by other labels":   {policies: []any{pp("a", 0, policySpec(0, labelled(deployments(""), "x", "y")))}},
	"another version":   {policies: []any{pp("a", 0, policySpec(0, v1alpha1.ResourceSelector{APIVersion: "apps/v1beta1", Kind: "Deployment"}))}, want: "PropagationPolicy/a"},
	"another group":     {policies: []any{pp("a", 0, policySpec(0, v1alpha1.ResourceSelector{APIVersion: "extensions/v1", Kind: "Deployment"}))}},
	"another namespace": {policies: []any{cpp("c", 0, policySpec(0, v1alpha1.ResourceSelector{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "other"}))}},
	"cluster policy":    {policies: []any{cpp("c", 0, policySpec(0, deployments("web")))}, want: "ClusterPropagationPolicy/c"},
	"policy over cluster policy": {
		policies: []any{pp("a", 9, policySpec(0, deployments(""))), cpp("c", 0, policySpec(99, deployments("web")))},
		want:     "PropagationPolicy/a", why: "kind of policy",
	},
	"priority": {
		policies: []any{pp("a", 0, policySpec(1, deployments("web"))), pp("b", 9, policySpec(2, deployments("")))},
		want:     "PropagationPolicy/b", why: "priority",
	},
	"specificity: name over labels": {
		policies: []any{pp("a", 0, policySpec(0, labelled(deployments(""), "x", "y"))), pp("b", 9, policySpec(0, deployments("web")))},
		labels:   map[string]string{"x": "y"}, want: "PropagationPolicy/b", why: "specificity",
	},
	"specificity: labels over kind": {
		policies: []any{pp("a", 0, policySpec(0, deployments(""))), pp("b", 9, policySpec(0, labelled(deployments(""), "x", "y")))},
		labels:   map[string]string{"x": "y"}, want: "PropagationPolicy/b",
	},
	"age": {
		policies: []any{pp("b", 0, policySpec(0, deployments("web"))), pp("a", 9, policySpec(0, deployments("web")))},
		want:     "PropagationPolicy/b", why: "age",
	},
	"name": {
		policies: []any{pp("b", 0, policySpec(0, deployments("web"))), pp("a", 0, policySpec(0, deployments("web")))},
		want:     "PropagationPolicy/a", why: "name",
	},
	"object annotation over all": {
		policies: []any{pp("a", 0, preempting(policySpec(1000, deployments("web"))))},
		object:   new("*"), ns: new("b"), want: "Annotation/web",
	},
	"namespace annotation over policies": {
		policies: []any{pp("a", 0, policySpec(1000, deployments("web")))}, ns: new("b"), want: "NamespaceAnnotation/shop",
	},
	"annotation over a holder": {
		policies: []any{pp("a", 0, policySpec(0, deployments("web")))}, object: new("x"),
		holder: &v1alpha1.BundleSource{Kind: ppKind, Name: "a"}, want: "Annotation/web",
	},
	"malformed annotation freezes": {
		policies: []any{pp("a", 0, policySpec(0, deployments("web")))}, object: new("a b"), want: "", why: "malformed",
	},
	"malformed namespace annotation freezes": {
		policies: []any{pp("a", 0, policySpec(0, deployments("web")))}, ns: new("selector:"), want: "", why: "malformed",
	},
	"the holder stays": {
		policies: []any{pp("a", 0, policySpec(5, deployments("web"))), cpp("c", 0, policySpec(0, deployments("")))},
		holder:   &v1alpha1.BundleSource{Kind: cppKind, Name: "c"}, want: "ClusterPropagationPolicy/c", why: "none of the others preempts",
	},
	"preemption by kind": {
		policies: []any{pp("a", 0, preempting(policySpec(0, deployments("web")))), cpp("c", 0, policySpec(99, deployments("")))},
		holder:   &v1alpha1.BundleSource{Kind: cppKind, Name: "c"}, want: "PropagationPolicy/a", why: "preempts ClusterPropagationPolicy c",
	},
	"preemption by priority": {
		policies: []any{pp("a", 0, preempting(policySpec(2, deployments("")))), pp("b", 0, policySpec(1, deployments("web")))},
		holder:   &v1alpha1.BundleSource{Kind: ppKind, Name: "b"}, want: "PropagationPolicy/a",
	},
	"no preemption at the same priority": {
		policies: []any{pp("a", 0, preempting(policySpec(1, deployments("web")))), pp("b", 9, policySpec(1, deployments("")))},
		holder:   &v1alpha1.BundleSource{Kind: ppKind, Name: "b"}, want: "PropagationPolicy/b",
	},
	"the best that preempts, not the best": {
		policies: []any{
			pp("a", 0, policySpec(9, deployments("web"))), pp("b", 0, preempting(policySpec(5, deployments("web")))),
			pp("c", 0, policySpec(1, deployments("web"))),
		},
		holder: &v1alpha1.BundleSource{Kind: ppKind, Name: "c"}, want: "PropagationPolicy/b",
	},
	"a holder that no longer selects": {
		policies: []any{pp("a", 0, policySpec(0, deployments("db"))), pp("b", 0, policySpec(0, deployments("")))},
		holder:   &v1alpha1.BundleSource{Kind: ppKind, Name: "a"}, want: "PropagationPolicy/b",
	},
}

func TestDecide(t *testing.T) {
	for name, tc := range decisions {
		t.Run(name, func(t *testing.T) {
			sub := Subject{Key: web, UID: "u", Labels: tc.labels}
			ns := Namespace{Name: "shop", UID: "n"}
			if tc.object != nil {
				sub.Annotations = map[string]string{atoll.AnnotationClusters: *tc.object}
			}
			if tc.ns != nil {
				ns.Annotations = map[string]string{atoll.AnnotationClusters: *tc.ns}
			}
			d := Decide(indexOf(tc.policies...), sub, ns, tc.holder)
			got := ""
			if d.Winner != nil {
				got = d.Winner.Source.Kind + "/" + d.Winner.Source.Name
			}
			if got != tc.want || !strings.Contains(d.Why, tc.why) {
				t.Errorf("%q because %q; want %q because %q", got, d.Why, tc.want, tc.why)
			}
			for _, o := range d.Others {
				if d.Winner != nil && o.Source == d.Winner.Source {
					t.Error("the winner is among the others")
				}
			}
		})
	}
}

func TestScope(t *testing.T) {
	x := indexOf(cpp("all", 0, policySpec(0,
		v1alpha1.ResourceSelector{APIVersion: "v1", Kind: "Secret"}, v1alpha1.ResourceSelector{APIVersion: "v1", Kind: "ConfigMap"},
		v1alpha1.ResourceSelector{APIVersion: "v1", Kind: "ServiceAccount"}, v1alpha1.ResourceSelector{APIVersion: "apps/v1", Kind: "ReplicaSet"},
		v1alpha1.ResourceSelector{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "RoleBinding"})))
	key := func(group, kind, ns, name string) Subject {
		return Subject{Key: atoll.ItemKey{Group: group, Kind: kind, Namespace: ns, Name: name}}
	}
	with := func(s Subject, secretType, controller string) Subject {
		s.Type, s.Controller = secretType, controller
		return s
	}
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
		"slice":                {key("discovery.k8s.io", "EndpointSlice", "shop", "a"), false, false},
		"system namespace":     {key("", "ConfigMap", "kube-system", "a"), false, false},
		"Atoll's namespace":    {key("", "Secret", "atoll-system", "a"), false, false},
		"Atoll's kind":         {key("atoll.dev", "PropagationPolicy", "shop", "a"), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			ns := Namespace{Name: tc.sub.Key.Namespace, Annotations: map[string]string{atoll.AnnotationClusters: "*"}}
			d := Decide(&Index{}, tc.sub, ns, nil)
			if in := d.Winner != nil; in != tc.scope || in == (d.Skipped != "") {
				t.Errorf("in the namespace's scope: %v (skipped: %q), want %v", in, d.Skipped, tc.scope)
			}
			if in := Decide(x, tc.sub, Namespace{Name: tc.sub.Key.Namespace}, nil).Winner != nil; in != tc.policy {
				t.Errorf("selected by kind: %v, want %v", in, tc.policy)
			}
		})
	}
	named := indexOf(cpp("named", 0, policySpec(0, v1alpha1.ResourceSelector{APIVersion: "v1", Kind: "ServiceAccount", Namespace: "kube-system", Name: "default"})))
	if Decide(named, key("", "ServiceAccount", "kube-system", "default"), Namespace{Name: "kube-system"}, nil).Winner == nil {
		t.Error("what a selector names is not selected")
	}
}

func TestAnnotationOfANamespaceIsNotForItself(t *testing.T) {
	sub := Subject{Key: atoll.ItemKey{Kind: "Namespace", Name: "shop"}, Annotations: map[string]string{atoll.AnnotationClusters: "*"}}
	if d := Decide(&Index{}, sub, Namespace{}, nil); d.Winner != nil {
		t.Errorf("the annotation placed the Namespace itself: %+v", d.Winner)
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
		p, err := ParseClusters(value)
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
			if ok, _ := atoll.MatchAffinity(p.ClusterAffinity, atoll.ClusterView{Name: name + "x"}); ok && want == "nowhere" {
				t.Errorf("%q matches cluster %q", value, name)
			}
		}
	}
	for _, value := range []string{"a,", ",", "a b", "A", "a,*", "selector:", "selector: a==b==c", "**"} {
		if p, err := ParseClusters(value); err == nil {
			t.Errorf("%q means %+v, want an error", value, p)
		}
	}
}

// TestTheHubsOwnSecretsAreNeverPlaced: not by their names, not by annotation.
func TestTheHubsOwnSecretsAreNeverPlaced(t *testing.T) {
	key := atoll.ItemKey{Kind: "Secret", Namespace: "shop", Name: "push-oslo"}
	byName := pp("by-name", 0, policySpec(0, v1alpha1.ResourceSelector{APIVersion: "v1", Kind: "Secret", Name: key.Name}))
	for secretType, placed := range map[string]bool{
		"Opaque": true, "kubernetes.io/tls": true, "example.com/push": true,
		"atoll.dev/push": false, "atoll.dev/join-token": false, "engine.atoll.dev/revision-part": false,
	} {
		sub := Subject{Key: key, UID: "1", Type: secretType, Annotations: map[string]string{atoll.AnnotationClusters: "*"}}
		for what, d := range map[string]Decision{
			"policy":     Decide(indexOf(byName), Subject{Key: key, UID: "1", Type: secretType}, Namespace{}, nil),
			"annotation": Decide(indexOf(), sub, Namespace{}, nil),
		} {
			if got := d.Winner != nil; got != placed {
				t.Errorf("a Secret of type %s is placed by %s: %t (%s)", secretType, what, got, d.Why)
			}
		}
	}
}
