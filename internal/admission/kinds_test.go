package admission

import (
	"fmt"
	"strings"
	"testing"

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
