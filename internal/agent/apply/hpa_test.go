package apply

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/internal/atoll"
)

const autoscaler = `
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec: {minReplicas: 1, maxReplicas: 50, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
`

// webWith is the Deployment with so many replicas, in its n-th edition.
func (w *world) webWith(replicas, n int) atoll.RenderedItem {
	w.t.Helper()
	text := strings.ReplaceAll(deployment, "replicas: 2", fmt.Sprintf("replicas: %d", replicas))
	return w.newItem("t-web", strings.ReplaceAll(text, "nginx:1", fmt.Sprintf("nginx:%d", n)))
}

// scaleObject as an autoscaler in the member does.
func (w *world) scaleObject(key atoll.ItemKey, replicas int) {
	w.t.Helper()
	_, err := w.client.DynamicClient().Resource(w.resourceOf(key)).Namespace(key.Namespace).Patch(w.t.Context(), key.Name,
		types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas),
		metav1.PatchOptions{FieldManager: "kube-controller-manager"}, "scale")
	if err != nil {
		w.t.Fatal(err)
	}
}

// replicasOf watches the object's replicas; the function waits for a last value,
// ends the watch and gives every value that they had, without repeats.
func (w *world) replicasOf(key atoll.ItemKey) func(last int64) []int64 {
	w.t.Helper()
	got, err := w.client.DynamicClient().Resource(w.resourceOf(key)).Namespace(key.Namespace).Watch(w.t.Context(),
		metav1.ListOptions{FieldSelector: "metadata.name=" + key.Name})
	if err != nil {
		w.t.Fatal(err)
	}
	var mu sync.Mutex
	var values []int64
	go func() {
		for event := range got.ResultChan() {
			obj, ok := event.Object.(*unstructured.Unstructured)
			if !ok {
				continue
			}
			mu.Lock()
			if n, _, _ := unstructured.NestedInt64(obj.Object, "spec", "replicas"); len(values) == 0 || values[len(values)-1] != n {
				values = append(values, n)
			}
			mu.Unlock()
		}
	}()
	return func(last int64) (all []int64) {
		w.t.Helper()
		defer got.Stop()
		w.waitUntil(fmt.Sprintf("%d replicas at last", last), func() (bool, string) {
			mu.Lock()
			defer mu.Unlock()
			all = slices.Clone(values)
			return len(all) > 0 && all[len(all)-1] == last, fmt.Sprint(all)
		})
		return all
	}
}

func (w *world) hasReplicas(key atoll.ItemKey, want int64) {
	w.t.Helper()
	w.waitUntil(fmt.Sprintf("%d replicas", want), func() (bool, string) {
		n, _, _ := unstructured.NestedInt64(w.expectExists(key).Object, "spec", "replicas")
		return n == want, fmt.Sprint(n)
	})
}

func (w *world) expectImage(key atoll.ItemKey, want string) {
	w.t.Helper()
	w.waitUntil("image "+want, func() (bool, string) {
		containers, _, _ := unstructured.NestedSlice(w.expectExists(key).Object, "spec", "template", "spec", "containers")
		image := fmt.Sprint(containers[0].(map[string]any)["image"])
		return image == want, image
	})
}

// ownReplicas reports whether the agent owns the replicas of the object.
func (w *world) ownReplicas(key atoll.ItemKey) bool {
	for _, f := range w.expectExists(key).GetManagedFields() {
		if f.Manager == atoll.FieldManager && strings.Contains(f.FieldsV1.GetRawString(), `"f:replicas"`) {
			return true
		}
	}
	return false
}

