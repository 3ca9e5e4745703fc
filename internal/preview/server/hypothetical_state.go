package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karmada "atoll.dev/atoll/api/karmada/config/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/admission"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/binder"
	"atoll.dev/atoll/internal/decommission"
	"atoll.dev/atoll/internal/kinds/script"
	"atoll.dev/atoll/internal/placer"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/preview"
	"atoll.dev/atoll/internal/preview/offline"
	"atoll.dev/atoll/internal/refusal"
	"atoll.dev/atoll/internal/state"
)

// hypotheticalState is the tables as they would be.
type hypotheticalState struct {
	state      *state.HubTables
	now        time.Time
	templates  map[atoll.ItemKey]*unstructured.Unstructured
	namespaces []*corev1.Namespace
	// ownObjects are the objects of Atoll's API; those that would be deleted have a deletion
	// timestamp.
	ownObjects []client.Object
	refused    []preview.Refusal
	// The tables, made by settle.
	clusters *state.ClusterTable
	sets     *state.ClusterSetTable
	views    *state.ClusterViews
	scores   *state.ClusterScoreTable
}

// admissionSettingKinds are the kinds by which admission judges what else is written.
var admissionSettingKinds = []string{"Cluster", "ClusterSet", "ClusterSetBinding", "HubSettings"}

// supposeWrites supposes that the objects are written, but for those that the user may not write.
// admitted: the API server has let the user write them.
func (x *userQuery) supposeWrites(ctx context.Context, in planRequest, admitted bool) (*hypotheticalState, error) {
	s := &hypotheticalState{state: x.sources.State, now: x.now, templates: map[atoll.ItemKey]*unstructured.Unstructured{}}
	access := x.plugin
	for _, first := range []bool{true, false} {
		for i, list := range [][]*unstructured.Unstructured{in.Objects, in.Deleted} {
			for _, o := range list {
				if o == nil || o.GetKind() == "" || o.GetName() == "" {
					return nil, errors.New("an object has no kind or no name")
				}
				if first != (o.GroupVersionKind().Group == v1alpha1.GroupVersion.Group && slices.Contains(admissionSettingKinds, o.GetKind())) {
					continue
				}
				w := s.existingObject(o)
				w.Deleted = i == 1 || o.GetDeletionTimestamp() != nil
				if err := x.supposeWrite(ctx, s, access, w, admitted); err != nil {
					s.refused = append(s.refused, preview.Refusal{
						Object: fmt.Sprintf("%s %s", o.GetKind(), strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")),
						Why:    err.Error(), Reason: refusal.ReasonOf(err, atoll.ReasonInvalidField),
					})
				}
			}
		}
		if first {
			s.buildTables()
			access = x.plugin.WithSets(s.sets, s.views.PlacementPropertyNames())
		}
	}
	s.buildTables()
	return s, nil
}

// supposeWrite supposes one object, if the user may.
func (x *userQuery) supposeWrite(ctx context.Context, s *hypotheticalState, access *admission.AdmissionPlugin, w admission.SupposedWrite, admitted bool) error {
	if w.Deleted && !w.Exists {
		return nil
	}
	var ours client.Object
	if isAtollObject(w.Object) {
		var err error
		if ours, err = readAtollObject(&w); err != nil {
			return err
		}
	}
	if !admitted {
		if err := access.RefusalFor(ctx, x.user, w); err != nil {
			return err
		}
	}
	if ours != nil {
		return s.supposeAtollObjectWrite(ours, w)
	}
	return s.supposeTemplateWrite(w)
}

// isAtollObject reports whether an object is of the hub's own kinds.
func isAtollObject(o *unstructured.Unstructured) bool {
	return atoll.IsHubOwnedKind(o.GroupVersionKind().GroupKind())
}

// ownKindReaders read the hub's own kinds that people write.
var ownKindReaders = map[string]func(o *unstructured.Unstructured, fills bool) (client.Object, error){
	"Cluster":                  readObjectAs[v1alpha1.Cluster],
	"ClusterSet":               readObjectAs[v1alpha1.ClusterSet],
	"ClusterSetBinding":        readObjectAs[v1alpha1.ClusterSetBinding],
	"ClusterScore":             readObjectAs[v1alpha1.ClusterScore],
	"HubSettings":              readObjectAs[v1alpha1.HubSettings],
	"Placement":                readObjectAs[v1alpha1.Placement],
	"ClusterPlacement":         readObjectAs[v1alpha1.ClusterPlacement],
	"RolloutStrategy":          readObjectAs[v1alpha1.RolloutStrategy],
	"ClusterRolloutStrategy":   readObjectAs[v1alpha1.ClusterRolloutStrategy],
	"PropagationPolicy":        readObjectAs[v1alpha1.PropagationPolicy],
	"ClusterPropagationPolicy": readObjectAs[v1alpha1.ClusterPropagationPolicy],
	"OverridePolicy":           readObjectAs[v1alpha1.OverridePolicy],
	"ClusterOverridePolicy":    readObjectAs[v1alpha1.ClusterOverridePolicy],
	"ResourceInterpreter":      readObjectAs[v1alpha1.ResourceInterpreter],
	karmada.CustomizationKind:  readObjectAs[karmada.ResourceInterpreterCustomization],
}

// readObjectAs reads an object as a T. fills adds the defaults of the schema, and refuses what a hub
// refuses; an object that the API server gave has both.
func readObjectAs[T any, P interface {
	*T
	client.Object
}](o *unstructured.Unstructured, fills bool) (client.Object, error) {
	if fills {
		v, err := offline.ReadTyped[T](o)
		return P(v), err
	}
	v := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, v); err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}
	return P(v), nil
}

