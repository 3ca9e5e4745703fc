package admission

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// listErrors returns the errors of fields without the values.
func listErrors(errs field.ErrorList) (out []string) {
	for _, e := range errs {
		out = append(out, e.Field+": "+e.Detail)
	}
	return out
}

// A selector of one kind is refused where it can select nothing, or not from that namespace.
func TestSelectorsOfOneKindThatAreRefused(t *testing.T) {
	p := newGrantingPlugin(Hub{})
	const (
		form   = "s[0].kind: must be the name of one kind, such as Deployment"
		never  = "s[0].kind: cannot be placed: it is of Atoll's own API, or made by machinery in every cluster"
		labels = "s[0].labelSelector: the requirements of this key contradict each other, so that nothing matches"
		label  = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
	)
	for _, c := range []struct{ namespace, selector, want string }{
		{"shop", "{apiVersion: apps/v1, kind: Deployment, namespace: shop, name: web}", ""},
		{"", "{apiVersion: apps/v1, kind: Deployment, namespace: shop}", ""},
		{"shop", "{apiVersion: a/b/c, kind: deployments}", "s[0].apiVersion: must be GROUP/VERSION, or VERSION for the core group"},
		{"shop", "{apiVersion: apps/v1, kind: deployments}", form},
		{"shop", "{apiVersion: apps/v1, kind: 'Deployment,Secret'}", form},
		{"shop", "{apiVersion: apps/v1, kind: Deploymnt}", "s[0].kind: there is no such kind in apps/v1"},
		{"shop", "{apiVersion: v1, kind: Service2}", "s[0].kind: there is no such kind in v1"},
		{"shop", "{apiVersion: x.dev/v1, kind: Goat}", ""},
		{"shop", "{apiVersion: atoll.dev/v1alpha1, kind: Placement}", never},
		{"shop", "{apiVersion: v1, kind: Event}", never},
		{"shop", "{apiVersion: v1, kind: Namespace}", "s[0].kind: is cluster-scoped: only a cluster policy selects it"},
		{"", "{apiVersion: v1, kind: Namespace}", ""},
		{"", "{apiVersion: v1, kind: Namespace, namespace: shop}", "s[0].namespace: a Namespace is cluster-scoped and has no namespace"},
		{"shop", "{apiVersion: x.dev/v1, kind: Goat, namespace: blog}", `s[0].namespace: a policy in namespace "shop" selects only there`},
		{"", "{apiVersion: v1, kind: Secret, namespace: Shop, name: a/b}", "s[0].namespace: " + label + ", s[0].name: may not contain '/'"},
		{"shop", "{apiVersion: v1, kind: Secret, labelSelector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: DoesNotExist}]}}", labels},
		{"shop", "{apiVersion: '*', kind: '*', labelSelector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: DoesNotExist}]}}", labels},
	} {
		var rs v1alpha1.ResourceSelector
		if err := yaml.UnmarshalStrict([]byte(c.selector), &rs); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(listErrors(p.checkSelectors([]v1alpha1.ResourceSelector{rs}, c.namespace, field.NewPath("s"))), ", "); got != c.want {
			t.Errorf("%s in %q: %q, want %q", c.selector, c.namespace, got, c.want)
		}
	}
}

// A label selector that selects everything by mistake, or nothing by contradiction, is refused.
func TestLabelSelectorsThatAreRefused(t *testing.T) {
	const contradicts = "l: the requirements of this key contradict each other, so that nothing matches"
	for selector, want := range map[string]string{
		"{}":                    "l: an empty selector selects everything: leave it out if that is meant",
		"{matchLabels: {a: b}}": "",
		"{matchExpressions: [{key: a, operator: Exists}]}":                                                                                             "",
		"{matchExpressions: [{key: a, operator: DoesNotExist}]}":                                                                                       "",
		"{matchExpressions: [{key: a, operator: Exists, values: [b]}]}":                                                                                "l.matchExpressions[0].values: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
		"{matchExpressions: [{key: a, operator: Exists}, {key: a, operator: DoesNotExist}]}":                                                           contradicts,
		"{matchExpressions: [{key: a, operator: Exists}, {key: b, operator: DoesNotExist}]}":                                                           "",
		"{matchLabels: {a: b}, matchExpressions: [{key: a, operator: DoesNotExist}]}":                                                                  contradicts,
		"{matchLabels: {a: b}, matchExpressions: [{key: a, operator: Exists}]}":                                                                        "",
		"{matchLabels: {a: b}, matchExpressions: [{key: a, operator: In, values: [b, c]}]}":                                                            "",
		"{matchLabels: {a: b}, matchExpressions: [{key: a, operator: In, values: [c, d]}]}":                                                            contradicts,
		"{matchLabels: {a: b}, matchExpressions: [{key: a, operator: NotIn, values: [b]}]}":                                                            contradicts,
		"{matchLabels: {a: b}, matchExpressions: [{key: a, operator: NotIn, values: [c]}]}":                                                            "",
		"{matchExpressions: [{key: a, operator: In, values: [b, c]}, {key: a, operator: NotIn, values: [b]}]}":                                         "",
		"{matchExpressions: [{key: a, operator: In, values: [b, c]}, {key: a, operator: NotIn, values: [b, c]}]}":                                      contradicts,
		"{matchExpressions: [{key: a, operator: NotIn, values: [b]}, {key: a, operator: DoesNotExist}]}":                                               "",
		"{matchExpressions: [{key: a, operator: In, values: [b, c]}, {key: a, operator: In, values: [c, d]}, {key: a, operator: NotIn, values: [d]}]}": "",
	} {
		var s v1alpha1.ResourceSelector
		if err := yaml.UnmarshalStrict([]byte("labelSelector: "+selector), &s); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(listErrors(checkLabels(s.LabelSelector, field.NewPath("l"))), ", "); got != want {
			t.Errorf("%s: %q, want %q", selector, got, want)
		}
	}
	if errs := checkLabels(nil, field.NewPath("l")); len(errs) > 0 {
		t.Errorf("no selector: %v", errs)
	}
}

