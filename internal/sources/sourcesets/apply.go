package sourcesets

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/sources/changes"
	"atoll.dev/atoll/internal/sources/generate"
)

var sourcesResource = v1alpha1.GroupVersion.WithResource("sources")

// maxDenied is how many Sources are tried without the right to write them, so that a missing role costs few requests.
const maxDenied = generate.MaxProblems

// application carries a decision out.
type application struct {
	reconciler *Reconciler
	set        *v1alpha1.SourceSet
	gathered   *gathered
	result     generate.Result
	decision   generate.Decision

	// applied are the generated Sources that are on the hub, and uids those of them that the SourceSet created.
	applied []generate.Made
	uids    map[string]types.UID
	// stay are entries of the inventory that are left as they are: a Source could not be applied or deleted.
	stay   []v1alpha1.GeneratedSource
	failed int
	reason atoll.Reason
	errors []v1alpha1.SourceError
	// denied counts Sources for which the ServiceAccount had no right.
	denied int
	// mayRetry is true where another try can help without a change that is watched.
	mayRetry bool
	// hasChanged is true where a Source was made, changed, deleted or kept.
	hasChanged bool
	// setBackIn is when Sources that others changed are set back.
	setBackIn time.Duration
	// made, setBack and removed are names for Events.
	made, setBack, removed []string
}

// run applies the Sources, and deletes those that are no longer generated when all are applied.
func (a *application) run(ctx context.Context) error {
	defer a.recordEvents()
	for _, m := range a.decision.Unchanged {
		a.noteApplied(m, a.entryOf(m.Name).UID)
	}
	for _, refused := range a.decision.Refused {
		a.addFailure(refused.Made, refused.Reason, refused.Message)
	}
	if err := a.applyAll(ctx); err != nil {
		return err
	}
	a.hasChanged = a.hasChanged || a.keepsMore()
	return a.removeAll(ctx)
}

// keepsMore reports whether a Source is kept that was generated before.
func (a *application) keepsMore() bool {
	for _, o := range a.decision.Keep {
		if a.entryOf(o.Name).Kept == "" {
			return true
		}
	}
	return false
}

// entryOf returns the entry of the inventory for a name; zero when there is none.
func (a *application) entryOf(name string) v1alpha1.GeneratedSource {
	for _, o := range a.set.Status.Inventory {
		if o.Name == name {
			return o
		}
	}
	return v1alpha1.GeneratedSource{}
}

func (a *application) noteApplied(m generate.Made, uid types.UID) {
	a.applied = append(a.applied, m)
	if uid != "" {
		a.uids[m.Name] = uid
	}
}

// applyAll makes and changes Sources.
func (a *application) applyAll(ctx context.Context) error {
	if len(a.decision.Apply) == 0 {
		return nil
	}
	if missing, err := a.isAccountMissing(ctx); err != nil {
		return err
	} else if missing {
		message := fmt.Sprintf("the ServiceAccount %s, by whose rights Sources are written, does not exist in the namespace %s", accountOf(a.set), a.set.Namespace)
		for _, c := range a.decision.Apply {
			a.addFailure(c.Made, atoll.ReasonServiceAccountMissing, message)
		}
		a.mayRetry = true
		return nil
	}
	a.setBackIn = a.pauseOfSetBack()
	for _, c := range a.decision.Apply {
		if c.SetsBack && a.setBackIn > 0 {
			a.noteApplied(c.Made, a.entryOf(c.Name).UID)
			continue
		}
		if a.denied >= maxDenied {
			a.addFailure(c.Made, atoll.ReasonPermissionMissing, fmt.Sprintf("Source %s was not tried, since %d others were refused for a missing right", c.Name, a.denied))
			continue
		}
		if err := a.applyOne(ctx, c); err != nil {
			return err
		}
	}
	if len(a.setBack) > 0 {
		a.reconciler.noteSetBack(a.set)
	}
	return nil
}

// pauseOfSetBack returns how long Sources that others change wait for their correction, so that two writers do not alternate without end.
func (a *application) pauseOfSetBack() time.Duration {
	r := a.reconciler
	r.mu.Lock()
	defer r.mu.Unlock()
	at, has := r.setBack[client.ObjectKeyFromObject(a.set)]
	if !has {
		return 0
	}
	return max(0, setBackPause-time.Since(at))
}

