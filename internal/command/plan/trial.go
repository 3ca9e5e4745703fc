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
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/plan"
	"atoll.dev/atoll/internal/render"
)

// manager of the fields of a dry run. Asked by it, the hub says nothing of what each object
// alone would change.
const manager = atoll.PlanManager

// abreast is how many objects are offered at the same time.
const abreast = 16

// request is what the hub plans over.
type request struct {
	Objects   []*unstructured.Unstructured `json:"objects,omitempty"`
	Deleted   []*unstructured.Unstructured `json:"deleted,omitempty"`
	Refused   []plan.Refusal               `json:"refused,omitempty"`
	Unchecked []plan.Refusal               `json:"unchecked,omitempty"`
	Unchanged []*unstructured.Unstructured `json:"unchanged,omitempty"`
}

// trial offers objects to the hub as dry runs. Make it with newTrial.
type trial struct {
	cluster *client.Cluster
	offers  dynamic.Interface
	kindsOf *client.Kinds
	// namespaces and kinds that come with the same files: what needs them cannot be offered
	// yet. settings tells that something comes by which admission judges other objects.
	namespaces map[string]bool
	kinds      map[schema.GroupKind]bool
	settings   bool

	mu    sync.Mutex
	found map[schema.GroupVersionKind]mapping
}

type mapping struct {
	*meta.RESTMapping
	err error
}

func newTrial(cluster *client.Cluster, objects []*unstructured.Unstructured) (*trial, error) {
	// What the hub foretells of a deletion by itself is no part of the plan of all of them.
	silent := rest.CopyConfig(cluster.Config)
	silent.WarningHandler = rest.NoWarnings{}
	offers, err := dynamic.NewForConfig(silent)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	t := &trial{
		cluster: cluster, offers: offers, kindsOf: cluster.Kinds(), namespaces: map[string]bool{}, kinds: map[schema.GroupKind]bool{}, found: map[schema.GroupVersionKind]mapping{},
	}
	for _, u := range objects {
		switch u.GetKind() {
		case "Namespace":
			t.namespaces[u.GetName()] = true
		case "CustomResourceDefinition":
			group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(u.Object, "spec", "names", "kind")
			t.kinds[schema.GroupKind{Group: group, Kind: kind}] = true
		case "Cluster", "ClusterSet", "ClusterSetBinding", "HubSettings":
			t.settings = t.settings || u.GroupVersionKind().Group == v1alpha1.GroupVersion.Group
		}
	}
	return t, nil
}

// outcome of a dry run: what would be stored, or one of the others.
type outcome struct {
	object             *unstructured.Unstructured
	unchanged          bool
	refused, unchecked string
	err                error
}