// Names of clusters are well formed and named once, and none is excluded at the same time.
func TestAffinitiesThatAreRefused(t *testing.T) {
	const form = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
	for affinity, want := range map[string]string{
		"{clusterNames: [a, b], exclude: [c, d]}": "",
		"{clusterNames: [a, B]}":                  "p.clusterNames[1]: is not the name of a cluster: " + form,
		"{exclude: [a, B]}":                       "p.exclude[1]: is not the name of a cluster: " + form,
		"{clusterNames: [a, b, a]}":               "p.clusterNames[2]: ",
		"{exclude: [a, a]}":                       "p.exclude[1]: ",
		"{clusterNames: [a, b], exclude: [c, b]}": "p.clusterNames[1]: is named in exclude too",
		"{labelSelector: {}}":                     "p.labelSelector: an empty selector selects everything: leave it out if that is meant",
		"{fieldSelector: {matchExpressions: [{key: zone, operator: In}]}}": "p.fieldSelector.matchExpressions[0].values: operator In needs at least one",
	} {
		var a v1alpha1.ClusterAffinity
		if err := yaml.UnmarshalStrict([]byte(affinity), &a); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(listErrors(checkAffinity(&a, field.NewPath("p"))), ", "); got != want {
			t.Errorf("%s: %q, want %q", affinity, got, want)
		}
	}
	if errs := checkAffinity(nil, field.NewPath("p")); len(errs) > 0 {
		t.Errorf("no affinity: %v", errs)
	}
}

// A toleration has the effects of taints, and lasts only where a taint evicts.
func TestEffectsOfTolerations(t *testing.T) {
	for toleration, want := range map[string]string{
		"{key: a, effect: NoExecute, tolerationSeconds: 0}":           "",
		"{key: a, effect: NoSchedule}":                                "",
		"{key: a, effect: PreferNoSchedule, operator: Equal}":         "",
		"{key: a, effect: NoSchedule, tolerationSeconds: 60}":         "t.tolerationSeconds: needs effect NoExecute",
		"{key: a, tolerationSeconds: 60}":                             "t.tolerationSeconds: needs effect NoExecute",
		"{key: a, effect: Evict}":                                     `t.effect: supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"`,
		"{key: a, operator: Like}":                                    `t.operator: supported values: "Equal", "Exists"`,
		"{operator: Equal}":                                           "t.operator: must be Exists when there is no key, which tolerates every taint",
		"{operator: Exists, value: b}":                                "t.value: must be empty with operator Exists",
		"{operator: Exists, effect: NoExecute, tolerationSeconds: 9}": "",
	} {
		var in corev1.Toleration
		if err := yaml.UnmarshalStrict([]byte(toleration), &in); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(listErrors(checkToleration(in, field.NewPath("t"))), ", "); got != want {
			t.Errorf("%s: %q, want %q", toleration, got, want)
		}
	}
}

