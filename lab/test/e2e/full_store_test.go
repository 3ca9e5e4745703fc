package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vocabulary "atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/refusal"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/testwait"
)

const fullNamespace = "full"

const fullTemplates = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: $NS}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: $NS}
data: {a: b}
---
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: all, namespace: $NS}
spec:
  resourceSelectors:
  - {apiVersion: apps/v1, kind: Deployment, name: web}
  - {apiVersion: v1, kind: ConfigMap, name: settings}
`

// fullStore is a hub with the smallest quota, and its one member.
type fullStore struct {
	*ownLab
	hub, member client.Client
}

// fillByUser creates ConfigMaps until the hub refuses one.
func (f *fullStore) fillByUser() {
	f.t.Helper()
	for i := range 200 {
		err := f.hub.Create(f.t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: fullNamespace, Name: fmt.Sprint("big-", i), Labels: map[string]string{"big": "yes"}},
			Data:       map[string]string{"a": strings.Repeat("x", 900_000)},
		})
		if err != nil {
			if got := refusal.ReasonOf(err, ""); got != vocabulary.ReasonStoreFull {
				f.t.Fatalf("refused for the reason %q: %v", got, err)
			}
			return
		}
	}
	f.t.Fatal("the quota does not hold")
}

// etcdClient returns a client of the hub's etcd.
func (f *fullStore) etcdClient() *clientv3.Client {
	f.t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + filepath.Join(f.data, "etcd", "client.sock")}, Context: f.t.Context(), Logger: zap.NewNop()})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { c.Close() })
	return c
}

// fillEtcd writes past the API until etcd takes no write.
func (f *fullStore) fillEtcd(c *clientv3.Client) {
	f.t.Helper()
	for i := 0; ; i++ {
		_, err := c.Put(f.t.Context(), fmt.Sprintf("/filler/%d/%d", time.Now().UnixNano(), i), strings.Repeat("x", 1<<17))
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return
		}
		if err != nil && !errors.Is(err, rpctypes.ErrTimeout) { // etcd may be in a defragmentation
			f.t.Fatal(err)
		}
	}
}

// waitMember waits until the member has the object, or has it no more.
func (f *fullStore) waitMember(what string, o client.Object, name string, want bool) {
	f.t.Helper()
	testwait.UntilNilWithin(f.t, 2*testwait.HangLimit, what, func(ctx context.Context) error {
		err := f.member.Get(ctx, client.ObjectKey{Namespace: fullNamespace, Name: name}, o)
		if want == (err == nil) && (want || apierrors.IsNotFound(err)) {
			return nil
		}
		return fmt.Errorf("the member answers %v", err)
	})
}

// deleteTemplate deletes an object on the hub.
func (f *fullStore) deleteTemplate(o client.Object, name string) {
	f.t.Helper()
	o.SetNamespace(fullNamespace)
	o.SetName(name)
	if err := f.hub.Delete(f.t.Context(), o); err != nil {
		f.t.Fatal(err)
	}
}

// TestAFullStoreChangesNoMember: what is deleted while the store is nearly full leaves the member, and
// nothing else does, also after the hub was killed with a store that was full.
func TestAFullStoreChangesNoMember(t *testing.T) {
	f := &fullStore{ownLab: newOwnLab(t, 1, "--etcd-quota-bytes", "67108864")}
	f.hub = f.hubClient()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(f.Dir(), "member1.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	if f.member, err = client.New(config, client.Options{Scheme: state.NewScheme()}); err != nil {
		t.Fatal(err)
	}
	if err := f.hub.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fullNamespace}}); err != nil {
		t.Fatal(err)
	}
	for _, o := range decodeObjects(t, fullNamespace, fullTemplates) {
		if err := f.hub.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	var web appsv1.Deployment
	f.waitMember("the application is in the member", &web, "web", true)
	f.waitMember("so are its settings", &corev1.ConfigMap{}, "settings", true)

	f.fillByUser()
	f.deleteTemplate(&corev1.ConfigMap{}, "settings")
	f.waitMember("what was deleted leaves the member", &corev1.ConfigMap{}, "settings", false)

	etcd := f.etcdClient()
	f.fillEtcd(etcd)
	if err := f.member.Delete(t.Context(), &web); err != nil {
		t.Fatal(err)
	}
	f.waitMember("the agent applies again what the member lost", &web, "web", true)
	if n := f.sessionCount("member1"); n != 1 {
		t.Errorf("a full store cost the agent its session: %d sessions", n)
	}
	f.fillEtcd(etcd)
	etcd.Close()
	f.mustDo(f.KillComponent, "hub")
	f.mustDo(f.StartComponent, "hub")
	f.waitConnected("member1")
	f.waitMember("the application stays", &web, "web", true)
	f.deleteTemplate(&appsv1.Deployment{}, "web")
	f.waitMember("the application that was deleted leaves the member", &web, "web", false)

	if err := f.hub.DeleteAllOf(t.Context(), &corev1.ConfigMap{}, client.InNamespace(fullNamespace), client.HasLabels{"big"}); err != nil {
		t.Fatal(err)
	}
	etcd = f.etcdClient()
	testwait.UntilNil(t, "what was written past the API is deleted", func(ctx context.Context) error {
		_, err := etcd.Delete(ctx, "/filler/", clientv3.WithPrefix())
		if errors.Is(err, rpctypes.ErrTimeout) {
			return errors.New("etcd is in a defragmentation")
		}
		if err != nil {
			t.Fatal(err)
		}
		return nil
	})
	testwait.UntilNil(t, "the hub takes writes again", func(ctx context.Context) error {
		if err := f.hub.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: fullNamespace, Name: "again"}}); err != nil {
			return err
		}
		return nil
	})
}