// readAtollObject reads an object of Atoll's API; a deleted one as it is stored. An object that no
// dry run has seen gets the API server's defaults.
func readAtollObject(w *admission.SupposedWrite) (client.Object, error) {
	as, ok := ownKindReaders[w.Object.GetKind()]
	if !ok {
		return nil, fmt.Errorf("the hub writes it itself: a %s cannot be planned", w.Object.GetKind())
	}
	switch {
	case w.Deleted && w.Before != nil:
		return as(w.Before, false)
	case w.Deleted || w.Object.GetUID() != "":
		return as(w.Object, false)
	}
	v, err := as(w.Object, true)
	if err != nil {
		return nil, err
	}
	filled, err := runtime.DefaultUnstructuredConverter.ToUnstructured(v)
	if err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}
	gvk := w.Object.GroupVersionKind()
	w.Object = &unstructured.Unstructured{Object: filled}
	w.Object.SetGroupVersionKind(gvk)
	return v, nil
}

// setIdentity identifies an object as the one that there is, or as a new one.
func (s *hypotheticalState) setIdentity(o client.Object, w admission.SupposedWrite, key atoll.ItemKey) {
	if w.Before != nil {
		o.SetUID(w.Before.GetUID())
		o.SetCreationTimestamp(w.Before.GetCreationTimestamp())
	} else {
		o.SetUID(types.UID("new:" + key.String()))
		o.SetCreationTimestamp(metav1.NewTime(s.now))
	}
}

func (s *hypotheticalState) supposeAtollObjectWrite(o client.Object, w admission.SupposedWrite) error {
	if c, ok := o.(*karmada.ResourceInterpreterCustomization); ok {
		return s.supposeKarmadaInterpreterWrite(c, w)
	}
	s.setIdentity(o, w, policymatch.ItemKeyOf(w.Object))
	if c, ok := o.(*v1alpha1.Cluster); ok {
		decommission.SupposeConfirmedRemoval(c, w.Before)
	}
	s.appendAtollObject(o, w.Deleted)
	return nil
}

// supposeKarmadaInterpreterWrite writes a customization, by the function that the hub makes it by: nothing
// that decides reads the customization itself.
func (s *hypotheticalState) supposeKarmadaInterpreterWrite(c *karmada.ResourceInterpreterCustomization, w admission.SupposedWrite) error {
	now, _ := s.state.Policies.GetInterpreter(c.Name)
	i, err := script.FromKarmada(c, now)
	if err != nil {
		return err
	}
	if now == nil {
		s.setIdentity(i, admission.SupposedWrite{}, atoll.ItemKey{Group: v1alpha1.GroupVersion.Group, Kind: i.Kind, Name: i.Name})
	}
	s.appendAtollObject(i, w.Deleted)
	return nil
}

