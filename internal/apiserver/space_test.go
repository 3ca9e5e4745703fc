package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"

	"atoll.dev/atoll/internal/apiserver"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/refusal"
	"atoll.dev/atoll/internal/testwait"
)

// spaceTimeout is longer than the minute within which a store takes writes after deletions.
const spaceTimeout = testwait.HangLimit

// fullTest is a server with the smallest quota, and what fills it.
type fullTest struct {
	*user
	server *apiserver.Server
	ns     string
}

// newConfigMap returns a ConfigMap of that size.
func newConfigMap(name string, size int) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"a": strings.Repeat("x", size)}}
}

func (f *fullTest) create(cm *corev1.ConfigMap) error {
	_, err := f.kube.CoreV1().ConfigMaps(f.ns).Create(f.t.Context(), cm, metav1.CreateOptions{})
	return err
}

// requireRefused checks the Status of a write that was refused for lack of room.
func (f *fullTest) requireRefused(err error) {
	f.t.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != http.StatusInsufficientStorage {
		f.t.Fatalf("a write that grows a store without room: %v", err)
	}
	if got := refusal.ReasonOf(err, ""); got != atoll.ReasonStoreFull {
		f.t.Errorf("refused for the reason %q: %v", got, err)
	}
	for _, part := range []string{"since 20", "64.0 MiB", "Delete what is not needed", "--etcd-quota-bytes"} {
		if !strings.Contains(err.Error(), part) {
			f.t.Errorf("the refusal lacks %q: %v", part, err)
		}
	}
}

// fillByUser creates ConfigMaps until one is refused, and the reserve lasts: without the history and
// unused pages, the store is above the bound where the reserve ends.
func (f *fullTest) fillByUser(registry *prometheus.Registry) (names []string) {
	f.t.Helper()
	err := wait.PollUntilContextTimeout(f.t.Context(), 20*time.Millisecond, spaceTimeout, true, func(context.Context) (bool, error) {
		name := fmt.Sprint("big-", len(names))
		err := f.create(newConfigMap(name, 900_000))
		if err == nil {
			names = append(names, name)
			return false, nil
		}
		f.requireRefused(err)
		f.dropUnusedPages()
		if readGauge(f.t, registry, "atoll_store_used_bytes") > 0.87*apiserver.MinEtcdQuotaBytes {
			return true, nil
		}
		_, err = f.server.EtcdClient().Put(f.t.Context(), fmt.Sprint("/filler/", time.Now().UnixNano()), strings.Repeat("x", 1<<18))
		return false, err
	})
	if err != nil {
		f.t.Fatalf("%d objects do not fill the store: %v", len(names), err)
	}
	return names
}

// dropUnusedPages removes the history and the unused pages, so that the sizes of the store are exact.
func (f *fullTest) dropUnusedPages() {
	f.t.Helper()
	ctx, etcd := f.t.Context(), f.server.EtcdClient()
	now, err := etcd.Get(ctx, "/filler/")
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := etcd.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical()); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		f.t.Fatal(err)
	}
	if _, err := etcd.Defragment(ctx, etcd.Endpoints()[0]); err != nil {
		f.t.Fatal(err)
	}
}

// fillEtcd writes past the API until etcd itself takes no write.
func (f *fullTest) fillEtcd() {
	f.t.Helper()
	for _, size := range []int{1 << 18, 1 << 10} {
		for i := 0; ; i++ {
			_, err := f.server.EtcdClient().Put(f.t.Context(), fmt.Sprintf("/filler/%d/%d/%d", time.Now().UnixNano(), size, i), strings.Repeat("x", size))
			if errors.Is(err, rpctypes.ErrNoSpace) {
				break
			}
			if err != nil && !errors.Is(err, rpctypes.ErrTimeout) { // etcd may be in a defragmentation
				f.t.Fatal(err)
			}
		}
	}
}

// readStore returns what the endpoint of the store answers.
func (f *fullTest) readStore() (code int, text string) {
	body, _ := f.kube.RESTClient().Get().AbsPath("/readyz/store").Do(f.t.Context()).StatusCode(&code).Raw()
	return code, string(body)
}

// requireDelete deletes a ConfigMap that has a finalizer, and then removes the finalizer.
func (f *fullTest) requireDelete(name string) {
	f.t.Helper()
	maps := f.kube.CoreV1().ConfigMaps(f.ns)
	if err := maps.Delete(f.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		f.t.Fatal(err)
	}
	if _, err := maps.Patch(f.t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		f.t.Fatal(err)
	}
	if _, err := maps.Get(f.t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		f.t.Errorf("after a deletion: %v", err)
	}
}

// requireWritable waits until the store takes writes.
func (f *fullTest) requireWritable() {
	f.t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(f.t.Context(), 200*time.Millisecond, spaceTimeout, true, func(context.Context) (bool, error) {
		cm := newConfigMap("again", 1000)
		cm.GenerateName, cm.Name = "again-", ""
		last = f.create(cm)
		return last == nil, nil
	})
	if err != nil {
		f.t.Fatalf("deletions make no room: %v", last)
	}
	if code, text := f.readStore(); code != http.StatusOK || !strings.HasPrefix(text, "Free: ") {
		f.t.Errorf("a store with room: %d %s", code, text)
	}
}

