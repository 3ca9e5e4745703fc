package direct

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// asStored is how the API server stores an object of a built-in kind.
func asStored(t *testing.T, gvk schema.GroupVersionKind, obj runtime.Object) []byte {
	t.Helper()
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	var b bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(obj, &b); err != nil {
		t.Fatalf("%s: %v", gvk, err)
	}
	return b.Bytes()
}

func decodeStored(t *testing.T, data []byte) client.Object {
	t.Helper()
	obj, _, err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Decode(data, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return obj.(client.Object)
}

// An object of every built-in kind is unchanged except for the added finalizer.
func TestFinalizerOnEveryBuiltInKind(t *testing.T) {
	kinds := 0
	for gvk := range scheme.Scheme.AllKnownTypes() {
		fresh, err := scheme.Scheme.New(gvk)
		if err != nil || gvk.Version == runtime.APIVersionInternal {
			continue
		}
		obj, ok := fresh.(client.Object)
		if _, proto := fresh.(interface{ Marshal() ([]byte, error) }); !ok || !proto {
			continue
		}
		kinds++
		obj.SetName("web")
		obj.SetNamespace("shop")
		obj.SetUID("u1")
		obj.SetLabels(map[string]string{"a": "b"})
		obj.SetFinalizers([]string{"first.example/one"})
		obj.SetCreationTimestamp(metav1.NewTime(time.Unix(1000, 0)))
		obj.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationApply, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{}}`)}})
		before := asStored(t, gvk, fresh)
		after, done := withFinalizer(before, "u1", "atoll.dev/propagated")
		if !done {
			t.Fatalf("%s: not done", gvk)
		}
		got := decodeStored(t, after)
		if !slices.Equal(got.GetFinalizers(), []string{"first.example/one", "atoll.dev/propagated"}) {
			t.Fatalf("%s: finalizers %v", gvk, got.GetFinalizers())
		}
		got.SetFinalizers([]string{"first.example/one"})
		if again := asStored(t, gvk, got); !bytes.Equal(again, before) {
			t.Fatalf("%s: something else changed", gvk)
		}
	}
	if kinds < 50 {
		t.Fatalf("only %d kinds were looked at", kinds)
	}
}

// An object that has changed, or is not understood, is left to the API.
func TestFinalizerIsLeftToTheAPI(t *testing.T) {
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	object := func(change func(client.Object)) []byte {
		fresh, _ := scheme.Scheme.New(gvk)
		obj := fresh.(client.Object)
		obj.SetName("web")
		obj.SetUID("u1")
		change(obj)
		return asStored(t, gvk, fresh)
	}
	now := metav1.Now()
	whole := object(func(client.Object) {})
	for name, data := range map[string][]byte{
		"has it":           object(func(o client.Object) { o.SetFinalizers([]string{"f"}) }),
		"is being deleted": object(func(o client.Object) { o.SetDeletionTimestamp(&now) }),
		"is another":       object(func(o client.Object) { o.SetUID("u2") }),
		"is JSON":          []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"uid":"u1"}}`),
		"is cut off":       whole[:len(whole)-3],
		"is empty":         nil,
		"is only begun":    []byte("k8s\x00"),
	} {
		if out, done := withFinalizer(data, "u1", "f"); done {
			t.Errorf("an object that %s: %q", name, out)
		}
	}
	if _, done := withFinalizer(whole, "u1", "f"); !done {
		t.Error("an object that is as it was seen is left to the API")
	}
}

func FuzzWithFinalizer(f *testing.F) {
	f.Add([]byte("k8s\x00\x0a\x00\x12\x06\x0a\x04\x2a\x02u1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		withFinalizer(data, "u1", "f")
		if !bytes.Equal(before, data) {
			t.Fatal("what was read is changed")
		}
	})
}

// oneObject is an etcd with one object, whose transactions end as they should.
type oneObject struct {
	clientv3.KV
	value  []byte
	ends   func() (*clientv3.TxnResponse, error)
	events *[]string
}

func (e oneObject) Get(context.Context, string, ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return &clientv3.GetResponse{Kvs: []*mvccpb.KeyValue{{ModRevision: 7, Value: e.value}}}, nil
}

func (e oneObject) Txn(context.Context) clientv3.Txn { return oneTxn{end: e.ends, events: e.events} }

type oneTxn struct {
	clientv3.Txn
	end    func() (*clientv3.TxnResponse, error)
	events *[]string
}

func (t oneTxn) If(...clientv3.Cmp) clientv3.Txn  { return t }
func (t oneTxn) Then(...clientv3.Op) clientv3.Txn { return t }
func (t oneTxn) Commit() (*clientv3.TxnResponse, error) {
	*t.events = append(*t.events, "write")
	return t.end()
}

// A write is reported before it is tried, and with its end. Without a report there is no write.
func TestAuditOfFinalizers(t *testing.T) {
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1", Finalizers: []string{"first.example/one"}}}
	stored := asStored(t, gvk, object)
	object.ResourceVersion = "7"
	const report = `report /v1, Kind=ConfigMap configmaps shop/web {"metadata":{"finalizers":["first.example/one","f"],"resourceVersion":"7"}}`
	for name, c := range map[string]struct {
		refuses bool
		ends    func() (*clientv3.TxnResponse, error)
		want    []string
		done    bool
	}{
		"written":                 {ends: func() (*clientv3.TxnResponse, error) { return &clientv3.TxnResponse{Succeeded: true}, nil }, want: []string{report, "write", "end 200"}, done: true},
		"changed since":           {ends: func() (*clientv3.TxnResponse, error) { return &clientv3.TxnResponse{}, nil }, want: []string{report, "write", "end 409"}},
		"the store fails":         {ends: func() (*clientv3.TxnResponse, error) { return nil, errors.New("no quorum") }, want: []string{report, "write", "end 500"}},
		"the log takes no report": {refuses: true, want: []string{report}},
	} {
		t.Run(name, func(t *testing.T) {
			var events []string
			audit := func(_ context.Context, p AuditedPatch) (func(int32), bool) {
				events = append(events, fmt.Sprintf("report %v %s %s/%s %s", p.Kind, p.Resource, p.Namespace, p.Name, p.Patch))
				return func(status int32) { events = append(events, fmt.Sprintf("end %d", status)) }, !c.refuses
			}
			templates := NewFinalizerWriter(oneObject{value: stored, ends: c.ends, events: &events}, NewWriteCounter(), audit, func(schema.GroupVersionKind, schema.GroupResource) (StorageLocation, error) {
				return StorageLocation{Prefix: "registry/configmaps"}, nil
			})
			done, err := templates.AddFinalizer(t.Context(), gvk, schema.GroupResource{Resource: "configmaps"}, object, "f")
			if done != c.done || (err != nil) != (name == "the store fails") || !slices.Equal(events, c.want) {
				t.Errorf("done is %t, %v, after %q", done, err, events)
			}
		})
	}
}
