// Package direct writes the hub's own bookkeeping straight to the store: the status of Clusters
// and Bundles, Bundles, Revisions, the rows of TargetSlices and the finalizer on templates. It reads the most numerous kinds straight from the store
// too. The API's handlers are passed by,
// because their conversions and checks cost more than such a write, or the decoding of such an
// event. A finalizer makes 454 allocations here and 4,113 by the API, which is 45 % of the budget of
// a new application (2026-11-28, go test ./internal/apiserver -bench AddFinalizer -benchtime 300x).
//
// Contract: a write uses the key, the encoding and the transformers by which the API server would
// store the object. Reads, watches and later writes by the API see no difference. Every
// update carries the resource version that it was computed from, and fails with a conflict as the
// API's does. The rest of the object, managedFields included, stays byte for byte. Admission, the
// schema's validation and the audit log do not see these writes: callers write only objects of
// their own types. The finalizer goes to users' objects, and the audit log has each of these
// writes. An object in a namespace is created in the transaction that finds the namespace
// unchanged since it was seen alive. Otherwise the request goes to the API.
//
// A read equals the API's, in the version of the hub's types: the schema's defaults, resource
// versions, pages, selectors, the stream of a watch and the errors after which a reader must list
// again. An object that is stored in another version, or in another form than those types, is
// never guessed at: from then on the kind's readers use the API, which converts it. No result
// holds on to the bytes that it was read from. The audit log, the API's limits and its metrics of
// requests do not see these reads. Safe for concurrent use.
package direct

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"reflect"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value"

	"atoll.dev/atoll/internal/metrictable"
)

// timeout of a write, which is that of the API's requests.
const timeout = 60 * time.Second

// Store of the objects of one kind, which have a spec, a status and nothing else.
type Store struct {
	kind     Kind
	resource schema.GroupResource
	prefix   string
	root     string // of all keys
	etcd     clientv3.KV
	cipher   value.Transformer // nil: nothing is encrypted
	storage  storage.Interface
	writes   *prometheus.CounterVec
	log      *slog.Logger
	byAPI    atomic.Bool   // readers call the API
	progress time.Duration // between bookmarks
}

// Access to where the API server stores a kind.
type Access struct {
	// Options by which it stores it.
	Options generic.RESTOptions
	// Etcd is the same one.
	Etcd clientv3.KV
	// Writes, labelled as in NewWriteCounter, counts what succeeds.
	Writes *prometheus.CounterVec
	Log    *slog.Logger
}

// Object of the Store's kind, in parts. A nil part is none of the caller's business.
type Object struct {
	Meta         *metav1.ObjectMeta
	Spec, Status any // pointers
}

// Open opens the store of a kind; closed ends it.
func Open(kind Kind, access Access) (s *Store, closed func(), err error) {
	config, resource := *access.Options.StorageConfig, kind.groupResource()
	s = &Store{
		kind: kind, resource: resource, prefix: "/" + access.Options.ResourcePrefix, root: config.Prefix,
		etcd: access.Etcd, cipher: config.Transformer, writes: access.Writes, log: access.Log, progress: progressEvery,
	}
	config.Codec = storedObjectCodec{kind, s.switchReadersToAPI}
	s.storage, closed, err = factory.Create(config,
		func() runtime.Object { return kind.New() },
		func() runtime.Object { return kind.NewList() },
		s.prefix)
	if err != nil {
		return nil, nil, fmt.Errorf("open the store of %s: %w", resource, err)
	}
	return s, closed, nil
}

// NewWriteCounter makes the counter of writes, labelled as the API server labels requests.
func NewWriteCounter() *prometheus.CounterVec {
	return metrictable.DirectWrites.NewCounterVec()
}

func (s *Store) objectKey(o *metav1.ObjectMeta) string {
	return path.Join(s.prefix, o.Namespace, o.Name)
}

// etcdKey returns the full key in etcd.
func (s *Store) etcdKey(o *metav1.ObjectMeta) string { return path.Join("/", s.root, s.objectKey(o)) }

// Create creates the object and sets the caller's metadata to the stored one.
func (s *Store) Create(ctx context.Context, o Object) error {
	done, err := s.create(ctx, o)
	if err == nil && !done {
		err = apierrors.NewAlreadyExists(s.resource, o.Meta.Name)
	}
	return err
}

