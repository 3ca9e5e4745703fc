package server

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/fleetview"
)

// RevisionTemplate is what a user stated of a template at a Revision.
type RevisionTemplate struct {
	Number  int64
	Written metav1.Time
	Version string
	// Object as JSON, without what is the API's default.
	Object json.RawMessage
}

// addWorkloadHistory adds to a list the history of its workload, where the list has exactly that one's
// selector, as `kubectl rollout` does. The history is what its user stated, by the hub's
// Revisions. Clusters' own histories include overrides, and each counts its own numbers. So in
// such a list the clusters' objects have the workload as owner only, and the stated ones have it
// as controller.
//
// A list from which a watch starts, of version 0, has none: no event would follow its changes.
func (o *objectStorage) addWorkloadHistory(ctx context.Context, s listRequest, objects []runtime.Object) ([]runtime.Object, error) {
	namespace := request.NamespaceValue(ctx)
	if len(o.kind.pastOf) == 0 || namespace == "" || s.options.LabelSelector == nil || s.options.ResourceVersion != "" {
		return objects, nil
	}
	t, err := o.fleet.hubTables()
	if err != nil {
		return nil, err
	}
	matches := o.requestFilter(s.options)
	for _, k := range o.kind.pastOf {
		for _, template := range t.TemplatesOfKind(k, namespace) {
			if !equalsTemplateSelector(s.options.LabelSelector, template) {
				continue
			}
			past, of, err := o.listWorkloadHistory(ctx, k, template.GetName())
			if err != nil {
				return nil, err
			}
			objects = addHistoryObjects(objects, past, of, matches)
		}
	}
	slices.SortFunc(objects, compareByName)
	return objects, nil
}

// addHistoryObjects adds the matching part of a workload's history. An object of a cluster goes before a past
// of its name.
func addHistoryObjects(objects, past []runtime.Object, workload types.UID, matches func(runtime.Object) bool) []runtime.Object {
	if len(past) > 0 {
		unsetMemberControllerFlags(objects, workload)
	}
	for _, obj := range past {
		if matches(obj) && !slices.ContainsFunc(objects, func(other runtime.Object) bool { return compareByName(obj, other) == 0 }) {
			objects = append(objects, obj)
		}
	}
	return objects
}

// equalsTemplateSelector reports whether a selector is that of a template.
func equalsTemplateSelector(asked labels.Selector, template *unstructured.Unstructured) bool {
	own, ok, err := unstructured.NestedMap(template.Object, "spec", "selector")
	if !ok || err != nil {
		return false
	}
	var selector metav1.LabelSelector
	return runtime.DefaultUnstructuredConverter.FromUnstructured(own, &selector) == nil && fleetview.EqualsWorkloadSelector(asked, &selector)
}

// unsetMemberControllerFlags leaves those of a controller that run in members as owned by it only.
func unsetMemberControllerFlags(objects []runtime.Object, controller types.UID) {
	for _, obj := range objects {
		of, err := meta.Accessor(obj)
		if err != nil || clusterOf(obj) == "" {
			continue
		}
		owners := slices.Clone(of.GetOwnerReferences())
		for i := range owners {
			if owners[i].UID == controller {
				owners[i].Controller = nil
			}
		}
		of.SetOwnerReferences(owners)
	}
}

// listWorkloadHistory returns the history of a workload, which is empty where nothing places it, and its
// UID. It is read from the store: the tables may not have the user's own last write yet.
func (o *objectStorage) listWorkloadHistory(ctx context.Context, k schema.GroupKind, name string) ([]runtime.Object, types.UID, error) {
	workload, err := o.fleet.storedWorkload(ctx, k, name)
	if apierrors.IsNotFound(err) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	t, err := o.fleet.hubTables()
	if err != nil {
		return nil, "", err
	}
	key := atoll.ItemKey{Group: k.Group, Kind: k.Kind, Namespace: workload.Namespace, Name: name}
	stated, next, err := t.RevisionTemplates(ctx, key, workload.UID)
	if err != nil || len(stated) == 0 {
		return nil, "", err
	}
	pasts := make([]fleetview.PastWorkload, 0, len(stated)+1)
	for _, s := range stated {
		then, err := workloadAtRevision(s)
		if err != nil {
			return nil, "", err
		}
		pasts = append(pasts, fleetview.PastWorkload{Number: s.Number, Written: s.Written, Version: s.Version, Template: then.Template, Annotations: then.Annotations})
	}
	// The present state may be in no Revision yet: it is the newest then.
	pasts = fleetview.RolloutHistoryOf(append(pasts, fleetview.PastWorkload{Number: next, Version: workload.ResourceVersion, Template: workload.Template, Annotations: workload.Annotations}))
	out := make([]runtime.Object, len(pasts))
	for i, p := range pasts {
		if out[i], err = o.kind.toHistoryObject(workload, p, i == len(pasts)-1); err != nil {
			return nil, "", err
		}
	}
	return out, workload.UID, nil
}

