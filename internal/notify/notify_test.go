package notify

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/notify/happening"
	"atoll.dev/atoll/internal/pace"
	"atoll.dev/atoll/internal/testwait"
)

// A Source that fails and is mended makes two messages, whatever else happens. A restart adds none, and at rest nothing is written.
func TestEachEventIsSentOnce(t *testing.T) {
	x := newTarget(t)
	h := newChat(t, x)
	if n := h.getStored(); deliveredOf(n) != "Unknown NotDetermined" || n.Status.Target != "Slack" || n.Status.ObservedGeneration != 1 || len(x.takeRequests()) != 0 {
		t.Fatalf("after the first turn: %+v", n.Status)
	}
	h.failSource("web")
	h.runTurn()
	if got := x.takeRequests(); len(got) != 1 || !strings.Contains(got[0], `POST /services/hush {"link_names":false`) || !strings.Contains(got[0], "Source failed: Source shop/web") {
		t.Fatalf("sent %q", got)
	}
	n := h.getStored()
	if deliveredOf(n) != "True NothingUnsent" || n.Status.LastSentTime.IsZero() || n.Status.Sent != 1 || len(n.Status.Handled) != 1 || n.Status.Handled[0].Event != "SourceFailed" || n.Status.Handled[0].UID != "uid of web" || n.Status.Handled[0].ID == "" || n.Status.Handled[0].Time.IsZero() {
		t.Errorf("the status %+v", n.Status)
	}
	version := n.ResourceVersion
	h.n.lookAtObject(subjectKey{happening.KindSource, "shop", "web"})
	h.runTurn()
	if got := x.takeRequests(); len(got) != 0 || h.getStored().ResourceVersion != version {
		t.Errorf("without a change %q is sent", got)
	}
	failed, _ := h.tables.Sources.Get(types.NamespacedName{Namespace: "shop", Name: "web"})
	h.startAgain()
	h.tables.Sources.Put(failed)
	h.runTurn()
	if got := x.takeRequests(); len(got) != 0 {
		t.Errorf("a hub that starts sends again: %q", got)
	}
	h.mendSource("web")
	h.runTurn()
	if got := x.takeRequests(); len(got) != 1 || !strings.Contains(got[0], "Source applied: Source shop/web") {
		t.Errorf("a mended Source: %q", got)
	}
	mended, _ := h.tables.Sources.Get(types.NamespacedName{Namespace: "shop", Name: "web"})
	h.startAgain()
	h.tables.Sources.Put(mended)
	version = h.getStored().ResourceVersion
	h.runTurn()
	if got := x.takeRequests(); len(got) != 0 || h.getStored().ResourceVersion != version {
		t.Errorf("a hub that starts again sends %q", got)
	}
}

// Events of a time without a hub are sent at the start, unless they are older than the Notification.
func TestAStartSendsWhatWasMissed(t *testing.T) {
	x := newTarget(t)
	h := newHub(t, newNotification(t, toSlack), secretOf("chat", map[string]string{"url": x.URL, "ca.crt": string(x.certificatePEM())}))
	h.putSource("old", "a", metav1.ConditionFalse, atoll.ReasonContentInvalid, time.Now().Add(-90*time.Minute))
	h.putSource("new", "a", metav1.ConditionFalse, atoll.ReasonContentInvalid, time.Now().Add(-30*time.Minute))
	h.runTurn()
	if got := x.takeRequests(); len(got) != 1 || !strings.Contains(got[0], "shop/new") {
		t.Errorf("sent %q", got)
	}
	// Other events do not bring the past either.
	h.editSpec(func(spec *v1alpha1.NotificationSpec) {
		spec.Events = append(spec.Events, v1alpha1.EventSourceDrifted)
		spec.Objects = &v1alpha1.NotificationObjects{Names: []string{"old"}}
	})
	h.runTurn()
	if got := x.takeRequests(); len(got) != 0 || h.getStored().Status.HandledBefore.Time.Before(time.Now().Add(-time.Minute)) || h.getStored().Status.Interest == "" {
		t.Errorf("sent %q, the status %+v", got, h.getStored().Status)
	}
	h.mendSource("old")
	h.mendSource("new")
	h.runTurn()
	if got := x.takeRequests(); len(got) != 1 || !strings.Contains(got[0], "shop/old") {
		t.Errorf("sent %q", got)
	}
}

