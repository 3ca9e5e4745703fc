package apiserver_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/crds"
	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/apiserver"
	"atoll.dev/atoll/internal/apiserver/backup"
	"atoll.dev/atoll/internal/apiserver/etcd"
)

// clusterEncryption encrypts Clusters, which are usually not encrypted.
const clusterEncryption = `
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources: [{resources: [clusters.atoll.dev], providers: [{secretbox: {keys: [{name: k, secret: MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=}]}}]}]
`

// twoHubs on one etcd, with Atoll's definitions and Clusters encrypted at rest.
func twoHubs(t *testing.T) (first, second *apiserver.Server) {
	t.Helper()
	store, err := etcd.Start(t.Context(), etcd.Options{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Stop)
	encryption := filepath.Join(t.TempDir(), "encryption.yaml")
	if err := os.WriteFile(encryption, []byte(clusterEncryption), 0o600); err != nil {
		t.Fatal(err)
	}
	o := testOptions(t.TempDir())
	o.EtcdServers, o.EncryptionProviderConfig = []string{store.ClientEndpoint()}, encryption
	first = start(t, o)
	u := newAdmin(t, first)
	for _, kind := range []string{"atoll.dev_clusters", "engine.atoll.dev_targetslices"} {
		manifest, err := crds.Files.ReadFile(kind + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		group, resource, _ := strings.Cut(kind, "_")
		u.createDefinition(string(manifest), resource+"."+group)
	}
	keys := backup.Options{DataDir: o.DataDir, File: filepath.Join(t.TempDir(), "keys.tar"), Version: o.Version, Logger: testLogger()}
	if _, err := backup.SaveBackup(t.Context(), keys); err != nil {
		t.Fatal(err)
	}
	o.DataDir, o.NoControllers = filepath.Join(t.TempDir(), "second"), true
	keys.DataDir = o.DataDir
	if _, err := backup.RestoreDataDir(t.Context(), keys); err != nil {
		t.Fatal(err)
	}
	return first, start(t, o)
}

func allowAlways(bool) error { return nil }

// newClients of a hub: one that only asks the API, and one that writes directly.
func newClients(t *testing.T, s *apiserver.Server) (api client.WithWatch, direct client.Client) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), enginev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	api, err := client.NewWithWatch(s.LoopbackConfig(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return api, s.DirectStores().WrapClient(api, allowAlways, nil)
}

func TestDirectWritesAreAsTheAPIs(t *testing.T) {
	t.Parallel()
	one, other := twoHubs(t)
	t.Run("status of a Cluster", func(t *testing.T) { directStatus(t, one, other) })
	t.Run("TargetSlice", func(t *testing.T) { directSlice(t, one) })
	t.Run("one of many wins", func(t *testing.T) { directRace(t, one, other) })
}

func directStatus(t *testing.T, one, other *apiserver.Server) {
	ctx := t.Context()
	api, direct := newClients(t, one)
	_, directOther := newClients(t, other)
	created := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "tokyo", Labels: map[string]string{"tier": "edge"}}}
	created.Spec.Region = "asia"
	if err := api.Create(ctx, created, client.FieldOwner("kubectl")); err != nil {
		t.Fatal(err)
	}
	w, err := api.Watch(ctx, &v1alpha1.ClusterList{}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: created.ResourceVersion}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()

	mine := created.DeepCopy()
	mine.ManagedFields = nil // as tables have it
	mine.Status = v1alpha1.ClusterStatus{KubernetesVersion: "v1.36.3 <a&b>", Conditions: []metav1.Condition{{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "AgentConnected", LastTransitionTime: metav1.Now().Rfc3339Copy(),
	}}}
	want := mine.Status
	stale := mine.DeepCopy()
	if err := direct.Status().Update(ctx, mine); err != nil {
		t.Fatal(err)
	}
	var read v1alpha1.Cluster
	if err := api.Get(ctx, client.ObjectKeyFromObject(mine), &read); err != nil {
		t.Fatal(err)
	}
	if !sameJSON(t, read.Status, want) || read.Spec.Region != "asia" || read.Labels["tier"] != "edge" || len(read.ManagedFields) != 1 ||
		read.Generation != 1 || read.UID != created.UID || read.ResourceVersion == created.ResourceVersion {
		t.Errorf("the API reads %+v", read)
	}
	if !reflect.DeepEqual(mine.ObjectMeta, read.ObjectMeta) || !reflect.DeepEqual(mine.Spec, read.Spec) {
		t.Errorf("the writer has %+v, and the store %+v", mine, read)
	}
	if event := <-w.ResultChan(); event.Type != watch.Modified || event.Object.(*v1alpha1.Cluster).ResourceVersion != read.ResourceVersion {
		t.Errorf("a watch tells %v", event)
	}
	for who, c := range map[string]client.Client{"this hub": direct, "another hub": directOther} {
		if err := c.Status().Update(ctx, stale.DeepCopy()); !apierrors.IsConflict(err) {
			t.Errorf("%s, with an old version: %v", who, err)
		}
	}
	raw, err := one.EtcdClient().Get(ctx, "/registry/atoll.dev/clusters/tokyo")
	if err != nil || len(raw.Kvs) != 1 || !bytes.HasPrefix(raw.Kvs[0].Value, []byte("k8s:enc:secretbox:")) {
		t.Errorf("not stored in the configured encryption: %v %v", raw, err)
	}
	for who, hub := range map[string]*apiserver.Server{"this hub": one, "another hub": other} {
		list, err := hub.DirectStores().Clusters.List(ctx, metav1.ListOptions{})
		if err != nil || len(list.(*v1alpha1.ClusterList).Items) != 1 || !reflect.DeepEqual(list.(*v1alpha1.ClusterList).Items[0], read) {
			t.Errorf("%s reads directly %+v, %v", who, list, err)
		}
	}

	read.Status.AgentVersion = "v2"
	if err := api.Status().Update(ctx, &read); err != nil {
		t.Errorf("the API writes after a direct write: %v", err)
	}
	if err := direct.Status().Update(ctx, mine); !apierrors.IsConflict(err) {
		t.Errorf("over the API's write: %v", err)
	}
	if err := api.Delete(ctx, &read); err != nil {
		t.Fatal(err)
	}
	if err := direct.Status().Update(ctx, read.DeepCopy()); !apierrors.IsNotFound(err) {
		t.Errorf("of what is deleted: %v", err)
	}
	if err := api.Create(ctx, &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "tokyo"}}); err != nil {
		t.Fatal(err)
	}
	if err := direct.Status().Update(ctx, read.DeepCopy()); !apierrors.IsConflict(err) {
		t.Errorf("of another under the same name: %v", err)
	}
}

