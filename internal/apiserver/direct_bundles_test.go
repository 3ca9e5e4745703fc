package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
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
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/crds"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/apiserver"
	"atoll.dev/atoll/internal/apiserver/direct"
	"atoll.dev/atoll/internal/testwait"
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
	o := testOptions(t.TempDir())
	o.EncryptionProviderConfig = file
	o.AuditPolicyFile, o.AuditLogPath = filepath.Join(t.TempDir(), "audit.yaml"), filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(o.AuditPolicyFile, []byte(finalizerAudit), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, o)
	u := newAdmin(t, s)
	manifest, err := crds.Files.ReadFile("atoll.dev_bundles.yaml")
	if err != nil {
		t.Fatal(err)
	}
	u.createDefinition(string(manifest), "bundles.atoll.dev")
	ns, err := u.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("Bundle", func(t *testing.T) { directBundle(t, s, ns) })
	t.Run("finalizer", func(t *testing.T) { directFinalizer(t, s, u) })
	t.Run("audit log", func(t *testing.T) { directFinalizerAudit(t, s, u, o.AuditLogPath) })
}

// finalizerAudit logs what the hub does to ConfigMaps, without those of one namespace.
const finalizerAudit = `
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- {level: None, namespaces: [unlogged]}
- {level: Request, users: ["system:atoll:hub"], verbs: [patch], resources: [{resources: [configmaps]}]}
`

// directFinalizerAudit compares the audit log of a direct write with that of a patch by the API.
func directFinalizerAudit(t *testing.T, s *apiserver.Server, u *user, log string) {
	ctx := t.Context()
	if _, err := u.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "unlogged"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	create := func(namespace, name string) *corev1.ConfigMap {
		t.Helper()
		made, err := u.kube.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	for _, o := range []*corev1.ConfigMap{create("unlogged", "audited-not"), create("shop", "audited")} {
		done, err := s.DirectStores().Templates.AddFinalizer(ctx, corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.Resource("configmaps"), o, "atoll.dev/propagated")
		if !done || err != nil {
			t.Fatalf("%s: done is %t, %v", o.Name, done, err)
		}
	}
	byAPI := create("shop", "audited-api")
	patch := fmt.Sprintf(`{"metadata":{"finalizers":["atoll.dev/propagated"],"resourceVersion":%q}}`, byAPI.ResourceVersion)
	if _, err := newUser(t, s.LoopbackConfig()).kube.CoreV1().ConfigMaps("shop").Patch(ctx, byAPI.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	var directly, asked []auditv1.Event
	testwait.Until(t, "the API's patch is logged", func(context.Context) (bool, string) {
		directly, asked = readAudit(t, log, "audited"), readAudit(t, log, "audited-api")
		return len(asked) == 2, fmt.Sprint(asked)
	})
	if len(directly) != 2 || len(readAudit(t, log, "audited-not")) != 0 {
		t.Fatalf("the log has %d events of the direct write, and %d of one that the policy leaves out", len(directly), len(readAudit(t, log, "audited-not")))
	}
	for i, got := range directly {
		want := asked[i]
		if got.AuditID == "" || got.AuditID != directly[0].AuditID || got.Stage != want.Stage || got.Level != want.Level || got.Verb != want.Verb ||
			got.RequestURI != strings.TrimSuffix(want.RequestURI, "-api") || got.User.Username != apiserver.HubUser || !reflect.DeepEqual(got.User, want.User) ||
			got.ObjectRef.Resource != "configmaps" || got.ObjectRef.Namespace != "shop" || got.ObjectRef.APIVersion != want.ObjectRef.APIVersion {
			t.Errorf("event %d is\n%+v, by the API\n%+v", i, got, want)
		}
	}
	last := directly[1]
	if last.ResponseStatus == nil || last.ResponseStatus.Code != 200 || last.RequestObject == nil || !strings.Contains(string(last.RequestObject.Raw), `"finalizers":["atoll.dev/propagated"]`) ||
		last.Annotations["atoll.dev/direct-write"] != "true" {
		t.Errorf("the write ends as %+v", last)
	}
}

// readAudit returns the events about the ConfigMap of that name.
func readAudit(t *testing.T, file, name string) (events []auditv1.Event) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		var e auditv1.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			continue // the last line is not whole yet
		}
		if e.ObjectRef != nil && e.ObjectRef.Name == name {
			events = append(events, e)
		}
	}
	return events
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
	api, _ := newClients(t, s)
	version, lives := ns.ResourceVersion, true
	writer := s.DirectStores().WrapClient(api, allowAlways, func(name string) (string, bool) { return version, lives && name == "shop" })
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
		if done, err := s.DirectStores().Bundles.CreateIn(ctx, direct.Object{Meta: &b.ObjectMeta, Spec: &b.Spec}, s.DirectStores().Namespaces+"shop", revision); done || err != nil {
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
		done, err := s.DirectStores().Templates.AddFinalizer(ctx, gvk, resource, o, "atoll.dev/propagated")
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
	if done, err := s.DirectStores().Templates.AddFinalizer(ctx, schema.GroupVersionKind{Group: "atoll.dev", Version: "v1alpha1", Kind: "Bundle"}, schema.GroupResource{Group: "atoll.dev", Resource: "bundles"}, before, "f"); done || err != nil {
		t.Errorf("a kind that is not built in: %t, %v", done, err)
	}
}