// appendAtollObject adds or deletes one of Atoll's own objects.
func (s *hypotheticalState) appendAtollObject(o client.Object, deleted bool) {
	if o.SetDeletionTimestamp(nil); deleted {
		at := metav1.NewTime(s.now)
		o.SetDeletionTimestamp(&at)
	}
	s.ownObjects = append(s.ownObjects, o)
}

func (s *hypotheticalState) supposeTemplateWrite(w admission.SupposedWrite) error {
	o, key := w.Object, policymatch.ItemKeyOf(w.Object)
	if w.Deleted {
		o = w.Before.DeepCopy()
		at := metav1.NewTime(s.now)
		o.SetDeletionTimestamp(&at)
	} else {
		s.setIdentity(o, w, key)
	}
	if key.IsNamespace() {
		ns := &corev1.Namespace{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, ns); err != nil {
			return fmt.Errorf("read it: %w", err)
		}
		s.namespaces = append(s.namespaces, ns)
	}
	s.templates[key] = o
	return nil
}

// existingObject finds what there is of the object that would be written.
func (s *hypotheticalState) existingObject(o *unstructured.Unstructured) admission.SupposedWrite {
	w, key := admission.SupposedWrite{Object: o}, policymatch.ItemKeyOf(o)
	if !isAtollObject(o) {
		w.Before, w.Exists = s.state.Templates.Get(key)
		return w
	}
	if is, ok := s.existingAtollObject(o, key); ok {
		w.Exists = true
		if is != nil {
			if fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(is); err == nil {
				w.Before = &unstructured.Unstructured{Object: fields}
				w.Before.SetGroupVersionKind(o.GroupVersionKind())
			}
		}
	}
	return w
}

// existingAtollObject returns what there is of Atoll's API, nil where the tables have no more than its
// existence.
func (s *hypotheticalState) existingAtollObject(o *unstructured.Unstructured, key atoll.ItemKey) (client.Object, bool) {
	st := s.state
	switch key.Kind {
	case "Cluster":
		c, ok := st.Clusters.Get(key.Name)
		return c, ok
	case "ClusterSet":
		c, ok := st.Sets.Get(key.Name)
		return c, ok
	case "ClusterSetBinding":
		return s.existingSetBinding(o, key)
	case "ClusterScore":
		return nil, st.Scores.HasObject(key.Namespace, key.Name)
	case "HubSettings":
		return nil, key.Name == v1alpha1.HubSettingsName && (len(st.Views.PlacementPropertyNames()) > 0 || st.Settings.StatesPlacement())
	case "Placement", "ClusterPlacement", v1alpha1.KindRolloutStrategy, v1alpha1.KindClusterRolloutStrategy:
		return s.existingReferenced(key.Kind, types.NamespacedName{Namespace: key.Namespace, Name: key.Name})
	case karmada.CustomizationKind:
		i, ok := st.Policies.GetInterpreter(key.Name)
		return nil, ok && script.KarmadaSourceName(i) == key.Name
	}
	return st.Policies.Get(state.PolicyKey{Kind: key.Kind, Namespace: key.Namespace, Name: key.Name})
}

// existingReferenced returns what there is of an object to which policies refer.
func (s *hypotheticalState) existingReferenced(kind string, key types.NamespacedName) (client.Object, bool) {
	if kind == v1alpha1.KindRolloutStrategy || kind == v1alpha1.KindClusterRolloutStrategy {
		if is, ok := s.state.Strategies.Get(key); ok {
			return is.ToObject(), true
		}
		return nil, false
	}
	if is, ok := s.state.Placements.Get(key); ok {
		return is.ToObject(), true
	}
	return nil, false
}

// existingSetBinding returns the binding of the set that o names, which is what a binding is about.
func (s *hypotheticalState) existingSetBinding(o *unstructured.Unstructured, key atoll.ItemKey) (client.Object, bool) {
	set, _, _ := unstructured.NestedString(o.Object, "spec", "clusterSet")
	set = cmp.Or(set, key.Name)
	if !s.state.Sets.IsBound(key.Namespace, set) {
		return nil, false
	}
	return &v1alpha1.ClusterSetBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: set}, Spec: v1alpha1.ClusterSetBindingSpec{ClusterSet: set},
	}, true
}

// containsType reports whether an object of one of the types would be written.
func containsType[A, B any](list []client.Object) bool {
	return slices.ContainsFunc(list, func(o client.Object) bool {
		_, a := o.(A)
		_, b := o.(B)
		return a || b
	})
}

