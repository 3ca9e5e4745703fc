package undo

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/undo/history"
)

// askUndo sends a question of a user, and returns the status code and the body.
func askUndo(k *Keeper, name, query string) (int, string) {
	r := httptest.NewRequest(http.MethodGet, atoll.UndoPath+"?"+query, nil)
	w := httptest.NewRecorder()
	k.ServeUndo(w, r.WithContext(request.WithUser(r.Context(), &user.DefaultInfo{Name: name})))
	return w.Code, w.Body.String()
}

// mayGetConfigMaps lets ann get everything, and bob the ConfigMaps of the namespace shop.
func mayGetConfigMaps(name string, key atoll.ItemKey) bool {
	return name == "ann" || name == "bob" && key.Kind == "ConfigMap" && key.Namespace == "shop"
}

// keeperWithSecret returns a Keeper with an edit of a ConfigMap and of a Secret.
func keeperWithSecret(t *testing.T) (*Keeper, *fakeHub) {
	t.Helper()
	k, hub := newTestKeeper(mayGetConfigMaps)
	for _, before := range []*unstructured.Unstructured{
		newObject("ConfigMap", "conf", "10", map[string]any{"a": "1"}), newObject("Secret", "pass", "11", map[string]any{"password": "c2VjcmV0"}),
	} {
		k.sendRequest(t, testWrite{user: "ann", before: before, now: changeCopy(before, func(o *unstructured.Unstructured) { o.Object["data"] = map[string]any{"b": "2"} })})
	}
	return k, hub
}

func TestAListHasWhatTheUserMayGet(t *testing.T) {
	k, _ := keeperWithSecret(t)
	for name, want := range map[string]int{"ann": 2, "bob": 1, "eve": 0} {
		code, body := askUndo(k, name, "namespace=shop")
		var a history.Answer
		if err := json.Unmarshal([]byte(body), &a); err != nil || code != http.StatusOK {
			t.Fatalf("%s: %d, %v: %s", name, code, err, body)
		}
		if len(a.Changes) != want || a.Window != "24h0m0s" {
			t.Errorf("%s sees %s", name, body)
		}
		if name != "ann" && (strings.Contains(body, "pass") || strings.Contains(body, "Secret")) {
			t.Errorf("%s sees the Secret: %s", name, body)
		}
		for _, c := range a.Changes {
			if c.Until.Sub(c.At) != 24*time.Hour {
				t.Errorf("a change of %s can be undone until %s", c.At, c.Until)
			}
		}
	}
	if _, body := askUndo(k, "ann", "namespace=other"); !strings.Contains(body, `"changes":[]`) {
		t.Errorf("another namespace has %s", body)
	}
}

// A user without the right gets the same answer whether there is a change or not.
func TestAContentIsForUsersThatMayGetTheObject(t *testing.T) {
	k, _ := keeperWithSecret(t)
	code, body := askUndo(k, "ann", "kind=Secret&namespace=shop&name=pass&revision=11")
	var target history.Target
	if err := json.Unmarshal([]byte(body), &target); err != nil || code != http.StatusOK || target.Object["data"].(map[string]any)["password"] != "c2VjcmV0" {
		t.Errorf("ann reads %d %s", code, body)
	}
	for _, query := range []string{"kind=Secret&namespace=shop&name=pass", "kind=Secret&namespace=shop&name=pass&revision=11", "kind=Secret&namespace=shop&name=none"} {
		code, body := askUndo(k, "bob", query)
		if code != http.StatusForbidden || strings.Contains(body, "c2VjcmV0") || strings.Contains(body, "/data") {
			t.Errorf("bob asks %s: %d %s", query, code, body)
		}
	}
	if code, _ := askUndo(k, "bob", "kind=ConfigMap&namespace=shop&name=conf&revision=10"); code != http.StatusOK {
		t.Errorf("bob may get the ConfigMap, and reads %d", code)
	}
}

// The changes of a namespace that was made again are shown to no user, also before they are deleted.
func TestANamespaceMadeAgainShowsNothing(t *testing.T) {
	k, hub := keeperWithSecret(t)
	hub.namespaces["shop"] = "uid-new"
	for query, want := range map[string]string{"namespace=shop": `"changes":[]`, "kind=ConfigMap&namespace=shop&name=conf": `"changes":[]`, "kind=ConfigMap&namespace=shop&name=conf&revision=10": "no change with revision"} {
		if _, body := askUndo(k, "ann", query); !strings.Contains(body, want) || strings.Contains(body, `"data"`) {
			t.Errorf("%s: %s", query, body)
		}
	}
	delete(hub.namespaces, "shop")
	if code, body := askUndo(k, "ann", "namespace=shop"); code != http.StatusOK || !strings.Contains(body, `"changes":[]`) {
		t.Errorf("a namespace that is gone: %d %s", code, body)
	}
}

