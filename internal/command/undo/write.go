package undo

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/plan"
	"atoll.dev/atoll/internal/undo/history"
)

// maxConflictTries is how often an object, and the owners of its fields, are written where the hub writes at the same time.
const maxConflictTries = 5

// encodePatch returns the merge patch from the present object to the restored one.
func (ch *change) encodePatch(precondition bool) ([]byte, error) {
	var bound map[string]any
	if precondition {
		bound = map[string]any{"resourceVersion": ch.present.GetResourceVersion()}
	}
	return history.EncodePatch(ch.present.Object, ch.wanted.Object, bound)
}

// offerDryRun offers the change to the hub as a dry run, and adds what would be stored to the plan.
func (ch *change) offerDryRun(ctx context.Context, c *client.Connection, ask *plan.Request) error {
	r, dry := ch.resourceClient(c), []string{metav1.DryRunAll}
	switch {
	case ch.wanted == nil:
		ask.AddDeleted(ch.present)
		return r.Delete(ctx, ch.object.Name, metav1.DeleteOptions{DryRun: dry})
	case ch.present == nil:
		stored, err := r.Create(ctx, ch.wanted, metav1.CreateOptions{DryRun: dry, FieldManager: atoll.PlanManager})
		if err == nil {
			ask.AddWritten(stored)
		}
		return err
	}
	patch, err := ch.encodePatch(true)
	if err != nil {
		return err
	}
	stored, err := r.Patch(ctx, ch.object.Name, types.MergePatchType, patch, metav1.PatchOptions{DryRun: dry, FieldManager: atoll.PlanManager})
	if err == nil {
		ask.AddWritten(stored)
	}
	return err
}

// write carries the change out as the user. Without force it is refused if the object changed since it was read, in more than
// the status that the hub writes.
func (ch *change) write(ctx context.Context, c *client.Connection, force bool) error {
	for try := 1; ; try++ {
		err := ch.writeVersion(ctx, c, force)
		if !apierrors.IsConflict(err) || force || ch.present == nil || try == maxConflictTries {
			return err
		}
		live, readErr := ch.resourceClient(c).Get(ctx, ch.object.Name, metav1.GetOptions{})
		if readErr != nil || !isSameButStatus(ch.present, live) {
			return err
		}
		ch.present.SetResourceVersion(live.GetResourceVersion())
	}
}

// isSameButStatus reports whether two versions of an object differ in nothing but the status and its owners.
func isSameButStatus(a, b *unstructured.Unstructured) bool {
	withoutStatus := func(o *unstructured.Unstructured) map[string]any {
		c := o.DeepCopy()
		delete(c.Object, "status")
		c.SetResourceVersion("")
		c.SetManagedFields(nil)
		return c.Object
	}
	return reflect.DeepEqual(withoutStatus(a), withoutStatus(b))
}

// writeVersion carries the change out on the version that was read, or with force on any.
func (ch *change) writeVersion(ctx context.Context, c *client.Connection, force bool) error {
	r, m := ch.resourceClient(c), ch.target.ChooseManager()
	switch {
	case ch.wanted == nil:
		uid, version := ch.present.GetUID(), ch.present.GetResourceVersion()
		o := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}}
		if force {
			o.Preconditions = nil
		}
		return r.Delete(ctx, ch.object.Name, o)
	case ch.present == nil:
		live, err := r.Create(ctx, ch.wanted, metav1.CreateOptions{FieldManager: m.Name})
		if err != nil || len(ch.target.ManagedFields) == 0 {
			return err
		}
		return writeOwners(ctx, r, live, func(live []any) []any { return history.RestoreOwnership(live, ch.target.ManagedFields, m.Name) })
	}
	patch, err := ch.encodePatch(!force)
	if err != nil {
		return err
	}
	live, err := r.Patch(ctx, ch.object.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: m.Name})
	if err != nil {
		return err
	}
	before := managedFieldsOf(ch.present)
	return writeOwners(ctx, r, live, func(live []any) []any { return history.JoinOwnership(ch.target.ManagedFields, before, live, m) })
}

func managedFieldsOf(o *unstructured.Unstructured) []any {
	list, _, _ := unstructured.NestedSlice(o.Object, "metadata", "managedFields")
	return list
}

// writeOwners writes the owners of fields; nil: they stay as they are.
func writeOwners(ctx context.Context, r dynamic.ResourceInterface, live *unstructured.Unstructured, change func([]any) []any) error {
	for try := 1; ; try++ {
		owners := change(managedFieldsOf(live))
		if owners == nil {
			return nil
		}
		patch, err := history.EncodeOwners(live.GetResourceVersion(), owners)
		if err != nil {
			return err
		}
		_, err = r.Patch(ctx, live.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: atoll.CLIFieldManager})
		if !apierrors.IsConflict(err) || try == maxConflictTries {
			return wrapOwnersError(err)
		}
		if live, err = r.Get(ctx, live.GetName(), metav1.GetOptions{}); err != nil {
			return wrapOwnersError(err)
		}
	}
}

func wrapOwnersError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the content is taken back, but not the owners of its fields: %w", err)
}

// explainWriteError adds what to do about a refused write.
func (ch *change) explainWriteError(c *client.Connection, err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) && (apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)) {
		return fmt.Errorf("it changed since the plan was made, and is left as it is: look again, or write with --force: %w", err)
	}
	return c.ExplainError(err)
}
