package plan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"

	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/plan"
)

// manager of the fields of a dry run, as of kubectl apply.
const manager = "kubectl-client-side-apply"

// request is what the hub plans over.
type request struct {
	Objects   []*unstructured.Unstructured `json:"objects,omitempty"`
	Deleted   []*unstructured.Unstructured `json:"deleted,omitempty"`
	Refused   []plan.Refusal               `json:"refused,omitempty"`
	Unchecked []plan.Refusal               `json:"unchecked,omitempty"`
}

// trial offers objects to the hub as dry runs.
type trial struct {
	cluster *client.Cluster
	mapper  meta.RESTMapper
	// brought are the namespaces and kinds that come with the same files: what needs them
	// cannot be offered yet.
	namespaces map[string]bool
	kinds      map[schema.GroupKind]bool
	out        request
}

func (t *trial) run(ctx context.Context, objects, deleted []*unstructured.Unstructured) (request, error) {
	t.namespaces, t.kinds = map[string]bool{}, map[schema.GroupKind]bool{}
	for _, u := range objects {
		switch u.GetKind() {
		case "Namespace":
			t.namespaces[u.GetName()] = true
		case "CustomResourceDefinition":
			group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(u.Object, "spec", "names", "kind")
			t.kinds[schema.GroupKind{Group: group, Kind: kind}] = true
		}
	}
	for _, u := range objects {
		if err := t.offer(ctx, u); err != nil {
			return t.out, err
		}
	}
	for _, u := range deleted {
		if err := t.offerDelete(ctx, u); err != nil {
			return t.out, err
		}
	}
	return t.out, nil
}

// resource of the object's kind; the object gets the namespace that it is in.
func (t *trial) resource(u *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	gvk := u.GroupVersionKind()
	m, err := t.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, err
	}
	if m.Scope.Name() != meta.RESTScopeNameNamespace {
		return t.cluster.Dynamic.Resource(m.Resource), nil
	}
	if u.GetNamespace() == "" {
		u.SetNamespace(t.cluster.Namespace)
	}
	return t.cluster.Dynamic.Resource(m.Resource).Namespace(u.GetNamespace()), nil
}

func name(u *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s", u.GetKind(), strings.TrimPrefix(u.GetNamespace()+"/"+u.GetName(), "/"))
}

// offer one object as kubectl would apply it.
func (t *trial) offer(ctx context.Context, u *unstructured.Unstructured) error {
	r, err := t.resource(u)
	if meta.IsNoMatchError(err) && t.kinds[u.GroupVersionKind().GroupKind()] {
		if u.GetNamespace() == "" {
			u.SetNamespace(t.cluster.Namespace)
		}
		t.unchecked(u, "its kind comes with the same files")
		return nil
	}
	if err != nil {
		return t.judge(u, err)
	}
	now, err := r.Get(ctx, u.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) && !client.NoHub(err) {
		now, err = r.Create(ctx, marked(u), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: manager, FieldValidation: metav1.FieldValidationStrict})
		if apierrors.IsNotFound(err) && t.namespaces[u.GetNamespace()] {
			t.unchecked(u, "its namespace comes with the same files")
			return nil
		}
	} else if err == nil {
		now, err = patched(ctx, r, now, u)
	}
	if err != nil {
		return t.judge(u, err)
	}
	t.out.Objects = append(t.out.Objects, now)
	return nil
}

func (t *trial) unchecked(u *unstructured.Unstructured, why string) {
	t.out.Unchecked = append(t.out.Unchecked, plan.Refusal{Object: name(u), Why: why})
	t.out.Objects = append(t.out.Objects, u)
}

// judge what the hub said: a refusal of the object is part of the plan, anything else
// stops it.
func (t *trial) judge(u *unstructured.Unstructured, err error) error {
	switch {
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err),
		apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err) && !client.NoHub(err), meta.IsNoMatchError(err):
		t.out.Refused = append(t.out.Refused, plan.Refusal{Object: name(u), Why: err.Error()})
		return nil
	}
	return t.cluster.Explain(err)
}

func (t *trial) offerDelete(ctx context.Context, u *unstructured.Unstructured) error {
	r, err := t.resource(u)
	if err == nil {
		err = r.Delete(ctx, u.GetName(), metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	}
	if err != nil {
		return t.judge(u, err)
	}
	t.out.Deleted = append(t.out.Deleted, u)
	return nil
}

// marked is the object with the annotation by which kubectl remembers what was applied.
func marked(u *unstructured.Unstructured) *unstructured.Unstructured {
	u = u.DeepCopy()
	annotations := u.GetAnnotations()
	delete(annotations, metav1LastApplied)
	u.SetAnnotations(annotations)
	raw, err := json.Marshal(u.Object)
	if err != nil {
		return u
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[metav1LastApplied] = string(raw) + "\n"
	u.SetAnnotations(annotations)
	return u
}

const metav1LastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// patched is what the object that is there would become.
func patched(ctx context.Context, r dynamic.ResourceInterface, is, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if is.GetDeletionTimestamp() != nil {
		return nil, apierrors.NewConflict(schema.GroupResource{Group: is.GroupVersionKind().Group, Resource: is.GetKind()}, is.GetName(), errors.New("it is being deleted"))
	}
	current, err := json.Marshal(is.Object)
	if err != nil {
		return nil, err
	}
	modified, err := json.Marshal(marked(u).Object)
	if err != nil {
		return nil, err
	}
	original := []byte(is.GetAnnotations()[metav1LastApplied])
	patch, kind, err := threeWay(is.GroupVersionKind(), original, modified, current)
	if err != nil {
		return nil, fmt.Errorf("compare %s with what is there: %w", name(u), err)
	}
	return r.Patch(ctx, u.GetName(), kind, patch, metav1.PatchOptions{
		DryRun: []string{metav1.DryRunAll}, FieldManager: manager, FieldValidation: metav1.FieldValidationStrict,
	})
}

// threeWay is the patch that kubectl apply would send.
func threeWay(gvk schema.GroupVersionKind, original, modified, current []byte) ([]byte, types.PatchType, error) {
	obj, err := scheme.Scheme.New(gvk)
	if err != nil {
		if len(original) == 0 {
			original = nil
		}
		patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(original, modified, current)
		return patch, types.MergePatchType, err
	}
	of, err := strategicpatch.NewPatchMetaFromStruct(obj)
	if err != nil {
		return nil, "", err
	}
	patch, err := strategicpatch.CreateThreeWayMergePatch(original, modified, current, of, true)
	return patch, types.StrategicMergePatchType, err
}