func TestRefusedQuestions(t *testing.T) {
	k, hub := keeperWithSecret(t)
	for query, want := range map[string]int{"colour=blue": 400, "kind=ConfigMap": 400, "revision=10": 400, "kind=ConfigMap&namespace=shop&name=conf&revision=99": 400} {
		if code, body := askUndo(k, "ann", query); code != want {
			t.Errorf("%s: %d %s", query, code, body)
		}
	}
	w := httptest.NewRecorder()
	if k.ServeUndo(w, httptest.NewRequest(http.MethodGet, atoll.UndoPath, nil)); w.Code != http.StatusUnauthorized {
		t.Errorf("a request without a user: %d", w.Code)
	}
	w = httptest.NewRecorder()
	if k.ServeUndo(w, httptest.NewRequest(http.MethodPut, atoll.UndoPath, nil)); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("a PUT: %d", w.Code)
	}
	reserved, released := int64(0), 0
	k.options.ReserveMemory = func(_, _ string, n int64) (func(), error) {
		reserved += n
		return func() { released++ }, nil
	}
	askUndo(k, "ann", "namespace=shop")
	askUndo(k, "ann", "kind=ConfigMap&namespace=shop&name=conf&revision=10")
	if reserved != listMemory+targetMemory || released != 2 {
		t.Errorf("%d bytes are reserved, %d times released", reserved, released)
	}
	hub.undoWindow = 0
	if _, body := askUndo(k, "ann", "namespace=shop"); !strings.Contains(body, `"changes":[]`) || !strings.Contains(body, `"window":"0s"`) {
		t.Errorf("without a window: %s", body)
	}
	k.loaded = false
	if code, body := askUndo(k, "ann", "namespace=shop"); code != http.StatusServiceUnavailable || !strings.Contains(body, "starting") {
		t.Errorf("before the first list: %d %s", code, body)
	}
	if code, _ := askUndo(New(k.options), "ann", "namespace=shop"); code != http.StatusServiceUnavailable {
		t.Errorf("before the hub is there: %d", code)
	}
}

// An undo over several edits goes back to the first one, and takes back the fields of all.
func TestTheTargetOfSeveralEdits(t *testing.T) {
	k, _ := newTestKeeper(mayAll)
	data := []map[string]any{{"a": "1", "b": "1"}, {"a": "2", "b": "1"}, {"a": "2", "b": "2"}}
	for i := range 2 {
		before := newObject("ConfigMap", "conf", []string{"10", "20"}[i], data[i])
		before.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "m", Operation: "Update"}})
		k.sendRequest(t, testWrite{user: "ann", before: before, now: changeCopy(before, func(o *unstructured.Unstructured) { o.Object["data"] = data[i+1] })})
	}
	_, body := askUndo(k, "ann", "kind=ConfigMap&namespace=shop&name=conf&revision=10")
	for _, part := range []string{`"data":{"a":"1","b":"1"}`, `"changed":{"data":{"a":null,"b":null}}`, `"manager":"m"`} {
		if !strings.Contains(body, part) {
			t.Errorf("the target lacks %s: %s", part, body)
		}
	}
	_, body = askUndo(k, "ann", "kind=ConfigMap&namespace=shop&name=conf&revision=20")
	if !strings.Contains(body, `"changed":{"data":{"b":null}}`) {
		t.Errorf("the target of the second edit is %s", body)
	}
}

// A content of another object, which a person put in place of the kept one, is not handed out.
func TestTheContentOfAnotherObjectIsRefused(t *testing.T) {
	k, hub := keeperWithSecret(t)
	forged, err := history.EncodeContent(&history.Content{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "other", "namespace": "shop"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range hub.secrets {
		s.Data[dataContent] = forged
	}
	code, body := askUndo(k, "ann", "kind=ConfigMap&namespace=shop&name=conf&revision=10")
	if code == http.StatusOK || strings.Contains(body, `"object"`) || !strings.Contains(body, "not one of") {
		t.Errorf("%d %s", code, body)
	}
}
