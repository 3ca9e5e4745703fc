package lab_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/lab"
	"atoll.dev/atoll/lab/labtest"
)

const shopNamespace = "shop"

// A member is a cluster that people would take for a real one: workloads get
// ready, claims get volumes, and all of it is there after a SIGKILL.
func TestMemberRunsWorkloadsAndSurvivesKill(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster")
	}
	t.Parallel()
	bin := labtest.BuildBinaries(t, "atoll-lab")
	l, err := lab.BringUp(t.Context(), lab.Options{
		Dir: t.TempDir(), EndsWithStarter: true, Members: 1, Nodes: 2, Hubless: true, Regions: []string{"eu"},
		Binaries: lab.Binaries{Lab: filepath.Join(bin, "atoll-lab")},
		Progress: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.StopAll(context.Background()); err != nil {
			t.Error(err)
		}
	})
	client := newClient(t, l)
	create(t, client)
	waitForStatus(t, "Deployment available", func(ctx context.Context) (bool, error) {
		d, err := client.AppsV1().Deployments(shopNamespace).Get(ctx, "web", metav1.GetOptions{})
		return err == nil && d.Status.AvailableReplicas == 3, err
	})
	waitForStatus(t, "Job complete", func(ctx context.Context) (bool, error) {
		j, err := client.BatchV1().Jobs(shopNamespace).Get(ctx, "migrate", metav1.GetOptions{})
		return err == nil && j.Status.Succeeded == 1, err
	})
	waitForStatus(t, "StatefulSet ready", func(ctx context.Context) (bool, error) {
		s, err := client.AppsV1().StatefulSets(shopNamespace).Get(ctx, "db", metav1.GetOptions{})
		return err == nil && s.Status.ReadyReplicas == 2, err
	})
	waitForStatus(t, "load balancer address", func(ctx context.Context) (bool, error) {
		s, err := client.CoreV1().Services(shopNamespace).Get(ctx, "web", metav1.GetOptions{})
		return err == nil && len(s.Status.LoadBalancer.Ingress) == 1, err
	})
	checkNodesAndVersion(t, client)
	before := podUIDs(t, client)

	if err := l.KillComponent(t.Context(), "member1"); err != nil {
		t.Fatal(err)
	}
	if err := l.StartComponent(t.Context(), "member1"); err != nil {
		t.Fatal(err)
	}
	client = newClient(t, l)
	if after := podUIDs(t, client); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("pods after the kill: %v; before: %v", after, before)
	}
	checkControllersWork(t, client)
}

// checkControllersWork scales up and deletes: everything has to act again.
func checkControllersWork(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	apps := client.AppsV1()
	_, err := apps.Deployments(shopNamespace).Patch(t.Context(), "web", "application/merge-patch+json", []byte(`{"spec":{"replicas":5}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	waitForStatus(t, "Deployment scaled", func(ctx context.Context) (bool, error) {
		d, err := apps.Deployments(shopNamespace).Get(ctx, "web", metav1.GetOptions{})
		return err == nil && d.Status.AvailableReplicas == 5, err
	})
	if err := client.CoreV1().Namespaces().Delete(t.Context(), shopNamespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitForStatus(t, "namespace gone", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().Namespaces().Get(ctx, shopNamespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	waitForStatus(t, "volumes reclaimed", func(ctx context.Context) (bool, error) {
		volumes, err := client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
		return err == nil && len(volumes.Items) == 0, err
	})
}

func checkNodesAndVersion(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: corev1.LabelTopologyRegion + "=eu"})
	if err != nil || len(nodes.Items) != 2 {
		t.Fatalf("%d nodes in region eu, %v; want 2", len(nodes.Items), err)
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil || version.Major != "1" || version.GitVersion != nodes.Items[0].Status.NodeInfo.KubeletVersion {
		t.Errorf("server version %+v, %v; want that of the nodes, %s", version, err, nodes.Items[0].Status.NodeInfo.KubeletVersion)
	}
}

func newClient(t *testing.T, l *lab.Lab) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", l.KubeconfigPath("member1"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func waitForStatus(t *testing.T, what string, holds func(context.Context) (bool, error)) {
	t.Helper()
	testwait.Until(t, what, func(ctx context.Context) (bool, string) {
		ok, err := holds(ctx)
		return ok && err == nil, fmt.Sprint(err)
	})
}

func podUIDs(t *testing.T, client kubernetes.Interface) map[string]string {
	t.Helper()
	pods, err := client.CoreV1().Pods(shopNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	uids := map[string]string{}
	for _, pod := range pods.Items {
		uids[pod.Name] = string(pod.UID) + " " + string(pod.Status.Phase)
	}
	return uids
}

func create(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	ctx, o := t.Context(), metav1.CreateOptions{}
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	labels := map[string]string{"app": "shop"}
	pod := func(role string, policy corev1.RestartPolicy, annotations map[string]string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "shop", "role": role}, Annotations: annotations},
			Spec:       corev1.PodSpec{RestartPolicy: policy, Containers: []corev1.Container{{Name: "main", Image: "shop:" + role}}},
		}
	}
	selector := func(role string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"role": role}}
	}
	_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: meta(shopNamespace)}, o)
	failOnTestError(t, err)
	_, err = client.AppsV1().Deployments(shopNamespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: meta("web"),
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](3), Selector: selector("web"),
			Template: pod("web", corev1.RestartPolicyAlways, map[string]string{lab.ReadyAfterAnnotation: "10ms"}),
		},
	}, o)
	failOnTestError(t, err)
	_, err = client.BatchV1().Jobs(shopNamespace).Create(ctx, &batchv1.Job{
		ObjectMeta: meta("migrate"),
		Spec:       batchv1.JobSpec{Template: pod("migrate", corev1.RestartPolicyNever, map[string]string{lab.CompleteAfterAnnotation: "100ms"})},
	}, o)
	failOnTestError(t, err)
	_, err = client.AppsV1().StatefulSets(shopNamespace).Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: meta("db"),
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](2), ServiceName: "db", Selector: selector("db"),
			Template: pod("db", corev1.RestartPolicyAlways, nil),
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: meta("data"),
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				},
			}},
		},
	}, o)
	failOnTestError(t, err)
	_, err = client.CoreV1().Services(shopNamespace).Create(ctx, &corev1.Service{
		ObjectMeta: meta("web"),
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Selector: labels, Ports: []corev1.ServicePort{{Port: 80}}},
	}, o)
	failOnTestError(t, err)
}

func failOnTestError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
