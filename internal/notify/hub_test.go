package notify

import (
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/notify/happening"
	"atoll.dev/atoll/internal/standardwebhook"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/state/statetest"
)

var (
	chat     = types.NamespacedName{Namespace: "shop", Name: "chat"}
	loopback = []string{"127.0.0.0/8", "::1/128"}
)

// target is a server that takes messages, and keeps them.
type target struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string
	headers  []http.Header
	status   int
	header   http.Header
	answer   string
}

func newTarget(t *testing.T) *target {
	t.Helper()
	x := &target{status: http.StatusOK, answer: "ok"}
	x.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		x.mu.Lock()
		defer x.mu.Unlock()
		x.requests, x.headers = append(x.requests, r.Method+" "+r.URL.Path+" "+string(body)), append(x.headers, r.Header)
		for name, values := range x.header {
			w.Header()[name] = values
		}
		w.WriteHeader(x.status)
		_, _ = io.WriteString(w, x.answer)
	}))
	t.Cleanup(x.Close)
	return x
}

func (x *target) setAnswer(status int, header http.Header, answer string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.status, x.header, x.answer = status, header, answer
}

// takeRequests returns the requests since the last call.
func (x *target) takeRequests() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := x.requests
	x.requests, x.headers = nil, nil
	return out
}

func (x *target) certificatePEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: x.Certificate().Raw})
}

// hub is a Notifier over tables with a store in memory.
type hub struct {
	t      *testing.T
	n      *Notifier
	tables *state.HubTables
	store  client.Client
	mu     sync.Mutex // of events
	events []string
	// version is the resource version of the next object that a test puts into a table.
	version int
}

func (h *hub) RecordEvent(about corev1.ObjectReference, reason atoll.Reason, message string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, fmt.Sprintf("%s/%s %s: %s", about.Kind, about.Name, reason, message))
}

// newNotification returns a Notification of the namespace shop, by its spec in YAML.
func newNotification(t *testing.T, spec string) *v1alpha1.Notification {
	t.Helper()
	n := &v1alpha1.Notification{ObjectMeta: metav1.ObjectMeta{Namespace: chat.Namespace, Name: chat.Name, UID: "n", Generation: 1, CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour))}}
	if err := yaml.UnmarshalStrict([]byte(spec), &n.Spec); err != nil {
		t.Fatal(err)
	}
	return n
}

func newHub(t *testing.T, objects ...client.Object) *hub {
	t.Helper()
	h := &hub{t: t, store: fake.NewClientBuilder().WithScheme(state.NewScheme()).WithObjects(objects...).WithStatusSubresource(&v1alpha1.Notification{}).Build(), version: 1000}
	h.startAgain()
	return h
}

