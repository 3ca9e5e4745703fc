package offline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	karmada "atoll.dev/atoll/api/karmada/config/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bundlecontent"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/kinds/script"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/schedule"
)

// World is the content of files. Make it with New.
type World struct {
	namespace  string
	templates  map[atoll.ItemKey]*unstructured.Unstructured
	namespaces map[string]*unstructured.Unstructured
	// scopes of the kinds that definitions among the files bring along, and which
	// definitions those are, by key and as objects.
	scopes      map[schema.GroupKind]bool
	definitions map[schema.GroupKind]atoll.ItemKey
	customKinds map[schema.GroupKind]*unstructured.Unstructured

	clusters           []*v1alpha1.Cluster
	propagation        []*v1alpha1.PropagationPolicy
	clusterPropagation []*v1alpha1.ClusterPropagationPolicy
	placements         []*v1alpha1.Placement
	clusterPlacements  []*v1alpha1.ClusterPlacement
	strategies         []*v1alpha1.RolloutStrategy
	clusterStrategies  []*v1alpha1.ClusterRolloutStrategy
	overrides          []*v1alpha1.OverridePolicy
	clusterOverrides   []*v1alpha1.ClusterOverridePolicy
	interpreters       []*v1alpha1.ResourceInterpreter
	customizations     []*karmada.ResourceInterpreterCustomization
	sets               []*v1alpha1.ClusterSet
	bindings           []*v1alpha1.ClusterSetBinding
	scores             []*v1alpha1.ClusterScore
	settings           *v1alpha1.HubSettings
}

// NewWorld returns a World of the objects. A namespaced object without a namespace is in the given
// one. The error names the first object that a hub would refuse, or that is there twice. Objects
// are not kept: they may be changed afterwards.
func NewWorld(objects []*unstructured.Unstructured, namespace string) (*World, error) {
	w := &World{
		namespace: namespace,
		templates: map[atoll.ItemKey]*unstructured.Unstructured{}, namespaces: map[string]*unstructured.Unstructured{},
		scopes: map[schema.GroupKind]bool{}, definitions: map[schema.GroupKind]atoll.ItemKey{},
		customKinds: map[schema.GroupKind]*unstructured.Unstructured{},
	}
	for _, u := range objects {
		w.addDefinition(u)
	}
	seen := map[atoll.ItemKey]bool{}
	for _, u := range objects {
		u = u.DeepCopy()
		if u.GetName() == "" || u.GetKind() == "" {
			return nil, fmt.Errorf("an object has no kind or no name: %s %q", u.GetKind(), u.GetName())
		}
		if w.isNamespaced(u.GroupVersionKind().GroupKind()) && u.GetNamespace() == "" {
			u.SetNamespace(namespace)
		}
		key := policymatch.ItemKeyOf(u)
		if seen[key] {
			return nil, fmt.Errorf("%s is there twice", key)
		}
		seen[key] = true
		u.SetUID(types.UID(atoll.HashParts([]byte(key.String()))[:32]))
		if err := w.addObject(key, u); err != nil {
			return nil, err
		}
	}
	w.sortObjects()
	if err := w.checkPolicies(); err != nil {
		return nil, err
	}
	return w, w.translateKarmada()
}

// addDefinition notes the kind that a CustomResourceDefinition brings along.
func (w *World) addDefinition(u *unstructured.Unstructured) {
	if u.GetKind() != "CustomResourceDefinition" {
		return
	}
	scope, _, _ := unstructured.NestedString(u.Object, "spec", "scope")
	gk := kinds.DefinedKind(u)
	w.scopes[gk] = scope != string(meta.RESTScopeNameRoot) && scope != "Cluster"
	w.definitions[gk], w.customKinds[gk] = policymatch.ItemKeyOf(u), u
}

