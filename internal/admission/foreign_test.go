package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/kubernetes/pkg/apis/core"

	"atoll.dev/atoll/internal/atoll"
)

// The deletion of a namespace warns of the clusters that keep it, with names of kinds that the user may list.
func TestDeletionsOfNamespacesWarnOfForeignObjects(t *testing.T) {
	objects := func(resource string, names ...string) (out []atoll.ForeignObject) {
		for _, name := range names {
			out = append(out, atoll.ForeignObject{Resource: schema.ParseGroupResource(resource), Name: name})
		}
		return out
	}
	in := func(cluster string, more int64, unread string, found ...atoll.ForeignObject) atoll.MemberForeignObjects {
		return atoll.MemberForeignObjects{Cluster: cluster, ForeignObjects: atoll.ForeignObjects{Objects: found, More: more, Unread: unread}}
	}
	const oslo = "cluster oslo keeps the namespace shop until objects that Atoll did not apply are deleted there: "
	var many []atoll.MemberForeignObjects
	var manyWanted []string
	for i := range 12 {
		name := fmt.Sprintf("c%02d", i)
		many = append(many, in(name, 0, "", objects("configmaps", "mine")...))
		if i < 10 {
			manyWanted = append(manyWanted, "cluster "+name+" keeps the namespace shop until objects that Atoll did not apply are deleted there: 1 object (configmaps/mine)")
		}
	}
	for name, c := range map[string]struct {
		op       admission.Operation
		kind     string
		sub, who string
		going    bool
		found    []atoll.MemberForeignObjects
		want     []string
	}{
		"nothing is found":          {found: []atoll.MemberForeignObjects{in("oslo", 0, "")}},
		"one object":                {found: []atoll.MemberForeignObjects{in("oslo", 0, "", objects("configmaps", "mine")...)}, want: []string{oslo + "1 object (configmaps/mine)"}},
		"kinds that are not listed": {found: []atoll.MemberForeignObjects{in("oslo", 0, "", append(objects("configmaps", "mine"), objects("secrets", "a", "b")...)...)}, want: []string{oslo + "3 objects (configmaps/mine), of which 2 are of kinds that you may not list"}},
		"only such kinds":           {found: []atoll.MemberForeignObjects{in("oslo", 0, "", objects("things.example.com", "a")...)}, want: []string{oslo + "1 object, of which 1 are of kinds that you may not list"}},
		"more than are named":       {found: []atoll.MemberForeignObjects{in("oslo", 40, "", objects("configmaps", "a", "b", "c", "d", "e", "f", "g")...)}, want: []string{oslo + "47 objects (configmaps/a, configmaps/b, configmaps/c, configmaps/d, configmaps/e and 2 more)"}},
		"a cluster is away":         {found: []atoll.MemberForeignObjects{{Cluster: "oslo", Err: errors.New("it is away")}}, want: []string{"it is not known whether cluster oslo keeps the namespace shop: it is away"}},
		"known and unknown": {found: []atoll.MemberForeignObjects{{Cluster: "bern", Err: errors.New("it is away")}, in("oslo", 0, "", objects("configmaps", "mine")...)},
			want: []string{oslo + "1 object (configmaps/mine)", "it is not known whether cluster bern keeps the namespace shop: it is away"}},
		"not all is known":       {found: []atoll.MemberForeignObjects{in("oslo", 0, "secrets are not listed")}, want: []string{"it is not known whether cluster oslo keeps the namespace shop: secrets are not listed"}},
		"a name that hides text": {found: []atoll.MemberForeignObjects{in("oslo", 0, "", objects("configmaps", "a\x1b[2K")...)}, want: []string{oslo + `1 object (configmaps/a\x1b[2K)`}},
		"many clusters":          {found: many, want: append(manyWanted, "2 more clusters may keep the namespace shop")},
		"it goes already":        {going: true, found: many},
		"another kind":           {kind: "Node", found: many},
		"a subresource":          {sub: "finalize", found: many},
		"an update":              {op: admission.Update, found: many},
		"the hub itself":         {who: "hub", found: many},
	} {
		t.Run(name, func(t *testing.T) {
			asked := ""
			p := New(Options{
				Own:     func(u user.Info) bool { return u.GetName() == "hub" },
				Foreign: func(_ context.Context, ns string) []atoll.MemberForeignObjects { asked = ns; return c.found },
			})
			p.SetAuthorizer(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				if a.GetVerb() == "list" && a.GetNamespace() == "shop" && a.GetResource() == "configmaps" && a.GetAPIGroup() == "" && a.GetName() == "" {
					return authorizer.DecisionAllow, "", nil
				}
				return authorizer.DecisionNoOpinion, "", nil
			}))
			old := &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
			if c.going {
				old.DeletionTimestamp = &metav1.Time{}
			}
			kind, op, who := c.kind, c.op, c.who
			if kind == "" {
				kind = "Namespace"
			}
			if op == "" {
				op = admission.Delete
			}
			if who == "" {
				who = "ann"
			}
			var said heard
			p.warnOfForeign(warning.WithWarningRecorder(t.Context(), &said), admission.NewAttributesRecord(nil, old, schema.GroupVersionKind{Version: "v1", Kind: kind}, "shop", "shop",
				schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, c.sub, op, nil, false, &user.DefaultInfo{Name: who}))
			if !slices.Equal([]string(said), c.want) {
				t.Errorf("it warns %q, want %q", said, c.want)
			}
			if (asked == "shop") != (len(c.want) > 0 || name == "nothing is found") {
				t.Errorf("members are asked about %q", asked)
			}
		})
	}
}
