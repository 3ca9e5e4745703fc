package policymatch

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// family is a hub with policies and objects by key.
type family struct {
	*PolicyIndex
	ns      Namespace
	objects map[atoll.ItemKey]Subject
}

func (f family) DecideWithoutParent(sub Subject) Decision {
	if sub.Key.Namespace == "" {
		return DecidePolicy(f.PolicyIndex, sub, Namespace{}, nil)
	}
	return DecidePolicy(f.PolicyIndex, sub, f.ns, nil)
}

func (f family) FindParent(sub Subject) (Subject, bool) {
	for _, ns := range []string{sub.Key.Namespace, ""} {
		key := sub.Parent.Key
		key.Namespace = ns
		if p, ok := f.objects[key]; ok && p.UID == sub.Parent.UID {
			return p, true
		}
	}
	return Subject{}, false
}

// newChild returns an object that a controller made of another one.
func newChild(group, kind, name string, parent Subject) Subject {
	yes := true
	o := &metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "c", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "x"},
		{APIVersion: parent.Key.Group + "/v1", Kind: parent.Key.Kind, Name: parent.Key.Name, UID: "p", Controller: &yes},
	}}
	return NewSubject(atoll.ItemKey{Group: group, Kind: kind, Namespace: "shop", Name: name}, o, "")
}

func selectorOf(apiVersion, kind, name string) v1alpha1.ResourceSelector {
	return v1alpha1.ResourceSelector{APIVersion: apiVersion, Kind: kind, Name: name}
}

func TestAChildGoesWhereItsParentGoes(t *testing.T) {
	shop := Subject{Key: atoll.ItemKey{Group: "example.com", Kind: "Shop", Namespace: "shop", Name: "a"}, UID: "p", Annotations: map[string]string{}}
	tenant := Subject{Key: atoll.ItemKey{Group: "example.com", Kind: "Tenant", Name: "t"}, UID: "p"}
	annotated := shop
	annotated.Annotations = map[string]string{atoll.AnnotationClusters: "oslo"}
	policy := namespacePolicy("shops", 0, policySpec(0, selectorOf("example.com/v1", "Shop", "")))
	tenants := clusterPolicy("tenants", 0, policySpec(0, selectorOf("example.com/v1", "Tenant", "")))
	set := newChild("apps", "StatefulSet", "a", shop)
	stated := set
	stated.Annotations = map[string]string{atoll.AnnotationClusters: "rome"}
	owned := set
	owned.Controller, owned.Parent = "", ParentRef{} // as with owner references that name no controller
	all := &v1alpha1.DefaultPlacement{Type: v1alpha1.DefaultPlacementAll}
	everywhere := "*"
	for name, c := range map[string]struct {
		policies  []any
		byDefault *v1alpha1.DefaultPlacement
		ns        *string
		parent    Subject
		sub       Subject
		source    string // kind and name of the winner
		reason    atoll.Reason
		root      string
		missing   bool
	}{
		"a policy places the parent":                   {policies: []any{policy}, parent: shop, sub: set, source: "PropagationPolicy shops", reason: atoll.ReasonJoinsParent, root: "a"},
		"an annotation places the parent":              {parent: annotated, sub: set, source: "Annotation a", reason: atoll.ReasonJoinsParent, root: "a"},
		"the annotation of the namespace":              {ns: &everywhere, parent: shop, sub: set, source: "NamespaceAnnotation shop", reason: atoll.ReasonJoinsParent, root: "a"},
		"the default places the parent":                {byDefault: all, parent: shop, sub: set, source: "HubSettings hub", reason: atoll.ReasonJoinsParent, root: "a"},
		"a parent without a namespace":                 {policies: []any{tenants}, parent: tenant, sub: newChild("", "ConfigMap", "c", tenant), source: "ClusterPropagationPolicy tenants", reason: atoll.ReasonJoinsParent, root: "t"},
		"its own annotation wins":                      {policies: []any{policy}, parent: shop, sub: stated, source: "Annotation a", reason: atoll.ReasonOnlyCandidate},
		"a policy of its own wins":                     {policies: []any{policy, namespacePolicy("sets", 0, policySpec(0, selectorOf("apps/v1", "StatefulSet", "")))}, parent: shop, sub: set, source: "PropagationPolicy sets", reason: atoll.ReasonOnlyCandidate},
		"nothing places the parent":                    {parent: shop, sub: set, reason: atoll.ReasonParentUnplaced},
		"the parent is not there":                      {policies: []any{policy}, sub: set, reason: atoll.ReasonParentMissing, missing: true},
		"another object has the name of the parent":    {policies: []any{policy}, parent: Subject{Key: shop.Key, UID: "new"}, sub: set, reason: atoll.ReasonParentMissing, missing: true},
		"an owner that is no controller":               {policies: []any{policy}, parent: shop, sub: owned, reason: atoll.ReasonNotSelected},
		"a token":                                      {policies: []any{policy}, parent: shop, sub: withSecretType(newChild("", "Secret", "s", shop), "kubernetes.io/service-account-token"), reason: atoll.ReasonNotSelected},
		"a Secret of the hub":                          {policies: []any{policy}, parent: shop, sub: withSecretType(newChild("", "Secret", "s", shop), "atoll.dev/x"), reason: atoll.ReasonNeverPlaced},
		"a history of a workload":                      {policies: []any{policy}, parent: shop, sub: newChild("apps", "ControllerRevision", "r", shop), reason: atoll.ReasonNotSelected},
		"a child for the hub":                          {policies: []any{policy}, parent: tenant, sub: forHub(newChild("rbac.authorization.k8s.io", "ClusterRole", "r", tenant)), reason: atoll.ReasonNotSelected},
		"a Pod of a custom kind":                       {policies: []any{policy}, parent: shop, sub: newChild("", "Pod", "p", shop), source: "PropagationPolicy shops", reason: atoll.ReasonJoinsParent, root: "a"},
		"a ReplicaSet, which each member makes itself": {policies: []any{namespacePolicy("p", 0, policySpec(0, deploymentSelector("")))}, parent: Subject{Key: webKey, UID: "p"}, sub: newChild("apps", "ReplicaSet", "r", Subject{Key: webKey}), reason: atoll.ReasonNotSelected},
		"a Job that a user made of a CronJob":          {policies: []any{namespacePolicy("p", 0, policySpec(0, selectorOf("batch/v1", "CronJob", "")))}, parent: Subject{Key: atoll.ItemKey{Group: "batch", Kind: "CronJob", Namespace: "shop", Name: "n"}, UID: "p"}, sub: newChild("batch", "Job", "j", Subject{Key: atoll.ItemKey{Group: "batch", Kind: "CronJob", Name: "n"}}), source: "PropagationPolicy p", reason: atoll.ReasonJoinsParent, root: "n"},
	} {
		t.Run(name, func(t *testing.T) {
			f := family{newIndex(c.policies...), Namespace{Name: "shop"}, map[atoll.ItemKey]Subject{c.parent.Key: c.parent}}
			f.SetHubDefault(c.byDefault)
			if c.ns != nil {
				f.ns.Annotations = map[string]string{atoll.AnnotationClusters: *c.ns}
			}
			d, source, root := DecideWithParents(f, c.sub), "", ""
			if d.Winner != nil {
				source = d.Winner.Source.Kind + " " + d.Winner.Source.Name
			}
			if d.Root != nil {
				root = d.Root.Key.Name
			}
			if source != c.source || d.ReasonCode != c.reason || root != c.root || d.IsParentMissing != c.missing || d.Reason == "" {
				t.Fatalf("placed by %q (%s: %s), root %q, parent missing %t", source, d.ReasonCode, d.Reason, root, d.IsParentMissing)
			}
			if d.Root == nil {
				return
			}
			id, _ := d.BundleOf(c.sub)
			of, _ := f.DecideWithoutParent(c.parent).BundleOf(c.parent)
			if of.Namespace = "shop"; id != of {
				t.Errorf("it is in %s, and its parent in %s", id, of)
			}
		})
	}
}