func TestReplicasGoToAnAutoscalerAndBackWithoutAJump(t *testing.T) {
	w := newWorld(t)
	web, hpa := w.webWith(2, 1), w.newItem("t-hpa", autoscaler)
	w.storeManifest(newManifest("b1", 1, web))
	w.waitForReady("b1", 1)
	values := w.replicasOf(web.Key)

	w.storeManifest(newManifest("b1", 2, w.webWith(2, 2), hpa)) // handed over
	w.expectExists(hpa.Key)
	if w.ownReplicas(web.Key) {
		t.Fatal("the autoscaler came before the replicas were handed over")
	}
	w.scaleObject(web.Key, 7)
	w.storeManifest(newManifest("b1", 3, w.webWith(3, 3), hpa)) // edits during the apply
	w.expectImage(web.Key, "nginx:3")
	w.scaleObject(web.Key, 6)
	w.stop()
	w.scaleObject(web.Key, 9)
	w.start()
	w.storeManifest(newManifest("b1", 4, w.webWith(3, 4), hpa))
	w.expectImage(web.Key, "nginx:4")

	// The autoscaler goes, and acts until it is gone.
	w.patchObject(hpa.Key, `{"metadata":{"finalizers":["example.com/hold"]}}`)
	w.storeManifest(withTombstones(newManifest("b1", 5, w.webWith(4, 5)), tombstoneOf(hpa)))
	w.expectImage(web.Key, "nginx:5")
	w.scaleObject(web.Key, 11)
	w.stop()
	w.start()
	w.waitForReason("b1", atoll.ReasonTerminating)
	w.scaleObject(web.Key, 10)
	w.patchObject(hpa.Key, `{"metadata":{"finalizers":null}}`)
	w.hasReplicas(web.Key, 4)
	w.waitForReady("b1", 5)
	if !w.ownReplicas(web.Key) {
		t.Fatal("the replicas were not taken back")
	}
	if got, want := values(4), []int64{2, 7, 6, 9, 11, 10, 4}; !slices.Equal(got, want) {
		t.Fatalf("replicas were %v, want %v", got, want)
	}
}

// An object that is made together with its autoscaler starts with what it states,
// also when the agent dies right after making it.
func TestAutoscaledFromTheBeginning(t *testing.T) {
	w := newWorld(t)
	w.makeNamespace()
	web, hpa := w.webWith(5, 1), w.newItem("t-hpa", autoscaler)
	web.MemberOwned = []string{replicas}
	made := w.line.cutAfter(true, func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/deployments/web") })
	w.storeManifest(newManifest("b1", 1, web, hpa))
	<-made
	w.stop()
	w.line.restoreLine()
	values := w.replicasOf(web.Key)
	w.scaleObject(web.Key, 8)
	w.start()
	w.waitForApplied("b1", 1)
	if w.ownReplicas(web.Key) {
		t.Fatal("the replicas were not handed over")
	}
	if got := values(8); !slices.Equal(got, []int64{5, 8}) {
		t.Fatalf("replicas were %v", got)
	}
}

// The old target of an autoscaler is taken back when the autoscaler has the new target.
func TestAutoscalerChangesItsTarget(t *testing.T) {
	w := newWorld(t)
	web, hpa := w.webWith(2, 1), w.newItem("t-hpa", autoscaler)
	other := w.newItem("t-api", strings.ReplaceAll(deployment, "name: web", "name: api"))
	w.storeManifest(newManifest("b1", 1, web, other, hpa))
	w.waitForApplied("b1", 1)
	w.scaleObject(web.Key, 7)
	values, others := w.replicasOf(web.Key), w.replicasOf(other.Key)
	w.storeManifest(newManifest("b1", 2, web, other, w.newItem("t-hpa", strings.ReplaceAll(autoscaler, "name: web}}", "name: api}}"))))
	w.hasReplicas(web.Key, 2)
	w.waitUntil("the new target is handed over", func() (bool, string) { return !w.ownReplicas(other.Key), "" })
	w.scaleObject(other.Key, 6)
	w.storeManifest(newManifest("b1", 3, w.webWith(3, 2), other, w.newItem("t-hpa", strings.ReplaceAll(autoscaler, "name: web}}", "name: api}}"))))
	w.hasReplicas(web.Key, 3)
	if a, b := values(3), others(6); !slices.Equal(a, []int64{7, 2, 3}) || !slices.Equal(b, []int64{2, 6}) {
		t.Fatalf("replicas were %v and %v", a, b)
	}
}
