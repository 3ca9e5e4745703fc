package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/apis/core"

	"atoll.dev/atoll/internal/apiserver/etcd"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/metrictable"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/refusal"
)

const (
	// storePath answers with the state of the store.
	storePath = "/readyz/store"
	// smallGrowth is the number of bytes that an update may add in the reserve to an object that is
	// being deleted, or of a kind in smallGrowthKinds.
	smallGrowth = 256
)

// smallGrowthKinds are what people write to get out of the reserve, to confirm a removal or to deny a
// cluster, and the leases of their controllers.
var smallGrowthKinds = map[schema.GroupResource]bool{
	{Group: atollGroup, Resource: clusters}:            true,
	{Group: atollGroup, Resource: bundles}:             true,
	{Group: atollGroup, Resource: "clusterbundles"}:    true,
	{Group: "coordination.k8s.io", Resource: "leases"}: true,
}

// spaceObserver returns the room in the store. etcd.Server and etcd.External are its kinds.
type spaceObserver interface {
	Space() etcd.StoreSpace
	OnSpaceChange(fn func(etcd.StoreSpace))
}

// spaceGuard refuses writes of users that would grow a store that is nearly full. The hub itself
// writes on in the reserve, because deletions need its bookkeeping.
type spaceGuard struct {
	space    spaceObserver
	refusals prometheus.Counter
}

func newSpaceGuard(space spaceObserver, metrics prometheus.Registerer) (*spaceGuard, error) {
	g := &spaceGuard{space: space, refusals: metrictable.StoreRefusals.NewCounter()}
	if metrics != nil {
		if err := metrics.Register(g.refusals); err != nil {
			return nil, fmt.Errorf("register the counter of refused writes: %w", err)
		}
	}
	return g, nil
}

// writeRestrictions reports whether etcd refuses every write (full), and whether the request may
// only shrink the store (closed). A write that etcd refuses is not sent, because the client of etcd
// would log each one.
func (g *spaceGuard) writeRestrictions(ctx context.Context) (full, closed bool) {
	state := g.space.Space().State
	if state == etcd.SpaceFree {
		return false, false
	}
	u, known := request.UserFrom(ctx)
	return state == etcd.SpaceFull, known && !IsHubUser(u)
}

// newWriteRefusal returns the refusal of a write of the object.
func (g *spaceGuard) newWriteRefusal(resource schema.GroupResource, obj runtime.Object) error {
	name := ""
	if m, err := meta.Accessor(obj); err == nil {
		name = m.GetName()
	}
	g.refusals.Inc()
	err := &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInsufficientStorage, Reason: metav1.StatusReason(atoll.ReasonStoreFull),
		Message: fmt.Sprintf("%s %q is not written: %s", resource, name, g.describeRefusal()),
		Details: &metav1.StatusDetails{Group: resource.Group, Kind: resource.Resource, Name: name},
	}}
	return refusal.WithReason(atoll.ReasonStoreFull, err)
}

// explainStoreFull returns the refusal in place of etcd's error of a full store, and any other error unchanged.
func (g *spaceGuard) explainStoreFull(err error, resource schema.GroupResource, obj runtime.Object) error {
	if errors.Is(err, rpctypes.ErrNoSpace) {
		return g.newWriteRefusal(resource, obj)
	}
	return err
}

func (g *spaceGuard) describeRefusal() string {
	now := g.space.Space()
	if now.IsExternal && now.State == etcd.SpaceFree { // etcd refused the write after the last observation
		now.State, now.Since = etcd.SpaceFull, time.Now()
	}
	return describeSpace(now)
}

// describeSpace returns the state of the store as a sentence: since when it is so, and how it ends.
func describeSpace(now etcd.StoreSpace) string {
	sizes := fmt.Sprintf("%s of its quota of %s are in use", formatMebibytes(now.UsedBytes), formatMebibytes(now.QuotaBytes))
	if now.QuotaBytes == 0 {
		sizes = formatMebibytes(now.UsedBytes) + " are in use, and etcd does not report its quota"
	}
	if now.State == etcd.SpaceFree {
		return "the hub's store has room: " + sizes
	}
	what := "nearly full, and takes only writes that do not grow it"
	if now.State == etcd.SpaceFull {
		what = "full, and takes only deletions of objects without finalizers"
	}
	if now.IsExternal {
		return fmt.Sprintf("the hub's etcd is %s, since %s: %s. Delete what is not needed; %s. Or the administrator of etcd raises --quota-backend-bytes",
			what, phrase.FormatTime(now.Since), sizes, describeExternalSpaceRecovery(now))
	}
	return fmt.Sprintf("the hub's store is %s, since %s: %s. Delete what is not needed: within a minute after less than %s are in use, every write is taken again. Or the hub's administrator restarts it with a larger --etcd-quota-bytes",
		what, phrase.FormatTime(now.Since), sizes, formatMebibytes(now.ReserveExitBytes()))
}