func (r *Reconciler) noteSetBack(set *v1alpha1.SourceSet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setBack[client.ObjectKeyFromObject(set)] = time.Now()
}

// isAccountMissing reports whether the ServiceAccount of the SourceSet does not exist.
func (a *application) isAccountMissing(ctx context.Context) (bool, error) {
	var account corev1.ServiceAccount
	err := a.reconciler.Client.Get(ctx, client.ObjectKey{Namespace: a.set.Namespace, Name: accountOf(a.set)}, &account)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the ServiceAccount of a SourceSet: %w", err)
	}
	return false, nil
}

func (a *application) sourcesClient() dynamic.ResourceInterface {
	return a.reconciler.Templates.Resource(sourcesResource).Namespace(a.set.Namespace)
}

// applyOne applies one Source by server-side apply. A refusal is noted, and any other error returned.
func (a *application) applyOne(ctx context.Context, c generate.Change) error {
	err := a.writeOne(ctx, c)
	if err == nil || ctx.Err() != nil {
		return err
	}
	switch {
	case apierrors.IsConflict(err):
		a.addFailure(c.Made, atoll.ReasonNotApplied, fmt.Sprintf("Source %s was changed at the same time, and is applied again: %v", c.Name, err))
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "system:serviceaccount:"):
		a.denied++
		a.addFailure(c.Made, atoll.ReasonPermissionMissing, fmt.Sprintf("Source %s: %v", c.Name, err))
	case changes.IsRefusal(err):
		a.addFailure(c.Made, atoll.ReasonNotApplied, fmt.Sprintf("Source %s: %v", c.Name, err))
	default:
		return fmt.Errorf("write Source %s: %w", c.Name, err)
	}
	a.mayRetry = true
	return nil
}

// writeOne writes one Source, unless another owner has the name by now.
func (a *application) writeOne(ctx context.Context, c generate.Change) error {
	form := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(c.Object)}
	before, err := a.sourcesClient().Get(ctx, c.Name, metav1.GetOptions{})
	isNew := apierrors.IsNotFound(err)
	if err != nil && !isNew {
		return err
	}
	recorded := a.entryOf(c.Name).UID
	var existing metav1.Object
	if !isNew {
		if before.GetLabels()[v1alpha1.LabelSourceSet] != a.set.Name {
			a.addFailure(c.Made, atoll.ReasonNameTaken, generate.DescribeOwner(a.set, before))
			return nil
		}
		if generate.IsMarkedCreated(before, a.set, fieldManagerOf(a.set)) {
			recorded = before.GetUID() // also where no status was written after the creation
		}
		existing = before
		form.SetResourceVersion(before.GetResourceVersion())
	}
	if isNew || recorded == before.GetUID() {
		generate.MarkCreated(form, a.set)
	}
	after, err := a.sourcesClient().Apply(ctx, c.Name, form, metav1.ApplyOptions{FieldManager: fieldManagerOf(a.set), Force: !isNew})
	if err != nil {
		return err
	}
	uid := changes.CreatedUID(recorded, existing, after, fieldManagerOf(a.set))
	if isNew && uid == "" {
		return a.releaseOne(ctx, c, after)
	}
	a.reconciler.putSource(after)
	a.noteApplied(c.Made, uid)
	a.noteWritten(c, isNew)
	return nil
}

// noteWritten notes a Source that was made or changed.
func (a *application) noteWritten(c generate.Change, isNew bool) {
	a.hasChanged = true
	switch {
	case isNew:
		a.made = append(a.made, c.Name)
	case c.SetsBack:
		a.setBack = append(a.setBack, c.Name)
	}
}

// releaseOne gives back a Source that another client made just before the apply, with fields that do not conflict. An empty form takes
// back what the apply added.
func (a *application) releaseOne(ctx context.Context, c generate.Change, after *unstructured.Unstructured) error {
	form := &unstructured.Unstructured{}
	form.SetGroupVersionKind(after.GroupVersionKind())
	form.SetName(c.Name)
	form.SetNamespace(a.set.Namespace)
	form.SetUID(after.GetUID())
	left, err := a.sourcesClient().Apply(ctx, c.Name, form, metav1.ApplyOptions{FieldManager: fieldManagerOf(a.set), Force: true})
	if err != nil {
		return err
	}
	a.reconciler.putSource(left)
	a.addFailure(c.Made, atoll.ReasonNameTaken, generate.DescribeOwner(a.set, left))
	return nil
}

