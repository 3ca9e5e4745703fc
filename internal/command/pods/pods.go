// Package pods is how commands find what runs of a workload in all clusters: the hub shows
// pods of members as NAME.CLUSTER, with the cluster in a label.
//
// Contract: functions of what is on the hub; nothing is kept. Clusters that are away are
// named by the hub, in warnings that the client prints. Lists are sorted by cluster, then
// by name. Errors are ready to be shown to a person.
package pods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
)

// PodQuery is which pods are meant.
type PodQuery struct {
	Namespace string
	// Label and Field selectors, as the API takes them.
	Label, Field string
	// Subject describes the requested objects, for people.
	Subject string
	// One pod is meant, by its name.
	One bool
}

// ResolvePodQuery makes a PodQuery of an argument, TYPE/NAME or a pod's name, or of a label
// selector where there is none. No clusters are all.
func ResolvePodQuery(ctx context.Context, c *client.Connection, argument, selector string, clusters []string) (PodQuery, error) {
	q := PodQuery{Namespace: c.Namespace}
	switch {
	case argument != "" && selector != "":
		return q, fmt.Errorf("name %s, or select pods with -l, not both", argument)
	case argument == "" && selector == "":
		return q, fmt.Errorf("name a workload, such as deployment/web, or a pod, or select pods with -l")
	case argument == "":
		q.Label, q.Subject = client.AddClustersToSelector(selector, clusters), "pods with "+selector
		return q, nil
	}
	kind, name, typed := strings.Cut(argument, "/")
	if !typed {
		kind, name = "pod", argument
	}
	object, err := c.ParseObject(ctx, kind+"/"+name)
	if err != nil {
		return q, err
	}
	q.Subject = strings.ToLower(object.Kind.Kind) + "/" + object.Name
	if object.Kind.Group == "" && object.Kind.Kind == "Pod" {
		q.Field, q.One, q.Label = "metadata.name="+object.Name, true, client.AddClustersToSelector("", clusters)
		return q, nil
	}
	q.Label, err = q.workloadSelector(ctx, c, object, clusters)
	return q, err
}

// workloadSelector returns the label selector of a workload's pods.
func (q PodQuery) workloadSelector(ctx context.Context, c *client.Connection, object client.Object, clusters []string) (string, error) {
	u, err := c.Dynamic.Resource(object.Resource).Namespace(object.Namespace).Get(ctx, object.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("there is no %s in namespace %q; another namespace is chosen with -n: %w", q.Subject, object.Namespace, err)
	}
	if err != nil {
		return "", c.ExplainError(err)
	}
	if object.Namespace == "" {
		return "", fmt.Errorf("%s is in no namespace, and has no pods; pods are selected with -l", q.Subject)
	}
	label, err := SelectorOf(u)
	if err != nil {
		return "", err
	}
	// A workload that runs in one cluster has its pods there.
	if in := u.GetLabels()[atoll.LabelCluster]; in != "" {
		clusters = []string{in}
	}
	return client.AddClustersToSelector(label, clusters), nil
}

// SelectorOf returns the label selector of the pods of a workload or Service.
func SelectorOf(u *unstructured.Unstructured) (string, error) {
	what := u.GetKind() + " " + u.GetName()
	// Every cluster gives its own UID to the pods of a Job; the name is the same in all.
	if u.GetKind() == "Job" && u.GroupVersionKind().Group == "batch" {
		return "batch.kubernetes.io/job-name=" + u.GetName(), nil
	}
	selector, ok, err := unstructured.NestedMap(u.Object, "spec", "selector")
	if err != nil || !ok || len(selector) == 0 {
		return "", fmt.Errorf("%s selects no pods: it has no spec.selector; pods are selected with -l", what)
	}
	if selector["matchLabels"] == nil && selector["matchExpressions"] == nil {
		plain, _, err := unstructured.NestedStringMap(u.Object, "spec", "selector")
		if err != nil {
			return "", fmt.Errorf("%s: its spec.selector is no selector of pods; pods are selected with -l", what)
		}
		return labels.Set(plain).String(), nil
	}
	var s metav1.LabelSelector
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(selector, &s); err != nil {
		return "", fmt.Errorf("%s: its spec.selector: %w", what, err)
	}
	parsed, err := metav1.LabelSelectorAsSelector(&s)
	if err != nil {
		return "", fmt.Errorf("%s: its spec.selector: %w", what, err)
	}
	return parsed.String(), nil
}