// Requirements on fields of a Cluster are refused where no cluster could meet them.
func TestRequirementsOnFieldsThatAreRefused(t *testing.T) {
	const contradicts = "f: the requirements of this key contradict each other, so that nothing matches"
	for requirements, want := range map[string]string{
		"[{key: zone, operator: In, values: [a, b]}, {key: zone, operator: NotIn, values: [a]}]": "",
		"[{key: zone, operator: In, values: [a]}, {key: zone, operator: NotIn, values: [a]}]":    contradicts,
		"[{key: zone, operator: In, values: [a]}, {key: region, operator: DoesNotExist}]":        "",
		"[{key: zone, operator: In, values: [a]}, {key: zone, operator: DoesNotExist}]":          contradicts,
		"[{key: n, operator: Gt, values: ['3']}, {key: n, operator: DoesNotExist}]":              contradicts,
		"[{key: n, operator: Lt, values: ['3']}, {key: n, operator: DoesNotExist}]":              contradicts,
		"[{key: n, operator: Gt, values: ['3']}, {key: n, operator: Lt, values: ['5']}]":         "",
		"[{key: n, operator: NotIn}]": "f.matchExpressions[0].values: operator NotIn needs at least one",
		"[{key: n, operator: Exists}, {key: m, operator: DoesNotExist, values: [a]}]": "f.matchExpressions[1].values: operator DoesNotExist takes none",
		"[{key: n, operator: Gt}]":                 "f.matchExpressions[0].values: operator Gt needs exactly one",
		"[{key: n, operator: Gt, values: [many]}]": "f.matchExpressions[0].values[0]: must be a quantity, such as 10 or 64Gi",
		"[{key: n, operator: Near, values: [a]}]":  `f.matchExpressions[0].operator: supported values: "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"`,
		"[{key: n, operator: In}, {key: zone, operator: Exists}, {key: zone, operator: DoesNotExist}]": "f.matchExpressions[0].values: operator In needs at least one",
	} {
		var s v1alpha1.FieldSelector
		if err := yaml.UnmarshalStrict([]byte("matchExpressions: "+requirements), &s); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(listErrors(checkFields(&s, field.NewPath("f"))), ", "); got != want {
			t.Errorf("%s: %q, want %q", requirements, got, want)
		}
	}
}

// kindsOfShop has objects of two kinds in namespace shop, one of which is built in.
type kindsOfShop struct{ Templates }

func (kindsOfShop) TemplateKinds(namespace string) []schema.GroupKind {
	if namespace != "shop" {
		return nil
	}
	return []schema.GroupKind{{Group: "apps", Kind: "Deployment"}, {Group: "example.com", Kind: "Thing"}}
}

// A namespace's annotation places the built-in kinds, and the kinds of the objects in it.
func TestEverythingInANamespaceIsReadByItsWriter(t *testing.T) {
	p := newGrantingPlugin(Hub{Templates: kindsOfShop{}})
	for namespace, want := range map[string]int{"shop": len(inNamespaces) + 1, "blog": len(inNamespaces)} {
		need := p.requiredNamespaceReads(namespace)
		if len(need) != want {
			t.Errorf("%s: %d kinds, want %d", namespace, len(need), want)
		}
		seen := map[requiredRead]bool{}
		for _, x := range need {
			if seen[x] || x.namespace != namespace || x.name != "" {
				t.Errorf("%s: %+v", namespace, x)
			}
			seen[x] = true
		}
		if thing := (requiredRead{kind: schema.GroupKind{Group: "example.com", Kind: "Thing"}, namespace: namespace}); seen[thing] != (namespace == "shop") {
			t.Errorf("%s: Things are read: %t", namespace, seen[thing])
		}
	}
}

// Selectors need the right to read what they select: one object, a kind, or all of a group.
func TestWhatSelectorsReadIsCounted(t *testing.T) {
	p := newGrantingPlugin(Hub{})
	for _, c := range []struct{ namespace, selectors, want string }{
		{"shop", "[{apiVersion: apps/v1, kind: Deployment, name: web}]", "Deployment.apps shop/web"},
		{"shop", "[{apiVersion: v1, kind: Secret, namespace: shop}]", "Secret shop/"},
		{"", "[{apiVersion: v1, kind: Secret, namespace: blog, name: a}]", "Secret blog/a"},
		{"", "[{apiVersion: v1, kind: Namespace}]", "Namespace /"},
		{"", "[{apiVersion: apps/*, kind: '*', namespace: blog}]", "*.apps blog/"},
		{"shop", "[{apiVersion: apps/*, kind: '*'}, {apiVersion: v1, kind: Secret}]", "*.apps shop/, Secret shop/"},
		{"", "[{apiVersion: '*', kind: '*'}]", "*.* /"},
		{"", "[{apiVersion: a/b/c, kind: Secret}, {apiVersion: v1, kind: Secret}]", "Secret /"},
	} {
		var spec v1alpha1.OverrideSpec
		if err := yaml.UnmarshalStrict([]byte("resourceSelectors: "+c.selectors), &spec); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, x := range p.requiredSelectorReads(c.namespace, spec.ResourceSelectors) {
			what := x.kind.String()
			if x.resource.Resource != "" {
				what = x.resource.String()
			}
			got = append(got, fmt.Sprintf("%s %s/%s", what, x.namespace, x.name))
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s in %q: %q, want %s", c.selectors, c.namespace, got, c.want)
		}
	}
}

// The rights to read and to change an object are those of its resource, and of that object alone.
func TestRightsOnOneObject(t *testing.T) {
	p := newGrantingPlugin(Hub{}, "ann get deployments.apps shop/web", "ann update deployments.apps shop/api")
	u := requestOf("ann", newThing("shop", nil), nil).GetUserInfo()
	for _, c := range []struct {
		name        string
		get, update bool
	}{{"web", true, false}, {"api", false, true}, {"", false, false}} {
		key := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: c.name}
		if get, update := p.MayGet(t.Context(), u, key), p.MayUpdate(t.Context(), u, key); get != c.get || update != c.update {
			t.Errorf("%q: get %t, update %t", c.name, get, update)
		}
	}
}