// A target that takes nothing gets each event later, also after a restart, and its wait grows.
func TestATargetThatFails(t *testing.T) {
	x := newTarget(t)
	h := newChat(t, x)
	x.setAnswer(http.StatusInternalServerError, nil, "a text of the server with \x1b[31mcolours")
	h.failSource("web")
	h.runTurn()
	n := h.getStored()
	f := n.Status.Failure
	if deliveredOf(n) != "False TargetUnreachable" || f == nil || f.Reason != "TargetUnreachable" || f.Code != 500 || f.Message != "the target answers with status 500" || f.Since.IsZero() || n.Status.Waiting != 1 || n.Status.Sent != 0 {
		t.Fatalf("the status %+v", n.Status)
	}
	if u := n.Status.Unsent; len(u) != 1 || u[0].Event != "SourceFailed" || u[0].Kind != "Source" || u[0].Name != "web" || u[0].Reason != "ContentInvalid" || u[0].Message != "" || u[0].Ends != "" {
		t.Errorf("unsent %+v", u)
	}
	if len(h.events) != 1 || !strings.HasPrefix(h.events[0], "Notification/chat TargetUnreachable: a message was not taken") || strings.Contains(fmt.Sprint(h.events, n.Status), "colours") || strings.Contains(fmt.Sprint(h.events, n.Status), "hush") {
		t.Errorf("events %q", h.events)
	}
	x.takeRequests()
	if again := h.runTurn(); again <= 0 || again > firstRetry || len(x.takeRequests()) != 0 {
		t.Errorf("the next try is after %s", again)
	}
	h.endWait()
	h.runTurn()
	if again := h.runTurn(); again <= firstRetry || len(x.takeRequests()) != 1 || len(h.events) != 1 {
		t.Errorf("after two failures the next try is after %s; events %q", again, h.events)
	}
	// The Source recovers before the target does: both are sent, by a hub that starts in between.
	h.mendSource("web")
	h.runTurn()
	if u := h.getStored().Status.Unsent; len(u) != 2 || u[1].Event != "SourceApplied" || u[1].Ends != u[0].ID {
		t.Errorf("unsent %+v", u)
	}
	mended, _ := h.tables.Sources.Get(types.NamespacedName{Namespace: "shop", Name: "web"})
	h.startAgain()
	h.tables.Sources.Put(mended)
	x.setAnswer(http.StatusOK, nil, "ok")
	h.runTurn()
	if got := x.takeRequests(); len(got) != 2 || !strings.Contains(got[0], "Source failed") || !strings.Contains(got[1], "Source applied") {
		t.Errorf("sent %q", got)
	}
	if got := testutil.ToFloat64(h.n.messages.WithLabelValues("Slack", "taken")); got != 2 {
		t.Errorf("%v messages are counted", got)
	}
	if n := h.getStored(); deliveredOf(n) != "True NothingUnsent" || n.Status.Failure != nil || len(n.Status.Unsent) != 0 || n.Status.Waiting != 0 || n.Status.Sent != 2 {
		t.Errorf("the status %+v", n.Status)
	}
}

// A storm makes a bounded number of messages, and the last one has the rest.
func TestAStormIsOneDigest(t *testing.T) {
	x := newTarget(t)
	h := newChat(t, x)
	for i := range 60 {
		h.failSource(fmt.Sprint("web-", i))
	}
	h.runTurn()
	got := x.takeRequests()
	if len(got) != 10 || !strings.Contains(got[9], "51 events of shop/chat") || !strings.Contains(got[9], "and 41 more") {
		t.Fatalf("%d messages, the last is %q", len(got), got[len(got)-1])
	}
	h.failSource("late")
	if again := h.runTurn(); again <= 0 || again > pace.NotificationMessages.Interval || len(x.takeRequests()) != 0 {
		t.Errorf("one more event waits %s", again)
	}
	h.refillTokens()
	h.runTurn()
	if n := h.getStored(); len(x.takeRequests()) != 1 || n.Status.Sent != 61 || n.Status.Dropped != 0 || len(n.Status.Handled) != 32 {
		t.Errorf("the status %+v", n.Status)
	}
}

