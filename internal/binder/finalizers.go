package binder

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/atoll"
)

// addFinalizers adds the finalizer to templates that were admitted before a policy placed them.
func (b *Binder) addFinalizers(ctx context.Context, keys []atoll.ItemKey) error {
	for _, key := range keys {
		t, ok := b.Templates.Get(key)
		if !ok || t.GetDeletionTimestamp() != nil {
			return fmt.Errorf("add the finalizer to %s: %w", key, errPlanStale)
		}
		if slices.Contains(t.GetFinalizers(), atoll.Finalizer) {
			continue
		}
		if b.PutFinalizer != nil {
			if done, err := b.PutFinalizer(ctx, t, atoll.Finalizer); err != nil {
				return fmt.Errorf("add the finalizer to %s: %w", key, err)
			} else if done {
				continue
			}
		}
		if err := b.setFinalizers(ctx, t, append(slices.Clone(t.GetFinalizers()), atoll.Finalizer)); err != nil {
			if client.IgnoreNotFound(err) == nil {
				err = errPlanStale
			}
			return fmt.Errorf("add the finalizer to %s: %w", key, err)
		}
	}
	return nil
}

// setFinalizers fails with a conflict when the template has changed since it was read.
func (b *Binder) setFinalizers(ctx context.Context, t *unstructured.Unstructured, finalizers []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": t.GetResourceVersion(), "finalizers": finalizers,
	}})
	if err != nil {
		return err
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(t.GroupVersionKind())
	obj.SetNamespace(t.GetNamespace())
	obj.SetName(t.GetName())
	return b.Client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch), fieldOwner)
}
