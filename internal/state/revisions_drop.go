package state

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// bundleLockTable keep the cutting and the dropping of one Bundle's Revisions apart: a
// new Revision may name a part that only a dropped one named before.
type bundleLockTable [64]sync.Mutex

// lockOfBundle returns the lock of a Bundle; some Bundles share one.
func (l *bundleLockTable) lockOfBundle(uid string) *sync.Mutex {
	h := fnv.New32a()
	h.Write([]byte(uid))
	return &l[h.Sum32()%uint32(len(l))]
}

// DropRevisions deletes Revisions of one Bundle, and then the parts that none of its others
// needs. A part without a Revision is harmless: after an error it stays until the next
// DropRevisions of the Bundle, or DropAll.
func (t *RevisionTable) DropRevisions(ctx context.Context, revisions []*enginev1.Revision) error {
	if len(revisions) == 0 {
		return nil
	}
	bundle := revisions[0].Spec.Bundle.UID
	lock := t.bundleLocks.lockOfBundle(bundle)
	lock.Lock()
	defer lock.Unlock()
	for _, r := range revisions {
		if err := t.deleteObject(ctx, &enginev1.Revision{ObjectMeta: metav1.ObjectMeta{Name: r.Name}}); err != nil {
			return err
		}
		t.removeObject(r)
	}
	needed := map[string]bool{}
	for _, r := range t.OfBundle(bundle) {
		for _, p := range r.Spec.Parts {
			needed[p.Name] = true
		}
	}
	for _, r := range revisions {
		for _, p := range r.Spec.Parts {
			if needed[p.Name] {
				continue
			}
			needed[p.Name] = true // deleted once is enough
			if err := t.deleteObject(ctx, partObjectOf(p)); err != nil {
				return err
			}
		}
	}
	return nil
}

// DropAll deletes everything that Revisions of a Bundle keep in the store.
func (t *RevisionTable) DropAll(ctx context.Context, bundleUID string) error {
	if err := t.DropRevisions(ctx, t.OfBundle(bundleUID)); err != nil {
		return err
	}
	of := client.MatchingLabels{enginev1.LabelBundle: bundleUID}
	if err := t.client.DeleteAllOf(ctx, &enginev1.RevisionPart{}, of); err != nil {
		return fmt.Errorf("delete the parts of bundle %s: %w", bundleUID, err)
	}
	if err := t.client.DeleteAllOf(ctx, &corev1.Secret{}, client.InNamespace(atoll.SystemNamespace), of); err != nil {
		return fmt.Errorf("delete the secret parts of bundle %s: %w", bundleUID, err)
	}
	return nil
}

func (t *RevisionTable) deleteObject(ctx context.Context, obj client.Object) error {
	if err := client.IgnoreNotFound(t.client.Delete(ctx, obj)); err != nil {
		return fmt.Errorf("delete %T %s: %w", obj, obj.GetName(), err)
	}
	return nil
}

func partObjectOf(p enginev1.PartRef) client.Object {
	if p.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: atoll.SystemNamespace}}
	}
	return &enginev1.RevisionPart{ObjectMeta: metav1.ObjectMeta{Name: p.Name}}
}
