package sources

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/sources/changes"
	"atoll.dev/atoll/internal/sources/fetch"
	"atoll.dev/atoll/internal/sources/render"
)

// accountKey is the key of an account in a context.
type accountKey struct{}

// withAccountOf puts the ServiceAccount of a Source into the context of its requests.
func (r *Reconciler) withAccountOf(ctx context.Context, s *v1alpha1.Source) context.Context {
	return WithAccount(ctx, s.Namespace, accountOf(s))
}

// WithAccount returns a context whose requests by a client of NewTemplateClient have the rights of a ServiceAccount.
func WithAccount(ctx context.Context, namespace, name string) context.Context {
	return context.WithValue(ctx, accountKey{}, accountName{namespace, name})
}

// accountName names a ServiceAccount.
type accountName struct{ namespace, name string }

// accountOf returns the name of the ServiceAccount of a Source.
func accountOf(s *v1alpha1.Source) string {
	if s.Spec.ServiceAccountName != "" {
		return s.Spec.ServiceAccountName
	}
	return v1alpha1.DefaultSourceAccount
}

// impersonator sends each request as the ServiceAccount in its context, and no request without one.
type impersonator struct{ next http.RoundTripper }

// RoundTrip sets the headers of impersonation.
func (i impersonator) RoundTrip(r *http.Request) (*http.Response, error) {
	a, ok := r.Context().Value(accountKey{}).(accountName)
	if !ok {
		return nil, fmt.Errorf("sources: a request names no ServiceAccount")
	}
	r = r.Clone(r.Context())
	r.Header.Set(transport.ImpersonateUserHeader, "system:serviceaccount:"+a.namespace+":"+a.name)
	r.Header[transport.ImpersonateGroupHeader] = []string{"system:serviceaccounts", "system:serviceaccounts:" + a.namespace, "system:authenticated"}
	return i.next.RoundTrip(r)
}

// NewTemplateClient returns a client that writes by the rights of ServiceAccounts.
func NewTemplateClient(cfg *rest.Config) (dynamic.Interface, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return impersonator{next} })
	c, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("client of Sources: %w", err)
	}
	return c, nil
}

// application carries a decision out.
type application struct {
	reconciler *Reconciler
	source     *v1alpha1.Source
	check      repositoryCheck
	wanted     changes.Templates
	decision   changes.Decision
	// old is the inventory by key; nil until it is needed.
	old map[changes.Key]v1alpha1.SourceObject

	failed         int
	reason         atoll.Reason
	errors         []v1alpha1.SourceError
	failedRemovals []v1alpha1.SourceObject
	// unedited is true without an edit of the Source or a sync, and keepsPlaced when the settings changed then, which takes no
	// object out of clusters. holdsExclusion is true when a policy waits for that.
	unedited, keepsPlaced, holdsExclusion bool
	// revision is the one to apply, and later whether it comes after those before; nil until it is needed.
	revision string
	later    *bool
	removed  []v1alpha1.SourceObject
	// isCompared is true after the comparison of unchanged objects with the hub. drift is of those that differ, and uncompared is true when one
	// could not be compared.
	isCompared bool
	drift      []v1alpha1.ChangedObject
	uncompared bool
}

// run applies the objects, and removes the dropped ones when all are applied. It compares the others with what the hub has.
func (a *application) run(ctx context.Context, c fetch.Content) error {
	a.keepOldHashes(a.decision.Unchanged)
	if missing, err := a.isAccountMissing(ctx); err != nil {
		return err
	} else if missing {
		a.failed, a.reason = len(a.wanted.Keys), atoll.ReasonServiceAccountMissing
		a.errors = []v1alpha1.SourceError{{Message: fmt.Sprintf("the ServiceAccount %s, by whose rights the Source writes, does not exist in the namespace %s", accountOf(a.source), a.source.Namespace)}}
		a.keepOldHashes(a.decision.Apply)
		a.failedRemovals = append(a.failedRemovals, a.decision.Remove...)
		return nil
	}
	if err := a.applyObjects(ctx); err != nil {
		return err
	}
	if a.failed > 0 {
		a.failedRemovals = append(a.failedRemovals, a.decision.Remove...)
		return nil
	}
	err := a.removeObjects(ctx)
	a.recordRemovals(c)
	if !a.source.Status.SyncRequest.Equal(a.source.Spec.SyncRequest) {
		a.decision.Keep = slices.DeleteFunc(a.decision.Keep, func(o v1alpha1.SourceObject) bool { return a.isGone(ctx, o) })
	}
	if err != nil {
		return err
	}
	return a.compareObjects(ctx, a.check.changed[a.source.Name])
}