func withSecretType(s Subject, secretType string) Subject {
	s.SecretType = secretType
	return s
}

func forHub(s Subject) Subject {
	s.Key.Namespace, s.Labels = "", map[string]string{atoll.LabelHub: "true"}
	return s
}

// A child of a child goes where the uppermost parent goes, in its Bundle, and a circle of parents ends.
func TestParentsAreFollowedUp(t *testing.T) {
	f := family{newIndex(namespacePolicy("shops", 0, v1alpha1.PropagationSpec{
		ResourceSelectors: []v1alpha1.ResourceSelector{selectorOf("example.com/v1", "Shop", "")}, GroupBy: v1alpha1.GroupBy{Type: v1alpha1.GroupByObject},
	})), Namespace{Name: "shop"}, map[atoll.ItemKey]Subject{}}
	shop := Subject{Key: atoll.ItemKey{Group: "example.com", Kind: "Shop", Namespace: "shop", Name: "a"}, UID: "p"}
	database := newChild("db.example", "Database", "d", shop)
	database.UID = "p"
	set := newChild("apps", "StatefulSet", "s", database)
	for _, s := range []Subject{shop, database} {
		f.objects[s.Key] = s
	}
	d := DecideWithParents(f, set)
	if d.Winner == nil || d.Root == nil || d.Root.Key != shop.Key || d.Parent.Key != database.Key {
		t.Fatalf("%+v", d)
	}
	id, group := d.BundleOf(set)
	if of, ofGroup := DecideWithParents(f, shop).BundleOf(shop); id != of || group != ofGroup {
		t.Errorf("it is in %s %q, and its parent in %s %q", id, group, of, ofGroup)
	}
	delete(f.objects, shop.Key)
	if d := DecideWithParents(f, set); d.Winner != nil || !d.IsParentMissing {
		t.Errorf("without the uppermost parent: %+v", d)
	}
	circle := newChild("db.example", "Database", "d", database)
	circle.UID = "p"
	f.objects[circle.Key] = circle
	if d := DecideWithParents(f, circle); d.Winner != nil {
		t.Errorf("its own parent: %+v", d)
	}
}

func TestHubOnly(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "false": false, "": false, "yes": false} {
		m := map[string]string{atoll.KeyHubOnly: value}
		if IsHubOnly(m, nil) != want || IsHubOnly(nil, m) != want {
			t.Errorf("%q keeps it on the hub: %t", value, !want)
		}
		if err := CheckAtollKeys(m, nil); (err == nil) != want {
			t.Errorf("the label %q: %v", value, err)
		}
		if err := CheckAtollKeys(nil, m); (err == nil) != want {
			t.Errorf("the annotation %q: %v", value, err)
		}
	}
	if IsHubOnly(nil, nil) || CheckAtollKeys(nil, nil) != nil {
		t.Error("nothing is stated")
	}
}