func directSlice(t *testing.T, s *apiserver.Server) {
	ctx := t.Context()
	api, direct := newClients(t, s)
	fresh := func(name string) *enginev1.TargetSlice {
		return &enginev1.TargetSlice{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{enginev1.LabelBundle: "b"}},
			Spec:       enginev1.TargetSliceSpec{Bundle: enginev1.BundleRef{UID: "b", Name: "n"}, Rows: "a <1>\nb 2\n"},
		}
	}
	bothWays := map[string]client.Client{"by-api": api, "directly": direct}
	var stored []map[string]any
	for name, c := range bothWays {
		slice := fresh(name)
		if err := c.Create(ctx, slice); err != nil {
			t.Fatal(err)
		}
		if err := c.Create(ctx, fresh(name)); !apierrors.IsAlreadyExists(err) {
			t.Errorf("%s: made twice: %v", name, err)
		}
		if slice.UID == "" || slice.ResourceVersion == "" || slice.Generation != 1 || slice.CreationTimestamp.IsZero() {
			t.Errorf("%s: made %+v", name, slice)
		}
		stale := slice.DeepCopy()
		slice.Spec.Rows = ""
		slice.Status = enginev1.TargetSliceStatus{Words: []string{"w"}, Rows: "a ok\n"}
		if err := c.Status().Update(ctx, slice); err != nil {
			t.Fatal(err)
		}
		if slice.Spec.Rows != fresh(name).Spec.Rows {
			t.Errorf("%s: a writer of statuses hears of specs %q", name, slice.Spec.Rows)
		}
		slice.Spec.Rows, slice.Status = "a 3\n", enginev1.TargetSliceStatus{}
		if err := c.Update(ctx, slice); err != nil {
			t.Fatal(err)
		}
		if slice.Status.Rows != "a ok\n" || slice.Generation != 2 {
			t.Errorf("%s: a writer of specs hears of %+v", name, slice)
		}
		if err := c.Update(ctx, stale); !apierrors.IsConflict(err) {
			t.Errorf("%s: an old version: %v", name, err)
		}
		raw, err := s.EtcdClient().Get(ctx, "/registry/engine.atoll.dev/targetslices/"+name)
		if err != nil || len(raw.Kvs) != 1 {
			t.Fatalf("%s: stored as %v, %v", name, raw, err)
		}
		var object map[string]any
		if err := json.Unmarshal(raw.Kvs[0].Value, &object); err != nil {
			t.Fatal(err)
		}
		for _, own := range []string{"name", "uid", "creationTimestamp"} {
			delete(object["metadata"].(map[string]any), own)
		}
		stored = append(stored, object)
	}
	if !reflect.DeepEqual(stored[0], stored[1]) {
		t.Errorf("stored differently:\n%v\n%v", stored[0], stored[1])
	}
	refused := errors.New("not now")
	fenced := s.DirectStores().WrapClient(api, func(bool) error { return refused }, nil)
	for what, err := range map[string]error{
		"create": fenced.Create(ctx, fresh("fenced")), "update": fenced.Update(ctx, fresh("directly")), "status": fenced.Status().Update(ctx, fresh("directly")),
	} {
		if !errors.Is(err, refused) {
			t.Errorf("%s while it may not: %v", what, err)
		}
	}
}

// directRace lets hubs write from the same version at once, directly and by the API.
func directRace(t *testing.T, one, other *apiserver.Server) {
	ctx := t.Context()
	api, direct := newClients(t, one)
	_, directOther := newClients(t, other)
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "oslo"}}
	if err := api.Create(ctx, c); err != nil {
		t.Fatal(err)
	}
	for round := range 20 {
		var wg sync.WaitGroup
		var mu sync.Mutex
		var won []*v1alpha1.Cluster
		for i, w := range []client.Client{api, direct, directOther, direct, directOther, api} {
			wg.Go(func() {
				mine := c.DeepCopy()
				mine.Status.Nodes.Total = int32(100*round + i + 1)
				err := w.Status().Update(ctx, mine)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won = append(won, mine)
				} else if !apierrors.IsConflict(err) {
					t.Errorf("writer %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		if len(won) != 1 {
			t.Fatalf("round %d: %d of the writers won", round, len(won))
		}
		c = won[0]
	}
}

func sameJSON(t *testing.T, a, b any) bool {
	t.Helper()
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	if err := errors.Join(errX, errY); err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(x, y)
}
