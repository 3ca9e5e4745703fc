package plan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/dynamic"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/overrides"
	"atoll.dev/atoll/internal/preview"
	"atoll.dev/atoll/internal/refusal"
)

// fieldManager of the fields of a dry run. For it, the hub returns no warnings of what each object
// alone would change.
const fieldManager = atoll.PlanManager

// maxParallelOffers is how many objects are offered at the same time.
const maxParallelOffers = 16

// Request is what the hub plans over: objects as the API server would store them, and names of those that
// would be deleted.
type Request struct {
	Objects   []*unstructured.Unstructured `json:"objects,omitempty"`
	Deleted   []*unstructured.Unstructured `json:"deleted,omitempty"`
	Refused   []preview.Refusal            `json:"refused,omitempty"`
	Unchecked []preview.Refusal            `json:"unchecked,omitempty"`
	Unchanged []*unstructured.Unstructured `json:"unchanged,omitempty"`
}

// AddWritten adds an object as a dry run of its write returned it.
func (r *Request) AddWritten(u *unstructured.Unstructured) {
	if atoll.IsHubOwnedKind(u.GroupVersionKind().GroupKind()) {
		u.SetManagedFields(nil) // those of templates name the fields that users state
	}
	r.Objects = append(r.Objects, u)
}

// AddDeleted adds an object that would be deleted.
func (r *Request) AddDeleted(u *unstructured.Unstructured) {
	r.Deleted = append(r.Deleted, identityOnly(u))
}

// dryRun offers objects to the hub as dry runs. Make it with newDryRun.
type dryRun struct {
	cluster    *client.Connection
	client     dynamic.Interface
	kindFinder *client.Kinds
	// namespaces and kinds that come with the same files: what needs them cannot be offered
	// yet. settings is true if an object comes by which admission judges other objects.
	namespaces map[string]bool
	kinds      map[schema.GroupKind]bool
	settings   bool

	mu       sync.Mutex
	mappings map[schema.GroupVersionKind]mapping
}

type mapping struct {
	*meta.RESTMapping
	err error
}

func newDryRun(cluster *client.Connection, objects []*unstructured.Unstructured) (*dryRun, error) {
	offers, err := cluster.NewSilentClient()
	if err != nil {
		return nil, err
	}
	t := &dryRun{
		cluster: cluster, client: offers, kindFinder: cluster.ServedKinds(), namespaces: map[string]bool{}, kinds: map[schema.GroupKind]bool{}, mappings: map[schema.GroupVersionKind]mapping{},
	}
	for _, u := range objects {
		switch u.GetKind() {
		case "Namespace":
			t.namespaces[u.GetName()] = true
		case "CustomResourceDefinition":
			t.kinds[kinds.DefinedKind(u)] = true
		case "Cluster", "ClusterSet", "ClusterSetBinding", "HubSettings":
			t.settings = t.settings || u.GroupVersionKind().Group == v1alpha1.GroupVersion.Group
		}
	}
	return t, nil
}

// dryRunOutcome of a dry run: what would be stored, or one of the others.
type dryRunOutcome struct {
	object             *unstructured.Unstructured
	unchanged          bool
	refused, unchecked string
	reason             atoll.Reason // of the refusal
	err                error
}

// run performs all dry runs and returns their results in the order of the objects.
func (t *dryRun) run(ctx context.Context, objects, deleted []*unstructured.Unstructured) (out Request, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	all := append(slices.Clone(objects), deleted...)
	outcomes := make([]dryRunOutcome, len(all))
	next := make(chan int)
	var done sync.WaitGroup
	for range min(maxParallelOffers, len(all)) {
		done.Go(func() {
			for i := range next {
				if i < len(objects) {
					outcomes[i] = t.dryRunApply(ctx, all[i])
				} else {
					outcomes[i] = t.dryRunDelete(ctx, all[i])
				}
				if outcomes[i].err != nil {
					stop()
				}
			}
		})
	}
	for i := range all {
		next <- i
	}
	close(next)
	done.Wait()
	return sumOutcomes(all, len(objects), outcomes)
}

