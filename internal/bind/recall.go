package bind

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
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/state"
)

// decision is what an administrator last said of a Bundle's held removals.
func decision(bundle state.Bundle) string {
	confirm, keep := bundle.Meta.Annotations[atoll.AnnotationConfirm], bundle.Meta.Annotations[atoll.AnnotationKeep]
	if confirm == "" && keep == "" {
		return ""
	}
	return confirm + " " + keep
}

// settleRecall carries out what was decided of exactly those deletions that the
// content holds back: confirmed templates are deleted, as their users did before the
// hub was restored, and from then on go the way of any; kept ones are marked so.
func (b *Binder) settleRecall(ctx context.Context, bundle state.Bundle, content *atoll.Content) error {
	plan, items := atoll.RecallPlan(bundle.Ref.UID, content)
	if plan == "" {
		return nil
	}
	act := b.keepTemplate
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
		if note, held := atoll.Recalled(t.GetAnnotations()); held && note == item.Recalled {
			errs = append(errs, act(ctx, t))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("carry out what was decided by plan %s of deletions before the restore: %w", plan, err)
	}
	return nil
}

func (b *Binder) deleteTemplate(ctx context.Context, t *unstructured.Unstructured) error {
	uid := t.GetUID()
	if err := b.Client.Delete(ctx, bare(t), client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s: %w", claim.KeyOf(t), err)
	}
	b.Log.Info("a deletion from before the restore is confirmed", "template", claim.KeyOf(t).String(), "uid", uid)
	return nil
}

func (b *Binder) keepTemplate(ctx context.Context, t *unstructured.Unstructured) error {
	note := strings.Replace(t.GetAnnotations()[atoll.AnnotationRecalled], atoll.RecalledDeleted, "since "+time.Now().UTC().Format(time.RFC3339)+", though deleted", 1)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": t.GetUID(), "annotations": map[string]string{atoll.AnnotationRecalled: atoll.RecalledKept + " " + note},
	}})
	if err != nil {
		return err
	}
	if err := b.Client.Patch(ctx, bare(t), client.RawPatch(types.MergePatchType, patch), owner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("keep %s: %w", claim.KeyOf(t), err)
	}
	b.Log.Info("a template that was deleted before the restore is kept", "template", claim.KeyOf(t).String(), "uid", t.GetUID())
	return nil
}

// bare names an object.
func bare(t *unstructured.Unstructured) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(t.GroupVersionKind())
	obj.SetNamespace(t.GetNamespace())
	obj.SetName(t.GetName())
	return obj
}