// newStoredObject is the object as it is stored first.
func (s *Store) newStoredObject(o Object) (*storedObject, error) {
	in := &storedObject{ObjectMeta: *o.Meta.DeepCopy()}
	in.SetGroupVersionKind(s.kind.GroupVersionKind)
	in.UID, in.CreationTimestamp, in.Generation = uuid.NewUUID(), metav1.Now(), 1
	in.ManagedFields, in.ResourceVersion = nil, ""
	if err := errors.Join(encodePart(o.Spec, &in.Spec), encodePart(o.Status, &in.Status)); err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", s.resource, in.Name, err)
	}
	return in, nil
}

// CreateIn creates an object in a namespace that is still as the key of the namespace was
// at that revision, and gives its metadata, as stored, to the caller. done is false, and
// nothing was written, where the namespace is not so any more, or the object is there.
func (s *Store) CreateIn(ctx context.Context, o Object, namespace string, revision int64) (done bool, err error) {
	return s.create(ctx, o, clientv3.Compare(clientv3.ModRevision(namespace), "=", revision))
}

// create creates an object that does not exist, if the conditions in only hold too.
func (s *Store) create(ctx context.Context, o Object, only ...clientv3.Cmp) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	in, err := s.newStoredObject(o)
	if err != nil {
		return false, err
	}
	data, err := s.encodeStored(in)
	if err != nil {
		return false, err
	}
	version, done, err := s.put(ctx, in, data, append(only, clientv3.Compare(clientv3.ModRevision(s.etcdKey(&in.ObjectMeta)), "=", 0))...)
	if !done {
		return false, err
	}
	s.writes.WithLabelValues("POST", s.resource.Resource, "").Inc()
	in.ResourceVersion = version
	*o.Meta = in.ObjectMeta
	return true, nil
}

// encodeStored returns the encoded object, as it is stored but for its encryption.
func (s *Store) encodeStored(o *storedObject) ([]byte, error) {
	o.SetResourceVersion("")
	o.SetSelfLink("")
	var data bytes.Buffer
	if err := (storedObjectCodec{}).Encode(o, &data); err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", s.resource, o.Name, err)
	}
	return data.Bytes(), nil
}

// put writes an object if the conditions hold, and returns its resource version.
func (s *Store) put(ctx context.Context, o *storedObject, data []byte, only ...clientv3.Cmp) (version string, done bool, err error) {
	key := s.etcdKey(&o.ObjectMeta)
	if s.cipher != nil {
		if data, err = s.cipher.TransformToStorage(ctx, data, cipherContext(key)); err != nil {
			return "", false, fmt.Errorf("encrypt %s %s: %w", s.resource, o.Name, err)
		}
	}
	resp, err := s.etcd.Txn(ctx).If(only...).Then(clientv3.OpPut(key, string(data))).Commit()
	if err != nil || !resp.Succeeded {
		return "", false, err
	}
	return strconv.FormatInt(resp.Header.Revision, 10), true, nil
}

// UpdateSpec writes spec, labels and annotations of the object of that resource version.
// The caller's object is then as the stored one.
func (s *Store) UpdateSpec(ctx context.Context, o Object) error {
	return s.update(ctx, o, "", func(now *storedObject) error {
		before := now.Spec
		if err := encodePart(o.Spec, &now.Spec); err != nil {
			return err
		}
		if !bytes.Equal(before, now.Spec) {
			now.Generation++
		}
		now.Labels, now.Annotations = o.Meta.Labels, o.Meta.Annotations
		return nil
	})
}

// UpdateStatus writes the status of the object of that resource version. The caller's
// object is then as the stored one.
func (s *Store) UpdateStatus(ctx context.Context, o Object) error {
	return s.update(ctx, o, "status", func(now *storedObject) error { return encodePart(o.Status, &now.Status) })
}

func (s *Store) update(ctx context.Context, o Object, part string, change func(*storedObject) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out, done, err := s.updateIfUnchanged(ctx, o.Meta, s.fenceChange(o.Meta, change))
	if err == nil && !done {
		out, err = s.updateThroughStorage(ctx, o.Meta, s.fenceChange(o.Meta, change))
	}
	if err != nil {
		return err
	}
	s.writes.WithLabelValues("PUT", s.resource.Resource, part).Inc()
	*o.Meta = out.ObjectMeta
	if part == "" {
		err = decodePart(out.Status, o.Status)
	} else {
		err = decodePart(out.Spec, o.Spec)
	}
	if err != nil {
		return fmt.Errorf("decode %s %s: %w", s.resource, o.Meta.Name, err)
	}
	return nil
}

