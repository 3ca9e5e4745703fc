package sources

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/sources/changes"
)

// Bounds of what a status has of drift.
const maxDriftedObjects, maxDriftedFields, maxDriftManagers = 20, 10, 5

// compareObjects compares the objects that others changed with the content, and corrects them where the Source states it. found are those
// that changed since the last comparison. Objects that the check applied are as in the content.
func (a *application) compareObjects(ctx context.Context, found map[changes.Key]bool) error {
	a.isCompared = true
	for _, i := range a.decision.Unchanged {
		old := a.oldEntry(i)
		if old.Fields != "" && old.Drift == "" && !found[changes.KeyOf(old)] || a.wanted.Resources[i].Empty() {
			continue
		}
		entry := &a.wanted.Keys[i]
		if a.source.Spec.DriftMode() == v1alpha1.SourceDriftIgnore {
			entry.Drift = ""
			continue
		}
		if err := a.compareOne(ctx, i); ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil {
			a.uncompared, entry.Drift = true, cmp.Or(entry.Drift, changes.UnreadObject)
			a.noteDrift(i, changes.ObjectDrift{}, "it cannot be compared: "+changes.DescribeError(a.source, old, err))
		}
	}
	return nil
}

// compareOne compares an object with the content, and corrects it where the Source states it.
func (a *application) compareOne(ctx context.Context, i int) error {
	entry, manager := &a.wanted.Keys[i], changes.FieldManagerOf(a.source)
	live, err := a.readLive(ctx, i)
	if err != nil {
		return err
	}
	hash := changes.HashOwnedFields(live, manager)
	entry.Drift = hash
	form := a.keepGenerated(i, a.wanted.Objects[i], live)
	drift, err := a.findDrift(ctx, i, live, form)
	if err != nil {
		return err
	}
	drift.MarkEntry(entry, hash)
	if !drift.IsDrifted() {
		return nil
	}
	if a.source.Spec.DriftMode() != v1alpha1.SourceDriftCorrect {
		a.noteDrift(i, drift, "")
		return nil
	}
	if why := a.findObstacle(i, drift); why != "" {
		a.noteDrift(i, drift, "it is not corrected, because "+why)
		return nil
	}
	return a.correctObject(ctx, i, live, drift.KeepAllowed(form), drift)
}

// findDrift returns how an object differs from its form in the content.
func (a *application) findDrift(ctx context.Context, i int, live, form *unstructured.Unstructured) (changes.ObjectDrift, error) {
	if live == nil {
		return changes.ObjectDrift{IsGone: true}, nil
	}
	applied, err := a.takeOver(ctx, i, live, form, metav1.DryRunAll)
	if err != nil {
		return changes.ObjectDrift{}, err
	}
	return changes.FindDrift(a.source, changes.KeyOf(a.wanted.Keys[i]), live, applied), nil
}

// findObstacle returns why an object is not corrected; empty when it is.
func (a *application) findObstacle(i int, drift changes.ObjectDrift) string {
	if rival := drift.FindRival(); rival != "" {
		return "another Source (" + rival + ") states the same fields; remove them on one side"
	}
	if drift.IsGone && len(a.wanted.Generated[i]) > 0 {
		return "the chart makes values of it by itself, which can belong to those of other objects; run `atoll source sync` to make it again"
	}
	return ""
}

// correctObject applies an object again that others changed or deleted.
func (a *application) correctObject(ctx context.Context, i int, live, form *unstructured.Unstructured, drift changes.ObjectDrift) error {
	why, _, err := a.findInterruption(ctx)
	if err != nil || why != "" {
		return err // the check of the present spec decides
	}
	after, err := a.takeOver(ctx, i, live, form)
	if err != nil {
		return err
	}
	a.noteApplied(i, live, after, a.wanted.Keys[i].UID)
	drift.MarkApplied(&a.wanted.Keys[i])
	a.reconciler.drift.noteCorrection(client.ObjectKeyFromObject(a.source))
	a.recordEvent(atoll.ReasonDriftCorrected, describeChangedObject(newChangedObject(a.wanted.Keys[i], drift, ""))+"; the Source applied it again")
	return nil
}

// applyOver applies an object of the content over what the hub has; nil for nothing. An object that others changed since the Source applied
// it keeps the values of fields that are allowed to differ. The other fields are taken over if the Source corrects drift. A field that the
// Source states for the first time is not taken over, and no field of another Source. The drift is what was found.
func (a *application) applyOver(ctx context.Context, i int, live, form *unstructured.Unstructured, dryRun ...string) (after *unstructured.Unstructured, drift changes.ObjectDrift, err error) {
	objects := a.objectsOf(a.wanted.Resources[i], form.GetNamespace())
	old, manager := a.oldEntry(i), changes.FieldManagerOf(a.source)
	if live == nil || old.Hash == "" || !changes.IsChangedByOthers(old, live, manager) {
		after, err = a.sendApply(ctx, objects, form, dryRun...)
		return after, drift, err
	}
	if drift, err = a.findDrift(ctx, i, live, form); err != nil {
		return nil, drift, err
	}
	form = drift.KeepAllowed(form)
	after, err = a.sendApply(ctx, objects, form, dryRun...)
	if !apierrors.IsConflict(err) || a.source.Spec.DriftMode() != v1alpha1.SourceDriftCorrect || drift.FindRival() != "" {
		return after, drift, err
	}
	if after, err = a.takeOver(ctx, i, live, form, dryRun...); err == nil && len(dryRun) == 0 {
		a.recordEvent(atoll.ReasonDriftCorrected, describeChangedObject(newChangedObject(a.wanted.Keys[i], drift, ""))+"; the Source applied it as the commit has it")
	}
	return after, drift, err
}

