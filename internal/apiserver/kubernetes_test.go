package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"atoll.dev/atoll/internal/testwait"
)

// recorder is an extra admission plugin: it labels ConfigMaps and refuses one
// name.
type recorder struct {
	mu     sync.Mutex
	admits map[string]int
}

func (*recorder) Handles(admission.Operation) bool { return true }

func (r *recorder) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.admits == nil {
		r.admits = map[string]int{}
	}
	r.admits[a.GetResource().Resource+"/"+a.GetName()]++
	if a.GetResource().Resource == "configmaps" && a.GetOperation() == admission.Create {
		m, err := meta.Accessor(a.GetObject())
		if err != nil {
			return err
		}
		m.SetFinalizers(append(m.GetFinalizers(), finalizersOf(m.GetName())...))
	}
	return nil
}

func (*recorder) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetName() == "refuse-me" {
		return admission.NewForbidden(a, fmt.Errorf("the test refuses it"))
	}
	return nil
}

func finalizersOf(name string) []string {
	if name == "finalize-me" {
		return []string{"test.atoll.dev/hold"}
	}
	return nil
}

func TestReadiness(t *testing.T) {
	u := newAdmin(t, hub)
	for _, path := range []string{"/readyz", "/livez", "/metrics"} {
		var status int
		body, err := u.kube.RESTClient().Get().AbsPath(path).Do(t.Context()).StatusCode(&status).Raw()
		if err != nil || status != http.StatusOK {
			t.Errorf("%s: %d %v", path, status, err)
		}
		if path == "/metrics" && !strings.Contains(string(body), "apiserver_request_total") {
			t.Error("/metrics lacks the API server's own")
		}
	}
	anonymous, err := rest.HTTPClientFor(rest.AnonymousClientConfig(u.config))
	if err != nil {
		t.Fatal(err)
	}
	response, err := anonymous.Get(u.config.Host + "/api/v1/secrets")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("an anonymous user reads Secrets: %s", response.Status)
	}
}

func TestDiscoveryAndOpenAPI(t *testing.T) {
	u := newAdmin(t, hub)
	_, lists, err := u.kube.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for _, list := range lists {
		for _, r := range list.APIResources {
			kinds[list.GroupVersion+"/"+r.Name] = true
		}
	}
	for _, want := range []string{"v1/services", "v1/services/status", "v1/pods/eviction", "apps/v1/deployments/scale",
		"batch/v1/cronjobs", "networking.k8s.io/v1/ingresses", "autoscaling/v2/horizontalpodautoscalers",
		"apiextensions.k8s.io/v1/customresourcedefinitions", "apiregistration.k8s.io/v1/apiservices"} {
		if !kinds[want] {
			t.Errorf("discovery lacks %s", want)
		}
	}
	groups, err := u.kube.Discovery().ServerGroups()
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, g := range groups.Groups {
		order = append(order, g.Name)
	}
	if len(order) < 3 || order[0] != "" || order[2] != "apps" {
		t.Errorf("the core group and apps do not come first: %q", order)
	}
	paths, err := u.kube.Discovery().OpenAPIV3().Paths()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := paths["apis/apps/v1"]; !ok {
		t.Error("OpenAPI lacks apps/v1, so kubectl explain would not work")
	}
	table := &metav1.Table{}
	err = u.kube.AppsV1().RESTClient().Get().Resource("deployments").SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(t.Context()).Into(table)
	if err != nil || len(table.ColumnDefinitions) == 0 {
		t.Errorf("deployments have no table: %v", err)
	}
}

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: %s}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      priorityClassName: no-such-class
      serviceAccountName: no-such-account
      containers: [{name: web, image: web:1}]
