package state

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/tracing"
)

// RevisionTable is the table of Revisions without their content, which is read when
// it is needed and kept for a while.
type RevisionTable struct {
	client      client.Client
	hubKey      []byte
	cache       *contentCache
	bundleLocks bundleLockTable

	mu       sync.RWMutex
	byName   map[string]*enginev1.Revision
	byBundle map[string][]*enginev1.Revision // by number
	notifier[string]
}

func newRevisions(c client.Client, hubKey []byte) (*RevisionTable, error) {
	if len(hubKey) < 32 {
		return nil, fmt.Errorf("state: the hub's key has %d bytes, 32 are needed to name revisions", len(hubKey))
	}
	return &RevisionTable{
		client: c, hubKey: hubKey, cache: newContentCache(contentCacheBytes),
		byName: map[string]*enginev1.Revision{}, byBundle: map[string][]*enginev1.Revision{},
	}, nil
}

// Get returns a Revision, without its content.
func (t *RevisionTable) Get(name string) (*enginev1.Revision, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	r, ok := t.byName[name]
	return r, ok
}

// OfBundle lists the Bundle's Revisions by number, without their content.
func (t *RevisionTable) OfBundle(uid string) []*enginev1.Revision {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Clone(t.byBundle[uid])
}

// Subscribe subscribes to UIDs of Bundles whose Revisions came or went.
func (t *RevisionTable) Subscribe(fn func(bundleUID string)) { t.addSubscriber(fn) }

// GetContent returns the content of a Revision; shared, not to be changed. It reads the API server at the
// first call for a name.
func (t *RevisionTable) GetContent(ctx context.Context, name string) (*atoll.Content, error) {
	if c, ok := t.cache.get(name); ok {
		return c, nil
	}
	var r enginev1.Revision
	if err := t.client.Get(ctx, client.ObjectKey{Name: name}, &r); err != nil {
		return nil, fmt.Errorf("read revision %s: %w", name, err)
	}
	var parts [][]byte
	for _, p := range r.Spec.Parts {
		data, err := t.readPart(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("read part %s of revision %s: %w", p.Name, name, err)
		}
		parts = append(parts, data)
	}
	c, err := decodeContent(r.Spec.Content, parts)
	if err != nil {
		return nil, fmt.Errorf("revision %s: %w", name, err)
	}
	t.cache.add(name, c)
	return c, nil
}

func (t *RevisionTable) readPart(ctx context.Context, p enginev1.PartRef) ([]byte, error) {
	if p.Secret {
		var s corev1.Secret
		err := t.client.Get(ctx, client.ObjectKey{Namespace: atoll.SystemNamespace, Name: p.Name}, &s)
		return s.Data[secretPartKey], err
	}
	var part enginev1.RevisionPart
	err := t.client.Get(ctx, client.ObjectKey{Name: p.Name}, &part)
	return part.Data, err
}

// LatestOfBundle is the Bundle's newest Revision, without its content.
func (t *RevisionTable) LatestOfBundle(bundleUID string) (*enginev1.Revision, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := t.byBundle[bundleUID]
	if len(all) == 0 {
		return nil, false
	}
	return all[len(all)-1], true
}

// compareRevisions sorts by number. If two Revisions have one number, the one that was written
// first counts as the newer: the other is a write of a hub that no longer led.
func compareRevisions(a, b *enginev1.Revision) int {
	if n := cmp.Compare(a.Spec.Number, b.Spec.Number); n != 0 {
		return n
	}
	return cmp.Compare(parseVersion(b.ResourceVersion), parseVersion(a.ResourceVersion))
}

