package apiserver_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/fleetview/server"
)

// webManifest as its user writes it, with another image.
func webManifest(kind, namespace, image string) string {
	return fmt.Sprintf(`{"apiVersion":"apps/v1","kind":%q,"metadata":{"name":"web","namespace":%q,"annotations":{"by":%q}},"spec":{"selector":{"matchLabels":{"app":"web"}},
		"template":{"metadata":{"labels":{"app":"web"}},"spec":{"serviceAccountName":"me","containers":[{"name":"web","image":%q,"env":[{"name":"A","value":"1"}]}]}}}}`, kind, namespace, image, image)
}

// addHistory what is written of web at Revisions.
func (m *members) addHistory(namespace, kind string, uid types.UID, stated ...server.RevisionTemplate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := &unstructured.Unstructured{}
	w.SetAPIVersion("apps/v1")
	w.SetKind(kind)
	w.SetName("web")
	_ = unstructured.SetNestedStringMap(w.Object, map[string]string{"app": "web"}, "spec", "selector", "matchLabels")
	m.workloads[namespace] = append(m.workloads[namespace], w)
	m.stated[atoll.ItemKey{Group: "apps", Kind: kind, Namespace: namespace, Name: "web"}.String()+string(uid)] = stated
}

func (m *members) failReads(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unread = err
}

// TestAHistoryIsWhatWasStated: a list by exactly the selector of a Deployment returns each pod
// template that its user stated, as the API server stored it then. No other list returns any.
func TestAHistoryIsWhatWasStated(t *testing.T) {
	u := newAdmin(t, hub)
	ns := u.createNamespace("past")
	deployments, sets := u.kube.AppsV1().Deployments(ns), u.kube.AppsV1().ReplicaSets(ns)
	var then []corev1.PodTemplateSpec
	var d *appsv1.Deployment
	for _, image := range []string{"a", "b", "c"} {
		u.mustApply(webManifest("Deployment", ns, image))
		var err error
		if d, err = deployments.Get(t.Context(), "web", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		then = append(then, d.Spec.Template)
	}
	stated := func(number int64, image string) server.RevisionTemplate {
		return server.RevisionTemplate{Number: number, Version: "1", Object: []byte(webManifest("Deployment", ns, image))}
	}
	list := func(o metav1.ListOptions) (out []string) {
		t.Helper()
		l, err := sets.List(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, rs := range l.Items {
			out = append(out, rs.Name)
		}
		return out
	}
	asked := metav1.ListOptions{LabelSelector: "app=web"}
	if got := list(asked); got != nil {
		t.Errorf("what nothing places has the history %v", got)
	}
	// The third is in no Revision yet; of the first UID of that name something else is known.
	fleet.addHistory(ns, "Deployment", "another", stated(1, "z"))
	fleet.addHistory(ns, "Deployment", d.UID, stated(3, "a"), stated(4, "b"))
	if got := list(asked); !slices.Equal(got, []string{"web-deployment-r3", "web-deployment-r4", "web-deployment-r9"}) {
		t.Errorf("its history is %v", got)
	}
	for i, name := range []string{"web-deployment-r3", "web-deployment-r4", "web-deployment-r9"} {
		rs, err := sets.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(rs.Spec.Template, then[i]) || !metav1.IsControlledBy(rs, d) || rs.Annotations["by"] != string('a'+rune(i)) {
			t.Errorf("%s is %+v with %+v, wanted %+v", name, rs.ObjectMeta, rs.Spec.Template, then[i])
		}
	}
	for _, o := range []metav1.ListOptions{
		{}, {LabelSelector: "app"}, {LabelSelector: "app=web,tier!=x"}, {LabelSelector: "app=web", ResourceVersion: "0"}, {LabelSelector: "app=db"},
	} {
		if got := list(o); got != nil {
			t.Errorf("a list by %+v returns the history %v", o, got)
		}
	}
	if err := sets.Delete(t.Context(), "web-deployment-r3", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "stated") {
		t.Errorf("deleting what was stated: %v", err)
	}
	if _, err := sets.Patch(t.Context(), "web-deployment-r3", types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}}}`), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("changing what was stated: %v", err)
	}
	if _, err := sets.Get(t.Context(), "web-deployment-r5", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what was never stated: %v", err)
	}

	// An unreadable Revision may be one that a user wants to go back to: nothing is returned in
	// its place.
	fleet.failReads(apierrors.NewServiceUnavailable("the store is away"))
	defer fleet.failReads(nil)
	if _, err := sets.List(t.Context(), asked); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a history that cannot be read: %v", err)
	}
}

// TestAHistoryOfControllerRevisions: the revisions of a StatefulSet and a DaemonSet are shown as
// ControllerRevisions, by which they are rolled back.
func TestAHistoryOfControllerRevisions(t *testing.T) {
	u := newAdmin(t, hub)
	ns := u.createNamespace("past")
	revisions := func() (out []appsv1.ControllerRevision) {
		t.Helper()
		l, err := u.kube.AppsV1().ControllerRevisions(ns).List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil {
			t.Fatal(err)
		}
		return l.Items
	}
	for kind, restored := range map[string]func(context.Context, []byte) (metav1.Object, *corev1.PodTemplateSpec, error){
		"StatefulSet": func(ctx context.Context, patch []byte) (metav1.Object, *corev1.PodTemplateSpec, error) {
			s, err := u.kube.AppsV1().StatefulSets(ns).Patch(ctx, "web", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
			return s, &s.Spec.Template, err
		},
		"DaemonSet": func(ctx context.Context, patch []byte) (metav1.Object, *corev1.PodTemplateSpec, error) {
			s, err := u.kube.AppsV1().DaemonSets(ns).Patch(ctx, "web", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
			return s, &s.Spec.Template, err
		},
	} {
		u.mustApply(webManifest(kind, ns, "a"))
		_, then, err := restored(t.Context(), []byte("{}"))
		if err != nil {
			t.Fatal(err)
		}
		was := then.DeepCopy()
		u.mustApply(webManifest(kind, ns, "b"))
		set, _, err := restored(t.Context(), []byte("{}"))
		if err != nil {
			t.Fatal(err)
		}
		fleet.addHistory(ns, kind, set.GetUID(), server.RevisionTemplate{Number: 3, Version: "1", Object: []byte(webManifest(kind, ns, "a"))}, server.RevisionTemplate{Number: 4, Version: "1", Object: []byte(webManifest(kind, ns, "b"))})
		var mine []appsv1.ControllerRevision
		for _, r := range revisions() {
			if metav1.IsControlledBy(&r, set) {
				mine = append(mine, r)
			}
		}
		if len(mine) != 2 || mine[0].Revision != 3 || mine[1].Revision != 4 {
			t.Fatalf("the history of the %s is %+v", kind, mine)
		}
		if _, now, err := restored(t.Context(), mine[0].Data.Raw); err != nil || !reflect.DeepEqual(now, was) {
			t.Errorf("the %s that is gone back to has %+v, wanted %+v: %v", kind, now, was, err)
		}
	}
}