// run all dry runs, and give what came of them in the order of the objects.
func (t *trial) run(ctx context.Context, objects, deleted []*unstructured.Unstructured) (out request, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	all := append(slices.Clone(objects), deleted...)
	outcomes := make([]outcome, len(all))
	next := make(chan int)
	var done sync.WaitGroup
	for range min(abreast, len(all)) {
		done.Go(func() {
			for i := range next {
				if i < len(objects) {
					outcomes[i] = t.offer(ctx, all[i])
				} else {
					outcomes[i] = t.offerDelete(ctx, all[i])
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
	for i, o := range outcomes {
		if o.err != nil && (err == nil || errors.Is(err, context.Canceled)) {
			err = o.err
		}
		switch {
		case o.refused != "":
			out.Refused = append(out.Refused, plan.Refusal{Object: name(all[i]), Why: o.refused})
			continue
		case o.unchecked != "":
			out.Unchecked = append(out.Unchecked, plan.Refusal{Object: name(all[i]), Why: o.unchecked})
		}
		switch {
		case o.unchanged:
			out.Unchanged = append(out.Unchanged, named(all[i]))
		case i < len(objects):
			out.Objects = append(out.Objects, o.object)
		default:
			out.Deleted = append(out.Deleted, named(all[i]))
		}
	}
	return out, err
}

// named is the object without all but its name.
func named(u *unstructured.Unstructured) *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(u.GroupVersionKind())
	out.SetNamespace(u.GetNamespace())
	out.SetName(u.GetName())
	return out
}

// mapping of a kind, looked up once.
func (t *trial) mapping(ctx context.Context, gvk schema.GroupVersionKind) mapping {
	t.mu.Lock()
	defer t.mu.Unlock()
	m, known := t.found[gvk]
	if !known {
		m.RESTMapping, m.err = t.kindsOf.Mapping(ctx, gvk)
		t.found[gvk] = m
	}
	return m
}

// resource of the object's kind; the object gets the namespace that it is in.
func (t *trial) resource(ctx context.Context, u *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	m := t.mapping(ctx, u.GroupVersionKind())
	if m.err != nil {
		return nil, m.err
	}
	if m.Scope.Name() != meta.RESTScopeNameNamespace {
		return t.offers.Resource(m.Resource), nil
	}
	if u.GetNamespace() == "" {
		u.SetNamespace(t.cluster.Namespace)
	}
	return t.offers.Resource(m.Resource).Namespace(u.GetNamespace()), nil
}

func name(u *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s", u.GetKind(), strings.TrimPrefix(u.GetNamespace()+"/"+u.GetName(), "/"))
}

// offer one object as kubectl would apply it.
func (t *trial) offer(ctx context.Context, u *unstructured.Unstructured) outcome {
	r, err := t.resource(ctx, u)
	if meta.IsNoMatchError(err) && t.kinds[u.GroupVersionKind().GroupKind()] {
		if u.GetNamespace() == "" {
			u.SetNamespace(t.cluster.Namespace)
		}
		return outcome{object: u, unchecked: "its kind comes with the same files"}
	}
	if err != nil {
		return t.judge(u, err)
	}
	now, err := r.Get(ctx, u.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) && !client.NoHub(err) {
		now, err = r.Create(ctx, marked(u), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: manager, FieldValidation: metav1.FieldValidationStrict})
		if apierrors.IsNotFound(err) && t.namespaces[u.GetNamespace()] {
			return outcome{object: u, unchecked: "its namespace comes with the same files"}
		}
	} else if err == nil {
		is := now
		if now, err = patched(ctx, r, is, u); now == is {
			return outcome{unchanged: true}
		}
	}
	if err != nil {
		return t.judge(u, err)
	}
	if atoll.OwnKind(now.GroupVersionKind().GroupKind()) {
		now.SetManagedFields(nil) // of templates they say what is stated
	}
	return outcome{object: now}
}

// judge what the hub said: a refusal of the object is part of the plan, anything else
// stops it. What is forbidden may be allowed with what comes in the same files; the hub
// judges that with the plan.
func (t *trial) judge(u *unstructured.Unstructured, err error) outcome {
	switch {
	case apierrors.IsForbidden(err) && t.settings:
		return outcome{object: u}
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err),
		apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err) && !client.NoHub(err), meta.IsNoMatchError(err):
		return outcome{refused: refusal(err)}
	}
	return outcome{err: t.cluster.Explain(err)}
}

// refusal is what the hub said. Of a patch that makes no object of its kind the API server
// says the whole patch first: that is left out, since it tells nothing that the files do
// not, and the values of Secrets.
func refusal(err error) string {
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

func (t *trial) offerDelete(ctx context.Context, u *unstructured.Unstructured) outcome {
	r, err := t.resource(ctx, u)
	if err == nil {
		err = r.Delete(ctx, u.GetName(), metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	}
	if err != nil {
		return t.judge(u, err)
	}
	return outcome{}
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

// patched is what the object that is there would become; the same, where nothing of it
// would change.
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
	if string(patch) == "{}" {
		return is, nil
	}
	return r.Patch(ctx, u.GetName(), kind, patch, metav1.PatchOptions{
		DryRun: []string{metav1.DryRunAll}, FieldManager: manager, FieldValidation: metav1.FieldValidationStrict,
	})
}

// threeWay is the patch that kubectl apply would send.
func threeWay(gvk schema.GroupVersionKind, original, modified, current []byte) ([]byte, types.PatchType, error) {
	lists, known, err := render.Lists(gvk)
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
