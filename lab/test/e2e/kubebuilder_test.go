package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/testwait"
)

const (
	operatorNamespace = "operated"
	queueFinalizer    = "operated.example/cleanup"
	// mostReplicas is what the operator's webhook admits.
	mostReplicas = 5
)

// queueDefinition keeps the definition and its objects on the hub, where the operator is.
const queueDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: queues.operated.example, labels: {atoll.dev/hub-only: "true"}}
spec:
  group: operated.example
  scope: Namespaced
  names: {plural: queues, singular: queue, kind: Queue}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {replicas: {type: integer, minimum: 0}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

var queueKind = schema.GroupVersionKind{Group: "operated.example", Version: "v1", Kind: "Queue"}

// queueOperator is a controller in the usual shape: a finalizer, owned children by create-or-update and
// by server-side apply, a status from what the children report, and a webhook.
type queueOperator struct {
	client.Client
	// cleaned receives the name of each Queue whose finalizer ran.
	cleaned chan string
}

func newQueue() *unstructured.Unstructured {
	q := &unstructured.Unstructured{}
	q.SetGroupVersionKind(queueKind)
	return q
}

func (o *queueOperator) Reconcile(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	q := newQueue()
	if err := o.Get(ctx, r.NamespacedName, q); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if q.GetDeletionTimestamp() != nil {
		if controllerutil.RemoveFinalizer(q, queueFinalizer) {
			if err := o.Update(ctx, q); err != nil {
				return ctrl.Result{}, err
			}
			o.cleaned <- q.GetName()
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(q, queueFinalizer) {
		if err := o.Update(ctx, q); err != nil {
			return ctrl.Result{}, err
		}
	}
	set, err := o.writeChildren(ctx, q)
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, o.writeStatus(ctx, q, set)
}

// writeChildren writes a StatefulSet with claims and its Service by create-or-update, and a ConfigMap by
// server-side apply.
func (o *queueOperator) writeChildren(ctx context.Context, q *unstructured.Unstructured) (*appsv1.StatefulSet, error) {
	replicas, _, _ := unstructured.NestedInt64(q.Object, "spec", "replicas")
	labels := map[string]string{"queue": q.GetName()}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: q.GetNamespace(), Name: q.GetName()}}
	_, err := controllerutil.CreateOrUpdate(ctx, o.Client, service, func() error {
		service.Spec.ClusterIP, service.Spec.Selector = corev1.ClusterIPNone, labels
		service.Spec.Ports = []corev1.ServicePort{{Name: "amqp", Port: 5672}}
		return controllerutil.SetControllerReference(q, service, o.Scheme())
	})
	if err != nil {
		return nil, err
	}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: q.GetNamespace(), Name: q.GetName()}}
	_, err = controllerutil.CreateOrUpdate(ctx, o.Client, set, func() error {
		set.Spec.Replicas, set.Spec.ServiceName = ptr.To(int32(replicas)), q.GetName()
		set.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
		}
		set.Spec.Template.Labels = labels
		set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "queue", Image: "registry.example/queue:1", EnvFrom: []corev1.EnvFromSource{{
			ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: q.GetName()}},
		}}}}
		return controllerutil.SetControllerReference(q, set, o.Scheme())
	})
	if err != nil {
		return nil, err
	}
	owner := []any{map[string]any{"apiVersion": q.GetAPIVersion(), "kind": q.GetKind(), "name": q.GetName(), "uid": string(q.GetUID()), "controller": true}}
	config := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"namespace": q.GetNamespace(), "name": q.GetName(), "ownerReferences": owner},
		"data":     map[string]any{"replicas": strconv.FormatInt(replicas, 10)},
	}}
	return set, o.Apply(ctx, client.ApplyConfigurationFromUnstructured(config), client.FieldOwner("queue-operator"), client.ForceOwnership)
}

// writeStatus reports a Queue as ready when all replicas of its set are.
func (o *queueOperator) writeStatus(ctx context.Context, q *unstructured.Unstructured, set *appsv1.StatefulSet) error {
	ready := metav1.ConditionFalse
	if set.Status.ObservedGeneration == set.Generation && set.Status.ReadyReplicas == *set.Spec.Replicas {
		ready = metav1.ConditionTrue
	}
	before := q.DeepCopy()
	err := unstructured.SetNestedMap(q.Object, map[string]any{
		"readyReplicas": int64(set.Status.ReadyReplicas), "ready": string(ready), "observedGeneration": q.GetGeneration(),
	}, "status")
	if err != nil {
		return err
	}
	return o.Status().Patch(ctx, q, client.MergeFrom(before))
}

// Handle admits a Queue of at most mostReplicas.
func (o *queueOperator) Handle(_ context.Context, r admission.Request) admission.Response {
	var q unstructured.Unstructured
	if err := q.UnmarshalJSON(r.Object.Raw); err != nil {
		return admission.Errored(400, err)
	}
	if n, _, _ := unstructured.NestedInt64(q.Object, "spec", "replicas"); n > mostReplicas {
		return admission.Denied(fmt.Sprintf("a queue has at most %d replicas", mostReplicas))
	}
	return admission.Allowed("")
}

