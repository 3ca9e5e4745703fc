package apply

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/atoll"
)

const claim = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`

// duringApply runs do once, after the member has applied the object and before the engine gets the
// reply. It waits until the watch has informed the engine.
func (w *world) duringApply(key atoll.ItemKey, do func(), heard func(view) bool) {
	w.t.Helper()
	w.line.mu.Lock()
	defer w.line.mu.Unlock()
	done := false
	w.line.late = func(r *http.Request) {
		if done || r.Method != http.MethodPatch || !strings.HasSuffix(r.URL.Path, "/"+strings.ToLower(key.Kind)+"s/"+key.Name) {
			return
		}
		done = true
		do()
		w.waitUntil("the watch tells of "+key.String(), func() (bool, string) {
			w.MemberApplier.mu.Lock()
			defer w.MemberApplier.mu.Unlock()
			return heard(w.views[key]), w.views[key].Version
		})
	}
}

// A watch event during an apply is newer than the apply's reply: it counts, though the reply comes
// last and no event follows.
func TestWhatTheWatchToldBeforeTheReplyCounts(t *testing.T) {
	w := newWorld(t)
	other, data := w.newItem("t-other", strings.ReplaceAll(claim, "name: data", "name: other")), w.newItem("t-data", claim)
	w.storeManifest(newManifest("b0", 1, other)) // whose watch runs from now on
	w.waitForReady("b0", 1)

	t.Run("created", func(t *testing.T) {
		w.duringApply(data.Key, func() { w.expectBound(data.Key) }, func(v view) bool { return v.Health == atoll.Healthy })
		w.storeManifest(newManifest("b1", 1, data))
		w.waitForReady("b1", 1)
	})
	t.Run("changed", func(t *testing.T) {
		labelled := w.newItem("t-data", strings.ReplaceAll(claim, "name: data", "name: data, labels: {a: b}"))
		w.duringApply(data.Key, func() { w.patchObject(data.Key, `{"metadata":{"labels":{"a":"theirs"}}}`) },
			func(v view) bool { return len(v.Others) > 0 && v.Others[len(v.Others)-1] == "some-controller" })
		w.storeManifest(newManifest("b1", 2, labelled))
		w.waitUntil("the label is set back", func() (bool, string) {
			return w.expectExists(data.Key).GetLabels()["a"] == "b", ""
		})
	})
	t.Run("gone", func(t *testing.T) {
		conf, first := w.newItem("t-conf", configMap), w.newItem("t-first", strings.ReplaceAll(configMap, "name: conf", "name: first"))
		w.storeManifest(newManifest("b2", 1, first))
		w.waitForReady("b2", 1)
		w.duringApply(conf.Key, func() { w.deleteByHand(conf.Key) }, func(v view) bool { return v.left })
		w.storeManifest(newManifest("b3", 1, conf))
		w.waitForReady("b3", 1)
		w.expectExists(conf.Key)
	})
}

// expectBound waits until the member has bound the claim.
func (w *world) expectBound(key atoll.ItemKey) {
	w.t.Helper()
	claims := schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}
	w.waitUntil(key.String()+" is bound", func() (bool, string) {
		obj, err := w.client.DynamicClient().Resource(claims).Namespace(key.Namespace).Get(w.t.Context(), key.Name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		status, _ := obj.Object["status"].(map[string]any)
		return status["phase"] == "Bound", ""
	})
}