// takeOver applies a form of an object, and takes each of its fields over. An object that does not exist is created. One that has changed
// since it was read is refused, because values that are to stay may be other ones now.
func (a *application) takeOver(ctx context.Context, i int, live, form *unstructured.Unstructured, dryRun ...string) (*unstructured.Unstructured, error) {
	objects := a.objectsOf(a.wanted.Resources[i], form.GetNamespace())
	if live != nil && len(dryRun) == 0 {
		form = form.DeepCopy()
		form.SetResourceVersion(live.GetResourceVersion())
	}
	return objects.Apply(ctx, form.GetName(), form, metav1.ApplyOptions{FieldManager: changes.FieldManagerOf(a.source), Force: true, DryRun: dryRun})
}

// noteDrift notes an object that differs. An Event reports one that was not known to differ.
func (a *application) noteDrift(i int, drift changes.ObjectDrift, message string) {
	o := newChangedObject(a.wanted.Keys[i], drift, message)
	before := slices.IndexFunc(a.source.Status.Drift, func(was v1alpha1.ChangedObject) bool {
		return was.Kind == o.Kind && was.Namespace == o.Namespace && was.Name == o.Name
	})
	if before >= 0 {
		o.Since = a.source.Status.Drift[before].Since
	}
	if !changes.IsDrifted(a.oldEntry(i)) {
		a.recordEvent(atoll.ReasonChangedOnHub, describeChangedObject(o))
	}
	a.drift = append(a.drift, o)
}

// newChangedObject returns an object that differs, for the status.
func newChangedObject(entry v1alpha1.SourceObject, drift changes.ObjectDrift, message string) v1alpha1.ChangedObject {
	o := v1alpha1.ChangedObject{
		Kind: entry.Kind, Namespace: entry.Namespace, Name: entry.Name, Deleted: drift.IsGone, Since: metav1.Now().Rfc3339Copy(),
		Message: phrase.TruncateText(phrase.EscapeLine(message), 512),
	}
	for _, f := range drift.Fields[:min(len(drift.Fields), maxDriftedFields)] {
		o.Fields = append(o.Fields, phrase.TruncateText(phrase.EscapeLine(f.Path), 256))
	}
	for _, m := range drift.Managers[:min(len(drift.Managers), maxDriftManagers)] {
		o.Managers = append(o.Managers, phrase.EscapeLine(m))
	}
	return o
}

// setDrift sets what the comparison found. Without one, the status keeps what the last one found of objects that still differ.
func (a *application) setDrift(now *v1alpha1.Source) {
	now.Status.Objects.Drifted = changes.CountDrifted(now.Status.Inventory)
	if a.isCompared {
		now.Status.Drift = a.drift[:min(len(a.drift), maxDriftedObjects)]
	} else {
		now.Status.Drift = slices.DeleteFunc(slices.Clone(now.Status.Drift), func(o v1alpha1.ChangedObject) bool {
			return !slices.ContainsFunc(now.Status.Inventory, func(entry v1alpha1.SourceObject) bool {
				return entry.Kind == o.Kind && entry.Namespace == o.Namespace && entry.Name == o.Name && changes.IsDrifted(entry)
			})
		})
	}
	setInSync(now)
}

// describeDrift returns the objects that differ, in a sentence.
func describeDrift(objects []v1alpha1.ChangedObject, all int) string {
	texts := make([]string, 0, len(objects))
	for _, o := range objects {
		texts = append(texts, describeChangedObject(o))
	}
	return phrase.CountNoun(all, "object") + " of the Source changed on the hub: " + phrase.JoinFirstBy("; ", texts, 5)
}

// describeChangedObject returns how an object differs.
func describeChangedObject(o v1alpha1.ChangedObject) string {
	text := o.Kind + " " + o.Name
	switch {
	case o.Deleted:
		text += " was deleted"
	case len(o.Fields) > 0:
		text += " has other values at " + strings.Join(o.Fields, ", ")
	}
	if len(o.Managers) > 0 {
		text += ", managed by " + strings.Join(o.Managers, ", ")
	}
	if o.Message != "" {
		text = fmt.Sprintf("%s: %s", text, o.Message)
	}
	return text
}
