package admission

import (
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kubernetes/pkg/apis/certificates"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/trust/handshake"
)

// protectedTemplates has a protected Deployment in namespace shop and a protected Thing in blog.
type protectedTemplates struct{ Templates }

func (protectedTemplates) FirstProtectedTemplate(namespace string) (atoll.ItemKey, bool) {
	return atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}, namespace == "shop"
}

func (protectedTemplates) FirstProtectedOfKind(kind schema.GroupKind) (atoll.ItemKey, bool) {
	return atoll.ItemKey{Group: "example.com", Kind: "Thing", Namespace: "blog", Name: "one"}, kind == schema.GroupKind{Group: "example.com", Kind: "Thing"}
}

// newDelete returns the delete of an object by ann.
func newDelete(gvk schema.GroupVersionKind, namespace, name, subresource string, old runtime.Object) admission.Attributes {
	return admission.NewAttributesRecord(nil, old, gvk, namespace, name, gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind)+"s"), subresource, admission.Delete, nil, false, &user.DefaultInfo{Name: "ann"})
}

// A protected object is not deleted, neither by itself nor with its namespace or its kind.
func TestProtectedObjectsAreNotDeleted(t *testing.T) {
	const crds = "apiextensions.k8s.io"
	crd := func(group, kind string) runtime.Object {
		return &apiextensions.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: "things." + group},
			Spec:       apiextensions.CustomResourceDefinitionSpec{Group: group, Names: apiextensions.CustomResourceDefinitionNames{Kind: kind}},
		}
	}
	labelled := func(value string) runtime.Object {
		u := newThing("shop", nil)
		u.SetLabels(map[string]string{atoll.LabelProtected: value})
		return u
	}
	space := func(name string) runtime.Object {
		return unstructuredOf(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+name+"}}")
	}
	thing, namespace := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}, schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
	definition := schema.GroupVersionKind{Group: crds, Version: "v1", Kind: "CustomResourceDefinition"}
	const itself = "t is labelled atoll.dev/deletion-protected=true: take the label off first if it is to go"
	goes := func(with, what string) string {
		return "with " + with + " goes " + what + ", which is labelled atoll.dev/deletion-protected=true: take that label off first if it is to go"
	}
	for name, c := range map[string]struct {
		a    admission.Attributes
		want string
	}{
		"an object":                       {newDelete(thing, "shop", "t", "", newThing("shop", nil)), ""},
		"a protected object":              {newDelete(thing, "shop", "t", "", labelled("true")), itself},
		"a label of another value":        {newDelete(thing, "shop", "t", "", labelled("false")), ""},
		"a subresource":                   {newDelete(thing, "shop", "t", "status", labelled("true")), ""},
		"an unknown object":               {newDelete(thing, "shop", "t", "", nil), ""},
		"an object that is not stored":    {newDelete(thing, "shop", "t", "", &metav1.Status{}), ""},
		"a namespace":                     {newDelete(namespace, "blog", "blog", "", space("blog")), ""},
		"a namespace of protected ones":   {newDelete(namespace, "shop", "shop", "", space("shop")), goes("shop", "Deployment web")},
		"a kind":                          {newDelete(definition, "", "things.x.dev", "", crd("x.dev", "Thing")), ""},
		"a kind of protected ones":        {newDelete(definition, "", "things.example.com", "", crd("example.com", "Thing")), goes("things.example.com", "Thing one")},
		"an unreadable kind":              {newDelete(definition, "", "t", "", newThing("", nil)), ""},
		"another object of the same name": {newDelete(thing, "shop", "shop", "", space("shop")), ""},
	} {
		p := newGrantingPlugin(Hub{Templates: protectedTemplates{}})
		wantRefusal(t, name, p.Validate(t.Context(), c.a, nil), atoll.ReasonProtected, c.want)
	}
	starting := New(Options{Own: func(user.Info) bool { return false }, Hub: func() (Hub, bool) { return Hub{Templates: protectedTemplates{}}, false }})
	wantRefusal(t, "while the hub starts", starting.Validate(t.Context(), newDelete(namespace, "shop", "shop", "", space("shop")), nil), "", "")
}

// openSets is fakeSets with europe open to namespaces without a binding.
type openSets struct{ fakeSets }

func (openSets) OpenSets() []string { return []string{"europe"} }

