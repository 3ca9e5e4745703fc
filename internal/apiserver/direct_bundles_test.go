package apiserver_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/crds"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/apiserver"
	"atoll.dev/atoll/internal/apiserver/direct"
)

// bundleEncryption encrypts what is written in both ways here.
const bundleEncryption = `
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources: [{resources: [bundles.atoll.dev, configmaps], providers: [{secretbox: {keys: [{name: k, secret: MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=}]}}]}]
`

// Bundles and finalizers that are written directly are what the API would have made of
// them, encrypted as it would, and are left to it where that cannot be.
func TestDirectWritesInNamespaces(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	if err := os.WriteFile(file, []byte(bundleEncryption), 0o600); err != nil {
		t.Fatal(err)
	}
	o := options(t.TempDir())
	o.EncryptionProviderConfig = file
	s := start(t, o)
	u := admin(t, s)
	manifest, err := crds.Files.ReadFile("atoll.dev_bundles.yaml")
	if err != nil {
		t.Fatal(err)
	}
	u.definition(string(manifest), "bundles.atoll.dev")
	ns, err := u.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("Bundle", func(t *testing.T) { directBundle(t, s, ns) })
	t.Run("finalizer", func(t *testing.T) { directFinalizer(t, s, u) })
}

func sampleBundle(name string) *v1alpha1.Bundle {
	return &v1alpha1.Bundle{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Finalizers: []string{"atoll.dev/bundle"}},
		Spec: v1alpha1.BundleSpec{
			Source:    v1alpha1.BundleSource{Kind: v1alpha1.SourceAnnotation, Name: "web"},
			Placement: v1alpha1.PlacementSpec{ReplicaScheduling: v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Duplicated}},
			Removal:   v1alpha1.Removal{Mode: v1alpha1.RemoveDelete}, ConflictResolution: v1alpha1.ConflictAbort, WhenUnfit: v1alpha1.UnfitKeep,
		},
	}
}

func directBundle(t *testing.T, s *apiserver.Server, ns *corev1.Namespace) {
	ctx := t.Context()
	api, _ := clients(t, s)
	version, lives := ns.ResourceVersion, true
	writer := s.Direct().Client(api, always, func(name string) (string, bool) { return version, lives && name == "shop" })
	mine := sampleBundle("web")
	if err := writer.Create(ctx, mine); err != nil {
		t.Fatal(err)
	}
	var read v1alpha1.Bundle
	if err := api.Get(ctx, client.ObjectKeyFromObject(mine), &read); err != nil {
		t.Fatal(err)
	}
	if read.UID == "" || read.UID != mine.UID || read.ResourceVersion != mine.ResourceVersion || read.Generation != 1 || read.CreationTimestamp.IsZero() ||
		!reflect.DeepEqual(read.Finalizers, mine.Finalizers) || read.Spec.Source.Name != "web" || len(read.ManagedFields) != 0 {
		t.Errorf("the API reads %+v", read)
	}
	raw, err := s.EtcdClient().Get(ctx, "/registry/atoll.dev/bundles/shop/web")
	if err != nil || len(raw.Kvs) != 1 || !strings.HasPrefix(string(raw.Kvs[0].Value), "k8s:enc:") {
		t.Errorf("it is stored as %q, %v", raw.Kvs, err)
	}
	// The API goes on with it.
	mine.Status.Items = 3
	if err := writer.Status().Update(ctx, mine); err != nil {
		t.Fatal(err)
	}
	stale := mine.DeepCopy()
	mine.Spec.Placement.MaxClusters, mine.Status.Items = 2, 7
	if err := writer.Update(ctx, mine); err != nil || mine.Generation != 2 || mine.Status.Items != 3 {
		t.Errorf("after an update: %+v, %v", mine, err)
	}
	if err := api.Get(ctx, client.ObjectKeyFromObject(mine), &read); err != nil || read.Spec.Placement.MaxClusters != 2 || read.Generation != 2 ||
		read.Status.Items != 3 || read.ResourceVersion != mine.ResourceVersion || !reflect.DeepEqual(read.Finalizers, mine.Finalizers) || len(read.ManagedFields) != 0 {
		t.Errorf("after an update the API reads %+v, %v", read, err)
	}
	stale.Spec.Placement.MaxClusters = 5
	if err := writer.Update(ctx, stale); !apierrors.IsConflict(err) {
		t.Errorf("a change of what was changed since: %v", err)
	}
	mine.Spec.WhenUnfit = v1alpha1.UnfitRemove
	if err := api.Update(ctx, mine); err != nil || mine.Generation != 3 || mine.Status.Items != 3 {
		t.Errorf("after the API's update: %+v, %v", mine, err)
	}
	if err := writer.Create(ctx, sampleBundle("web")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("made twice: %v", err)
	}
	// A namespace that is not as it was seen is the API's to judge.
	seen, _ := strconv.ParseInt(version, 10, 64)
	for what, revision := range map[string]int64{"an older one": seen - 1, "another one": seen + 1000} {
		b := sampleBundle("stale")
		if done, err := s.Direct().Bundles.CreateIn(ctx, direct.Object{Meta: &b.ObjectMeta, Spec: &b.Spec}, s.Direct().Namespaces+"shop", revision); done || err != nil {
			t.Errorf("%s: done is %t, %v", what, done, err)
		}
	}
	version = "1"
	if err := writer.Create(ctx, sampleBundle("stale")); err != nil {
		t.Errorf("left to the API: %v", err)
	}
	lives = false
	b := sampleBundle("nowhere")
	b.Namespace = "nowhere"
	if err := writer.Create(ctx, b); !apierrors.IsNotFound(err) {
		t.Errorf("made in a namespace that is not there: %v", err)
	}
}

func directFinalizer(t *testing.T, s *apiserver.Server, u *user) {
	ctx := t.Context()
	maps := u.kube.CoreV1().ConfigMaps("shop")
	before, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"a": "b"}}, Data: map[string]string{"k": "v"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	gvk, resource := corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.Resource("configmaps")
	finalize := func(o metav1.Object) bool {
		t.Helper()
		done, err := s.Direct().Templates.Finalize(ctx, gvk, resource, o, "atoll.dev/propagated")
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	if !finalize(before) {
		t.Fatal("not done")
	}
	after, err := maps.Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(after.Finalizers) != 1 || after.Finalizers[0] != "atoll.dev/propagated" || after.ResourceVersion == before.ResourceVersion {
		t.Errorf("the API reads %+v", after.ObjectMeta)
	}
	after.Finalizers, after.ResourceVersion = nil, before.ResourceVersion
	if !reflect.DeepEqual(before, after) {
		t.Errorf("%+v became %+v", before, after)
	}
	if finalize(before) {
		t.Error("done of an object that has changed since")
	}
	if now, _ := maps.Get(ctx, "web", metav1.GetOptions{}); finalize(now) {
		t.Error("done of one that has it")
	}
	if done, err := s.Direct().Templates.Finalize(ctx, schema.GroupVersionKind{Group: "atoll.dev", Version: "v1alpha1", Kind: "Bundle"}, schema.GroupResource{Group: "atoll.dev", Resource: "bundles"}, before, "f"); done || err != nil {
		t.Errorf("a kind that is not built in: %t, %v", done, err)
	}
}