// sumOutcomes returns what the dry runs mean for all objects; those behind the first n are deleted.
func sumOutcomes(all []*unstructured.Unstructured, n int, outcomes []dryRunOutcome) (out Request, err error) {
	for i, o := range outcomes {
		if o.err != nil && (err == nil || errors.Is(err, context.Canceled)) {
			err = o.err
		}
		switch {
		case o.err != nil:
			continue
		case o.refused != "":
			out.Refused = append(out.Refused, preview.Refusal{Object: objectName(all[i]), Why: o.refused, Reason: o.reason})
			continue
		case o.unchecked != "":
			out.Unchecked = append(out.Unchecked, preview.Refusal{Object: objectName(all[i]), Why: o.unchecked, Reason: atoll.ReasonNotOnHubYet})
		}
		switch {
		case o.unchanged:
			out.Unchanged = append(out.Unchanged, identityOnly(all[i]))
		case i < n:
			out.AddWritten(o.object)
		default:
			out.AddDeleted(all[i])
		}
	}
	return out, err
}

// identityOnly is the object without all but its name.
func identityOnly(u *unstructured.Unstructured) *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(u.GroupVersionKind())
	out.SetNamespace(u.GetNamespace())
	out.SetName(u.GetName())
	return out
}

// findMapping returns the mapping of a kind, looked up once.
func (t *dryRun) findMapping(ctx context.Context, gvk schema.GroupVersionKind) mapping {
	t.mu.Lock()
	defer t.mu.Unlock()
	m, known := t.mappings[gvk]
	if !known {
		m.RESTMapping, m.err = t.kindFinder.MappingFor(ctx, gvk)
		t.mappings[gvk] = m
	}
	return m
}

// resourceClientDefaultingNamespace returns the client of the object's kind; the object gets the namespace that it is in.
func (t *dryRun) resourceClientDefaultingNamespace(ctx context.Context, u *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	m := t.findMapping(ctx, u.GroupVersionKind())
	if m.err != nil {
		return nil, m.err
	}
	if m.Scope.Name() != meta.RESTScopeNameNamespace {
		return t.client.Resource(m.Resource), nil
	}
	if u.GetNamespace() == "" {
		u.SetNamespace(t.cluster.Namespace)
	}
	return t.client.Resource(m.Resource).Namespace(u.GetNamespace()), nil
}

func objectName(u *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s", u.GetKind(), strings.TrimPrefix(u.GetNamespace()+"/"+u.GetName(), "/"))
}

// isKindDefinedByFiles reports whether the hub does not serve the object's kind and the same files define it.
func (t *dryRun) isKindDefinedByFiles(u *unstructured.Unstructured, err error) bool {
	return meta.IsNoMatchError(err) && t.kinds[u.GroupVersionKind().GroupKind()]
}

// dryRunApply offers one object as kubectl would apply it.
func (t *dryRun) dryRunApply(ctx context.Context, u *unstructured.Unstructured) dryRunOutcome {
	r, err := t.resourceClientDefaultingNamespace(ctx, u)
	if t.isKindDefinedByFiles(u, err) {
		if u.GetNamespace() == "" {
			u.SetNamespace(t.cluster.Namespace)
		}
		return dryRunOutcome{object: u, unchecked: "its kind comes with the same files"}
	}
	if err != nil {
		return t.judgeError(u, err)
	}
	now, err := r.Get(ctx, u.GetName(), metav1.GetOptions{})
	if client.IsGone(err) {
		now, err = r.Create(ctx, withLastApplied(u), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: fieldManager, FieldValidation: metav1.FieldValidationStrict})
		if apierrors.IsNotFound(err) && t.namespaces[u.GetNamespace()] {
			return dryRunOutcome{object: u, unchecked: "its namespace comes with the same files"}
		}
	} else if err == nil {
		is := now
		if now, err = dryRunPatch(ctx, r, is, u); now == is {
			return dryRunOutcome{unchanged: true}
		}
	}
	if err != nil {
		return t.judgeError(u, err)
	}
	return dryRunOutcome{object: now}
}

