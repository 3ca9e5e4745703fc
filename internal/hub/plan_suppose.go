package hub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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
	"atoll.dev/atoll/internal/bind"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/interpret/script"
	"atoll.dev/atoll/internal/leave"
	"atoll.dev/atoll/internal/offline"
	"atoll.dev/atoll/internal/place"
	"atoll.dev/atoll/internal/plan"
	"atoll.dev/atoll/internal/state"
)

// supposed is the tables as they would be.
type supposed struct {
	state      *state.State
	now        time.Time
	templates  map[atoll.ItemKey]*unstructured.Unstructured
	namespaces []*corev1.Namespace
	// ours are the objects of Atoll's API; those that would be deleted have a deletion
	// timestamp.
	ours    []client.Object
	refused []plan.Refusal
	// The tables, made by settle.
	clusters *state.Clusters
	sets     *state.Sets
	views    *state.Views
	scores   *state.Scores
}

// settings are the kinds by which admission judges what else is written.
var settings = []string{"Cluster", "ClusterSet", "ClusterSetBinding", "HubSettings"}

// suppose that the objects are written, but for those that the user may not write.
// admitted: the API server has let the user write them.
func (x *explainer) suppose(ctx context.Context, in planRequest, admitted bool) (*supposed, error) {
	s := &supposed{state: x.parts.state, now: x.now, templates: map[atoll.ItemKey]*unstructured.Unstructured{}}
	access := x.access
	for _, first := range []bool{true, false} {
		for i, list := range [][]*unstructured.Unstructured{in.Objects, in.Deleted} {
			for _, o := range list {
				if o == nil || o.GetKind() == "" || o.GetName() == "" {
					return nil, errors.New("an object has no kind or no name")
				}
				if first != (o.GroupVersionKind().Group == v1alpha1.GroupVersion.Group && slices.Contains(settings, o.GetKind())) {
					continue
				}
				w := s.before(o)
				w.Deleted = i == 1 || o.GetDeletionTimestamp() != nil
				if err := x.write(ctx, s, access, w, admitted); err != nil {
					s.refused = append(s.refused, plan.Refusal{Object: fmt.Sprintf("%s %s", o.GetKind(), strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")), Why: err.Error()})
				}
			}
		}
		if first {
			s.settle()
			access = x.access.With(s.sets, s.views.Listed())
		}
	}
	s.settle()
	return s, nil
}

// write one object, if the user may.
func (x *explainer) write(ctx context.Context, s *supposed, access *admission.Plugin, w admission.Supposed, admitted bool) error {
	if w.Deleted && !w.Exists {
		return nil
	}
	var ours client.Object
	if own(w.Object) {
		var err error
		if ours, err = read(&w); err != nil {
			return err
		}
	}
	if !admitted {
		if err := access.Refusal(ctx, x.user, w); err != nil {
			return err
		}
	}
	if ours != nil {
		return s.writeOurs(ours, w)
	}
	return s.writeTemplate(w)
}

// own tells of objects of the hub's own kinds.
func own(o *unstructured.Unstructured) bool { return atoll.OwnKind(o.GroupVersionKind().GroupKind()) }

// deciding are the hub's own kinds that do.
var deciding = map[string]func(schemas offline.Schemas, o *unstructured.Unstructured) (client.Object, error){
	"Cluster":                  readAs[v1alpha1.Cluster],
	"ClusterSet":               readAs[v1alpha1.ClusterSet],
	"ClusterSetBinding":        readAs[v1alpha1.ClusterSetBinding],
	"ClusterScore":             readAs[v1alpha1.ClusterScore],
	"HubSettings":              readAs[v1alpha1.HubSettings],
	"Placement":                readAs[v1alpha1.Placement],
	"ClusterPlacement":         readAs[v1alpha1.ClusterPlacement],
	"PropagationPolicy":        readAs[v1alpha1.PropagationPolicy],
	"ClusterPropagationPolicy": readAs[v1alpha1.ClusterPropagationPolicy],
	"OverridePolicy":           readAs[v1alpha1.OverridePolicy],
	"ClusterOverridePolicy":    readAs[v1alpha1.ClusterOverridePolicy],
	"ResourceInterpreter":      readAs[v1alpha1.ResourceInterpreter],
	karmada.CustomizationKind:  readAs[karmada.ResourceInterpreterCustomization],
}

// readAs a T: an object that the API server gave as it is, another by the schema.
func readAs[T any, P interface {
	*T
	client.Object
}](schemas offline.Schemas, o *unstructured.Unstructured) (client.Object, error) {
	if schemas != nil {
		v, err := offline.Typed[T](schemas, o)
		return P(v), err
	}
	v := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, v); err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}
	return P(v), nil
}

var ownSchemas = sync.OnceValues(offline.ReadSchemas)

// read an object of Atoll's API, of one that would be deleted as it is. What no dry run has
// seen gets the defaults that the API server would fill in.
func read(w *admission.Supposed) (client.Object, error) {
	as, ok := deciding[w.Object.GetKind()]
	if !ok {
		return nil, fmt.Errorf("the hub writes it itself: nobody can plan a %s", w.Object.GetKind())
	}
	switch {
	case w.Deleted && w.Before != nil:
		return as(nil, w.Before)
	case w.Deleted || w.Object.GetUID() != "":
		return as(nil, w.Object)
	}
	schemas, err := ownSchemas()
	if err != nil {
		return nil, err
	}
	v, err := as(schemas, w.Object)
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

// identify an object as the one that there is, or as a new one.
func (s *supposed) identify(o client.Object, w admission.Supposed, key atoll.ItemKey) {
	if w.Before != nil {
		o.SetUID(w.Before.GetUID())
		o.SetCreationTimestamp(w.Before.GetCreationTimestamp())
	} else {
		o.SetUID(types.UID("new:" + key.String()))
		o.SetCreationTimestamp(metav1.NewTime(s.now))
	}
}

func (s *supposed) writeOurs(o client.Object, w admission.Supposed) error {
	if c, ok := o.(*karmada.ResourceInterpreterCustomization); ok {
		return s.writeInterpreterOf(c, w)
	}
	s.identify(o, w, claim.KeyOf(w.Object))
	if c, ok := o.(*v1alpha1.Cluster); ok {
		leave.Suppose(c, w.Before)
	}
	s.writeOur(o, w.Deleted)
	return nil
}

// writeInterpreterOf a customization, by the function that the hub makes it by: nothing that
// decides knows of the customization itself.
func (s *supposed) writeInterpreterOf(c *karmada.ResourceInterpreterCustomization, w admission.Supposed) error {
	now, _ := s.state.Policies.Interpreter(c.Name)
	i, err := script.FromKarmada(c, now)
	if err != nil {
		return err
	}
	if now == nil {
		s.identify(i, admission.Supposed{}, atoll.ItemKey{Group: v1alpha1.GroupVersion.Group, Kind: i.Kind, Name: i.Name})
	}
	s.writeOur(i, w.Deleted)
	return nil
}

// writeOur object, which is identified, or delete it.
func (s *supposed) writeOur(o client.Object, deleted bool) {
	if o.SetDeletionTimestamp(nil); deleted {
		at := metav1.NewTime(s.now)
		o.SetDeletionTimestamp(&at)
	}
	s.ours = append(s.ours, o)
}

func (s *supposed) writeTemplate(w admission.Supposed) error {
	o, key := w.Object, claim.KeyOf(w.Object)
	if w.Deleted {
		o = w.Before.DeepCopy()
		at := metav1.NewTime(s.now)
		o.SetDeletionTimestamp(&at)
	} else {
		s.identify(o, w, key)
	}
	if isNamespace(key) {
		ns := &corev1.Namespace{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, ns); err != nil {
			return fmt.Errorf("read it: %w", err)
		}
		s.namespaces = append(s.namespaces, ns)
	}
	s.templates[key] = o
	return nil
}

// before finds what there is of the object that would be written.
func (s *supposed) before(o *unstructured.Unstructured) admission.Supposed {
	w, key := admission.Supposed{Object: o}, claim.KeyOf(o)
	if !own(o) {
		w.Before, w.Exists = s.state.Templates.Get(key)
		return w
	}
	if is, ok := s.ourBefore(o, key); ok {
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

// ourBefore gives what there is of Atoll's API, nil where the tables tell no more than that
// there is one.
func (s *supposed) ourBefore(o *unstructured.Unstructured, key atoll.ItemKey) (client.Object, bool) {
	st := s.state
	switch key.Kind {
	case "Cluster":
		c, ok := st.Clusters.Get(key.Name)
		return c, ok
	case "ClusterSet":
		c, ok := st.Sets.Get(key.Name)
		return c, ok
	case "ClusterSetBinding":
		// The set that it names is what it is about.
		set, _, _ := unstructured.NestedString(o.Object, "spec", "clusterSet")
		if set == "" {
			set = key.Name
		}
		if !st.Sets.BoundBy(key.Namespace, set) {
			return nil, false
		}
		return &v1alpha1.ClusterSetBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: set}, Spec: v1alpha1.ClusterSetBindingSpec{ClusterSet: set},
		}, true
	case "ClusterScore":
		return nil, st.Scores.Knows(key.Namespace, key.Name)
	case "HubSettings":
		return nil, key.Name == v1alpha1.HubSettingsName && len(st.Views.Listed()) > 0
	case "Placement", "ClusterPlacement":
		if p, ok := st.Placements.Get(types.NamespacedName{Namespace: key.Namespace, Name: key.Name}); ok {
			return p.Object(), true
		}
		return nil, false
	case karmada.CustomizationKind:
		i, ok := st.Policies.Interpreter(key.Name)
		return nil, ok && script.MadeOf(i) == key.Name
	}
	return st.Policies.Get(state.PolicyKey{Kind: key.Kind, Namespace: key.Namespace, Name: key.Name})
}

// has tells whether an object of one of the types would be written.
func has[A, B any](list []client.Object) bool {
	return slices.ContainsFunc(list, func(o client.Object) bool {
		_, a := o.(A)
		_, b := o.(B)
		return a || b
	})
}

// settle the tables with what is supposed by now. They are the hub's own where nothing of
// them changes.
func (s *supposed) settle() {
	s.clusters, s.sets, s.views, s.scores = s.state.Clusters, s.state.Sets, s.state.Views, s.state.Scores
	moved := has[*v1alpha1.Cluster, *v1alpha1.ClusterSet](s.ours)
	if moved {
		s.clusters = s.clusters.With(s.ours...)
	}
	if moved || has[*v1alpha1.ClusterSetBinding, *v1alpha1.ClusterSetBinding](s.ours) {
		s.sets = s.sets.With(s.clusters, s.ours...)
	}
	if moved || has[*v1alpha1.HubSettings, *v1alpha1.HubSettings](s.ours) {
		s.views = s.views.With(s.clusters, s.ours...)
	}
	if has[*v1alpha1.ClusterScore, *v1alpha1.ClusterScore](s.ours) {
		s.scores = s.scores.With(s.ours...)
	}
}

// tables that place reads, of those that differ.
func (s *supposed) tables() (t place.Tables) {
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
	return t
}

// placements that would be written.
func (s *supposed) placements() (keys []types.NamespacedName) {
	for _, o := range s.ours {
		switch o.(type) {
		case *v1alpha1.Placement, *v1alpha1.ClusterPlacement:
			keys = append(keys, client.ObjectKeyFromObject(o))
		}
	}
	return keys
}

// binding is what bind is asked.
func (s *supposed) binding() bind.Supposed {
	out := bind.Supposed{
		Templates: s.state.Templates.With(s.templates), Namespaces: s.state.Namespaces.With(s.namespaces...),
		Policies: s.state.Policies.With(s.ours...), ChangedPlacements: s.placements(),
	}
	if len(out.ChangedPlacements) > 0 {
		out.Placements = s.state.Placements.With(s.ours...)
	}
	for key := range s.templates {
		out.ChangedTemplates = append(out.ChangedTemplates, key)
	}
	slices.SortFunc(out.ChangedTemplates, atoll.ItemKey.Compare)
	for _, ns := range s.namespaces {
		out.ChangedNamespaces = append(out.ChangedNamespaces, ns.Name)
	}
	for _, o := range s.ours {
		if state.IsPolicy(o) {
			out.ChangedPolicies = append(out.ChangedPolicies, bind.PolicyKey(state.PolicyKeyOf(o)))
		}
	}
	return out
}