// As many events wait for a dead target as may. The first ones are dropped, and counted.
func TestTheQueueIsBounded(t *testing.T) {
	x := newTarget(t)
	h := newChat(t, x)
	x.setAnswer(http.StatusBadGateway, nil, "")
	for i := range maxQueue + 30 {
		h.failSource(fmt.Sprint("web-", i))
	}
	h.runTurn()
	if n := h.getStored(); n.Status.Dropped != 30 || n.Status.Waiting != maxQueue || len(n.Status.Unsent) != 16 || n.Status.Unsent[15].Name != fmt.Sprint("web-", maxQueue+29) {
		t.Errorf("the status %+v", n.Status)
	}
	h.n.mu.Lock()
	for i := range h.n.outboxes["shop"][chat].queue {
		h.n.outboxes["shop"][chat].queue[i].at = time.Now().Add(-maxAge - time.Minute)
	}
	h.n.mu.Unlock()
	h.runTurn()
	if n := h.getStored(); n.Status.Dropped != maxQueue+30 || n.Status.Waiting != 0 {
		t.Errorf("events that waited for a day: %+v", n.Status)
	}
}

// A suspended Notification sends nothing, and nothing of that time later.
func TestSuspendedNotifications(t *testing.T) {
	x := newTarget(t)
	h := newChat(t, x)
	h.editSpec(func(spec *v1alpha1.NotificationSpec) { spec.Suspend = true })
	h.runTurn()
	h.failSource("web")
	h.runTurn()
	if n := h.getStored(); deliveredOf(n) != "False Suspended" || len(x.takeRequests()) != 0 {
		t.Errorf("the status %+v", n.Status)
	}
	h.editSpec(func(spec *v1alpha1.NotificationSpec) { spec.Suspend = false })
	h.runTurn()
	if got := x.takeRequests(); len(got) != 0 {
		t.Errorf("sent %q", got)
	}
	h.mendSource("web")
	h.runTurn()
	if got := x.takeRequests(); len(got) != 1 {
		t.Errorf("sent %q", got)
	}
}

// A Notification sees the objects of its own namespace alone; Clusters and ClusterBundles are for that of the system.
func TestNamespacesAreApart(t *testing.T) {
	x := newTarget(t)
	spec := "{target: {slack: {secretRef: {name: chat}}}, events: [SourceFailed, BundleDegraded, ClusterDisconnected]}"
	h := newHub(t, newNotification(t, spec), secretOf("chat", map[string]string{"url": x.URL, "ca.crt": string(x.certificatePEM())}))
	h.runTurn()
	outboxOf := func(key types.NamespacedName) *outbox { return h.n.outboxes[key.Namespace][key] }
	system := newNotification(t, spec)
	system.Namespace, system.UID = atoll.SystemNamespace, "system"
	h.tables.Notifications.Put(system)
	h.n.beginTurn(system, time.Now())

	degraded := v1alpha1.BundleStatus{Conditions: []metav1.Condition{{Type: v1alpha1.BundleReady, Status: metav1.ConditionFalse, Reason: string(atoll.ReasonDegraded), LastTransitionTime: metav1.Now()}}}
	ready := metav1.Condition{Type: v1alpha1.ClusterReady, Status: metav1.ConditionUnknown, Reason: string(atoll.ReasonStreamLost), LastTransitionTime: metav1.Now()}
	h.tables.Bundles.Put(&v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "own", UID: "b1", ResourceVersion: "1"}, Status: degraded})
	h.tables.Bundles.Put(&v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Namespace: "rival", Name: "other", UID: "b2", ResourceVersion: "2"}, Status: degraded})
	h.tables.Bundles.Put(&v1alpha1.ClusterBundle{ObjectMeta: metav1.ObjectMeta{Name: "all", UID: "b3", ResourceVersion: "3"}, Status: degraded})
	for _, key := range []subjectKey{{happening.KindBundle, "shop", "b1"}, {happening.KindBundle, "rival", "b2"}, {happening.KindClusterBundle, "", "b3"}} {
		h.n.lookAtObject(key)
	}
	o := outboxOf(types.NamespacedName{Namespace: atoll.SystemNamespace, Name: chat.Name})
	subject := newClusterSubject(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "tokyo", UID: "c"}, Status: v1alpha1.ClusterStatus{Conditions: []metav1.Condition{ready}}})
	o.lookAt(subjectKey{happening.KindCluster, "", "tokyo"}, subject, time.Now())
	names := func(o *outbox) string {
		var out []string
		for _, q := range o.queue {
			out = append(out, string(q.Type)+" "+q.Kind+"/"+q.Name)
		}
		return strings.Join(out, ", ")
	}
	if got := names(outboxOf(chat)); got != "BundleDegraded Bundle/own" {
		t.Errorf("shop gets %s", got)
	}
	if got := names(o); got != "BundleDegraded ClusterBundle/all, ClusterDisconnected Cluster/tokyo" {
		t.Errorf("the system gets %s", got)
	}
	h.n.dropBundle("b1")
	if memories := outboxOf(chat).memories; len(memories) != 0 {
		t.Errorf("what is gone is kept: %v", memories)
	}
}