// ListOptions returns the options of a list or watch.
func (q PodQuery) ListOptions() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: q.Label, FieldSelector: q.Field}
}

// List lists the pods, and the version at which they were.
func (q PodQuery) List(ctx context.Context, c *client.Connection) ([]corev1.Pod, string, error) {
	list, err := c.Dynamic.Resource(client.Pods).Namespace(q.Namespace).List(ctx, q.ListOptions())
	if err != nil {
		return nil, "", c.ExplainError(err)
	}
	found := make([]corev1.Pod, len(list.Items))
	for i := range list.Items {
		pod, err := client.ConvertTo[corev1.Pod](&list.Items[i])
		if err != nil {
			return nil, "", err
		}
		found[i] = *pod
	}
	slices.SortFunc(found, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(ClusterOf(&a), ClusterOf(&b)), cmp.Compare(a.Name, b.Name))
	})
	return found, list.GetResourceVersion(), nil
}

// NotFoundError states that there are no pods, and what to do.
func (q PodQuery) NotFoundError() error {
	if q.One {
		return fmt.Errorf("there is no %s in namespace %q, or not in the clusters that were chosen; pods of placed workloads are named NAME.CLUSTER: see atoll get pods -n %s", q.Subject, q.Namespace, q.Namespace)
	}
	return fmt.Errorf("no pod of %s runs in namespace %q in the clusters that were chosen and that answer; atoll explain shows where it is placed, and why", q.Subject, q.Namespace)
}

// ClusterOf returns the cluster that something runs in; empty for what is stored on the hub.
func ClusterOf(o metav1.Object) string { return o.GetLabels()[atoll.LabelCluster] }

// NameInCluster is a pod's name in its cluster.
func NameInCluster(o metav1.Object) string {
	if cluster := ClusterOf(o); cluster != "" {
		return strings.TrimSuffix(o.GetName(), "."+cluster)
	}
	return o.GetName()
}

// LogLinePrefix returns the prefix of a container's lines.
func LogLinePrefix(pod *corev1.Pod, container string) string {
	return "[" + strings.TrimPrefix(ClusterOf(pod)+"/", "/") + NameInCluster(pod) + " " + container + "]"
}

// annotationContainer is kubectl's, for the container that is meant where none is named.
const annotationContainer = "kubectl.kubernetes.io/default-container"

// ChooseContainer returns the container that is meant: the named one, or the pod's default.
func ChooseContainer(pod *corev1.Pod, named string) (string, error) {
	all := ContainerNames(pod)
	if named == "" {
		named = pod.Annotations[annotationContainer]
		if !slices.Contains(all, named) {
			named = ""
		}
	}
	switch {
	case named == "" && len(pod.Spec.Containers) > 0:
		return pod.Spec.Containers[0].Name, nil
	case !slices.Contains(all, named):
		return "", fmt.Errorf("pod %s has no container %q; it has: %s", pod.Name, named, strings.Join(all, ", "))
	}
	return named, nil
}

// ContainerNames returns the containers of a pod, those that ran first included, by name in their order.
func ContainerNames(pod *corev1.Pod) []string {
	var names []string
	for _, c := range pod.Spec.InitContainers {
		names = append(names, c.Name)
	}
	for _, c := range pod.Spec.Containers {
		names = append(names, c.Name)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		names = append(names, c.Name)
	}
	return names
}

// ContainerStatusOf returns the state of a container; false where nothing is known of it yet.
func ContainerStatusOf(pod *corev1.Pod, container string) (corev1.ContainerStatus, bool) {
	for _, all := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for _, s := range all {
			if s.Name == container {
				return s, true
			}
		}
	}
	return corev1.ContainerStatus{}, false
}

// IsReady reports whether a pod runs and has the condition Ready.
func IsReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning &&
		slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
}

// IsTemporary reports whether an error may pass by itself: the cluster, or the hub, is not there now.
func IsTemporary(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err)
}
