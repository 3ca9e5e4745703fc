package apply

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
)

// replicas is the field that HPAs own.
const replicas = "/spec/replicas"

func isHPA(key atoll.ItemKey) bool {
	return key.Group == "autoscaling" && key.Kind == "HorizontalPodAutoscaler"
}

// keepReplicasStillScaled adds to the fields that are to be left the replicas that were left so
// far, while an HPA of the namespace that may have scaled the object is not yet
// gone, or does not yet have its new target: taken back before, they would go to and
// fro. The caller holds mu.
func (e *MemberApplier) keepReplicasStillScaled(r *ownership.Record, left []string) []string {
	if !slices.Contains(r.Left, replicas) || slices.Contains(left, replicas) {
		return left
	}
	for _, key := range e.book.KeysInNamespace(r.Key.Namespace) {
		if isHPA(key) && e.mayStillScale(key) {
			left = append(slices.Clone(left), replicas)
			slices.Sort(left)
			return left
		}
	}
	return left
}

// mayStillScale reports whether something is still to be done about an HPA that exists. The caller holds mu.
func (e *MemberApplier) mayStillScale(hpa atoll.ItemKey) bool {
	switch s := e.book.Next(hpa); s.Verb {
	case ownership.Delete, ownership.Release, ownership.Replace, ownership.Search:
		return true
	case ownership.Apply:
		return s.Record.UID != ""
	}
	return e.book.LeavingBefore(hpa).Objects > 0
}

// markDueAfterHPAChange lets the fields be looked at that were left in the HPA's namespace,
// after something was done about the HPA. The caller holds mu.
func (e *MemberApplier) markDueAfterHPAChange(hpa atoll.ItemKey) {
	for _, key := range e.book.KeysInNamespace(hpa.Namespace) {
		if r, _ := e.book.Record(key); len(r.Left) > 0 {
			e.markDueUnlessBackingOff(key)
		}
	}
}

// memberOwnedFields lists the fields of the item that the member owns: those that the hub
// names, and the replicas of what an HPA of some manifest scales. The caller
// holds mu.
func (e *MemberApplier) memberOwnedFields(item *atoll.RenderedItem) []string {
	out := slices.Clone(item.MemberOwned)
	for _, targets := range e.scaled {
		if targets[item.Key] && !slices.Contains(out, replicas) {
			out = append(out, replicas)
		}
	}
	slices.Sort(out)
	return out
}

// updateHPATargets notes what the HPAs of a holding target, and gives the keys whose left
// fields may have changed. The caller holds mu.
func (e *MemberApplier) updateHPATargets(h ownership.BundleHolding) []atoll.ItemKey {
	uid, now := h.Manifest.Bundle, map[atoll.ItemKey]bool{}
	for _, key := range e.book.KeysClaimedByBundle(uid) {
		if !isHPA(key) {
			continue
		}
		item := e.book.ItemToApplyOrObserve(uid, key)
		if item == nil {
			continue
		}
		hpa := unstructured.Unstructured{}
		if json.Unmarshal(item.Object, &hpa.Object) != nil {
			continue
		}
		if gk, name, ok := kinds.AutoscalerTarget(&hpa); ok {
			now[atoll.ItemKey{Group: gk.Group, Kind: gk.Kind, Namespace: key.Namespace, Name: name}] = true
		}
	}
	var keys []atoll.ItemKey
	for key := range now {
		keys = append(keys, key)
	}
	for key := range e.scaled[uid] {
		keys = append(keys, key)
	}
	delete(e.scaled, uid)
	if len(now) > 0 {
		e.scaled[uid] = now
	}
	return keys
}

// assignFieldsToHandoverManager assigns the live values of fields to the handover manager, so that they
// stay as they are when we drop the fields. The resource version guards against a
// value that changes in between.
func (e *MemberApplier) assignFieldsToHandoverManager(ctx context.Context, p pendingWork, res member.Resource, paths []string) *Failure {
	for range 20 {
		live, err := e.o.Client.Get(ctx, res, p.Key.Namespace, p.Key.Name)
		if apierrors.IsNotFound(err) || err == nil && string(live.GetUID()) != p.Record.UID {
			e.scheduleRecheck(p.Key)
			return &Failure{Reason: atoll.ReasonApplyFailed, Message: "the object changed while its fields were handed over", First: 100 * time.Millisecond}
		}
		if err != nil {
			return failureFromError(err, p.Key)
		}
		if failure := p.approved.checkUnchanged(live); failure != nil {
			return failure
		}
		patch := identityOnly(live)
		_ = unstructured.SetNestedField(patch, live.GetResourceVersion(), "metadata", "resourceVersion")
		found, failure := copyMemberFields(patch, p.Item, live, paths)
		if failure != nil || !found {
			return failure
		}
		err = e.handoverApply(ctx, p, res, patch)
		if err == nil {
			e.o.Log.Info("fields are left to the member", "object", p.Key, "fields", paths)
			return nil
		}
		if !apierrors.IsConflict(err) {
			return failureFromError(err, p.Key)
		}
	}
	return &Failure{Reason: atoll.ReasonConflict, Waits: true, Message: "the object changes too fast to hand its fields over; tried again"}
}

// removeFieldsFromHandoverManager drops what the handover manager still holds of fields that are ours
// again: ours are applied already, so that no value changes.
func (e *MemberApplier) removeFieldsFromHandoverManager(ctx context.Context, p pendingWork, res member.Resource, obj *unstructured.Unstructured) *Failure {
	back := slices.ContainsFunc(p.Record.Left, func(path string) bool { return !slices.Contains(p.left, path) })
	held := slices.ContainsFunc(obj.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == atoll.HandoverManager })
	if !back || !held {
		return nil
	}
	patch := identityOnly(obj)
	if _, failure := copyMemberFields(patch, p.Item, obj, p.left); failure != nil {
		return failure
	}
	if err := e.handoverApply(ctx, p, res, patch); err != nil {
		return failureFromError(err, p.Key)
	}
	return nil
}

func (e *MemberApplier) handoverApply(ctx context.Context, p pendingWork, res member.Resource, patch map[string]any) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	obj, err := e.o.Client.Apply(ctx, member.Patch{
		Resource: res, Namespace: p.Key.Namespace, Name: p.Key.Name,
		Manager: atoll.HandoverManager, Force: true, Body: body,
	})
	if err == nil {
		p.approved.noteVersion(obj)
	}
	return err
}

// identityOnly returns the object with nothing but its identity.
func identityOnly(obj *unstructured.Unstructured) map[string]any {
	meta := map[string]any{"name": obj.GetName(), "uid": string(obj.GetUID())}
	if ns := obj.GetNamespace(); ns != "" {
		meta["namespace"] = ns
	}
	return map[string]any{"apiVersion": obj.GetAPIVersion(), "kind": obj.GetKind(), "metadata": meta}
}