// updateIfUnchanged changes the object where the version that the caller has seen is at hand and
// the last one; not done, and nothing written, where it is not.
func (s *Store) updateIfUnchanged(ctx context.Context, meta *metav1.ObjectMeta, change func(*storedObject) error) (out *storedObject, done bool, err error) {
	now, before := s.getStoredAtVersion(ctx, meta)
	if now == nil {
		return nil, false, nil
	}
	if err := change(now); err != nil {
		return nil, false, err
	}
	data, err := s.encodeStored(now)
	if err != nil {
		return nil, false, err
	}
	now.ResourceVersion = meta.ResourceVersion
	if bytes.Equal(data, before) {
		return now, true, nil
	}
	revision, err := strconv.ParseInt(meta.ResourceVersion, 10, 64)
	if err != nil {
		return nil, false, nil
	}
	now.ResourceVersion, done, err = s.put(ctx, now, data, clientv3.Compare(clientv3.ModRevision(s.etcdKey(meta)), "=", revision))
	return now, done, err
}

// updateThroughStorage applies the write to the object that was read. It returns an error when it cannot.
func (s *Store) updateThroughStorage(ctx context.Context, meta *metav1.ObjectMeta, change func(*storedObject) error) (*storedObject, error) {
	out := &storedObject{}
	err := s.storage.GuaranteedUpdate(ctx, s.objectKey(meta), out, false, nil,
		func(in runtime.Object, res storage.ResponseMeta) (runtime.Object, *uint64, error) {
			now := in.(*storedObject)
			now.ResourceVersion = strconv.FormatUint(res.ResourceVersion, 10)
			return now, nil, change(now)
		}, nil)
	if err != nil {
		return nil, storeerr.InterpretUpdateError(err, s.resource, meta.Name)
	}
	return out, nil
}

// getStoredAtVersion returns the object as it is stored in the version that the caller has seen, nil where
// that cannot be had at once, and its encoding. It is read where etcd answers without waiting for writes
// that are on their way, which would double what an update takes; the update itself is
// refused when the version is not the last any more.
func (s *Store) getStoredAtVersion(ctx context.Context, meta *metav1.ObjectMeta) (*storedObject, []byte) {
	key := s.etcdKey(meta)
	resp, err := s.etcd.Get(ctx, key, clientv3.WithSerializable())
	if err != nil || len(resp.Kvs) == 0 || strconv.FormatInt(resp.Kvs[0].ModRevision, 10) != meta.ResourceVersion {
		return nil, nil
	}
	data := resp.Kvs[0].Value
	if s.cipher != nil {
		var stale bool
		data, stale, err = s.cipher.TransformFromStorage(ctx, data, cipherContext(key))
		if err != nil || stale { // a write with the newest key is due, also of what is equal
			return nil, nil
		}
	}
	var o storedObject
	if _, _, err := (storedObjectCodec{}).Decode(data, nil, &o); err != nil {
		return nil, nil
	}
	o.ResourceVersion = meta.ResourceVersion
	return &o, data
}

// cipherContext is what upstream's storage authenticates a value with.
func cipherContext(key string) value.Context { return value.DefaultContext(key) }

// fenceChange makes the change only of the version that the caller has seen, and only of what
// is stored in the version of the API that the caller's types are.
func (s *Store) fenceChange(seen *metav1.ObjectMeta, change func(*storedObject) error) func(*storedObject) error {
	return func(now *storedObject) error {
		if now.GroupVersionKind() != s.kind.GroupVersionKind {
			return fmt.Errorf("%s %s is stored as %s, and this hub writes %s", s.resource, seen.Name, now.GroupVersionKind(), s.kind)
		}
		if now.ResourceVersion != seen.ResourceVersion || seen.UID != "" && now.UID != seen.UID {
			return apierrors.NewConflict(s.resource, seen.Name, errors.New("the object has been modified; please apply your changes to the latest version and try again"))
		}
		return change(now)
	}
}

// encodePart encodes a part; a nil one is left as it is.
func encodePart(part any, to *json.RawMessage) (err error) {
	if part != nil {
		*to, err = json.Marshal(part)
	}
	return err
}

// decodePart decodes a part over what was in it.
func decodePart(from json.RawMessage, part any) error {
	if part == nil {
		return nil
	}
	reflect.ValueOf(part).Elem().SetZero()
	if len(from) == 0 {
		return nil
	}
	return json.Unmarshal(from, part)
}
