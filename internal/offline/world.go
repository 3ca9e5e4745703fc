package offline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	karmada "atoll.dev/atoll/api/karmada/config/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/interpret/script"
	"atoll.dev/atoll/internal/schedule"
)

// World is what files say. Make it with New.
type World struct {
	schemas    Schemas
	namespace  string
	templates  map[atoll.ItemKey]*unstructured.Unstructured
	namespaces map[string]*unstructured.Unstructured
	// scopes of the kinds that definitions among the files bring along, and which
	// definitions those are.
	scopes      map[schema.GroupKind]bool
	definitions map[schema.GroupKind]atoll.ItemKey

	clusters           []*v1alpha1.Cluster
	propagation        []*v1alpha1.PropagationPolicy
	clusterPropagation []*v1alpha1.ClusterPropagationPolicy
	placements         []*v1alpha1.Placement
	clusterPlacements  []*v1alpha1.ClusterPlacement
	overrides          []*v1alpha1.OverridePolicy
	clusterOverrides   []*v1alpha1.ClusterOverridePolicy
	interpreters       []*v1alpha1.ResourceInterpreter
	customizations     []*karmada.ResourceInterpreterCustomization
	sets               []*v1alpha1.ClusterSet
	bindings           []*v1alpha1.ClusterSetBinding
	scores             []*v1alpha1.ClusterScore
	settings           *v1alpha1.HubSettings
}

// New makes a World of the objects. What is in a namespace and names none is in the
// given one. The error names the first object that a hub would refuse, or that is there
// twice. Objects are not kept: they may be changed afterwards.
func New(objects []*unstructured.Unstructured, namespace string) (*World, error) {
	s, err := ReadSchemas()
	if err != nil {
		return nil, err
	}
	w := &World{
		schemas: s, namespace: namespace,
		templates: map[atoll.ItemKey]*unstructured.Unstructured{}, namespaces: map[string]*unstructured.Unstructured{},
		scopes: map[schema.GroupKind]bool{}, definitions: map[schema.GroupKind]atoll.ItemKey{},
	}
	for _, u := range objects {
		w.define(u)
	}
	seen := map[atoll.ItemKey]bool{}
	for _, u := range objects {
		u = u.DeepCopy()
		if u.GetName() == "" || u.GetKind() == "" {
			return nil, fmt.Errorf("an object has no kind or no name: %s %q", u.GetKind(), u.GetName())
		}
		if w.namespaced(u.GroupVersionKind().GroupKind()) && u.GetNamespace() == "" {
			u.SetNamespace(namespace)
		}
		key := claim.KeyOf(u)
		if seen[key] {
			return nil, fmt.Errorf("%s is there twice", key)
		}
		seen[key] = true
		u.SetUID(types.UID(atoll.Hash([]byte(key.String()))[:32]))
		if err := w.add(key, u); err != nil {
			return nil, err
		}
	}
	w.sort()
	return w, w.translate()
}

// define notes the kind that a CustomResourceDefinition brings along.
func (w *World) define(u *unstructured.Unstructured) {
	if u.GetKind() != "CustomResourceDefinition" {
		return
	}
	group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(u.Object, "spec", "names", "kind")
	scope, _, _ := unstructured.NestedString(u.Object, "spec", "scope")
	gk := schema.GroupKind{Group: group, Kind: kind}
	w.scopes[gk] = scope != string(meta.RESTScopeNameRoot) && scope != "Cluster"
	w.definitions[gk] = claim.KeyOf(u)
}

// unscoped are the built-in kinds that are in no namespace, but for those of groups that
// have no others.
var unscoped = map[schema.GroupKind]bool{
	{Kind: "Namespace"}: true, {Kind: "PersistentVolume"}: true, {Kind: "Node"}: true,
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: true,
	{Group: "apiregistration.k8s.io", Kind: "APIService"}:             true,
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}:         true,
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"}:  true,
	{Group: "storage.k8s.io", Kind: "StorageClass"}:                   true,
	{Group: "storage.k8s.io", Kind: "CSIDriver"}:                      true,
	{Group: "storage.k8s.io", Kind: "VolumeAttributesClass"}:          true,
	{Group: "scheduling.k8s.io", Kind: "PriorityClass"}:               true,
	{Group: "networking.k8s.io", Kind: "IngressClass"}:                true,
	{Group: "node.k8s.io", Kind: "RuntimeClass"}:                      true,
	{Group: "certificates.k8s.io", Kind: "CertificateSigningRequest"}: true,
	{Group: "certificates.k8s.io", Kind: "ClusterTrustBundle"}:        true,
	{Group: "gateway.networking.k8s.io", Kind: "GatewayClass"}:        true,
	{Group: "cert-manager.io", Kind: "ClusterIssuer"}:                 true,
	{Group: "resource.k8s.io", Kind: "DeviceClass"}:                   true,
	{Group: "snapshot.storage.k8s.io", Kind: "VolumeSnapshotClass"}:   true,
}

