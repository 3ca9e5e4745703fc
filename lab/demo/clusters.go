package demo

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/lab"
)

const (
	helloNamespace = "hello"

	shopNamespace = "shop"
	shopBundle    = "shop"
)

// The shop's workloads.
var scaledDeployments = []string{"web", "cart"}

// demoClusters holds the lab and a client for each of its clusters.
type demoClusters struct {
	lab     *lab.Lab
	kube    map[string]kubernetes.Interface // "hub" and the members
	dynamic map[string]dynamic.Interface
	files   string // directory with the manifests
}

func newDemoClusters(l *lab.Lab, files string, members []string) (*demoClusters, error) {
	w := &demoClusters{lab: l, files: files, kube: map[string]kubernetes.Interface{}, dynamic: map[string]dynamic.Interface{}}
	for _, name := range append([]string{"hub"}, members...) {
		config, err := clientcmd.BuildConfigFromFlags("", l.KubeconfigPath(name))
		if err != nil {
			return nil, fmt.Errorf("kubeconfig of %s: %w", name, err)
		}
		config.Timeout, config.QPS, config.Burst = 5*time.Second, 200, 400
		if w.kube[name], err = kubernetes.NewForConfig(config); err != nil {
			return nil, fmt.Errorf("client of %s: %w", name, err)
		}
		if w.dynamic[name], err = dynamic.NewForConfig(config); err != nil {
			return nil, fmt.Errorf("client of %s: %w", name, err)
		}
	}
	return w, nil
}

// runOnHub runs kubectl (of atoll-lab) or atoll against the hub and returns the output.
func (w *demoClusters) runOnHub(ctx context.Context, program string, args ...string) (string, error) {
	name, prefix := program, []string{}
	if program == "kubectl" {
		name, prefix = "atoll-lab", []string{"kubectl"}
	}
	path, err := lab.ProgramPath(name)
	if err != nil {
		return "", err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path, slices.Concat(prefix, []string{"--kubeconfig", w.lab.KubeconfigPath("hub")}, args)...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = &stdout, &stderr, w.files
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// allChecks is true when every check is.
func allChecks(checks ...check) check {
	return func(ctx context.Context) string {
		for _, c := range checks {
			if missing := c(ctx); missing != "" {
				return missing
			}
		}
		return ""
	}
}

// helloRuns is true when hello is in the cluster and works.
func (w *demoClusters) helloRuns(cluster string) check {
	return func(ctx context.Context) string {
		d, err := w.kube[cluster].AppsV1().Deployments(helloNamespace).Get(ctx, "hello", metav1.GetOptions{})
		if err != nil {
			return fmt.Sprintf("%s: %v", cluster, err)
		}
		if missing := rolloutProblem(d); missing != "" {
			return cluster + ": " + missing
		}
		return ""
	}
}

// shopRuns is true when all of the shop is in the cluster and works, with that many
// replicas of web.
func (w *demoClusters) shopRuns(cluster string, webReplicas int32) check {
	return func(ctx context.Context) string {
		apps := w.kube[cluster].AppsV1()
		for _, name := range scaledDeployments {
			d, err := apps.Deployments(shopNamespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return fmt.Sprintf("%s: %v", cluster, err)
			}
			if name == "web" && *d.Spec.Replicas != webReplicas {
				return fmt.Sprintf("%s: web is to have %d replicas, not %d", cluster, *d.Spec.Replicas, webReplicas)
			}
			if missing := rolloutProblem(d); missing != "" {
				return cluster + ": " + missing
			}
		}
		db, err := apps.StatefulSets(shopNamespace).Get(ctx, "db", metav1.GetOptions{})
		if err != nil {
			return fmt.Sprintf("%s: %v", cluster, err)
		}
		if db.Status.ReadyReplicas != *db.Spec.Replicas {
			return fmt.Sprintf("%s: db has %d of %d replicas ready", cluster, db.Status.ReadyReplicas, *db.Spec.Replicas)
		}
		return w.checkRestOfShop(ctx, cluster)
	}
}

func rolloutProblem(d *appsv1.Deployment) string {
	if d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas != *d.Spec.Replicas || d.Status.AvailableReplicas != *d.Spec.Replicas || d.Status.Replicas != *d.Spec.Replicas {
		return fmt.Sprintf("%s has %d of %d replicas available", d.Name, d.Status.AvailableReplicas, *d.Spec.Replicas)
	}
	return ""
}

// checkRestOfShop checks the objects without replicas.
func (w *demoClusters) checkRestOfShop(ctx context.Context, cluster string) string {
	for _, name := range []string{"web", "cart", "db"} {
		if _, err := w.kube[cluster].CoreV1().Services(shopNamespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return fmt.Sprintf("%s: %v", cluster, err)
		}
	}
	if _, err := w.kube[cluster].CoreV1().ConfigMaps(shopNamespace).Get(ctx, "settings", metav1.GetOptions{}); err != nil {
		return fmt.Sprintf("%s: %v", cluster, err)
	}
	if _, err := w.kube[cluster].CoreV1().Secrets(shopNamespace).Get(ctx, "database", metav1.GetOptions{}); err != nil {
		return fmt.Sprintf("%s: %v", cluster, err)
	}
	job, err := w.kube[cluster].BatchV1().Jobs(shopNamespace).Get(ctx, "fill-shelves", metav1.GetOptions{})
	if err != nil {
		return fmt.Sprintf("%s: %v", cluster, err)
	}
	if !slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == batchv1.JobComplete && c.Status == "True" }) {
		return cluster + ": the Job fill-shelves is not complete"
	}
	if _, err := w.dynamic[cluster].Resource(voucherResource).Namespace(shopNamespace).Get(ctx, "welcome", metav1.GetOptions{}); err != nil {
		return fmt.Sprintf("%s: Voucher welcome: %v", cluster, err)
	}
	return ""
}