`

func TestApplyDryRunAndWatch(t *testing.T) {
	u := newAdmin(t, hub)
	ns := u.createNamespace("apply")
	watcher, err := u.kube.AppsV1().Deployments(ns).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	dry := func(o *metav1.PatchOptions) { o.DryRun = []string{metav1.DryRunAll} }
	if err := u.apply(fmt.Sprintf(deployment, ns), dry); err != nil {
		t.Fatal(err)
	}
	if _, err := u.kube.AppsV1().Deployments(ns).Get(t.Context(), "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("a dry run left something: %v", err)
	}
	u.mustApply(fmt.Sprintf(deployment, ns))
	event := <-watcher.ResultChan()
	if event.Type != watch.Added {
		t.Fatalf("watch says %v", event)
	}
	err = u.apply(strings.Replace(fmt.Sprintf(deployment, ns), "replicas: 2", "replicas: 3", 1), func(o *metav1.PatchOptions) { o.FieldManager = "other" })
	if !apierrors.IsConflict(err) {
		t.Errorf("another manager took replicas over without force: %v", err)
	}
	pods, err := u.kube.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 0 {
		t.Errorf("something ran on the hub: %v %v", pods, err)
	}
}

func TestRBAC(t *testing.T) {
	u := newAdmin(t, hub)
	ns := u.createNamespace("rbac")
	c := rest.CopyConfig(u.config)
	c.Impersonate = rest.ImpersonationConfig{UserName: "jane"}
	jane := newUser(t, c)
	if _, err := jane.kube.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("jane may list without a role: %v", err)
	}
	u.mustApply(fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: jane, namespace: %s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]
`, ns))
	testwait.Until(t, "jane may edit", func(ctx context.Context) (bool, string) {
		_, err := jane.kube.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{})
		return err == nil, fmt.Sprint(err)
	})
	// Cluster-role aggregation fills "edit" and its like in.
	u.mustApply(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: extra-edit, labels: {rbac.authorization.k8s.io/aggregate-to-edit: "true"}}
rules: [{apiGroups: [example.com], resources: [widgets], verbs: [get]}]
`)
	testwait.Until(t, "the role is aggregated", func(ctx context.Context) (bool, string) {
		role, err := u.kube.RbacV1().ClusterRoles().Get(ctx, "edit", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return hasRule(role.Rules, "widgets"), fmt.Sprint(len(role.Rules), " rules")
	})
}

func hasRule(rules []rbacv1.PolicyRule, resource string) bool {
	for _, r := range rules {
		for _, name := range r.Resources {
			if name == resource {
				return true
			}
		}
	}
	return false
}

func TestNamespaceLife(t *testing.T) {
	t.Parallel()
	u := newAdmin(t, hub)
	ns := u.createNamespace("life")
	testwait.Until(t, "a namespace gets its account and CA", func(ctx context.Context) (bool, string) {
		_, err := u.kube.CoreV1().ServiceAccounts(ns).Get(ctx, "default", metav1.GetOptions{})
		if err == nil {
			_, err = u.kube.CoreV1().ConfigMaps(ns).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		}
		return err == nil, fmt.Sprint(err)
	})
	u.mustApply(fmt.Sprintf(deployment+`---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: %[1]s}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: bound, namespace: %[1]s}
