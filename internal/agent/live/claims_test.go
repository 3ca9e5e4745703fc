package live

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"atoll.dev/atoll/internal/atoll"
)

func setKey(namespace, name string) atoll.ItemKey {
	return atoll.ItemKey{Group: "apps", Kind: "StatefulSet", Namespace: namespace, Name: name}
}

// A claim belongs to the recorded StatefulSet that uses it by its name.
func TestClaimsBelongToTheirStatefulSets(t *testing.T) {
	sets := map[atoll.ItemKey]string{setKey("shop", "db"): "u1", setKey("shop", "my-db"): "u2", setKey("shop", "new"): "", {Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}: "u3"}
	templates := map[atoll.ItemKey][]string{setKey("shop", "db"): {"data", "wal-log", "x-my"}, setKey("shop", "my-db"): {"data"}, setKey("shop", "new"): {"data"}}
	o := newOwnershipResolver(nil, &book{uid: sets, claimTemplates: templates})
	for claim, want := range map[string]string{
		"data-db-0": "db u1", "data-db-17": "db u1", "wal-log-db-0": "db u1", "data-my-db-0": "my-db u2", "x-my-db-0": "db u1", "data-new-0": "new unknown",
		"data-web-0": "", "log-db-0": "", "data-db": "", "data-db-": "", "data-db-x": "", "data-db-0x": "", "db-0": "", "-db-0": "", "0": "", "": "", "data-db-0-": "", "data-other-0": "",
	} {
		got := ""
		if ref := o.setOfClaim("shop", claim); ref != nil {
			got = ref.name + " " + string(ref.uid)
		}
		if got != want {
			t.Errorf("%q belongs to %q, want %q", claim, got, want)
		}
	}
	if ref := o.setOfClaim("blog", "data-db-0"); ref != nil {
		t.Errorf("in another namespace it belongs to %v", ref)
	}
	for name, c := range map[string]struct {
		kind string
		m    metav1.ObjectMeta
		want ownershipState
	}{
		"a claim of a placed set":       {"PersistentVolumeClaim", metav1.ObjectMeta{Namespace: "shop", Name: "data-db-0", UID: "c"}, placed},
		"a claim of a set without UID":  {"PersistentVolumeClaim", metav1.ObjectMeta{Namespace: "shop", Name: "data-new-0", UID: "c"}, pending},
		"a claim that a person made":    {"PersistentVolumeClaim", metav1.ObjectMeta{Namespace: "shop", Name: "mine", UID: "c"}, foreign},
		"another kind with such a name": {"Pod", metav1.ObjectMeta{Namespace: "shop", Name: "data-db-0", UID: "c"}, foreign},
	} {
		if got, err := o.ownershipOf(t.Context(), corev1.SchemeGroupVersion.WithKind(c.kind), &c.m); err != nil || got != c.want {
			t.Errorf("%s: %v, %v, want %v", name, got, err, c.want)
		}
	}
}

// A member shows the claims of a placed StatefulSet, and no others.
func TestClaimsOfPlacedSetsAreShown(t *testing.T) {
	w := newWorld(t, "claims")
	labels := map[string]string{"app": "db"}
	claim := func(name string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}}
	}
	set, err := w.kube.AppsV1().StatefulSets(w.ns).Create(t.Context(), &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: appsv1.StatefulSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, VolumeClaimTemplates: []corev1.PersistentVolumeClaim{*claim("data")},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"data-db-5", "log-db-5", "mine"} {
		if _, err := w.kube.CoreV1().PersistentVolumeClaims(w.ns).Create(t.Context(), claim(name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.book.set(setKey(w.ns, "db"), string(set.UID))
	w.book.mu.Lock()
	w.book.claimTemplates = map[atoll.ItemKey][]string{setKey(w.ns, "db"): {"data"}}
	w.book.mu.Unlock()
	list := decodeAnswer[*corev1.PersistentVolumeClaimList](t, w.http.URL+"/api/v1/namespaces/claims/persistentvolumeclaims")
	var names []string
	for _, c := range list.Items {
		names = append(names, c.Name)
	}
	if names = slices.DeleteFunc(names, func(name string) bool { return name == "data-db-0" }); !slices.Equal(names, []string{"data-db-5"}) { // the controller may have made the first
		t.Errorf("shown are %q", names)
	}
}

// The hub gets the objects that keep a namespace, by a path of its own.
func TestForeignObjectsAreServed(t *testing.T) {
	w := newWorld(t, "foreign")
	w.book.mu.Lock()
	w.book.foreign = map[string]atoll.ForeignObjects{"foreign": {More: 7}}
	w.book.mu.Unlock()
	found, err := atoll.ForeignObjectsFromStatus(decodeAnswer[*metav1.Status](t, w.http.URL+atoll.ForeignObjectsPath("foreign")))
	if err != nil || found.More != 7 {
		t.Errorf("%+v, %v", found, err)
	}
	answer, err := http.Post(w.http.URL+atoll.ForeignObjectsPath("foreign"), "", strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a POST is answered with %s", answer.Status)
	}
}

// decodeAnswer reads the answer to a GET.
func decodeAnswer[T runtime.Object](t *testing.T, url string) T {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	obj, _, err := clientscheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		t.Fatalf("%s: %v", answer.Status, err)
	}
	out, ok := obj.(T)
	if !ok {
		t.Fatalf("the answer is a %T", obj)
	}
	return out
}