// isGone reports whether an object that stays does not exist any more; false while that is not known.
func (a *application) isGone(ctx context.Context, o v1alpha1.SourceObject) bool {
	object, known, err := a.reconciler.readObject(ctx, a.source, o)
	return err == nil && known && object == nil
}

// removeObjects removes what the commit dropped, while the Source and its Repository are those that the check began
// with. The policy of an object that stays does so, too: without it, the object would go to every cluster.
func (a *application) removeObjects(ctx context.Context) error {
	staying := stayingPolicies{}
	for i, o := range a.decision.Remove {
		why, message, err := a.findInterruption(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			why, message = atoll.ReasonNotApplied, err.Error()
		}
		if why != "" {
			a.failedRemovals = append(a.failedRemovals, a.decision.Remove[i:]...)
			a.reason = cmp.Or(a.reason, why)
			a.errors = append(a.errors, newSourceError(render.Problem{}, message))
			return nil
		}
		if staying.keepPolicy(a, o) {
			continue
		}
		kept := len(a.decision.Keep)
		if err := a.removeObject(ctx, o); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			a.failedRemovals = append(a.failedRemovals, o)
			a.addError(render.Problem{}, o, err)
			staying[changes.NamePolicy(a.source, o)] = ""
		} else if len(a.decision.Keep) > kept {
			staying[changes.NamePolicy(a.source, o)] = a.decision.Keep[kept].Kept
		}
	}
	return nil
}

// findInterruption reads the Source and its Repository again. It returns why nothing may be removed; empty when it may.
func (a *application) findInterruption(ctx context.Context) (why atoll.Reason, message string, err error) {
	source, repo := &v1alpha1.Source{}, &v1alpha1.Repository{}
	if err := a.reconciler.Client.Get(ctx, client.ObjectKeyFromObject(a.source), source); apierrors.IsNotFound(err) {
		source = nil
	} else if err != nil {
		return "", "", fmt.Errorf("read a Source again: %w", err)
	}
	if err := a.reconciler.Client.Get(ctx, client.ObjectKeyFromObject(a.check.repo), repo); apierrors.IsNotFound(err) {
		repo = nil
	} else if err != nil {
		return "", "", fmt.Errorf("read a Repository again: %w", err)
	}
	why, message = changes.FindInterruption(a.source, source, a.check.repo, repo)
	return why, message, nil
}

// isAccountMissing reports whether the ServiceAccount of the Source does not exist.
func (a *application) isAccountMissing(ctx context.Context) (bool, error) {
	var account corev1.ServiceAccount
	err := a.reconciler.Client.Get(ctx, client.ObjectKey{Namespace: a.source.Namespace, Name: accountOf(a.source)}, &account)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the ServiceAccount of a Source: %w", err)
	}
	return false, nil
}

// keepOldHashes restores the hashes of objects that are not applied, so that a later check applies them.
func (a *application) keepOldHashes(indexes []int) {
	for _, i := range indexes {
		old := a.oldEntry(i)
		a.wanted.Keys[i].Hash, a.wanted.Keys[i].UID = old.Hash, old.UID
		a.wanted.Keys[i].Fields, a.wanted.Keys[i].Drift = old.Fields, old.Drift
	}
}

