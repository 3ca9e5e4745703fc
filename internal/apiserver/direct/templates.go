package direct

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
)

// FinalizerWriter puts finalizers on objects of the built-in kinds, which the API server stores
// as protobuf. Nothing else of an object is read into types or written: to its metadata a
// field is added.
type FinalizerWriter struct {
	etcd   clientv3.KV
	writes *prometheus.CounterVec
	audit  Auditor // nil: there is no audit log
	// place returns where a kind's objects lie, and how they are encrypted.
	place func(schema.GroupVersionKind, schema.GroupResource) (StorageLocation, error)

	mu     sync.RWMutex
	places map[schema.GroupResource]StorageLocation
}

// StorageLocation is where the objects of a kind lie in etcd: below Prefix, a path.
type StorageLocation struct {
	Prefix string
	Cipher value.Transformer // nil: nothing is encrypted
}

// decryptData returns stored data in the clear. fresh is false where the data cannot be read, or is to
// be encrypted by another key.
func (p StorageLocation) decryptData(ctx context.Context, key string, data []byte) (_ []byte, fresh bool) {
	if p.Cipher == nil {
		return data, true
	}
	data, stale, err := p.Cipher.TransformFromStorage(ctx, data, cipherContext(key))
	return data, err == nil && !stale
}

// encryptData returns data as it is stored at the key.
func (p StorageLocation) encryptData(ctx context.Context, key string, data []byte) ([]byte, error) {
	if p.Cipher == nil {
		return data, nil
	}
	return p.Cipher.TransformToStorage(ctx, data, cipherContext(key))
}

// NewFinalizerWriter opens the templates in etcd; place is called once for a kind. Writes counts as in
// NewWriteCounter. audit reports each write; nil: there is no audit log.
func NewFinalizerWriter(etcd clientv3.KV, writes *prometheus.CounterVec, audit Auditor, place func(schema.GroupVersionKind, schema.GroupResource) (StorageLocation, error)) *FinalizerWriter {
	return &FinalizerWriter{etcd: etcd, writes: writes, audit: audit, place: place, places: map[schema.GroupResource]StorageLocation{}}
}

// AddFinalizer puts the finalizer on an object as it was at the resource version of its
// metadata. done is false, and nothing was written, where the object is not so any more,
// has the finalizer or is being deleted, is not stored as protobuf, or where the audit log does
// not take the report. The caller then calls the API.
func (t *FinalizerWriter) AddFinalizer(ctx context.Context, gvk schema.GroupVersionKind, resource schema.GroupResource, obj metav1.Object, finalizer string) (done bool, err error) {
	at, err := t.storageLocation(gvk, resource)
	if err != nil {
		return false, nil // of no built-in kind
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	key := path.Join("/", at.Prefix, obj.GetNamespace(), obj.GetName())
	resp, err := t.etcd.Get(ctx, key, clientv3.WithSerializable())
	if err != nil || len(resp.Kvs) == 0 || strconv.FormatInt(resp.Kvs[0].ModRevision, 10) != obj.GetResourceVersion() {
		return false, nil
	}
	data, fresh := at.decryptData(ctx, key, resp.Kvs[0].Value)
	if !fresh {
		return false, nil
	}
	if data, done = withFinalizer(data, string(obj.GetUID()), finalizer); !done {
		return false, nil
	}
	if data, err = at.encryptData(ctx, key, data); err != nil {
		return false, fmt.Errorf("encrypt %s %s: %w", resource, obj.GetName(), err)
	}
	end, ok := t.beginAudit(ctx, gvk, resource, obj, finalizer)
	if !ok {
		return false, nil // the API refuses the write
	}
	done, err = t.replaceObject(ctx, key, resp.Kvs[0].ModRevision, data)
	switch {
	case err != nil:
		end(http.StatusInternalServerError)
	case !done:
		end(http.StatusConflict)
	default:
		end(http.StatusOK)
		t.writes.WithLabelValues("PATCH", resource.Resource, "").Inc()
	}
	return done, err
}

// replaceObject puts the data where the object is still of that revision.
func (t *FinalizerWriter) replaceObject(ctx context.Context, key string, revision int64, data []byte) (done bool, err error) {
	txn, err := t.etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
		Then(clientv3.OpPut(key, string(data))).Commit()
	if err != nil {
		return false, err
	}
	return txn.Succeeded, nil
}

// beginAudit reports the patch to the audit log. The patch is what the API would get.
func (t *FinalizerWriter) beginAudit(ctx context.Context, gvk schema.GroupVersionKind, resource schema.GroupResource, obj metav1.Object, finalizer string) (end func(int32), ok bool) {
	if t.audit == nil {
		return func(int32) {}, true
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": obj.GetResourceVersion(), "finalizers": append(slices.Clone(obj.GetFinalizers()), finalizer),
	}})
	if err != nil {
		return nil, false
	}
	return t.audit(ctx, AuditedPatch{
		Kind: gvk, Resource: resource.Resource, Namespace: obj.GetNamespace(), Name: obj.GetName(), Patch: patch,
	})
}