func (w *World) namespaced(gk schema.GroupKind) bool {
	if atoll.OwnKind(gk) {
		return w.schemas[gk.Kind].namespaced
	}
	if scoped, known := w.scopes[gk]; known {
		return scoped
	}
	return !unscoped[gk] && gk.Group != "admissionregistration.k8s.io" && gk.Group != "flowcontrol.apiserver.k8s.io"
}

func (w *World) add(key atoll.ItemKey, u *unstructured.Unstructured) (err error) {
	if !atoll.OwnKind(claim.GroupKind(key)) {
		if key.Group == "" && key.Kind == "Namespace" {
			w.namespaces[key.Name] = u
		}
		if value, ok := claim.Clusters(u.GetAnnotations()); ok {
			if _, err := claim.ParseClusters(value); err != nil {
				return fmt.Errorf("%s: its annotation %s: %w", key, atoll.AnnotationClusters, err)
			}
		}
		w.templates[key] = u
		return nil
	}
	switch key.Kind {
	case "Cluster":
		if _, stated, _ := unstructured.NestedBool(u.Object, "spec", "accepted"); !stated {
			if err := unstructured.SetNestedField(u.Object, true, "spec", "accepted"); err != nil {
				return fmt.Errorf("%s: spec: %w", key, err)
			}
		}
		return into(&w.clusters, w.schemas, u, func(c *v1alpha1.Cluster) field.ErrorList {
			return schedule.CheckCapacity(c.Spec.Capacity, field.NewPath("spec", "capacity"))
		})
	case "ClusterSet":
		return into(&w.sets, w.schemas, u, nil)
	case "ClusterSetBinding":
		return into(&w.bindings, w.schemas, u, nil)
	case "ClusterScore":
		return into(&w.scores, w.schemas, u, nil)
	case "HubSettings":
		w.settings, err = Typed[v1alpha1.HubSettings](w.schemas, u)
		return err
	case "PropagationPolicy":
		return into(&w.propagation, w.schemas, u, func(p *v1alpha1.PropagationPolicy) field.ErrorList {
			return checkPlacement(&p.Spec.Placement, field.NewPath("spec", "placement"))
		})
	case "ClusterPropagationPolicy":
		return into(&w.clusterPropagation, w.schemas, u, func(p *v1alpha1.ClusterPropagationPolicy) field.ErrorList {
			return checkPlacement(&p.Spec.Placement, field.NewPath("spec", "placement"))
		})
	case "Placement":
		return into(&w.placements, w.schemas, u, func(p *v1alpha1.Placement) field.ErrorList { return checkPlacement(&p.Spec, field.NewPath("spec")) })
	case "ClusterPlacement":
		return into(&w.clusterPlacements, w.schemas, u, func(p *v1alpha1.ClusterPlacement) field.ErrorList {
			return checkPlacement(&p.Spec, field.NewPath("spec"))
		})
	case "ResourceInterpreter":
		return into(&w.interpreters, w.schemas, u, func(i *v1alpha1.ResourceInterpreter) field.ErrorList { return uncompiled(script.Check(i.Spec)) })
	case karmada.CustomizationKind:
		return into(&w.customizations, w.schemas, u, func(c *karmada.ResourceInterpreterCustomization) field.ErrorList {
			return uncompiled(script.CheckKarmada(c.Spec))
		})
	case "OverridePolicy":
		return into(&w.overrides, w.schemas, u, func(p *v1alpha1.OverridePolicy) field.ErrorList { return checkOverrides(p.Spec.OverrideRules) })
	case "ClusterOverridePolicy":
		return into(&w.clusterOverrides, w.schemas, u, func(p *v1alpha1.ClusterOverridePolicy) field.ErrorList { return checkOverrides(p.Spec.OverrideRules) })
	}
	if _, known := w.schemas[key.Kind]; !known && key.Group == v1alpha1.GroupVersion.Group {
		return fmt.Errorf("%s: atoll.dev has no kind %s", key, key.Kind)
	}
	return fmt.Errorf("%s: a hub writes every %s itself: leave it out", key, key.Kind)
}