// oldEntry returns the entry of the inventory for an object; zero when there is none.
func (a *application) oldEntry(i int) v1alpha1.SourceObject {
	if a.old == nil {
		a.old = make(map[changes.Key]v1alpha1.SourceObject, len(a.source.Status.Inventory))
		for _, o := range a.source.Status.Inventory {
			a.old[changes.KeyOf(o)] = o
		}
	}
	return a.old[changes.KeyOf(a.wanted.Keys[i])]
}

// applyObject applies one object of the content by server-side apply.
func (a *application) applyObject(ctx context.Context, i int) error {
	return a.applyForm(ctx, i, a.wanted.Objects[i])
}

// applyForm applies a form of an object of the content, and notes whether the Source created the object.
func (a *application) applyForm(ctx context.Context, i int, form *unstructured.Unstructured) error {
	if a.wanted.Resources[i].Empty() {
		return &meta.NoKindMatchError{GroupKind: form.GroupVersionKind().GroupKind()}
	}
	entry := a.wanted.Keys[i]
	before, err := a.readLive(ctx, i)
	if err != nil {
		return err
	}
	after, drift, err := a.applyOver(ctx, i, before, a.keepGenerated(i, form, before))
	if err != nil {
		return err
	}
	// A transition may have created it in this check already.
	a.noteApplied(i, before, after, cmp.Or(entry.UID, a.oldEntry(i).UID))
	drift.MarkApplied(&a.wanted.Keys[i])
	return nil
}

// readLive returns an object of the content as the hub has it; nil when it does not exist.
func (a *application) readLive(ctx context.Context, i int) (*unstructured.Unstructured, error) {
	entry := a.wanted.Keys[i]
	live, err := a.objectsOf(a.wanted.Resources[i], entry.Namespace).Get(ctx, entry.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return live, err
}

// noteApplied notes an object that the hub has stored as the Source applied it. recorded is the UID of the object that the Source created.
func (a *application) noteApplied(i int, before, after *unstructured.Unstructured, recorded types.UID) {
	entry, manager := &a.wanted.Keys[i], changes.FieldManagerOf(a.source)
	entry.UID = changes.CreatedUID(recorded, asMetadata(before), after, manager)
	entry.Fields, entry.Drift = changes.HashOwnedFields(after, manager), ""
}

// asMetadata returns an object without its type; nil for none.
func asMetadata(u *unstructured.Unstructured) metav1.Object {
	if u == nil {
		return nil
	}
	return u
}

// keepGenerated returns a form of an object with what the hub has in fields that each rendering makes by itself.
func (a *application) keepGenerated(i int, form, existing *unstructured.Unstructured) *unstructured.Unstructured {
	return changes.KeepGenerated(form, existing, a.wanted.Generated[i])
}

// sendApply sends the request of a server-side apply.
func (a *application) sendApply(ctx context.Context, objects dynamic.ResourceInterface, form *unstructured.Unstructured, dryRun ...string) (*unstructured.Unstructured, error) {
	return objects.Apply(ctx, form.GetName(), form, metav1.ApplyOptions{FieldManager: changes.FieldManagerOf(a.source), Force: a.source.Spec.Force, DryRun: dryRun})
}

func (a *application) objectsOf(resource schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	return a.reconciler.objectsOf(resource, namespace)
}

// objectsOf returns the client of a resource, in a namespace where that is not empty.
func (r *Reconciler) objectsOf(resource schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return r.Templates.Resource(resource)
	}
	return r.Templates.Resource(resource).Namespace(namespace)
}

