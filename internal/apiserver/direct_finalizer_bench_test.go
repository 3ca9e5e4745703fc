package apiserver_test

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/apiserver"
)

// BenchmarkAddFinalizer adds the finalizer to a Deployment that a user has created, directly and
// by a patch of the API inside of the process. CPU time is of the whole process, which includes
// etcd and the watches.
func BenchmarkAddFinalizer(b *testing.B) {
	s, err := apiserver.StartAPIServer(b.Context(), testOptions(b.TempDir()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { stop(s) })
	u := newAdmin(b, s)
	if _, err := u.kube.CoreV1().Namespaces().Create(b.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	config := s.LoopbackConfig()
	config.QPS = -1
	c, err := client.New(config, client.Options{Scheme: runtime.NewScheme()})
	if err != nil {
		b.Fatal(err)
	}
	gvk := appsv1.SchemeGroupVersion.WithKind("Deployment")
	patch := func(into client.Object, kind types.PatchType, o *appsv1.Deployment) error {
		into.GetObjectKind().SetGroupVersionKind(gvk)
		into.SetNamespace(o.Namespace)
		into.SetName(o.Name)
		text := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q,"finalizers":["atoll.dev/propagated"]}}`, o.ResourceVersion)
		return c.Patch(b.Context(), into, client.RawPatch(kind, text), client.FieldOwner("atoll"))
	}
	for _, way := range []struct {
		name string
		add  func(*appsv1.Deployment) error
	}{
		{"direct", func(o *appsv1.Deployment) error {
			done, err := s.DirectStores().Templates.AddFinalizer(b.Context(), gvk, appsv1.Resource("deployments"), o, "atoll.dev/propagated")
			if err == nil && !done {
				err = fmt.Errorf("the finalizer of %s is not added", o.Name)
			}
			return err
		}},
		{"merge-whole", func(o *appsv1.Deployment) error {
			return patch(&unstructured.Unstructured{}, types.MergePatchType, o)
		}},
		{"merge-metadata", func(o *appsv1.Deployment) error {
			return patch(&metav1.PartialObjectMetadata{}, types.MergePatchType, o)
		}},
		{"strategic-metadata", func(o *appsv1.Deployment) error {
			return patch(&metav1.PartialObjectMetadata{}, types.StrategicMergePatchType, o)
		}},
	} {
		b.Run("way="+way.name, func(b *testing.B) { benchmarkFinalizer(b, u, way.add) })
	}
}

func benchmarkFinalizer(b *testing.B, u *user, add func(*appsv1.Deployment) error) {
	objects := make([]*appsv1.Deployment, b.N)
	for i := range objects {
		var err error
		if objects[i], err = u.kube.AppsV1().Deployments("shop").Create(b.Context(), newDeployment("web-"+rand.String(10)), metav1.CreateOptions{FieldManager: "kubectl"}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	begin := cpuTime(b)
	for _, o := range objects {
		if err := add(o); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpuTime(b)-begin).Microseconds())/float64(b.N), "cpu-us/op")
}

// newDeployment is one of the size of the applications of `atoll-lab bench schedule-rate`.
func newDeployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	replicas := int32(3)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "registry.example/app:1"}}},
			},
		},
	}
}