spec: {nodeName: some-node, containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: %[1]s}
spec: {type: LoadBalancer, ports: [{port: 80}]}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: none, namespace: %[1]s}
spec: {hard: {pods: "0", configmaps: "0"}}
`, ns))
	if err := u.kube.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the namespace is gone", func(ctx context.Context) (bool, string) {
		got, err := u.kube.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(got.Status, err)
	})
}

func TestOwnersAreCollected(t *testing.T) {
	t.Parallel()
	u := newAdmin(t, hub)
	ns := u.createNamespace("owners")
	u.mustApply(fmt.Sprintf(deployment, ns))
	owner, err := u.kube.AppsV1().Deployments(ns).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owned := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "Deployment", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: ptr.To(true),
	}}}}
	// A LimitRange is inert here, and is collected all the same.
	if _, err := u.kube.CoreV1().LimitRanges(ns).Create(t.Context(), owned, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	err = u.kube.AppsV1().Deployments(ns).Delete(t.Context(), "web", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)})
	if err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "what was owned is gone, then its owner", func(ctx context.Context) (bool, string) {
		_, ownedErr := u.kube.CoreV1().LimitRanges(ns).Get(ctx, "owned", metav1.GetOptions{})
		_, ownerErr := u.kube.AppsV1().Deployments(ns).Get(ctx, "web", metav1.GetOptions{})
		return apierrors.IsNotFound(ownedErr) && apierrors.IsNotFound(ownerErr), fmt.Sprint(ownedErr, ownerErr)
	})
}

// TestFinishedJobsAreDeleted: a Job goes when its time after the end has passed. One that runs, and one
// that states no time, stay.
func TestFinishedJobsAreDeleted(t *testing.T) {
	t.Parallel()
	u := newAdmin(t, hub)
	ns := u.createNamespace("finished")
	jobs := u.kube.BatchV1().Jobs(ns)
	for name, c := range map[string]struct {
		ttl   *int32
		ended bool
	}{"runs": {ttl: ptr.To[int32](0)}, "kept": {ended: true}, "goes": {ttl: ptr.To[int32](1), ended: true}} {
		job, err := jobs.Create(t.Context(), &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: batchv1.JobSpec{TTLSecondsAfterFinished: c.ttl, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}},
			}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !c.ended {
			continue
		}
		now := metav1.Now()
		job.Status = batchv1.JobStatus{StartTime: &now, CompletionTime: &now, Succeeded: 1}
		for _, kind := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
			job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
		}
		if _, err := jobs.UpdateStatus(t.Context(), job, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	testwait.Until(t, "the Job that finished is gone", func(ctx context.Context) (bool, string) {
		_, err := jobs.Get(ctx, "goes", metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	for _, name := range []string{"runs", "kept"} {
		if job, err := jobs.Get(t.Context(), name, metav1.GetOptions{}); err != nil || job.DeletionTimestamp != nil {
			t.Errorf("the Job %q is deleted: %v", name, err)
		}
	}
}

func TestServiceAccountTokens(t *testing.T) {
	u := newAdmin(t, hub)
	ns := u.createNamespace("tokens")
	u.mustApply(fmt.Sprintf(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: robot, namespace: %[1]s}
---
apiVersion: v1
kind: Secret
metadata: {name: robot-token, namespace: %[1]s, annotations: {kubernetes.io/service-account.name: robot}}
type: kubernetes.io/service-account-token
`, ns))
	var token string
	testwait.Until(t, "the token is filled in", func(ctx context.Context) (bool, string) {
		s, err := u.kube.CoreV1().Secrets(ns).Get(ctx, "robot-token", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		token = string(s.Data["token"])
		return token != "", "no token"
	})
	c := rest.AnonymousClientConfig(u.config)
	c.BearerToken = token
	robot := newUser(t, c)
	testwait.Until(t, "the token is the account's", func(ctx context.Context) (bool, string) { // the API server watches accounts and Secrets
		_, err := robot.kube.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "system:serviceaccount:"+ns+":robot"), fmt.Sprint(err)
	})
}

func TestAdmissionPlugin(t *testing.T) {
	u := newAdmin(t, hub)
	ns := u.createNamespace("plugin")
	if err := u.createConfigMap(ns, "refuse-me"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "the test refuses it") {
		t.Errorf("not refused: %v", err)
	}
	if err := u.createConfigMap(ns, "finalize-me"); err != nil {
		t.Fatal(err)
	}
	got, err := u.kube.CoreV1().ConfigMaps(ns).Get(t.Context(), "finalize-me", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Finalizers) != 1 {
		t.Errorf("the plugin's finalizer is not stored: %v", got.Finalizers)
	}
	got.Finalizers = nil
	if _, err := u.kube.CoreV1().ConfigMaps(ns).Update(t.Context(), got, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}