// clusterScopedKinds are the built-in kinds that are in no namespace, but for those of groups that
// have no others.
var clusterScopedKinds = map[schema.GroupKind]bool{
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

func (w *World) isNamespaced(gk schema.GroupKind) bool {
	if atoll.IsHubOwnedKind(gk) {
		d, err := findAtollCRD(gk.Kind)
		return err == nil && d != nil && d.namespaced
	}
	if scoped, known := w.scopes[gk]; known {
		return scoped
	}
	return !clusterScopedKinds[gk] && gk.Group != "admissionregistration.k8s.io" && gk.Group != "flowcontrol.apiserver.k8s.io"
}

func (w *World) addObject(key atoll.ItemKey, u *unstructured.Unstructured) error {
	if !atoll.IsHubOwnedKind(policymatch.GroupKindOf(key)) {
		return w.addTemplate(key, u)
	}
	if read, ok := ownKinds[key.Kind]; ok {
		return read(w, key, u)
	}
	if d, err := findAtollCRD(key.Kind); err == nil && d == nil && key.Group == v1alpha1.GroupVersion.Group {
		return fmt.Errorf("%s: atoll.dev has no kind %s", key, key.Kind)
	}
	return fmt.Errorf("%s: a hub writes every %s itself: leave it out", key, key.Kind)
}

func (w *World) addTemplate(key atoll.ItemKey, u *unstructured.Unstructured) error {
	if key.Group == "" && key.Kind == "Namespace" {
		w.namespaces[key.Name] = u
	}
	if value, ok := policymatch.ClustersAnnotation(u.GetAnnotations()); ok {
		if _, err := policymatch.ParseClustersAnnotation(value); err != nil {
			return fmt.Errorf("%s: its annotation %s: %w", key, atoll.AnnotationClusters, err)
		}
	}
	if err := policymatch.CheckAtollKeys(u.GetLabels(), u.GetAnnotations()); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if err := policymatch.CheckServiceAccountAnnotation(key.IsNamespace(), u.GetAnnotations()); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	w.templates[key] = u
	return nil
}

// ownKinds read the objects of Atoll's API that people write.
var ownKinds = map[string]func(*World, atoll.ItemKey, *unstructured.Unstructured) error{
	"Cluster": (*World).addCluster,
	"ClusterSet": func(w *World, _ atoll.ItemKey, u *unstructured.Unstructured) error {
		return readInto(&w.sets, u, nil)
	},
	"ClusterSetBinding": func(w *World, _ atoll.ItemKey, u *unstructured.Unstructured) error {
		return readInto(&w.bindings, u, nil)
	},
	"ClusterScore": func(w *World, _ atoll.ItemKey, u *unstructured.Unstructured) error {
		return readInto(&w.scores, u, nil)
	},
	"HubSettings": func(w *World, _ atoll.ItemKey, u *unstructured.Unstructured) (err error) {
		w.settings, err = ReadTyped[v1alpha1.HubSettings](u)
		return err
	},
	"PropagationPolicy": func(w *World, _ atoll.ItemKey, u *unstructured.Unstructured) error {
		return readInto(&w.propagation, u, nil)
	},
	"ClusterPropagationPolicy": func(w *World, _ atoll.ItemKey, u *unstructured.Unstructured) error {
		return readInto(&w.clusterPropagation, u, nil)
	},
	"Placement": func(w *World, _ atoll.ItemKey, u *unstructured.Unstructured) error {
		return readInto(&w.placements, u, nil)
	},
	"ClusterPlacement": func(w *World, _ atoll.ItemKey, u *unstructured.Unstructured) error {
		return readInto(&w.clusterPlacements, u, nil)
	},
	v1alpha1.KindRolloutStrategy:        (*World).readStrategy,
	v1alpha1.KindClusterRolloutStrategy: (*World).readClusterStrategy,
	"ResourceInterpreter": func(w *World, _ atoll.ItemKey, u *unstructured.Unstructured) error {
		return readInto(&w.interpreters, u, func(i *v1alpha1.ResourceInterpreter) field.ErrorList { return scriptErrors(script.CheckSpec(i.Spec)) })
	},
	karmada.CustomizationKind: func(w *World, _ atoll.ItemKey, u *unstructured.Unstructured) error {
		return readInto(&w.customizations, u, func(c *karmada.ResourceInterpreterCustomization) field.ErrorList {
			return scriptErrors(script.CheckKarmada(c.Spec))
		})
	},
	"OverridePolicy": func(w *World, _ atoll.ItemKey, u *unstructured.Unstructured) error {
		return readInto(&w.overrides, u, func(p *v1alpha1.OverridePolicy) field.ErrorList { return w.checkOverrides(&p.Spec) })
	},
	"ClusterOverridePolicy": func(w *World, _ atoll.ItemKey, u *unstructured.Unstructured) error {
		return readInto(&w.clusterOverrides, u, func(p *v1alpha1.ClusterOverridePolicy) field.ErrorList { return w.checkOverrides(&p.Spec.OverrideSpec) })
	},
}

// addCluster adds a Cluster, accepted unless its field is false.
func (w *World) addCluster(key atoll.ItemKey, u *unstructured.Unstructured) error {
	if _, stated, _ := unstructured.NestedBool(u.Object, "spec", "accepted"); !stated {
		if err := unstructured.SetNestedField(u.Object, true, "spec", "accepted"); err != nil {
			return fmt.Errorf("%s: spec: %w", key, err)
		}
	}
	return readInto(&w.clusters, u, func(c *v1alpha1.Cluster) field.ErrorList {
		return schedule.CheckCapacity(c.Spec.Capacity, field.NewPath("spec", "capacity"))
	})
}

// readInto reads the list, unless the schema or check refuses it.
func readInto[T any](list *[]*T, u *unstructured.Unstructured, check func(*T) field.ErrorList) error {
	v, err := ReadTyped[T](u)
	if err != nil {
		return err
	}
	if check != nil {
		if err := refuseObject(u.GetKind(), u, check(v)); err != nil {
			return err
		}
	}
	*list = append(*list, v)
	return nil
}

// refuseObject returns the error of an object with fields that a hub refuses; nil: it refuses none.
func refuseObject(kind string, o metav1.Object, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%s %s: %w", kind, strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"), errs.ToAggregate())
}