// buildTables returns the tables with what is supposed by now. They are the hub's own where nothing of
// them changes.
func (s *hypotheticalState) buildTables() {
	s.clusters, s.sets, s.views, s.scores = s.state.Clusters, s.state.Sets, s.state.Views, s.state.Scores
	moved := containsType[*v1alpha1.Cluster, *v1alpha1.ClusterSet](s.ownObjects)
	if moved {
		s.clusters = s.clusters.SupposeWritten(s.ownObjects...)
	}
	if moved || containsType[*v1alpha1.ClusterSetBinding, *v1alpha1.ClusterSetBinding](s.ownObjects) {
		s.sets = s.sets.SupposeWritten(s.clusters, s.ownObjects...)
	}
	if moved || containsType[*v1alpha1.HubSettings, *v1alpha1.HubSettings](s.ownObjects) {
		s.views = s.views.SupposeWritten(s.clusters, s.ownObjects...)
	}
	if containsType[*v1alpha1.ClusterScore, *v1alpha1.ClusterScore](s.ownObjects) {
		s.scores = s.scores.SupposeWritten(s.ownObjects...)
	}
}

// changedTables returns the tables that place reads, of those that differ.
func (s *hypotheticalState) changedTables() (t placer.SupposedTables) {
	if s.clusters != s.state.Clusters {
		t.Clusters = s.clusters
	}
	if s.sets != s.state.Sets {
		t.Sets = s.sets
	}
	if s.views != s.state.Views {
		t.Views = s.views
	}
	if s.scores != s.state.Scores {
		t.Scores = s.scores
	}
	if containsType[*v1alpha1.HubSettings, *v1alpha1.HubSettings](s.ownObjects) {
		t.Settings = s.state.Settings.SupposeWritten(s.ownObjects...)
	}
	return t
}

// writtenPlacements returns the Placements that would be written.
func (s *hypotheticalState) writtenPlacements() (keys []types.NamespacedName) {
	for _, o := range s.ownObjects {
		switch o.(type) {
		case *v1alpha1.Placement, *v1alpha1.ClusterPlacement:
			keys = append(keys, client.ObjectKeyFromObject(o))
		}
	}
	return keys
}

// writtenStrategies returns the strategies of rollouts that would be written.
func (s *hypotheticalState) writtenStrategies() (keys []types.NamespacedName) {
	for _, o := range s.ownObjects {
		switch o.(type) {
		case *v1alpha1.RolloutStrategy, *v1alpha1.ClusterRolloutStrategy:
			keys = append(keys, client.ObjectKeyFromObject(o))
		}
	}
	return keys
}

// supposedBinderTables is what bind reads.
func (s *hypotheticalState) supposedBinderTables() binder.SupposedTables {
	templates, policies := s.state.Templates.SupposeWritten(s.templates), s.state.Policies.SupposeWritten(s.ownObjects...)
	out := binder.SupposedTables{
		Templates: templates, Kinds: templates, Namespaces: s.state.Namespaces.SupposeWritten(s.namespaces...),
		Policies: policies, Overrides: policies, ChangedPlacements: s.writtenPlacements(), ChangedStrategies: s.writtenStrategies(),
	}
	if containsType[*v1alpha1.HubSettings, *v1alpha1.HubSettings](s.ownObjects) {
		out.Settings = s.state.Settings.SupposeWritten(s.ownObjects...)
	}
	if len(out.ChangedPlacements) > 0 {
		out.Placements = s.state.Placements.SupposeWritten(s.ownObjects...)
	}
	if len(out.ChangedStrategies) > 0 {
		out.Strategies = s.state.Strategies.SupposeWritten(s.ownObjects...)
	}
	for key := range s.templates {
		out.ChangedTemplates = append(out.ChangedTemplates, key)
	}
	slices.SortFunc(out.ChangedTemplates, atoll.ItemKey.Compare)
	for _, ns := range s.namespaces {
		out.ChangedNamespaces = append(out.ChangedNamespaces, ns.Name)
	}
	for _, o := range s.ownObjects {
		if state.IsPolicy(o) {
			out.ChangedPolicies = append(out.ChangedPolicies, binder.PolicyKey(state.PolicyKeyOf(o)))
		}
	}
	return out
}