// describeExternalSpaceRecovery returns what ends a lack of room of an external etcd.
func describeExternalSpaceRecovery(now etcd.StoreSpace) string {
	if now.QuotaBytes == 0 || now.HasUnreachedAlarm {
		return "the administrator of etcd then defragments each member and disarms the alarm"
	}
	return fmt.Sprintf("within minutes after less than %s are in use, every write is taken again", formatMebibytes(now.ReserveExitBytes()))
}

func formatMebibytes(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

// serveStoreSpace answers with the state of the store. It succeeds unless etcd refuses writes.
func (g *spaceGuard) serveStoreSpace(w http.ResponseWriter, _ *http.Request) {
	now := g.space.Space()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if now.State == etcd.SpaceFull {
		w.WriteHeader(http.StatusInsufficientStorage)
	}
	fmt.Fprintf(w, "%v: %s\n", now.State, describeSpace(now))
}

// OnStoreSpaceLow has fn called with a sentence when the store enters the reserve or is full, also where
// it is so now. fn must not block, nor call the Server. Call it once.
func (s *Server) OnStoreSpaceLow(fn func(sentence string)) {
	s.store.space.OnSpaceChange(func(now etcd.StoreSpace) {
		if now.State != etcd.SpaceFree {
			fn(describeSpace(now))
		}
	})
}

// guardedOptions are the storage options of all kinds, whose storage the guard protects.
type guardedOptions struct {
	generic.RESTOptionsGetter
	guard *spaceGuard
}

func (o guardedOptions) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := o.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	decorate := options.Decorator
	options.Decorator = func(config *storagebackend.ConfigForResource, prefix string, keyFunc func(runtime.Object) (string, error),
		newFunc, newListFunc func() runtime.Object, attrs storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		store, destroy, err := decorate(config, prefix, keyFunc, newFunc, newListFunc, attrs, triggers, indexers)
		return guardedStorage{store, o.guard, resource}, destroy, err
	}
	return options, nil
}

// guardedStorage refuses what would grow a store that is nearly full.
type guardedStorage struct {
	storage.Interface
	guard    *spaceGuard
	resource schema.GroupResource
}

func (s guardedStorage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	if full, closed := s.guard.writeRestrictions(ctx); full || closed || isForUndo(obj) && s.guard.space.Space().State != etcd.SpaceFree {
		return s.guard.newWriteRefusal(s.resource, obj)
	}
	return s.guard.explainStoreFull(s.Interface.Create(ctx, key, obj, out, ttl), s.resource, obj)
}

// isForUndo reports whether an object keeps a former content for undo. The reserve is not for those: deletions
// by which users make room would fill it.
func isForUndo(obj runtime.Object) bool {
	secret, ok := obj.(*core.Secret)
	return ok && secret.Type == atoll.SecretTypeUndo
}

func (s guardedStorage) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object) error {
	var written runtime.Object
	checked := func(in runtime.Object, res storage.ResponseMeta) (runtime.Object, *uint64, error) {
		refuses := s.refusalOfUpdate(ctx, in) // the update may change it
		obj, ttl, err := update(in, res)
		if written = obj; err == nil && refuses(obj) {
			err = s.guard.newWriteRefusal(s.resource, obj)
		}
		return obj, ttl, err
	}
	err := s.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, checked, cached)
	return s.guard.explainStoreFull(err, s.resource, written)
}

// refusalOfUpdate returns a function that reports whether the object must not replace the present one.
// An object without a change is not written, so that it is never refused.
func (s guardedStorage) refusalOfUpdate(ctx context.Context, present runtime.Object) func(runtime.Object) bool {
	full, closed := s.guard.writeRestrictions(ctx)
	if !closed && !full {
		return func(runtime.Object) bool { return false }
	}
	before, size := encodeForSize(present)
	return func(obj runtime.Object) bool {
		after, newSize := encodeForSize(obj)
		if before != nil && bytes.Equal(before, after) {
			return false
		}
		return full || newSize > size+s.allowedGrowthInReserve(obj)
	}
}

// allowedGrowthInReserve returns the number of bytes that an update may add to the object in the reserve.
func (s guardedStorage) allowedGrowthInReserve(obj runtime.Object) int {
	m, err := meta.Accessor(obj)
	if smallGrowthKinds[s.resource] || err == nil && m.GetDeletionTimestamp() != nil {
		return smallGrowth
	}
	return 0
}

// encodeForSize returns the object as JSON, nil where it has none, and its size. The managedFields do
// not count, because an update that removes a field can add the name of its manager.
func encodeForSize(obj runtime.Object) (data []byte, size int) {
	data, err := json.Marshal(obj)
	if err != nil {
		return nil, 0
	}
	m, err := meta.Accessor(obj)
	if err != nil || len(m.GetManagedFields()) == 0 {
		return data, len(data)
	}
	managed, err := json.Marshal(m.GetManagedFields())
	if err != nil {
		return data, len(data)
	}
	return data, len(data) - len(managed)
}
