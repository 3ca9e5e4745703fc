package apiserver_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"atoll.dev/atoll/internal/apiserver"
	"atoll.dev/atoll/internal/apiserver/allocators"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/testwait"
)

func TestServicesNeverConflict(t *testing.T) {
	u := newAdmin(t, hub)
	ns := u.createNamespace("services")
	services := u.kube.CoreV1().Services(ns)
	create := func(name string, spec corev1.ServiceSpec) *corev1.Service {
		t.Helper()
		if len(spec.Ports) == 0 && spec.Type != corev1.ServiceTypeExternalName {
			spec.Ports = []corev1.ServicePort{{Name: "a", Port: 80}, {Name: "b", Port: 81}}
		}
		got, err := services.Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return got
	}
	fixed := corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ClusterIP: "203.0.113.7",
		Ports: []corev1.ServicePort{{Port: 80, NodePort: 31000}}}
	for _, name := range []string{"first", "second"} {
		got := create(name, fixed)
		if got.Spec.ClusterIP != "203.0.113.7" || got.Spec.Ports[0].NodePort != 31000 {
			t.Errorf("%s did not get what it asked for: %v", name, got.Spec)
		}
	}
	odd := fixed
	odd.Ports = []corev1.ServicePort{{Port: 80, NodePort: 80}}
	create("outside-of-any-range", odd)

	drawn := map[string]bool{}
	for _, kind := range []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer} {
		got := create("plain-"+strings.ToLower(string(kind)), corev1.ServiceSpec{Type: kind})
		if !atoll.IsHubAssignedAddress(got.Spec.ClusterIP) || drawn[got.Spec.ClusterIP] {
			t.Errorf("%s: cluster IP %q, after %v", kind, got.Spec.ClusterIP, drawn)
		}
		drawn[got.Spec.ClusterIP] = true
		for _, p := range got.Spec.Ports {
			if p.NodePort != 0 {
				t.Errorf("%s: an unrequested node port %d", kind, p.NodePort)
			}
		}
	}
	local := create("local", corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal})
	if local.Spec.HealthCheckNodePort != allocators.DummyHealthCheckPort {
		t.Errorf("health check port %d", local.Spec.HealthCheckNodePort)
	}
	dual := create("dual", corev1.ServiceSpec{IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyRequireDualStack)})
	if ips := dual.Spec.ClusterIPs; len(ips) != 2 || !atoll.IsHubAssignedAddress(ips[0]) || !atoll.IsHubAssignedAddress(ips[1]) || !strings.Contains(ips[1], ":") {
		t.Errorf("dual-stack: %v", dual.Spec.ClusterIPs)
	}
	create("six", corev1.ServiceSpec{IPFamilies: []corev1.IPFamily{corev1.IPv6Protocol}})
	if headless := create("headless", corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}); headless.Spec.ClusterIP != corev1.ClusterIPNone {
		t.Errorf("headless: %v", headless.Spec.ClusterIPs)
	}
	create("name", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"})

	// Changes of type and back, and updates that state nothing, keep working.
	for _, kind := range []string{"NodePort", "LoadBalancer", "ClusterIP", "NodePort"} {
		patch := fmt.Sprintf(`{"metadata":{"labels":{"step":%q}},"spec":{"type":%q}}`, strings.ToLower(kind), kind)
		got, err := services.Patch(t.Context(), "plain-clusterip", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err != nil {
			t.Fatalf("to %s: %v", kind, err)
		}
		if got.Spec.Ports[0].NodePort != 0 || !drawn[got.Spec.ClusterIP] {
			t.Errorf("to %s: node port %d, cluster IP %s", kind, got.Spec.Ports[0].NodePort, got.Spec.ClusterIP)
		}
	}
	list, err := u.resourceClient("networking.k8s.io", "v1", "ipaddresses").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("addresses are stored: %v %v", list, err)
	}
	if err := services.Delete(t.Context(), "first", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// All Services that a hub before v0.2.0 stored have the same address. They keep it, and can be changed and
// deleted.
func TestServicesKeepTheFormerAddress(t *testing.T) {
	u := newAdmin(t, hub)
	services := u.kube.CoreV1().Services(u.createNamespace("former"))
	for _, name := range []string{"a", "b"} {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{ClusterIP: atoll.DummyIPv4, Ports: []corev1.ServicePort{{Port: 80}}}}
		if _, err := services.Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		got, err := services.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"type":"NodePort"}}`), metav1.PatchOptions{})
		if err != nil || got.Spec.ClusterIP != atoll.DummyIPv4 {
			t.Errorf("%s: %v, %v", name, got.Spec.ClusterIPs, err)
		}
	}
	for _, name := range []string{"a", "b"} {
		if err := services.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}

func TestPodsGoAtOnce(t *testing.T) {
	u := newAdmin(t, hub)
	ns := u.createNamespace("pods")
	u.mustApply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: bound, namespace: %s}
spec: {nodeName: some-node, terminationGracePeriodSeconds: 3600, containers: [{name: c, image: i}]}
`, ns))
	if err := u.kube.CoreV1().Pods(ns).Delete(t.Context(), "bound", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := u.kube.CoreV1().Pods(ns).Get(t.Context(), "bound", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the pod waits for a kubelet: %v", err)
	}
}