// startAgain begins the hub again, with what the store has.
func (h *hub) startAgain() {
	h.t.Helper()
	h.tables = statetest.NewTables(h.t, h.store)
	cfg := NewConfig(h.tables, h, loopback, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	h.n = New(cfg)
	h.readStored()
}

// readStored puts the Notification of the store into the table.
func (h *hub) readStored() {
	h.t.Helper()
	if n := h.getStored(); n != nil {
		h.tables.Notifications.Put(n)
	}
}

// getStored returns the Notification as the store has it; nil: it is gone.
func (h *hub) getStored() *v1alpha1.Notification {
	h.t.Helper()
	var n v1alpha1.Notification
	if err := h.store.Get(h.t.Context(), chat, &n); client.IgnoreNotFound(err) != nil {
		h.t.Fatal(err)
	} else if err != nil {
		return nil
	}
	return &n
}

// editSpec changes the spec of the Notification.
func (h *hub) editSpec(change func(spec *v1alpha1.NotificationSpec)) {
	h.t.Helper()
	n := h.getStored()
	change(&n.Spec)
	n.Generation++
	if err := h.store.Update(h.t.Context(), n); err != nil {
		h.t.Fatal(err)
	}
	h.readStored()
}

// runTurn reconciles the Notification once, and returns the wait before the next turn.
func (h *hub) runTurn() time.Duration {
	h.t.Helper()
	again, err := h.n.reconcileNotification(h.t.Context(), chat, h.n.laneOf(chat) == h.n.failing)
	if err != nil {
		h.t.Fatal(err)
	}
	return again
}

// endWait lets the wait for the next try end.
func (h *hub) endWait() {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	h.n.outboxes[chat.Namespace][chat].notBefore = time.Time{}
}

// refillTokens gives the Notification all its tokens.
func (h *hub) refillTokens() {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	o := h.n.outboxes[chat.Namespace][chat]
	o.bucket = newOutbox(o.notification, time.Now()).bucket
}

// putSource puts a Source into the table, and looks at it.
func (h *hub) putSource(name, commit string, rendered metav1.ConditionStatus, reason atoll.Reason, since time.Time) {
	h.t.Helper()
	h.version++
	s := &v1alpha1.Source{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid of " + name), ResourceVersion: fmt.Sprint(h.version), CreationTimestamp: metav1.NewTime(time.Now().Add(-2 * time.Hour))}}
	s.Status.Commit, s.Status.SeenCommit = commit, commit
	for kind, status := range map[string]metav1.ConditionStatus{v1alpha1.SourceRendered: rendered, v1alpha1.SourceApplied: metav1.ConditionTrue} {
		c := metav1.Condition{Type: kind, Status: status, Reason: string(reason), LastTransitionTime: metav1.NewTime(since.Truncate(time.Second))}
		meta.SetStatusCondition(&s.Status.Conditions, c)
	}
	h.tables.Sources.Put(s)
	h.n.lookAtObject(subjectKey{happening.KindSource, "shop", name})
}

func (h *hub) failSource(name string) {
	h.t.Helper()
	h.putSource(name, "a", metav1.ConditionFalse, atoll.ReasonContentInvalid, time.Now())
}

func (h *hub) mendSource(name string) {
	h.t.Helper()
	h.putSource(name, "a", metav1.ConditionTrue, atoll.ReasonRendered, time.Now())
}

// newSource returns a Source that fails from now on.
func (h *hub) newSource(namespace, name string) *v1alpha1.Source {
	h.version++
	s := &v1alpha1.Source{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name), ResourceVersion: fmt.Sprint(h.version), CreationTimestamp: metav1.Now()}}
	meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{Type: v1alpha1.SourceRendered, Status: metav1.ConditionFalse, Reason: string(atoll.ReasonContentInvalid), LastTransitionTime: metav1.Now()})
	return s
}

// addNotification stores a Notification, and puts it into the table.
func (h *hub) addNotification(n *v1alpha1.Notification) {
	h.t.Helper()
	if err := h.store.Create(h.t.Context(), n); err != nil {
		h.t.Fatal(err)
	}
	h.tables.Notifications.Put(n)
}

func secretOf(name string, data map[string]string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Data: map[string][]byte{}}
	for key, value := range data {
		s.Data[key] = []byte(value)
	}
	return s
}

const toSlack = "{target: {slack: {secretRef: {name: chat}}}, events: [SourceFailed, SourceApplied]}"

// newChat returns a hub with a Notification that sends to a target as to Slack, and a Source that is as it was before.
func newChat(t *testing.T, x *target) *hub {
	t.Helper()
	h := newHub(t, newNotification(t, toSlack), secretOf("chat", map[string]string{"url": x.URL + "/services/hush", "ca.crt": string(x.certificatePEM())}))
	h.putSource("web", "a", metav1.ConditionTrue, atoll.ReasonRendered, time.Now().Add(-2*time.Hour))
	if again := h.runTurn(); again != 0 {
		t.Fatalf("the first turn waits %s", again)
	}
	return h
}

func deliveredOf(n *v1alpha1.Notification) string {
	c := meta.FindStatusCondition(n.Status.Conditions, v1alpha1.NotificationDelivered)
	if c == nil {
		return "none"
	}
	return string(c.Status) + " " + c.Reason
}

// setSecret replaces the Secret of the target; nil deletes it.
func (h *hub) setSecret(data map[string]string) {
	h.t.Helper()
	s := secretOf("chat", data)
	if err := h.store.Delete(h.t.Context(), s); err != nil {
		h.t.Fatal(err)
	}
	if data == nil {
		return
	}
	s.ResourceVersion = ""
	if err := h.store.Create(h.t.Context(), s); err != nil {
		h.t.Fatal(err)
	}
}

// signatureOf returns the signature of a request.
func signatureOf(key, id, at, body string) string {
	return standardwebhook.SignRequest([]byte(key), id, at, []byte(body))
}