// The Notifications of one namespace have a part of the workers.
func TestANamespaceHasAPartOfTheWorkers(t *testing.T) {
	x := newTarget(t)
	h := newChat(t, x)
	healthy, failing := turnKey{"shop", false}, turnKey{"shop", true}
	h.n.turns[healthy] = namespaceTurns
	h.failSource("web")
	if again := h.runTurn(); again != turnPause || len(x.takeRequests()) != 0 {
		t.Errorf("one more turn of the namespace waits %s", again)
	}
	// Those whose targets fail do not delay it.
	h.n.turns[healthy], h.n.turns[failing] = namespaceTurns-1, namespaceTurns
	if h.runTurn(); len(x.takeRequests()) != 1 || h.n.turns[healthy] != namespaceTurns-1 || h.n.turns[failing] != namespaceTurns {
		t.Errorf("turns %v", h.n.turns)
	}
}

// A Notification that is gone, or that another one replaces, keeps nothing.
func TestNotificationsThatAreGone(t *testing.T) {
	x := newTarget(t)
	h := newChat(t, x)
	h.failSource("web")
	other := newNotification(t, toSlack)
	other.UID, other.CreationTimestamp, other.ResourceVersion = "other", metav1.Now(), "5000"
	h.tables.Notifications.Put(other)
	h.n.beginTurn(other, time.Now())
	if o := h.n.outboxes["shop"][chat]; o.notification.UID != "other" || len(o.history.Handled) != 0 || o.sent != 0 {
		t.Errorf("another Notification has %+v", o)
	}
	h.n.dropOutbox(chat)
	if len(h.n.outboxes) != 0 {
		t.Errorf("kept %v", h.n.outboxes)
	}
}

// While a turn sends, the events of that turn stay first.
func TestEventsDuringATurn(t *testing.T) {
	o := newOutbox(newNotification(t, toSlack), time.Now())
	for i := range 2*maxQueue + 5 {
		o.isSending = i >= maxQueue
		o.addEvent(happening.Event{ID: fmt.Sprint(i), Time: time.Now()}, time.Now())
	}
	if len(o.queue) != 2*maxQueue || o.queue[0].ID != "0" || o.dropped != 5 {
		t.Errorf("%d events wait, the first is %s, and %d are dropped", len(o.queue), o.queue[0].ID, o.dropped)
	}
	o.isSending = false
	o.addEvent(happening.Event{ID: "last"}, time.Now())
	if len(o.queue) != maxQueue || o.queue[maxQueue-1].ID != "last" {
		t.Errorf("%d events wait", len(o.queue))
	}
}