// putSource puts what the API returned into the table, so that the next reconcile reads its own write.
func (r *Reconciler) putSource(after *unstructured.Unstructured) {
	var s v1alpha1.Source
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(after.Object, &s); err == nil {
		s.ManagedFields = nil
		r.Made.Put(&s)
	}
}

// addFailure notes a Source that is not applied. The first failure gives the reason, and the entry of the inventory stays.
func (a *application) addFailure(m generate.Made, reason atoll.Reason, message string) {
	a.failed++
	a.reason = cmp.Or(a.reason, reason)
	if old := a.entryOf(m.Name); old.Name != "" {
		a.stay = append(a.stay, old)
	}
	a.addError(generate.Problem{Generator: m.Path, File: m.File, Line: m.Line, Message: message})
}

func (a *application) addError(p generate.Problem) {
	if len(a.errors) < generate.MaxProblems {
		a.errors = append(a.errors, p.SourceError())
	}
}

// removeAll deletes the Sources that are no longer generated, while the SourceSet and its Repositories are those that were read.
func (a *application) removeAll(ctx context.Context) error {
	if a.failed > 0 {
		a.stay = append(a.stay, a.decision.Remove...)
		return nil
	}
	for i, o := range a.decision.Remove {
		why, err := a.findInterruption(ctx)
		if err != nil {
			return err
		}
		if why != "" {
			a.stay = append(a.stay, a.decision.Remove[i:]...)
			return nil // what changed is reconciled at once
		}
		if err := a.removeOne(ctx, o); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			a.stay = append(a.stay, o)
			a.reason, a.mayRetry = cmp.Or(a.reason, atoll.ReasonNotApplied), true
			a.addError(generate.Problem{Message: fmt.Sprintf("Source %s is no longer generated, and could not be deleted: %v", o.Name, err)})
		}
	}
	return nil
}

// findInterruption reads the SourceSet again. It returns why nothing may be deleted; empty when it may.
func (a *application) findInterruption(ctx context.Context) (string, error) {
	now := &v1alpha1.SourceSet{}
	err := a.reconciler.Client.Get(ctx, client.ObjectKeyFromObject(a.set), now)
	if apierrors.IsNotFound(err) {
		now = nil
	} else if err != nil {
		return "", fmt.Errorf("read a SourceSet again: %w", err)
	}
	if why := generate.FindInterruption(a.set, now); why != "" {
		return why, nil
	}
	if !a.reconciler.isUnchanged(a.gathered) {
		return "a Repository has changed", nil
	}
	return "", nil
}

// removeOne deletes a Source that the SourceSet created and still has.
func (a *application) removeOne(ctx context.Context, o v1alpha1.GeneratedSource) error {
	existing, err := a.sourcesClient().Get(ctx, o.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		a.hasChanged = true
		return nil
	}
	if err != nil {
		return err
	}
	if why := generate.FindOwner(o, existing, a.set.Name); why != "" {
		o.Kept = string(why)
		a.decision.Keep, a.hasChanged = append(a.decision.Keep, o), true
		return nil
	}
	uid, version, policy := existing.GetUID(), existing.GetResourceVersion(), metav1.DeletePropagationBackground
	err = a.sourcesClient().Delete(ctx, o.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}, PropagationPolicy: &policy})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	a.removed, a.hasChanged = append(a.removed, o.Name), true
	return nil
}

// recordEvents records Events of what was made, set back and deleted.
func (a *application) recordEvents() {
	about := corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "SourceSet", Namespace: a.set.Namespace, Name: a.set.Name, UID: a.set.UID}
	record := func(reason atoll.Reason, names []string, what string) {
		if len(names) > 0 {
			a.reconciler.Events.RecordEvent(about, reason, phrase.TruncateText(what+" "+phrase.JoinFirst(names, 10, len(names)), 1024))
		}
	}
	record(atoll.ReasonSourcesMade, a.made, "made "+phrase.CountNoun(len(a.made), "Source")+":")
	record(atoll.ReasonSourcesSetBack, a.setBack, "set fields back that others had changed in "+phrase.CountNoun(len(a.setBack), "Source")+":")
	record(atoll.ReasonSourcesRemoved, a.removed, "deleted "+phrase.CountNoun(len(a.removed), "Source")+" that no generator gives; the objects that they applied stay:")
}
