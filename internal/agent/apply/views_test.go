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

// meanwhile lets do happen once, after the member has applied the object and before
// the engine is told so, and waits until the watch has told the engine of it.
func (w *world) meanwhile(key atoll.ItemKey, do func(), heard func(view) bool) {
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
		w.eventually("the watch tells of "+key.String(), func() (bool, string) {
			w.Engine.mu.Lock()
			defer w.Engine.mu.Unlock()
			return heard(w.views[key]), w.views[key].Version
		})
	}
}

// What the watch tells while an apply is under way is newer than the apply's reply: it
// counts, though the reply comes last and nothing comes after it.
func TestWhatTheWatchToldBeforeTheReplyCounts(t *testing.T) {
	w := newWorld(t)
	other, data := w.item("t-other", strings.ReplaceAll(claim, "name: data", "name: other")), w.item("t-data", claim)
	w.upsert(manifest("b0", 1, other)) // whose watch runs from now on
	w.ready("b0", 1)

	t.Run("created", func(t *testing.T) {
		w.meanwhile(data.Key, func() { w.bound(data.Key) }, func(v view) bool { return v.Health == atoll.Healthy })
		w.upsert(manifest("b1", 1, data))
		w.ready("b1", 1)
	})
	t.Run("changed", func(t *testing.T) {
		labelled := w.item("t-data", strings.ReplaceAll(claim, "name: data", "name: data, labels: {a: b}"))
		w.meanwhile(data.Key, func() { w.edit(data.Key, `{"metadata":{"labels":{"a":"theirs"}}}`) },
			func(v view) bool { return len(v.Others) > 0 && v.Others[len(v.Others)-1] == "somebody" })
		w.upsert(manifest("b1", 2, labelled))
		w.eventually("the label is set back", func() (bool, string) {
			return w.exists(data.Key).GetLabels()["a"] == "b", ""
		})
	})
	t.Run("gone", func(t *testing.T) {
		conf, first := w.item("t-conf", configMap), w.item("t-first", strings.ReplaceAll(configMap, "name: conf", "name: first"))
		w.upsert(manifest("b2", 1, first))
		w.ready("b2", 1)
		w.meanwhile(conf.Key, func() { w.deleteByHand(conf.Key) }, func(v view) bool { return v.left })
		w.upsert(manifest("b3", 1, conf))
		w.ready("b3", 1)
		w.exists(conf.Key)
	})
}

// bound waits until the member has bound the claim.
func (w *world) bound(key atoll.ItemKey) {
	w.t.Helper()
	claims := schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}
	w.eventually(key.String()+" is bound", func() (bool, string) {
		obj, err := w.client.Dynamic().Resource(claims).Namespace(key.Namespace).Get(w.t.Context(), key.Name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		status, _ := obj.Object["status"].(map[string]any)
		return status["phase"] == "Bound", ""
	})
}