// removeObject deletes an object that the Source created and still has alone among Sources.
func (a *application) removeObject(ctx context.Context, o v1alpha1.SourceObject) error {
	// In any version: the one of the inventory may be served no longer while the object still exists.
	m, err := a.reconciler.Client.RESTMapper().RESTMapping(schema.FromAPIVersionAndKind(o.APIVersion, o.Kind).GroupKind())
	if meta.IsNoMatchError(err) {
		o.Kept = string(atoll.ReasonKindUnserved)
		a.decision.Keep = append(a.decision.Keep, o)
		return nil
	}
	if err != nil {
		return err
	}
	objects := a.objectsOf(m.Resource, o.Namespace)
	existing, err := objects.Get(ctx, o.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	if why := changes.FindOwner(o, existing, a.source.Name, changes.FieldManagerOf(a.source)); why != "" {
		o.Kept = string(why)
		a.decision.Keep = append(a.decision.Keep, o)
		return nil
	}
	uid, version := existing.GetUID(), existing.GetResourceVersion()
	policy := metav1.DeletePropagationBackground
	err = objects.Delete(ctx, o.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}, PropagationPolicy: &policy})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	a.removed = append(a.removed, o)
	return nil
}

// recordRemovals records an Event of what a commit removed.
func (a *application) recordRemovals(c fetch.Content) {
	if len(a.removed) == 0 {
		return
	}
	names := make([]string, 0, len(a.removed))
	for _, o := range a.removed {
		names = append(names, o.Kind+" "+o.Name)
	}
	what := changes.DescribeRevision(c.Commit)
	if c.Message != "" {
		what += " (" + c.Message + ")"
	}
	message := fmt.Sprintf("%s dropped %s, deleted on the hub", what, phrase.JoinFirst(names, 10, len(names)))
	a.recordEvent(atoll.ReasonRemovedByCommit, message)
}

// recordEvent records an Event about the Source.
func (a *application) recordEvent(reason atoll.Reason, text string) {
	a.reconciler.Events.RecordEvent(corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "Source", Namespace: a.source.Namespace, Name: a.source.Name, UID: a.source.UID,
	}, reason, phrase.TruncateText(phrase.EscapeLine(text), 1024))
}

// reportFailure counts an object that is not applied. The first failure gives the reason.
func (a *application) reportFailure(i int, err error) {
	a.failed++
	a.addError(a.wanted.Places[i], a.wanted.Keys[i], err)
}

// addError adds an error of an object to the status.
func (a *application) addError(at render.Problem, o v1alpha1.SourceObject, err error) {
	reason := atoll.ReasonNotApplied
	text := changes.DescribeError(a.source, o, err)
	switch {
	case apierrors.IsConflict(err):
		reason = atoll.ReasonOwnedByOthers
		text = fmt.Sprintf("this Source (%s) and others state the same fields: %s; remove the fields on one side, or set spec.force", changes.FieldManagerOf(a.source), text)
	case apierrors.IsForbidden(err) && strings.Contains(text, "system:serviceaccount:"):
		reason = atoll.ReasonPermissionMissing
	case meta.IsNoMatchError(err):
		text = "the hub does not serve this kind; apply its CustomResourceDefinition"
	}
	if a.reason == "" {
		a.reason = reason
	}
	if len(a.errors) < render.MaxProblems {
		a.errors = append(a.errors, newSourceError(at, o.Kind+" "+o.Name+": "+text))
	}
}

// describeFailure returns what is not done, in a sentence.
func (a *application) describeFailure() string {
	first := ""
	if len(a.errors) > 0 {
		if first = a.errors[0].Message; a.errors[0].File != "" {
			first = fmt.Sprintf("%s:%d: %s", a.errors[0].File, a.errors[0].Line, first)
		}
	}
	if a.failed == 0 {
		return fmt.Sprintf("%s not removed: %s", phrase.CountNoun(len(a.failedRemovals), "object"), first)
	}
	return fmt.Sprintf("%s of %d not applied, and nothing removed: %s", phrase.CountNoun(a.failed, "object"), len(a.wanted.Keys), first)
}

// newInventory returns the objects that the Source has applied.
func (a *application) newInventory() (out []v1alpha1.SourceObject) {
	for _, o := range a.wanted.Keys {
		if o.Hash != "" {
			out = append(out, o)
		}
	}
	return slices.Concat(out, a.failedRemovals, a.decision.Keep)
}