// into the list, unless the schema or check refuses it.
func into[T any](list *[]*T, s Schemas, u *unstructured.Unstructured, check func(*T) field.ErrorList) error {
	v, err := Typed[T](s, u)
	if err != nil {
		return err
	}
	if check != nil {
		if errs := check(v); len(errs) > 0 {
			return fmt.Errorf("%s %s: %w", u.GetKind(), strings.TrimPrefix(u.GetNamespace()+"/"+u.GetName(), "/"), errs.ToAggregate())
		}
	}
	*list = append(*list, v)
	return nil
}

// translate the customizations of Karmada's to the interpreters that a hub makes of them.
func (w *World) translate() error {
	stated := map[string]*v1alpha1.ResourceInterpreter{}
	for _, i := range w.interpreters {
		stated[i.Name] = i
	}
	for _, c := range w.customizations {
		i, err := script.FromKarmada(c, stated[c.Name])
		if err != nil {
			return fmt.Errorf("%s %s: %w", c.Kind, c.Name, err)
		}
		w.interpreters = append(w.interpreters, i)
	}
	return nil
}

// uncompiled scripts.
func uncompiled(found []*script.Error) (errs field.ErrorList) {
	for _, e := range found {
		errs = append(errs, field.Invalid(field.NewPath("spec"), field.OmitValueType{}, e.Error()))
	}
	return errs
}

// sort what has an order in files and none in a World.
func (w *World) sort() {
	slices.SortFunc(w.clusters, func(a, b *v1alpha1.Cluster) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(w.placements, func(a, b *v1alpha1.Placement) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	slices.SortFunc(w.clusterPlacements, func(a, b *v1alpha1.ClusterPlacement) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(w.overrides, func(a, b *v1alpha1.OverridePolicy) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(w.clusterOverrides, func(a, b *v1alpha1.ClusterOverridePolicy) int { return strings.Compare(a.Name, b.Name) })
}

// index of the policies.
func (w *World) index() *claim.Index {
	x, byNamespace := &claim.Index{}, map[string][]*v1alpha1.PropagationPolicy{}
	for _, p := range w.propagation {
		byNamespace[p.Namespace] = append(byNamespace[p.Namespace], p)
	}
	for ns, list := range byNamespace {
		x.SetNamespace(ns, list)
	}
	x.SetCluster(w.clusterPropagation)
	return x
}

func (w *World) namespaceOf(name string) claim.Namespace {
	if name == "" {
		return claim.Namespace{}
	}
	ns := claim.Namespace{Name: name}
	if u, ok := w.namespaces[name]; ok {
		ns.UID, ns.Annotations = string(u.GetUID()), u.GetAnnotations()
	}
	return ns
}

// seen from one Bundle, as claim asks.
type seen struct {
	*World
	id     claim.BundleID
	placed map[atoll.ItemKey]claim.BundleID
}

func (s seen) Template(key atoll.ItemKey) (*unstructured.Unstructured, bool) {
	t, ok := s.templates[key]
	return t, ok
}

func (s seen) Claim(key atoll.ItemKey) (claim.Claim, bool) {
	switch id, ok := s.placed[key]; {
	case !ok:
		return claim.Unclaimed, false
	case id == s.id:
		return claim.Mine, true
	}
	return claim.Others, true
}
func (s seen) Selected(sel atoll.Selection) (out []atoll.ItemKey) {
	is := claim.Labels(sel)
	for key, t := range s.templates {
		if sel.Covers(key) && is.Matches(labels.Set(t.GetLabels())) {
			out = append(out, key)
		}
	}
	return out
}
func (seen) Deleted(atoll.ItemKey, string) bool { return false }
func (seen) Holders(atoll.ItemKey) []string     { return nil }
func (s seen) Definition(key atoll.ItemKey) (atoll.ItemKey, bool) {
	crd, ok := s.definitions[claim.GroupKind(key)]
	return crd, ok
}