// judgeError reads the hub's answer: a refusal of the object is part of the plan, anything else stops
// it. A forbidden object may be permitted together with the other files; the hub decides that with
// the plan.
func (t *dryRun) judgeError(u *unstructured.Unstructured, err error) dryRunOutcome {
	switch {
	case apierrors.IsForbidden(err) && t.settings:
		return dryRunOutcome{object: u}
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err),
		apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), client.IsGone(err), meta.IsNoMatchError(err):
		return dryRunOutcome{refused: refusalText(err), reason: refusal.ReasonOf(err, atoll.ReasonRefused)}
	}
	return dryRunOutcome{err: t.cluster.ExplainError(err)}
}

// refusalText returns the hub's message. The API server puts the whole patch before the message of a
// malformed patch: that part is left out, because it repeats the files and the values of Secrets.
func refusalText(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return err.Error()
	}
	for _, c := range status.Status().Details.Causes {
		said, invalid := strings.CutPrefix(c.Message, "Invalid value: ")
		if c.Field != "patch" || !invalid {
			continue
		}
		if patch, err := strconv.QuotedPrefix(said); err == nil {
			said = said[len(patch):]
		} else if _, after, cut := strings.Cut(said, "]: "); cut {
			said = after
		} else {
			said = ""
		}
		if said = strings.TrimPrefix(said, ": "); said == "" {
			said = "it is malformed"
		}
		return said
	}
	return err.Error()
}

func (t *dryRun) dryRunDelete(ctx context.Context, u *unstructured.Unstructured) dryRunOutcome {
	r, err := t.resourceClientDefaultingNamespace(ctx, u)
	if err == nil {
		err = r.Delete(ctx, u.GetName(), metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	}
	if err != nil {
		return t.judgeError(u, err)
	}
	return dryRunOutcome{}
}

// withLastApplied is the object with the annotation in which kubectl stores what was applied.
func withLastApplied(u *unstructured.Unstructured) *unstructured.Unstructured {
	u = u.DeepCopy()
	annotations := u.GetAnnotations()
	delete(annotations, lastAppliedAnnotation)
	u.SetAnnotations(annotations)
	raw, err := json.Marshal(u.Object)
	if err != nil {
		return u
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[lastAppliedAnnotation] = string(raw) + "\n"
	u.SetAnnotations(annotations)
	return u
}

const lastAppliedAnnotation = "kubectl.kubernetes.io/last-applied-configuration"

// dryRunPatch is what the object that is there would become; the same, where nothing of it
// would change.
func dryRunPatch(ctx context.Context, r dynamic.ResourceInterface, is, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if is.GetDeletionTimestamp() != nil {
		return nil, apierrors.NewConflict(schema.GroupResource{Group: is.GroupVersionKind().Group, Resource: is.GetKind()}, is.GetName(), errors.New("it is being deleted"))
	}
	current, err := json.Marshal(is.Object)
	if err != nil {
		return nil, err
	}
	modified, err := json.Marshal(withLastApplied(u).Object)
	if err != nil {
		return nil, err
	}
	original := []byte(is.GetAnnotations()[lastAppliedAnnotation])
	patch, kind, err := threeWayPatch(is.GroupVersionKind(), original, modified, current)
	if err != nil {
		return nil, fmt.Errorf("compare %s with what is there: %w", objectName(u), err)
	}
	if string(patch) == "{}" {
		return is, nil
	}
	return r.Patch(ctx, u.GetName(), kind, patch, metav1.PatchOptions{
		DryRun: []string{metav1.DryRunAll}, FieldManager: fieldManager, FieldValidation: metav1.FieldValidationStrict,
	})
}

// threeWayPatch is the patch that kubectl apply would send.
func threeWayPatch(gvk schema.GroupVersionKind, original, modified, current []byte) ([]byte, types.PatchType, error) {
	lists, known, err := overrides.BuiltInMergeMeta(gvk)
	if err != nil {
		return nil, "", err
	}
	if !known || gvk.Group == apiextensionsv1.GroupName {
		if len(original) == 0 {
			original = nil
		}
		patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(original, modified, current)
		return patch, types.MergePatchType, err
	}
	patch, err := strategicpatch.CreateThreeWayMergePatch(original, modified, current, lists, true)
	return patch, types.StrategicMergePatchType, err
}