// A deleted set or binding changes where others may place, and a deleted Cluster is one of its sets:
// each needs the right of the one that made it.
func TestDeletesOfClustersSetsAndBindingsNeedRights(t *testing.T) {
	const spec = "{clusterSet: asia}"
	object := func(kind, metadata string) admission.Attributes {
		return requestOf("ann", nil, unstructuredOf(t, "{apiVersion: atoll.dev/v1alpha1, kind: "+kind+", metadata: {"+metadata+"}, spec: "+spec+"}"))
	}
	binding, cluster := object("ClusterSetBinding", "name: b, namespace: shop"), object("Cluster", "name: tokyo, labels: {atoll.dev/set: asia}")
	const (
		bindAsia, bindEurope, bindAll = "ann bind clustersets.atoll.dev /asia", "ann bind clustersets.atoll.dev /europe", "ann bind clustersets.atoll.dev /"
		manageAsia, manageAll         = "ann manage clustersets.atoll.dev /asia", "ann manage clustersets.atoll.dev /"
	)
	lacks := func(set string) string {
		return `without this binding namespace "shop" may place on other clusters: the verb bind on clustersets.atoll.dev ` + set + ` is needed, which "ann" lacks`
	}
	manages := func(why string) string {
		return why + `; the verb manage on clustersets.atoll.dev is needed, which "ann" lacks`
	}
	unreadable := func(kind string) admission.Attributes {
		return requestOf("ann", nil, unstructuredOf(t, "{apiVersion: atoll.dev/v1alpha1, kind: "+kind+", metadata: {name: x}, spec: text}"))
	}
	for name, c := range map[string]struct {
		sets   Sets
		rights []string
		a      admission.Attributes
		reason atoll.Reason
		want   string
	}{
		"a binding":                                 {fakeSets{}, nil, binding, atoll.ReasonPermissionMissing, lacks(`"asia"`)},
		"a binding, with the right":                 {fakeSets{}, []string{bindAsia}, binding, "", ""},
		"a binding, where another set is open":      {openSets{}, []string{bindAsia}, binding, atoll.ReasonPermissionMissing, lacks(`"europe"`)},
		"a binding, with the right on both":         {openSets{}, []string{bindAsia, bindEurope}, binding, "", ""},
		"a binding, before the sets are known":      {nil, []string{bindAsia}, binding, atoll.ReasonPermissionMissing, lacks("(all)")},
		"a binding, with the right on all":          {nil, []string{bindAsia, bindAll}, binding, "", ""},
		"an unreadable binding":                     {fakeSets{}, nil, unreadable("ClusterSetBinding"), atoll.ReasonUnreadable, "read it: cannot restore struct from: string"},
		"a cluster":                                 {fakeSets{}, nil, cluster, atoll.ReasonPermissionMissing, manages(`the Cluster is in no set that "ann" manages`)},
		"a cluster of a managed set":                {fakeSets{}, []string{manageAsia}, cluster, "", ""},
		"a cluster, before the sets are known":      {nil, []string{manageAsia}, cluster, atoll.ReasonPermissionMissing, manages("the hub is starting up and has not read yet in which sets the Cluster is")},
		"a cluster, by a user that manages all":     {nil, []string{manageAll}, cluster, "", ""},
		"an unreadable cluster":                     {fakeSets{}, nil, unreadable("Cluster"), atoll.ReasonUnreadable, "read it: cannot restore struct from: string"},
		"the default set":                           {fakeSets{}, []string{manageAll}, object("ClusterSet", "name: default"), atoll.ReasonProtected, errDefaultSet.Error()},
		"another set":                               {fakeSets{}, nil, object("ClusterSet", "name: asia"), "", ""},
		"a policy, which no rule of deletes is for": {fakeSets{}, nil, object("PropagationPolicy", "name: default, namespace: shop"), "", ""},
	} {
		hub := Hub{Templates: protectedTemplates{}, Sets: c.sets}
		wantRefusal(t, name, newGrantingPlugin(hub, c.rights...).Validate(t.Context(), c.a, nil), c.reason, c.want)
	}
	byGarbageCollector := requestOf(collector, nil, unstructuredOf(t, "{apiVersion: atoll.dev/v1alpha1, kind: ClusterSetBinding, metadata: {name: b, namespace: shop}, spec: "+spec+"}"))
	p := newGrantingPlugin(Hub{Sets: fakeSets{}, Templates: protectedTemplates{}})
	p.Own = func(u user.Info) bool { return u.GetName() == collector }
	wantRefusal(t, "a binding that goes with its namespace", p.Validate(t.Context(), byGarbageCollector, nil), "", "")
}

// The selector of a set decides where others may place: a user that writes one manages all sets.
func TestSetsAreWrittenByUsersThatManageAll(t *testing.T) {
	set := func(metadata, spec string) admission.Attributes {
		now := unstructuredOf(t, "{apiVersion: atoll.dev/v1alpha1, kind: ClusterSet, metadata: {"+metadata+"}, spec: "+spec+"}")
		return requestOf("ann", now, nil)
	}
	edit := func(now, before admission.Attributes) admission.Attributes {
		return admission.NewAttributesRecord(now.GetObject(), before.GetObject(), now.GetKind(), "", now.GetName(), now.GetResource(), "", admission.Update, nil, false, now.GetUserInfo())
	}
	const all = "{clusterSelector: {selectorType: LabelSelector, labelSelector: {}}}"
	const asia = "{clusterSelector: {selectorType: LabelSelector, labelSelector: {matchLabels: {area: asia}}}}"
	const lacks = `spec: what a set holds decides where others may place: the verb manage on all clustersets.atoll.dev is needed, which "ann" lacks`
	long := strings.Repeat("a", 64)
	for name, c := range map[string]struct {
		manages bool
		a       admission.Attributes
		reason  atoll.Reason
		want    string // a part
	}{
		"created":                   {true, set("name: asia", asia), "", ""},
		"of all clusters":           {true, set("name: asia", all), "", ""},
		"without the right":         {false, set("name: asia", asia), atoll.ReasonPermissionMissing, lacks},
		"of all, without the right": {false, set("name: asia", all), atoll.ReasonPermissionMissing, lacks},
		"a label":                   {false, edit(set("name: asia, labels: {a: b}", asia), set("name: asia", asia)), "", ""},
		"its selector":              {false, edit(set("name: asia", all), set("name: asia", asia)), atoll.ReasonPermissionMissing, lacks},
		"a name too long":           {true, set("name: "+long, asia), atoll.ReasonInvalidField, `metadata.name: Invalid value: "` + long + `": is the value of a label: must be no more than 63 bytes`},
		"a contradiction": {true, set("name: asia", "{clusterSelector: {labelSelector: {matchExpressions: [{key: a, operator: Exists}, {key: a, operator: DoesNotExist}]}}}"), atoll.ReasonInvalidField,
			`spec.clusterSelector.labelSelector: Invalid value: "a": the requirements of this key contradict each other, so that nothing matches`},
	} {
		p := newGrantingPlugin(Hub{})
		if c.manages {
			p = newGrantingPlugin(Hub{}, "ann manage clustersets.atoll.dev /")
		}
		wantRefusal(t, name, p.Validate(t.Context(), c.a, nil), c.reason, c.want)
	}
}