func (t *FinalizerWriter) storageLocation(gvk schema.GroupVersionKind, resource schema.GroupResource) (StorageLocation, error) {
	t.mu.RLock()
	at, ok := t.places[resource]
	t.mu.RUnlock()
	if ok {
		return at, nil
	}
	at, err := t.place(gvk, resource)
	if err == nil {
		t.mu.Lock()
		t.places[resource] = at
		t.mu.Unlock()
	}
	return at, err
}

// magic begins what is stored as protobuf: a runtime.Unknown.
var magic = []byte("k8s\x00")

// The numbers of fields in the wire format, which never change.
const (
	unknownRaw     protowire.Number = 2
	objectMetadata protowire.Number = 1 // of every kind that has metadata
	metaUID        protowire.Number = 5
	metaDeletion   protowire.Number = 9
	metaFinalizers protowire.Number = 14
)

// withFinalizer adds a finalizer to an object as it is stored; not done where it has it, or
// is being deleted, is another, or is nothing that is understood here.
func withFinalizer(data []byte, uid, finalizer string) (out []byte, done bool) {
	if !bytes.HasPrefix(data, magic) {
		return nil, false
	}
	out, done = editField(data[len(magic):], unknownRaw, func(object []byte) ([]byte, bool) {
		return editField(object, objectMetadata, func(meta []byte) ([]byte, bool) {
			if string(lastField(meta, metaUID)) != uid || lastField(meta, metaDeletion) != nil || hasFieldValue(meta, metaFinalizers, finalizer) {
				return nil, false
			}
			meta = protowire.AppendTag(bytes.Clone(meta), metaFinalizers, protowire.BytesType)
			return protowire.AppendString(meta, finalizer), true
		})
	})
	return append(bytes.Clone(magic), out...), done
}

// editField edits the one field of that number in a message.
func editField(message []byte, number protowire.Number, change func([]byte) ([]byte, bool)) (out []byte, done bool) {
	seen := 0
	ok := eachField(message, func(n protowire.Number, field, value []byte) bool {
		if n != number {
			out = append(out, field...)
			return true
		}
		if seen++; value == nil {
			return false
		}
		value, done = change(value)
		out = protowire.AppendBytes(protowire.AppendTag(out, n, protowire.BytesType), value)
		return done
	})
	return out, ok && done && seen == 1
}

// eachField visits each field of a message in turn, until visit is false: all of the field, and its value where
// that is bytes; false where not all were visited.
func eachField(message []byte, visit func(n protowire.Number, field, value []byte) bool) bool {
	for len(message) > 0 {
		n, wire, length := protowire.ConsumeField(message)
		if length < 0 {
			return false
		}
		var value []byte
		if wire == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(message)
			value, _ = protowire.ConsumeBytes(message[tag:length:length])
			value = value[:len(value):len(value)]
			if value == nil {
				value = []byte{} // there, and empty
			}
		}
		if !visit(n, message[:length], value) {
			return false
		}
		message = message[length:]
	}
	return true
}

// lastField returns the last value of a field; nil where there is none.
func lastField(message []byte, number protowire.Number) (value []byte) {
	eachField(message, func(n protowire.Number, _, v []byte) bool {
		if n == number {
			value = v
		}
		return true
	})
	return value
}

// hasFieldValue reports whether one of the values of a field is that one.
func hasFieldValue(message []byte, number protowire.Number, value string) (found bool) {
	eachField(message, func(n protowire.Number, _, v []byte) bool {
		found = found || n == number && string(v) == value
		return true
	})
	return found
}