func TestBatches(t *testing.T) {
	for queued, want := range map[int]string{0: "[]", 1: "[1]", 10: "[1 1 1 1 1 1 1 1 1 1]", 11: "[1 1 1 1 1 1 1 1 1 2]", 200: "[1 1 1 1 1 1 1 1 1 191]"} {
		o := newOutbox(newNotification(t, toSlack), time.Now())
		if got := fmt.Sprint(planBatches(queued, &o.bucket, time.Now())); got != want {
			t.Errorf("%d events: %s, want %s", queued, got, want)
		}
	}
}

func TestRetriesAreLaterAndLater(t *testing.T) {
	for tries, want := range map[int]time.Duration{1: 30 * time.Second, 2: time.Minute, 5: 8 * time.Minute, 6: 10 * time.Minute, 1000: 10 * time.Minute} {
		if got := retryAfter(tries); got != want {
			t.Errorf("%d tries: %s, want %s", tries, got, want)
		}
	}
	for text, want := range map[string]time.Duration{"": 0, "7": 7 * time.Second, "-1": 0, "99999999999": time.Hour, "Wed, 21 Oct 2026 07:28:00 GMT": 0, " 30 ": 30 * time.Second} {
		if got := parseRetryAfter(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// A target that does not answer is one for other workers from then on.
func TestSlowTargetsHaveOtherWorkers(t *testing.T) {
	x := newTarget(t)
	h := newChat(t, x)
	h.n.endTurn(turn{notification: h.getStored()}, slowTurn)
	if h.n.laneOf(chat) != h.n.failing {
		t.Error("a slow target is one for the workers of healthy ones")
	}
	h.failSource("web")
	if again, err := h.n.reconcileNotification(t.Context(), chat, false); err != nil || again != 0 || len(x.takeRequests()) != 0 {
		t.Errorf("the other workers send: %v, %s", err, again)
	}
	if h.runTurn(); len(x.takeRequests()) != 1 || h.n.laneOf(chat) != h.n.healthy {
		t.Error("a target that was fast stays one for the workers of slow ones")
	}
}

// Targets that do not answer delay no other one, and a running hub sends by itself what changes in its tables.
func TestADeadTargetDelaysNoOther(t *testing.T) {
	x, release := newTarget(t), make(chan struct{})
	dead := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer dead.Close()
	defer close(release)
	h := newHub(t, secretOf("dead", map[string]string{"url": dead.URL, "ca.crt": string(x.certificatePEM())}))
	blog := secretOf("chat", map[string]string{"url": x.URL, "ca.crt": string(x.certificatePEM())})
	blog.Namespace = "blog"
	if err := h.store.Create(t.Context(), blog); err != nil {
		t.Fatal(err)
	}
	for i := range 3 * healthyWorkers {
		n := newNotification(t, strings.Replace(toSlack, "name: chat", "name: dead", 1))
		n.Name, n.UID = fmt.Sprint("dead-", i), types.UID(fmt.Sprint("dead-", i))
		h.addNotification(n)
	}
	good := newNotification(t, toSlack)
	good.Namespace, good.UID = "blog", "good"
	h.addNotification(good)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { _ = h.n.Run(ctx) })
	defer group.Wait()
	defer cancel()
	outboxes := func() (count int) {
		h.n.mu.Lock()
		defer h.n.mu.Unlock()
		for _, of := range h.n.outboxes {
			count += len(of)
		}
		return count
	}
	testwait.UntilTrue(t, "the hub has read each Notification", func() bool { return outboxes() == 3*healthyWorkers+1 })
	failed := h.newSource("shop", "web")
	h.tables.Sources.Put(failed)
	testwait.UntilTrue(t, "as many wait for the dead target as may", func() bool {
		h.n.mu.Lock()
		defer h.n.mu.Unlock()
		return h.n.turns[turnKey{"shop", false}] == namespaceTurns
	})
	h.tables.Sources.Put(h.newSource("blog", "web"))
	testwait.UntilTrue(t, "the other target has its message", func() bool {
		got := x.takeRequests()
		return len(got) == 1 && strings.Contains(got[0], "Source failed: Source blog/web")
	})
}
