package binder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// decisionOnHeldBackDeletions returns an administrator's last decision about a Bundle's held removals.
func decisionOnHeldBackDeletions(bundle state.Bundle) string {
	confirm, keep := bundle.Meta.Annotations[atoll.AnnotationConfirm], bundle.Meta.Annotations[atoll.AnnotationKeep]
	if confirm == "" && keep == "" {
		return ""
	}
	return confirm + " " + keep
}

// decideHeldBackDeletions carries out the decision about exactly the deletions that the content holds
// back. Confirmed templates are deleted, as users deleted them before the hub was restored. Kept
// templates are annotated.
func (b *Binder) decideHeldBackDeletions(ctx context.Context, bundle state.Bundle, content *atoll.Content) error {
	plan, items := atoll.PlanDeletionsRememberedByMembers(bundle.Ref.UID, content)
	if plan == "" {
		return nil
	}
	act := b.annotateAsKept
	switch plan {
	case bundle.Meta.Annotations[atoll.AnnotationConfirm]:
		act = b.deleteTemplate
	case bundle.Meta.Annotations[atoll.AnnotationKeep]:
	default:
		return nil
	}
	var errs []error
	for _, item := range items {
		t, ok := b.Templates.Get(item.Key)
		if !ok || string(t.GetUID()) != item.UID || t.GetDeletionTimestamp() != nil {
			continue
		}
		if note, held := atoll.RememberedDeletionNote(t.GetAnnotations()); held && note == item.RecallNote {
			errs = append(errs, act(ctx, t))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("carry out the decision on plan %s about deletions before the restore: %w", plan, err)
	}
	return nil
}

func (b *Binder) deleteTemplate(ctx context.Context, t *unstructured.Unstructured) error {
	uid := t.GetUID()
	if err := b.Client.Delete(ctx, objectIdentity(t), client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s: %w", policymatch.ItemKeyOf(t), err)
	}
	b.Log.Info("a deletion from before the restore is confirmed", "template", policymatch.ItemKeyOf(t).String(), "uid", uid)
	return nil
}

func (b *Binder) annotateAsKept(ctx context.Context, t *unstructured.Unstructured) error {
	note := strings.Replace(t.GetAnnotations()[atoll.AnnotationRecalled], atoll.RecalledDeleted, "since "+phrase.FormatTime(time.Now())+", though deleted", 1)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": t.GetUID(), "annotations": map[string]string{atoll.AnnotationRecalled: atoll.RecalledKept + " " + note},
	}})
	if err != nil {
		return err
	}
	if err := b.Client.Patch(ctx, objectIdentity(t), client.RawPatch(types.MergePatchType, patch), fieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("keep %s: %w", policymatch.ItemKeyOf(t), err)
	}
	b.Log.Info("a template that was deleted before the restore is kept", "template", policymatch.ItemKeyOf(t).String(), "uid", t.GetUID())
	return nil
}

// objectIdentity returns an object with only the type, namespace and name of t.
func objectIdentity(t *unstructured.Unstructured) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(t.GroupVersionKind())
	obj.SetNamespace(t.GetNamespace())
	obj.SetName(t.GetName())
	return obj
}