// CreateRevision writes a Revision of the content and returns its name. If the Bundle's latest
// Revision has that content already, nothing is written. An older one of the same content is
// not used again: numbers show people the order, so the new one has its own number. Parts are
// written before the Revision that names them. The Revision keeps the span of ctx, if there is one.
func (t *RevisionTable) CreateRevision(ctx context.Context, ref enginev1.BundleRef, content *atoll.Content) (string, error) {
	lock := t.bundleLocks.lockOfBundle(ref.UID)
	lock.Lock()
	defer lock.Unlock()
	hash := atoll.KeyedHash(t.hubKey, atoll.EncodeContentIdentity(content))
	number := int64(1)
	if last, ok := t.LatestOfBundle(ref.UID); ok {
		if last.Annotations[contentHashAnnotation] == hash {
			return last.Name, nil
		}
		number = last.Spec.Number + 1
	}
	inline, parts, err := encodeContent(content)
	if err != nil {
		return "", fmt.Errorf("cut a revision of bundle %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	rev := &enginev1.Revision{
		ObjectMeta: metav1.ObjectMeta{
			Name:        atoll.RevisionName(ref.UID, number, hash),
			Labels:      map[string]string{enginev1.LabelBundle: ref.UID},
			Annotations: map[string]string{contentHashAnnotation: hash},
		},
		Spec: enginev1.RevisionSpec{Bundle: ref, Number: number, Base: content.MinRevision, Items: int32(len(content.Items)), Content: inline},
	}
	if parent := tracing.TraceparentOf(ctx); parent != "" {
		rev.Annotations[tracing.AnnotationTraceparent] = parent
	}
	for _, p := range parts {
		pr, err := t.writePart(ctx, ref, p)
		if err != nil {
			return "", fmt.Errorf("cut a revision of bundle %s/%s: %w", ref.Namespace, ref.Name, err)
		}
		rev.Spec.Parts = append(rev.Spec.Parts, pr)
	}
	if err := t.client.Create(ctx, rev); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("cut revision %s: %w", rev.Name, err)
	}
	t.cache.add(rev.Name, content)
	if stripped, err := stripRevision(rev); err == nil {
		t.put(stripped.(*enginev1.Revision))
	}
	return rev.Name, nil
}

// contentHashAnnotation is the whole keyed hash of a Revision's content.
const contentHashAnnotation = "engine.atoll.dev/content"

// secretPartKey holds the data of a part that is a Secret.
const secretPartKey = "data"

func (t *RevisionTable) writePart(ctx context.Context, ref enginev1.BundleRef, p contentPart) (enginev1.PartRef, error) {
	meta := metav1.ObjectMeta{
		Name:   ref.UID + "-" + atoll.KeyedHash(t.hubKey, p.data),
		Labels: map[string]string{enginev1.LabelBundle: ref.UID},
	}
	var obj client.Object = &enginev1.RevisionPart{ObjectMeta: meta, Data: p.data}
	if p.secret {
		meta.Namespace = atoll.SystemNamespace
		obj = &corev1.Secret{ObjectMeta: meta, Type: "engine.atoll.dev/revision-part", Data: map[string][]byte{secretPartKey: p.data}}
	}
	if err := t.client.Create(ctx, obj); err != nil && !apierrors.IsAlreadyExists(err) {
		return enginev1.PartRef{}, fmt.Errorf("write part %s: %w", meta.Name, err)
	}
	return enginev1.PartRef{Name: meta.Name, Secret: p.secret}, nil
}

// stripRevision keeps the content out of the watch cache.
func stripRevision(obj any) (any, error) {
	r, ok := obj.(*enginev1.Revision)
	if !ok {
		return obj, nil
	}
	bare := *r
	bare.Spec.Content, bare.ManagedFields = nil, nil
	return bare.DeepCopy(), nil
}

func (t *RevisionTable) put(obj client.Object) {
	r := obj.(*enginev1.Revision)
	t.mu.Lock()
	if _, ok := t.byName[r.Name]; ok {
		t.mu.Unlock()
		return
	}
	t.byName[r.Name] = r
	all := append(slices.Clone(t.byBundle[r.Spec.Bundle.UID]), r)
	slices.SortFunc(all, compareRevisions)
	t.byBundle[r.Spec.Bundle.UID] = all
	t.mu.Unlock()
	t.notifyAll(r.Spec.Bundle.UID)
}

func (t *RevisionTable) removeObject(obj client.Object) {
	t.mu.Lock()
	r, ok := t.byName[obj.GetName()]
	if !ok {
		t.mu.Unlock()
		return
	}
	delete(t.byName, r.Name)
	uid := r.Spec.Bundle.UID
	rest := slices.DeleteFunc(slices.Clone(t.byBundle[uid]), func(o *enginev1.Revision) bool { return o.Name == r.Name })
	if t.byBundle[uid] = rest; len(rest) == 0 {
		delete(t.byBundle, uid)
	}
	t.mu.Unlock()
	t.cache.remove(r.Name)
	t.notifyAll(uid)
}