// startQueueOperator runs the operator against the hub until the test ends.
func startQueueOperator(t *testing.T) *queueOperator {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", sharedWorld.lab.KubeconfigPath("hub"))
	if err != nil {
		t.Fatal(err)
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string][]byte{"tls.crt": certificate, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	port, quiet := freePort(t), logr.FromSlogHandler(slog.DiscardHandler)
	ctrl.SetLogger(quiet)
	m, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: state.NewScheme(), Logger: quiet, WebhookServer: webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, CertDir: dir}),
		Metrics: server.Options{BindAddress: "0"}, LeaderElection: true, LeaderElectionID: "queue-operator", LeaderElectionNamespace: operatorNamespace,
	})
	if err != nil {
		t.Fatal(err)
	}
	o := &queueOperator{Client: m.GetClient(), cleaned: make(chan string, 10)}
	m.GetWebhookServer().Register("/validate", &webhook.Admission{Handler: o})
	builder := ctrl.NewControllerManagedBy(m).Named("queue").For(newQueue()).Owns(&appsv1.StatefulSet{}).Owns(&corev1.Service{}).Owns(&corev1.ConfigMap{})
	if err := builder.Complete(o); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- m.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the operator ended with %v", err)
		}
	})
	registerQueueWebhook(t, port, certificate)
	return o
}

// registerQueueWebhook has the hub alone ask the operator about Queues.
func registerQueueWebhook(t *testing.T, port int, ca []byte) {
	t.Helper()
	hook := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "queues.operated.example", Labels: map[string]string{"atoll.dev/hub": "true"}},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "queues.operated.example", SideEffects: ptr.To(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionv1.WebhookClientConfig{URL: ptr.To(fmt.Sprintf("https://127.0.0.1:%d/validate", port)), CABundle: ca},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
				Rule:       admissionv1.Rule{APIGroups: []string{queueKind.Group}, APIVersions: []string{"v1"}, Resources: []string{"queues"}},
			}},
		}},
	}
	if err := hubClient().Create(t.Context(), hook); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := hubClient().Delete(context.WithoutCancel(t.Context()), hook); err != nil {
			t.Error(err)
		}
	})
}

// TestAnOperatorWorksAgainstTheHub: a controller of controller-runtime in its usual shape, with leader
// election, a webhook, a finalizer, owner references and server-side apply, reconciles to ready, scales,
// is not disturbed by the hub, and leaves nothing when its object is deleted.
func TestAnOperatorWorksAgainstTheHub(t *testing.T) {
	t.Parallel()
	const ns = operatorNamespace
	createNamespace(t, ns)
	kubectlAtEnd(t, "hub", "delete crd queues.operated.example --ignore-not-found --wait=false")
	hub := sharedWorld.lab.KubeconfigPath("hub")
	kubectlAt(t, hub, queueDefinition, "apply -f -")
	kubectlAt(t, hub, "", "wait crd/queues.operated.example --for=condition=Established --timeout=180s")
	o := startQueueOperator(t)

	queue := func(replicas int) *unstructured.Unstructured {
		q := newQueue()
		q.Object["metadata"] = map[string]any{"name": "orders", "namespace": ns, "annotations": map[string]any{"atoll.dev/clusters": "member1"}}
		q.Object["spec"] = map[string]any{"replicas": int64(replicas)}
		return q
	}
	testwait.Until(t, "the operator's webhook refuses", func(ctx context.Context) (bool, string) {
		err := hubClient().Create(ctx, queue(mostReplicas+1), client.DryRunAll)
		return apierrors.IsForbidden(err), fmt.Sprint(err)
	})
	if err := hubClient().Create(t.Context(), queue(2)); err != nil {
		t.Fatal(err)
	}
	awaitQueue(t, 2)
	var set appsv1.StatefulSet
	key := client.ObjectKey{Namespace: ns, Name: "orders"}
	if err := sharedWorld.clients["member1"].Get(t.Context(), key, &set); err != nil || set.Status.ReadyReplicas != 2 || len(set.OwnerReferences) > 0 {
		t.Errorf("in member1: %v, %d ready, owners %v", err, set.Status.ReadyReplicas, set.OwnerReferences)
	}
	if err := hubClient().Patch(t.Context(), queue(2), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":3}}`))); err != nil {
		t.Fatal(err)
	}
	awaitQueue(t, 3)
	if err := hubClient().Get(t.Context(), key, &set); err != nil || set.Generation != 2 {
		t.Errorf("the operator wrote its set %d times, once to make it and once to scale it: %v", set.Generation, err)
	}

	if err := hubClient().Delete(t.Context(), queue(3)); err != nil {
		t.Fatal(err)
	}
	if name := testwait.Receive(t, "the finalizer runs", o.cleaned); name != "orders" {
		t.Errorf("the finalizer of %s ran", name)
	}
	children := map[string]client.Object{"StatefulSet": &appsv1.StatefulSet{}, "Service": &corev1.Service{}, "ConfigMap": &corev1.ConfigMap{}, "Queue": newQueue()}
	for kind, child := range children {
		for _, cluster := range []string{"hub", "member1"} {
			testwait.Until(t, fmt.Sprintf("%s has no %s", cluster, kind), func(ctx context.Context) (bool, string) {
				err := sharedWorld.clients[cluster].Get(ctx, key, child)
				return apierrors.IsNotFound(err) || meta.IsNoMatchError(err), fmt.Sprint(err)
			})
		}
	}
}

// awaitQueue waits until the operator reports so many ready replicas of the Queue, and all are.
func awaitQueue(t *testing.T, replicas int64) {
	t.Helper()
	testwait.Until(t, fmt.Sprintf("the operator sees %d replicas ready", replicas), func(ctx context.Context) (bool, string) {
		q := newQueue()
		err := hubClient().Get(ctx, client.ObjectKey{Namespace: operatorNamespace, Name: "orders"}, q)
		status, _, _ := unstructured.NestedMap(q.Object, "status")
		return err == nil && status["ready"] == "True" && status["readyReplicas"] == replicas && status["observedGeneration"] == q.GetGeneration(),
			fmt.Sprint(status, " ", err)
	})
}