// A binding lets a namespace place on a set: its writer may bind that set.
func TestBindingsAreWrittenByUsersThatMayBind(t *testing.T) {
	binding := func(labels string) admission.Attributes {
		return requestOf("ann", unstructuredOf(t, "{apiVersion: atoll.dev/v1alpha1, kind: ClusterSetBinding, metadata: {name: b, namespace: shop"+labels+"}, spec: {clusterSet: asia}}"), nil)
	}
	created := binding("")
	edited := admission.NewAttributesRecord(binding(", labels: {a: b}").GetObject(), created.GetObject(), created.GetKind(), "shop", "b", created.GetResource(), "", admission.Update, nil, false, created.GetUserInfo())
	const lacks = `spec.clusterSet: the verb bind on clustersets.atoll.dev "asia" is needed, which "ann" lacks`
	wantRefusal(t, "created", newGrantingPlugin(Hub{}, "ann bind clustersets.atoll.dev /europe").Validate(t.Context(), created, nil), atoll.ReasonPermissionMissing, lacks)
	wantRefusal(t, "with the right", newGrantingPlugin(Hub{}, "ann bind clustersets.atoll.dev /asia").Validate(t.Context(), created, nil), "", "")
	wantRefusal(t, "edited", newGrantingPlugin(Hub{}).Validate(t.Context(), edited, nil), "", "")
}

// A user that answers an agent's certificate request manages a set of the Cluster that the agent
// speaks for. Requests of other signers are the API server's own.
func TestAgentsAreApprovedByUsersThatManageTheirSet(t *testing.T) {
	request := func(signer, cluster string) admission.Attributes {
		csr := &certificates.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "r", Labels: map[string]string{handshake.LabelCluster: cluster}}, Spec: certificates.CertificateSigningRequestSpec{SignerName: signer}}
		gvk := schema.GroupVersionKind{Group: "certificates.k8s.io", Version: "v1", Kind: "CertificateSigningRequest"}
		return admission.NewAttributesRecord(csr, csr, gvk, "", "r", gvk.GroupVersion().WithResource("certificatesigningrequests"), "approval", admission.Update, nil, false, &user.DefaultInfo{Name: "ann"})
	}
	const asia, europe, all = "ann manage clustersets.atoll.dev /asia", "ann manage clustersets.atoll.dev /europe", "ann manage clustersets.atoll.dev /"
	const lacks = `cluster "tokyo", for which the agent would speak, is in no set that "ann" manages: the verb manage on clustersets.atoll.dev is needed`
	for name, c := range map[string]struct {
		sets   Sets
		rights []string
		a      admission.Attributes
		want   string
	}{
		"of a managed set":            {fakeSets{}, []string{asia}, request(handshake.SignerName, "tokyo"), ""},
		"of another set":              {fakeSets{}, []string{europe}, request(handshake.SignerName, "tokyo"), lacks},
		"before the sets are known":   {nil, []string{asia}, request(handshake.SignerName, "tokyo"), lacks},
		"by a user that manages all":  {nil, []string{all}, request(handshake.SignerName, "tokyo"), ""},
		"of another signer":           {fakeSets{}, nil, request("example.com/other", "tokyo"), ""},
		"an approval of another kind": {fakeSets{}, nil, onSubresource(requestOf("ann", newThing("", nil), newThing("", nil)), "approval"), ""},
	} {
		wantRefusal(t, name, newGrantingPlugin(Hub{Sets: c.sets}, c.rights...).Validate(t.Context(), c.a, nil), atoll.ReasonPermissionMissing, c.want)
	}
	requested := onSubresource(request(handshake.SignerName, "tokyo"), "status")
	wantRefusal(t, "another subresource", newGrantingPlugin(Hub{Sets: fakeSets{}}).Validate(t.Context(), requested, nil), "", "")
}