// translateKarmada translates the customizations of Karmada's to the interpreters that a hub makes of them.
func (w *World) translateKarmada() error {
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

// scriptErrors returns the errors of scripts as errors of fields.
func scriptErrors(found []*script.Error) (errs field.ErrorList) {
	for _, e := range found {
		errs = append(errs, field.Invalid(field.NewPath("spec"), field.OmitValueType{}, e.Error()))
	}
	return errs
}

// sortObjects sorts what has an order in files and none in a World.
func (w *World) sortObjects() {
	slices.SortFunc(w.clusters, func(a, b *v1alpha1.Cluster) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(w.placements, func(a, b *v1alpha1.Placement) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	slices.SortFunc(w.clusterPlacements, func(a, b *v1alpha1.ClusterPlacement) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(w.overrides, func(a, b *v1alpha1.OverridePolicy) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(w.clusterOverrides, func(a, b *v1alpha1.ClusterOverridePolicy) int { return strings.Compare(a.Name, b.Name) })
}

// policyIndex returns an index of the policies.
func (w *World) policyIndex() *policymatch.PolicyIndex {
	x, byNamespace := &policymatch.PolicyIndex{}, map[string][]*v1alpha1.PropagationPolicy{}
	for _, p := range w.propagation {
		byNamespace[p.Namespace] = append(byNamespace[p.Namespace], p)
	}
	for ns, list := range byNamespace {
		x.SetNamespacePolicies(ns, list)
	}
	x.SetClusterPolicies(w.clusterPropagation)
	if w.settings != nil {
		x.SetHubDefault(w.settings.Spec.DefaultPlacement)
	}
	return x
}

func (w *World) namespaceOf(name string) policymatch.Namespace {
	if name == "" {
		return policymatch.Namespace{}
	}
	ns := policymatch.Namespace{Name: name}
	if u, ok := w.namespaces[name]; ok {
		ns.UID, ns.Annotations = string(u.GetUID()), u.GetAnnotations()
	}
	return ns
}

// bundleView of one Bundle, as policymatch reads it.
type bundleView struct {
	*World
	id     policymatch.BundleID
	placed map[atoll.ItemKey]policymatch.BundleID
}

func (s bundleView) TemplateOf(key atoll.ItemKey) (*unstructured.Unstructured, bool) {
	t, ok := s.templates[key]
	return t, ok
}

func (s bundleView) PlacedBy(key atoll.ItemKey) (bundlecontent.PlacedBy, bool) {
	switch id, ok := s.placed[key]; {
	case !ok:
		return bundlecontent.PlacedByNone, false
	case id == s.id:
		return bundlecontent.PlacedByThis, true
	}
	return bundlecontent.PlacedByOther, true
}
func (s bundleView) SelectedKeys(sel atoll.Selection) (out []atoll.ItemKey) {
	is := bundlecontent.ParseSelection(sel)
	for key, t := range s.templates {
		if sel.SelectsKey(key) && is.Matches(labels.Set(t.GetLabels())) {
			out = append(out, key)
		}
	}
	return out
}
func (bundleView) WasDeleted(atoll.ItemKey, string) bool  { return false }
func (bundleView) OtherHolderUIDs(atoll.ItemKey) []string { return nil }
func (s bundleView) DefinitionOf(key atoll.ItemKey) (atoll.ItemKey, bool) {
	crd, ok := s.definitions[policymatch.GroupKindOf(key)]
	return crd, ok
}