// storedWorkload returns the workload as it is stored.
func (f *Fleet) storedWorkload(ctx context.Context, k schema.GroupKind, name string) (fleetview.Workload, error) {
	store, ok := f.workloads[k]
	if !ok {
		return fleetview.Workload{}, apierrors.NewNotFound(schema.GroupResource{Group: k.Group, Resource: k.Kind}, name)
	}
	obj, err := store.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return fleetview.Workload{}, err
	}
	return workloadOf(obj)
}

// workloadAtRevision is a workload as it was stated, with the API's defaults.
func workloadAtRevision(s RevisionTemplate) (fleetview.Workload, error) {
	obj, err := runtime.Decode(legacyscheme.Codecs.UniversalDecoder(), s.Object)
	if err != nil {
		return fleetview.Workload{}, fmt.Errorf("read what was stated at revision %d: %w", s.Number, err)
	}
	return workloadOf(obj)
}

func workloadOf(obj runtime.Object) (fleetview.Workload, error) {
	versioned, err := legacyscheme.Scheme.ConvertToVersion(obj, appsv1.SchemeGroupVersion)
	if err != nil {
		return fleetview.Workload{}, fmt.Errorf("read a workload: %w", err)
	}
	w, ok := fleetview.WorkloadOf(versioned)
	if !ok {
		return fleetview.Workload{}, fmt.Errorf("read a workload: it is a %T", versioned)
	}
	return w, nil
}

// toHistoryObject is a past of a workload as storage would have it.
func (k kind) toHistoryObject(w fleetview.Workload, p fleetview.PastWorkload, now bool) (runtime.Object, error) {
	if k.Kind == "ReplicaSet" {
		return k.toInternal(w.ReplicaSet(p, now), k.newObject())
	}
	c, err := w.ControllerRevision(p)
	if err != nil {
		return nil, err
	}
	return k.toInternal(c, k.newObject())
}

// findHistoryObject returns the past of a workload that is shown under a name; nil where there is none.
func (o *objectStorage) findHistoryObject(ctx context.Context, name string) (runtime.Object, error) {
	for _, k := range o.kind.pastOf {
		workload, ok := fleetview.SplitPastName(name, k.Kind)
		if !ok || request.NamespaceValue(ctx) == "" {
			continue
		}
		past, _, err := o.listWorkloadHistory(ctx, k, workload)
		if err != nil {
			return nil, err
		}
		for _, obj := range past {
			if of, err := meta.Accessor(obj); err == nil && of.GetName() == name {
				return obj, nil
			}
		}
	}
	return nil, nil
}

// refuseHistoryChange answers a change of an object that is not stored: it is a user's earlier statement,
// and its place is named.
func (o *objectStorage) refuseHistoryChange(ctx context.Context, name string, err error) error {
	if !apierrors.IsNotFound(err) || o.fleet.isHubIdentity(ctx) {
		return err
	}
	switch past, failed := o.findHistoryObject(ctx, name); {
	case failed != nil:
		return failed
	case past == nil:
		return err
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: o.kind.Group, Resource: o.kind.resource}, name,
		fmt.Errorf("it is what was stated at a revision, which the hub keeps as long as its revision: change what it is controlled by"))
}

// restoreListedControllers takes back what a list with a history left out of the owners of an object, so that one
// may be written as the list gave it.
func (k kind) restoreListedControllers(owners, old []metav1.OwnerReference) []metav1.OwnerReference {
	if len(k.pastOf) == 0 || len(owners) != len(old) {
		return owners
	}
	owners = slices.Clone(owners)
	for i := range owners {
		if owners[i].Controller == nil {
			owners[i].Controller = old[i].Controller
		}
	}
	return owners
}