// readGauge returns the value of a gauge or counter without labels.
func readGauge(t testing.TB, r *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			m := family.GetMetric()[0]
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// TestAFullStoreCanBeCleaned fills a store by the API, and then etcd itself, and cleans both.
func TestAFullStoreCanBeCleaned(t *testing.T) {
	t.Parallel()
	o := testOptions(t.TempDir())
	o.EtcdQuotaBytes, o.UnsafeNoFsync = apiserver.MinEtcdQuotaBytes, true
	registry := prometheus.NewRegistry()
	o.Metrics = registry
	s := start(t, o)
	sentences := make(chan string, 10)
	s.OnStoreSpaceLow(func(sentence string) { sentences <- sentence })
	f := &fullTest{user: newAdmin(t, s), server: s}
	f.ns = f.createNamespace("full")
	maps := f.kube.CoreV1().ConfigMaps(f.ns)
	for _, name := range []string{"held-1", "held-2", "held-3"} {
		held := newConfigMap(name, 1000)
		held.Finalizers = []string{"example.com/held"}
		if err := f.create(held); err != nil {
			t.Fatal(err)
		}
	}

	names := f.fillByUser(registry)
	if sentence := <-sentences; !strings.Contains(sentence, "nearly full") {
		t.Errorf("reported: %s", sentence)
	}
	if readGauge(t, registry, "atoll_store_space_state") != 1 || readGauge(t, registry, "atoll_store_refused_writes_total") == 0 {
		t.Error("the metrics show no reserve")
	}
	f.requireReads(len(names))
	f.requireReserve()
	for _, name := range names {
		if err := maps.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	f.requireWritable()

	err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, spaceTimeout, true, func(context.Context) (bool, error) {
		f.fillEtcd() // again, because maintenance finds room until nearly all is in use
		code, _ := f.readStore()
		return code == http.StatusInsufficientStorage && readGauge(t, registry, "atoll_store_used_bytes") > 0.96*apiserver.MinEtcdQuotaBytes, nil
	})
	if err != nil {
		t.Fatalf("etcd does not become full: %v", err)
	}
	f.requireRefused(f.create(newConfigMap("refused", 10)))
	if _, err := maps.Get(t.Context(), "held-2", metav1.GetOptions{}); err != nil {
		t.Errorf("a read of a full store: %v", err)
	}
	if err := maps.Delete(t.Context(), "hubs", metav1.DeleteOptions{}); err != nil {
		t.Errorf("a deletion in a full store: %v", err)
	}
	if err := stop(s); err != nil {
		t.Fatal(err)
	}
	o.Metrics = prometheus.NewRegistry()
	again := start(t, o)
	f.user, f.server = newAdmin(t, again), again
	f.requireRefused(f.create(newConfigMap("refused", 10)))
	f.requireDelete("held-2")
	f.fillEtcd()
	if _, err := again.EtcdClient().Delete(t.Context(), "/filler/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	f.requireWritable()
	f.requireDelete("held-3")
}

// requireReads reads a hub whose store is nearly full and holds at least so many ConfigMaps.
func (f *fullTest) requireReads(least int) {
	f.t.Helper()
	if code, text := f.readStore(); code != http.StatusOK || !strings.HasPrefix(text, "Reserve: ") {
		f.t.Errorf("the reserve: %d %s", code, text)
	}
	if err := f.kube.RESTClient().Get().AbsPath("/readyz").Do(f.t.Context()).Error(); err != nil {
		f.t.Errorf("a nearly full hub is not ready: %v", err)
	}
	if list, err := f.kube.CoreV1().ConfigMaps(f.ns).List(f.t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) < least {
		f.t.Errorf("a list of a nearly full store: %v", err)
	}
}

// requireReserve checks which writes a hub takes whose store is nearly full.
func (f *fullTest) requireReserve() {
	f.t.Helper()
	ctx, maps := f.t.Context(), f.kube.CoreV1().ConfigMaps(f.ns)
	events, err := maps.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=held-1"})
	if err != nil {
		f.t.Fatal(err)
	}
	defer events.Stop()
	_, err = maps.Patch(ctx, "held-1", types.MergePatchType, []byte(`{"data":{"b":"more"}}`), metav1.PatchOptions{})
	f.requireRefused(err)
	if _, err := maps.Patch(ctx, "held-1", types.MergePatchType, []byte(`{"data":{"a":"less"}}`), metav1.PatchOptions{}); err != nil {
		f.t.Errorf("an update that shrinks an object: %v", err)
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods"}}}
	if _, err := f.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{}); err != nil {
		f.t.Errorf("a review, which is not stored: %v", err)
	}
	hub := newUser(f.t, f.server.LoopbackConfig())
	if _, err := hub.kube.CoreV1().ConfigMaps(f.ns).Create(ctx, newConfigMap("hubs", 10), metav1.CreateOptions{}); err != nil {
		f.t.Errorf("the hub's own write: %v", err)
	}
	f.requireDelete("held-1")
	requireDeleted(f.t, events)
}

// requireDeleted reads events of one object until its deletion.
func requireDeleted(t testing.TB, events watch.Interface) {
	t.Helper()
	deadline := time.After(spaceTimeout)
	for {
		select {
		case event, open := <-events.ResultChan():
			if !open {
				t.Fatal("the watch ended before the deletion")
			}
			if event.Type == watch.Deleted {
				return
			}
		case <-deadline:
			t.Fatal("a watch shows no deletion in a nearly full store")
		}
	}
}

func TestTheQuotaHasBounds(t *testing.T) {
	for _, bytes := range []int64{-1, 1, apiserver.MinEtcdQuotaBytes - 1, apiserver.MaxEtcdQuotaBytes + 1} {
		o := testOptions(t.TempDir())
		o.EtcdQuotaBytes = bytes
		if s, err := tryStart(t, o); err == nil {
			t.Errorf("a quota of %d is taken: %v", bytes, stop(s))
		} else if !strings.Contains(err.Error(), fmt.Sprint(bytes)) {
			t.Errorf("a quota of %d: %v", bytes, err)
		}
	}
}