// A cluster gives a Pod its service account before it validates a projected token. The hub stores no account
// that the user did not state.
func TestAProjectedTokenNeedsNoStatedAccount(t *testing.T) {
	u := newAdmin(t, hub)
	ns := u.createNamespace("projected")
	pods := u.kube.CoreV1().Pods(ns)
	pod := newTemplate(ns, "projected")
	pod.Spec.Volumes = []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", Audience: "vault"}}}}}}}
	got, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil || got.Spec.ServiceAccountName != "" {
		t.Fatalf("created with the account %q: %v", got.Spec.ServiceAccountName, err)
	}
	got, err = pods.Patch(t.Context(), "projected", types.MergePatchType, []byte(`{"metadata":{"labels":{"step":"after"}}}`), metav1.PatchOptions{})
	if err != nil || got.Spec.ServiceAccountName != "" {
		t.Fatalf("changed with the account %q: %v", got.Spec.ServiceAccountName, err)
	}
}

// The levels of a namespace warn and refuse as in a cluster. Pods that were stored before stay writable.
func TestPodSecurityOfNamespaces(t *testing.T) {
	u, warned := newAdmin(t, hub).withWarnings()
	ns := u.createNamespace("levels")
	pods := u.kube.CoreV1().Pods(ns)
	privileged := func(name string) *corev1.Pod {
		p := newTemplate(ns, name)
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
		return p
	}
	if _, err := pods.Create(t.Context(), privileged("before"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"baseline","pod-security.kubernetes.io/warn":"restricted"}}}`)
	// The admission lists pods from a cache, which may not have the new one yet.
	testwait.UntilNil(t, "the level warns of a pod that was there before", func(ctx context.Context) error {
		warned.takeText()
		_, err := u.kube.CoreV1().Namespaces().Patch(ctx, ns, types.MergePatchType, patch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if text := warned.takeText(); err != nil || !strings.Contains(text, "existing pods in namespace") || !strings.Contains(text, "before: privileged") {
			return fmt.Errorf("warned of %q: %w", text, err)
		}
		return nil
	})
	if _, err := u.kube.CoreV1().Namespaces().Patch(t.Context(), ns, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	testwait.UntilNil(t, "the level is known", func(ctx context.Context) error {
		_, err := pods.Create(ctx, privileged("after"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "violates PodSecurity") {
			return fmt.Errorf("a privileged pod: %v", err)
		}
		return nil
	})
	warned.takeText()
	template := privileged("web")
	template.Labels = map[string]string{"app": "web"}
	_, err := u.kube.AppsV1().Deployments(ns).Create(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: template.Labels}, Spec: template.Spec},
	}}, metav1.CreateOptions{})
	if text := warned.takeText(); err != nil || !strings.Contains(text, "would violate PodSecurity") {
		t.Errorf("a template of privileged pods: %v, warned of %q", err, text)
	}
	if _, err := pods.Patch(t.Context(), "before", types.MergePatchType, []byte(`{"metadata":{"labels":{"step":"after"}}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("a label of a pod that was there before: %v", err)
	}
	if err := pods.Delete(t.Context(), "before", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

func TestSecretsAreEncryptedAtRest(t *testing.T) {
	u := newAdmin(t, hub)
	ns := u.createNamespace("secrets")
	const word = "correct-horse-battery-staple"
	_, err := u.kube.CoreV1().Secrets(ns).Create(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Data: map[string][]byte{"word": []byte(word)}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := hub.EtcdClient().Get(t.Context(), "/registry/secrets/"+ns+"/s")
	if err != nil || len(raw.Kvs) != 1 {
		t.Fatalf("not where it should be: %v %v", raw, err)
	}
	if bytes.Contains(raw.Kvs[0].Value, []byte(word)) {
		t.Error("the Secret is stored in clear")
	}
}

// engineCRD stands for the engine's kinds, which only the group makes special.
const engineCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]s.%[1]s}
spec:
  group: %[1]s
  scope: Cluster
  names: {plural: %[2]s, singular: %[2]s, kind: TestRow}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {rows: {type: object, additionalProperties: {type: string}}}}
          status: {type: object, properties: {rows: {type: object, additionalProperties: {type: string}}}}
