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
func (w *world) webWith(replicas, n int) atoll.Rendered {
	w.t.Helper()
	text := strings.ReplaceAll(deployment, "replicas: 2", fmt.Sprintf("replicas: %d", replicas))
	return w.item("t-web", strings.ReplaceAll(text, "nginx:1", fmt.Sprintf("nginx:%d", n)))
}

// scale as an autoscaler in the member does.
func (w *world) scale(key atoll.ItemKey, replicas int) {
	w.t.Helper()
	_, err := w.client.Dynamic().Resource(w.resource(key)).Namespace(key.Namespace).Patch(w.t.Context(), key.Name,
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
	got, err := w.client.Dynamic().Resource(w.resource(key)).Namespace(key.Namespace).Watch(w.t.Context(),
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
		w.eventually(fmt.Sprintf("%d replicas at last", last), func() (bool, string) {
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
	w.eventually(fmt.Sprintf("%d replicas", want), func() (bool, string) {
		n, _, _ := unstructured.NestedInt64(w.exists(key).Object, "spec", "replicas")
		return n == want, fmt.Sprint(n)
	})
}

func (w *world) image(key atoll.ItemKey, want string) {
	w.t.Helper()
	w.eventually("image "+want, func() (bool, string) {
		containers, _, _ := unstructured.NestedSlice(w.exists(key).Object, "spec", "template", "spec", "containers")
		image := fmt.Sprint(containers[0].(map[string]any)["image"])
		return image == want, image
	})
}

// ownReplicas tells whether the agent owns the replicas of the object.
func (w *world) ownReplicas(key atoll.ItemKey) bool {
	for _, f := range w.exists(key).GetManagedFields() {
		if f.Manager == atoll.FieldManager && strings.Contains(f.FieldsV1.GetRawString(), `"f:replicas"`) {
			return true
		}
	}
	return false
}

func TestReplicasGoToAnAutoscalerAndBackWithoutAJump(t *testing.T) {
	w := newWorld(t)
	web, hpa := w.webWith(2, 1), w.item("t-hpa", autoscaler)
	w.upsert(manifest("b1", 1, web))
	w.ready("b1", 1)
	values := w.replicasOf(web.Key)

	w.upsert(manifest("b1", 2, w.webWith(2, 2), hpa)) // handed over
	w.exists(hpa.Key)
	if w.ownReplicas(web.Key) {
		t.Fatal("the autoscaler came before the replicas were handed over")
	}
	w.scale(web.Key, 7)
	w.upsert(manifest("b1", 3, w.webWith(3, 3), hpa)) // edits meanwhile
	w.image(web.Key, "nginx:3")
	w.scale(web.Key, 6)
	w.stop()
	w.scale(web.Key, 9)
	w.start()
	w.upsert(manifest("b1", 4, w.webWith(3, 4), hpa))
	w.image(web.Key, "nginx:4")

	// The autoscaler goes, and acts until it is gone.
	w.edit(hpa.Key, `{"metadata":{"finalizers":["example.com/hold"]}}`)
	w.upsert(withTombstones(manifest("b1", 5, w.webWith(4, 5)), tombstone(hpa)))
	w.image(web.Key, "nginx:5")
	w.scale(web.Key, 11)
	w.stop()
	w.start()
	w.reason("b1", ReasonTerminating)
	w.scale(web.Key, 10)
	w.edit(hpa.Key, `{"metadata":{"finalizers":null}}`)
	w.hasReplicas(web.Key, 4)
	w.ready("b1", 5)
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
	web, hpa := w.webWith(5, 1), w.item("t-hpa", autoscaler)
	web.Leave = []string{replicas}
	made := w.line.die(true, func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/deployments/web") })
	w.upsert(manifest("b1", 1, web, hpa))
	<-made
	w.stop()
	w.line.mend()
	values := w.replicasOf(web.Key)
	w.scale(web.Key, 8)
	w.start()
	w.applied("b1", 1)
	if w.ownReplicas(web.Key) {
		t.Fatal("the replicas were not handed over")
	}
	if got := values(8); !slices.Equal(got, []int64{5, 8}) {
		t.Fatalf("replicas were %v", got)
	}
}

// Of two autoscalers' targets the old one is taken back when the autoscaler is on
// the new one.
func TestAutoscalerChangesItsTarget(t *testing.T) {
	w := newWorld(t)
	web, hpa := w.webWith(2, 1), w.item("t-hpa", autoscaler)
	other := w.item("t-api", strings.ReplaceAll(deployment, "name: web", "name: api"))
	w.upsert(manifest("b1", 1, web, other, hpa))
	w.applied("b1", 1)
	w.scale(web.Key, 7)
	values, others := w.replicasOf(web.Key), w.replicasOf(other.Key)
	w.upsert(manifest("b1", 2, web, other, w.item("t-hpa", strings.ReplaceAll(autoscaler, "name: web}}", "name: api}}"))))
	w.hasReplicas(web.Key, 2)
	w.eventually("the new target is handed over", func() (bool, string) { return !w.ownReplicas(other.Key), "" })
	w.scale(other.Key, 6)
	w.upsert(manifest("b1", 3, w.webWith(3, 2), other, w.item("t-hpa", strings.ReplaceAll(autoscaler, "name: web}}", "name: api}}"))))
	w.hasReplicas(web.Key, 3)
	if a, b := values(3), others(6); !slices.Equal(a, []int64{7, 2, 3}) || !slices.Equal(b, []int64{2, 6}) {
		t.Fatalf("replicas were %v and %v", a, b)
	}
}