var voucherResource = schema.GroupVersionResource{Group: "shop.example", Version: "v1", Resource: "vouchers"}

// shopGone is true when none of the shop's workloads is in the cluster.
func (w *demoClusters) shopGone(cluster string) check {
	return func(ctx context.Context) string {
		list, err := w.kube[cluster].AppsV1().Deployments(shopNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Sprintf("%s: %v", cluster, err)
		}
		if len(list.Items) > 0 {
			return fmt.Sprintf("%s still has %d Deployments", cluster, len(list.Items))
		}
		if _, err := w.kube[cluster].AppsV1().StatefulSets(shopNamespace).Get(ctx, "db", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("%s still has the StatefulSet db (%v)", cluster, err)
		}
		return ""
	}
}

// imageIsFrom is true when web's image in the cluster begins with the registry.
func (w *demoClusters) imageIsFrom(cluster, registry string) check {
	return func(ctx context.Context) string {
		d, err := w.kube[cluster].AppsV1().Deployments(shopNamespace).Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return fmt.Sprintf("%s: %v", cluster, err)
		}
		if got := d.Spec.Template.Spec.Containers[0].Image; !strings.HasPrefix(got, registry+"/") {
			return fmt.Sprintf("%s runs %s, not from %s", cluster, got, registry)
		}
		return rolloutProblem(d)
	}
}

// bundleReady is true when the hub shows the Bundle ready in that many clusters, with none
// disconnected and nothing pending.
func (w *demoClusters) bundleReady(clusters int32) check {
	return func(ctx context.Context) string {
		u, err := w.dynamic["hub"].Resource(v1alpha1.GroupVersion.WithResource("bundles")).Namespace(shopNamespace).Get(ctx, shopBundle, metav1.GetOptions{})
		if err != nil {
			return fmt.Sprintf("the hub: %v", err)
		}
		b, err := convertTo[v1alpha1.Bundle](u)
		if err != nil {
			return err.Error()
		}
		c := b.Status.Clusters
		if c.Desired != clusters || c.Ready != clusters || c.Removing != 0 || b.Status.WaitsFor != "" {
			return fmt.Sprintf("the hub shows %d of %d clusters ready, %d leaving; it waits for %q", c.Ready, c.Desired, c.Removing, b.Status.WaitsFor)
		}
		return ""
	}
}

// clusterReadyIs is true when the hub shows the cluster's condition Ready as wanted.
func (w *demoClusters) clusterReadyIs(cluster string, ready bool) check {
	return func(ctx context.Context) string {
		c, err := w.getCluster(ctx, cluster)
		if err != nil {
			return fmt.Sprintf("the hub: %v", err)
		}
		cond := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterReady)
		if cond == nil {
			return "the hub shows nothing about " + cluster
		}
		if (cond.Status == metav1.ConditionTrue) != ready {
			return fmt.Sprintf("the hub shows %s as Ready=%s: %s: %s", cluster, cond.Status, cond.Reason, cond.Message)
		}
		return ""
	}
}

func (w *demoClusters) getCluster(ctx context.Context, name string) (*v1alpha1.Cluster, error) {
	u, err := w.dynamic["hub"].Resource(v1alpha1.GroupVersion.WithResource("clusters")).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return convertTo[v1alpha1.Cluster](u)
}

// hubShowsWeb is true when the hub's own web Deployment has the status of a finished
// rollout, as kubectl rollout status reads it.
func (w *demoClusters) hubShowsWeb() check {
	return func(ctx context.Context) string {
		d, err := w.kube["hub"].AppsV1().Deployments(shopNamespace).Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return fmt.Sprintf("the hub: %v", err)
		}
		if missing := rolloutProblem(d); missing != "" {
			return "on the hub, " + missing
		}
		return ""
	}
}

func convertTo[T any](u *unstructured.Unstructured) (*T, error) {
	var v T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &v); err != nil {
		return nil, fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return &v, nil
}