`

func (u *user) createDefinition(manifest, name string) {
	u.t.Helper()
	u.mustApply(manifest)
	u.t.Cleanup(func() {
		u.resourceClient("apiextensions.k8s.io", "v1", "customresourcedefinitions").Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	testwait.Until(u.t, name+" is established", func(ctx context.Context) (bool, string) {
		crd, err := u.resourceClient("apiextensions.k8s.io", "v1", "customresourcedefinitions").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		plural, group, _ := strings.Cut(name, ".")
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		version, _, _ := unstructured.NestedString(versions[0].(map[string]any), "name")
		if _, err = u.resourceClient(group, version, plural).List(ctx, metav1.ListOptions{}); err != nil {
			return false, err.Error()
		}
		// Discovery follows by itself, and clients that map kinds to resources ask it.
		served, err := u.kube.Discovery().ServerResourcesForGroupVersion(group + "/" + version)
		return err == nil && slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Name == plural }), fmt.Sprint(err)
	})
}

func testRow(group, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1alpha1", "kind": "TestRow",
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"rows": map[string]any{"tokyo-1": "x"}},
	}}
}

func TestEngineObjectsAreStoredSlim(t *testing.T) {
	u := newAdmin(t, hub)
	const group = "engine.atoll.dev"
	u.createDefinition(fmt.Sprintf(engineCRD, group, "testrows"), "testrows."+group)
	rows := u.resourceClient(group, "v1alpha1", "testrows")
	factory := dynamicinformer.NewDynamicSharedInformerFactory(u.objects, 0)
	informer := factory.ForResource(testRowResource(group)).Informer()
	factory.Start(t.Context().Done())

	created, err := rows.Create(t.Context(), testRow(group, "a"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("the informer does not sync")
	}
	stale := created.DeepCopy()
	unstructured.SetNestedField(created.Object, "y", "spec", "rows", "oslo-2")
	updated, err := rows.Update(t.Context(), created, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rows.Update(t.Context(), stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a stale write went through: %v", err)
	}
	unstructured.SetNestedField(updated.Object, "ok", "status", "rows", "oslo-2")
	if updated, err = rows.UpdateStatus(t.Context(), updated, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if len(updated.GetManagedFields()) != 0 {
		t.Errorf("ownership of fields is kept: %v", updated.GetManagedFields())
	}
	raw, err := hub.EtcdClient().Get(t.Context(), "/registry/"+group+"/testrows/a")
	if err != nil || len(raw.Kvs) != 1 || bytes.Contains(raw.Kvs[0].Value, []byte("managedFields")) {
		t.Errorf("stored as %v %v", raw, err)
	}
	testwait.Until(t, "the informer hears of it", func(context.Context) (bool, string) {
		obj, ok, err := informer.GetStore().GetByKey("a")
		return ok && obj.(*unstructured.Unstructured).GetResourceVersion() == updated.GetResourceVersion(), fmt.Sprint(obj, err)
	})
}

// TestWatchesWithoutACache holds what readers of the engine's objects rely on.
func TestWatchesWithoutACache(t *testing.T) {
	u := newAdmin(t, hub)
	const group = "engine.atoll.dev"
	u.createDefinition(fmt.Sprintf(engineCRD, group, "watchedrows"), "watchedrows."+group)
	rows := u.resourceClient(group, "v1alpha1", "watchedrows")
	for _, name := range []string{"a", "b", "c"} {
		if _, err := rows.Create(t.Context(), testRow(group, name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := rows.List(t.Context(), metav1.ListOptions{ResourceVersion: "0", Limit: 2})
	if err != nil || len(list.Items) != 2 || list.GetContinue() == "" {
		t.Fatalf("a watch cache would not page this list: %d items, %v", len(list.Items), err)
	}
	rest, err := rows.List(t.Context(), metav1.ListOptions{Limit: 2, Continue: list.GetContinue()})
	if err != nil || len(rest.Items) != 1 {
		t.Fatalf("second page: %v", err)
	}
	w, err := rows.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion(), AllowWatchBookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := rows.Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if event := <-w.ResultChan(); event.Type != watch.Deleted {
		t.Errorf("got %v", event)
	}
	initial := true
	streamed, err := rows.Watch(t.Context(), metav1.ListOptions{SendInitialEvents: &initial, AllowWatchBookmarks: true,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	if err != nil {
		t.Fatalf("streamed list: %v", err)
	}
	defer streamed.Stop()
	for range 2 {
		if event := <-streamed.ResultChan(); event.Type != watch.Added {
			t.Errorf("streamed list: %v", event)
		}
	}
	if event := <-streamed.ResultChan(); event.Type != watch.Bookmark {
		t.Errorf("streamed list does not say where it ends: %v", event)
	}
}

// Clusters are as many as the engine's objects, but people write them: managedFields are kept of
// the spec and not of the status, and lists and watches work as with a cache.
func TestClustersAreStoredSlim(t *testing.T) {
	t.Run("clusters", func(t *testing.T) { storedSlim(t, "atoll.dev", "clusters") })
	t.Run("their profiles", func(t *testing.T) { storedSlim(t, "multicluster.x-k8s.io", "clusterprofiles") })
}

// storedSlim reports whether a kind of which there is one for each cluster is.
func storedSlim(t *testing.T, group, plural string) {
	t.Helper()
	u := newAdmin(t, hub)
	u.createDefinition(fmt.Sprintf(engineCRD, group, plural), plural+"."+group)
	clusters := u.resourceClient(group, "v1alpha1", plural)
	var last *unstructured.Unstructured
	for _, name := range []string{"a", "b", "c"} {
		created, err := clusters.Create(t.Context(), testRow(group, name), metav1.CreateOptions{FieldManager: "kubectl"})
		if err != nil {
			t.Fatal(err)
		}
		unstructured.SetNestedField(created.Object, "ok", "status", "rows", "oslo-2")
		if last, err = clusters.UpdateStatus(t.Context(), created, metav1.UpdateOptions{FieldManager: "hub"}); err != nil {
			t.Fatal(err)
		}
	}
	if m := last.GetManagedFields(); len(m) != 1 || m[0].Manager != "kubectl" {
		t.Errorf("ownership of fields: %v", m)
	}
	own, err := clusters.Create(t.Context(), testRow(group, "d"), metav1.CreateOptions{FieldManager: apiserver.HubUser})
	if err != nil || len(own.GetManagedFields()) != 0 {
		t.Errorf("ownership of fields of what the hub made: %v, %v", own.GetManagedFields(), err)
	}
	list, err := clusters.List(t.Context(), metav1.ListOptions{ResourceVersion: "0", Limit: 2})
	if err != nil || len(list.Items) != 2 || list.GetContinue() == "" {
		t.Fatalf("a watch cache would not page this list: %d items, %v", len(list.Items), err)
	}
	w, err := clusters.Watch(t.Context(), metav1.ListOptions{ResourceVersion: last.GetResourceVersion(), FieldSelector: "metadata.name=b"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for _, name := range []string{"a", "b"} {
		if err := clusters.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if event := <-w.ResultChan(); event.Type != watch.Deleted || event.Object.(*unstructured.Unstructured).GetName() != "b" {
		t.Errorf("got %v", event)
	}
}

func TestFieldValidationOfAtollGroupsIsStrict(t *testing.T) {
	u := newAdmin(t, hub)
	for group, strict := range map[string]bool{"atoll.dev": true, "engine.atoll.dev": true, "rows.example.com": false} {
		u.createDefinition(fmt.Sprintf(engineCRD, group, "strictrows"), "strictrows."+group)
		rows := u.resourceClient(group, "v1alpha1", "strictrows")
		obj := testRow(group, "unknown")
		unstructured.SetNestedField(obj.Object, "?", "spec", "surprise")
		_, err := rows.Create(t.Context(), obj, metav1.CreateOptions{FieldValidation: metav1.FieldValidationIgnore})
		if refused := err != nil && strings.Contains(err.Error(), "spec.surprise"); refused != strict {
			t.Errorf("%s: create: %v", group, err)
		}
		if _, err := rows.Create(t.Context(), testRow(group, "known"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		_, err = rows.Patch(t.Context(), "known", types.MergePatchType, []byte(`{"spec":{"surprise":"?"}}`), metav1.PatchOptions{FieldValidation: metav1.FieldValidationWarn})
		if refused := err != nil && strings.Contains(err.Error(), "spec.surprise"); refused != strict {
			t.Errorf("%s: patch: %v", group, err)
		}
	}
}
