// Package notify sends events of Sources, Bundles and Clusters to the targets of Notifications.
//
// Contract: one Notifier per hub sends, while its hub leads. A change of an object, and of a Notification, begins all work; at rest
// nothing is read, sent or written. A Notification sees the objects of its own namespace alone. One in the namespace of the system also sees
// Clusters and ClusterBundles.
//
// Each event is sent once. The status of the Notification has the events that were sent, and is written after each turn. An event whose hub
// ends between the two can be sent twice, with the same ID. An event that no longer stands when a hub starts is lost, unless the status has it
// as one that waits.
//
// Targets that fail or are slow have workers of their own, and those of one namespace have a part of the workers. A Secret goes to its
// target alone, and no text of a target is kept. All methods may be called concurrently; Run is called once, when the tables are synced.
package notify

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/metrictable"
	"atoll.dev/atoll/internal/notify/happening"
	"atoll.dev/atoll/internal/reconcile"
	"atoll.dev/atoll/internal/state"
)

const (
	// objectDebounce joins changes of an object to one look, and maxObjectDebounce is the longest wait.
	objectDebounce, maxObjectDebounce = 300 * time.Millisecond, 2 * time.Second
	// sendDebounce joins events of one Notification to one turn, and maxSendDebounce is the longest wait.
	sendDebounce, maxSendDebounce = time.Second, 5 * time.Second
	// healthyWorkers and failingWorkers send at the same time: for targets that took the last message soon, and for the others.
	healthyWorkers, failingWorkers = 8, 4
	// namespaceTurns is how many Notifications of one namespace send at the same time by the same workers, and turnPause the wait of one more.
	namespaceTurns, turnPause = 2, time.Second
)

// Events records Events of Kubernetes. It must not block.
type Events interface {
	RecordEvent(about corev1.ObjectReference, reason atoll.Reason, message string)
}

// Config of a Notifier. All but AllowedNetworks and Log must be set.
type Config struct {
	Notifications *state.NotificationTable
	Sources       *state.SourceTable
	Bundles       *state.BundleTable
	Clusters      *state.ClusterTable
	// Client reads Secrets, and writes statuses.
	Client client.Client
	Events Events
	// AllowedNetworks are networks in CIDR notation that are dialled although they are refused otherwise.
	AllowedNetworks []string
	Metrics         prometheus.Registerer
	// Log; nil: slog's default.
	Log *slog.Logger
}

// NewConfig returns the Config over the hub's tables. allowed are networks that are dialled although they are refused otherwise.
func NewConfig(st *state.HubTables, events Events, allowed []string, metrics prometheus.Registerer, log *slog.Logger) Config {
	return Config{
		Notifications: st.Notifications, Sources: st.Sources, Bundles: st.Bundles, Clusters: st.Clusters, Client: st.Client, Events: events,
		AllowedNetworks: allowed, Metrics: metrics, Log: log.With("component", "notifications"),
	}
}

// subjectKey names an object whose events are sent. A Bundle and a ClusterBundle have their UID as the name.
type subjectKey struct{ kind, namespace, name string }

// turnKey names the Notifications of a namespace whose targets fail, or those of the others.
type turnKey struct {
	namespace string
	isFailing bool
}

// Notifier sends events. Make it with New.
type Notifier struct {
	Config
	// objects are looked at when they change.
	objects *reconcile.Loop[subjectKey]
	// healthy and failing send for Notifications, which are in one of them at a time.
	healthy, failing *reconcile.Loop[types.NamespacedName]
	messages         *prometheus.CounterVec

	mu sync.Mutex
	// outboxes of the Notifications, by namespace.
	outboxes map[string]map[types.NamespacedName]*outbox
	// turns counts the Notifications that are sending.
	turns map[turnKey]int
}

// New makes a Notifier and subscribes it to the tables.
func New(cfg Config) *Notifier {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	n := &Notifier{Config: cfg, messages: metrictable.NotifyMessages.NewCounterVec(), outboxes: map[string]map[types.NamespacedName]*outbox{}, turns: map[turnKey]int{}}
	cfg.Metrics.MustRegister(n.messages)
	n.objects = reconcile.New(reconcile.Options[subjectKey]{
		Name: "notified-objects", Debounce: objectDebounce, MaxDebounce: maxObjectDebounce,
		Reconcile: func(_ context.Context, key subjectKey) (time.Duration, error) {
			n.lookAtObject(key)
			return 0, nil
		},
	})
	lane := func(name string, workers int, isFailing bool) *reconcile.Loop[types.NamespacedName] {
		return reconcile.New(reconcile.Options[types.NamespacedName]{
			Name: name, Workers: workers, Debounce: sendDebounce, MaxDebounce: maxSendDebounce,
			Backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](time.Second, maxRetry),
			Reconcile: func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
				return n.reconcileNotification(ctx, key, isFailing)
			},
			Failed: func(key types.NamespacedName, err error) {
				cfg.Log.Warn("the status of a Notification could not be written, trying again", "namespace", key.Namespace, "name", key.Name, "err", err)
			},
		})
	}
	n.healthy, n.failing = lane("notifications", healthyWorkers, false), lane("failing-notifications", failingWorkers, true)
	cfg.Notifications.Subscribe(func(key types.NamespacedName) { n.laneOf(key).EnqueueAtOnce(key) })
	cfg.Sources.SubscribeToEveryChange(func(key types.NamespacedName) {
		n.noteChange(key.Namespace, subjectKey{happening.KindSource, key.Namespace, key.Name})
	})
	cfg.Bundles.Subscribe(func(uid string) {
		b, ok := cfg.Bundles.Get(uid)
		if !ok {
			n.dropBundle(uid)
			return
		}
		n.noteChange(scopeOf(b.Ref.Namespace), bundleKey(b))
	})
	cfg.Clusters.Subscribe(func(name string) { n.noteChange(scopeOf(""), subjectKey{happening.KindCluster, "", name}) })
	return n
}

// scopeOf returns the namespace of the Notifications that see the objects of a namespace; objects without one are seen in that of the system.
func scopeOf(namespace string) string {
	if namespace == "" {
		return atoll.SystemNamespace
	}
	return namespace
}

func bundleKey(b state.Bundle) subjectKey {
	kind := happening.KindBundle
	if b.Ref.Namespace == "" {
		kind = happening.KindClusterBundle
	}
	return subjectKey{kind, b.Ref.Namespace, b.Ref.UID}
}

// Run sends until ctx ends. It looks at each Notification first.
func (n *Notifier) Run(ctx context.Context) error {
	var group sync.WaitGroup
	n.objects.AcceptKeys()
	n.failing.AcceptKeys()
	group.Go(func() { n.objects.Run(ctx, nil) })
	group.Go(func() { n.failing.Run(ctx, nil) })
	n.healthy.Run(ctx, func() {
		for _, nt := range n.Notifications.InNamespace("") {
			n.healthy.EnqueueNow(client.ObjectKeyFromObject(nt))
		}
	})
	group.Wait()
	return nil
}

// noteChange looks at an object soon, where a Notification of a namespace may see it.
func (n *Notifier) noteChange(scope string, key subjectKey) {
	n.mu.Lock()
	isSeen := len(n.outboxes[scope]) > 0
	n.mu.Unlock()
	if isSeen {
		n.objects.EnqueueDebounced(key)
	}
}

// dropBundle drops what was kept of a Bundle that is gone.
func (n *Notifier) dropBundle(uid string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for namespace, outboxes := range n.outboxes {
		for _, o := range outboxes {
			delete(o.memories, subjectKey{happening.KindBundle, namespace, uid})
			delete(o.memories, subjectKey{happening.KindClusterBundle, "", uid})
		}
	}
}

// lookAtObject finds the events of an object, for each Notification that sees it.
func (n *Notifier) lookAtObject(key subjectKey) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.findSubject(key)
	for name, o := range n.outboxes[scopeOf(key.namespace)] {
		if o.lookAt(key, s, time.Now()) {
			n.laneOfLocked(name).EnqueueDebounced(name)
		}
	}
}

// findSubject returns an object as it is now; nil: it is gone.
func (n *Notifier) findSubject(key subjectKey) *happening.Subject {
	switch key.kind {
	case happening.KindSource:
		if s, ok := n.Sources.Get(types.NamespacedName{Namespace: key.namespace, Name: key.name}); ok {
			return newSourceSubject(s)
		}
	case happening.KindCluster:
		if c, ok := n.Clusters.Get(key.name); ok {
			return newClusterSubject(c)
		}
	default:
		if b, ok := n.Bundles.Get(key.name); ok {
			return newBundleSubject(b)
		}
	}
	return nil
}

func newSourceSubject(s *v1alpha1.Source) *happening.Subject {
	return &happening.Subject{Kind: happening.KindSource, Meta: s.ObjectMeta, Source: &s.Status, IsSuspended: s.Spec.Suspend}
}

func newClusterSubject(c *v1alpha1.Cluster) *happening.Subject {
	return &happening.Subject{Kind: happening.KindCluster, Meta: c.ObjectMeta, Cluster: &c.Status}
}

func newBundleSubject(b state.Bundle) *happening.Subject {
	return &happening.Subject{Kind: bundleKey(b).kind, Meta: b.Meta, Bundle: &happening.BundleState{Spec: &b.Spec, Status: &b.Status}}
}

// listSubjects calls visit with each object that a Notification of a namespace can see, of the kinds that it states.
func (n *Notifier) listSubjects(namespace string, kinds map[string]bool, visit func(subjectKey, *happening.Subject)) {
	if kinds[happening.KindSource] {
		for _, s := range n.Sources.InNamespace(namespace) {
			visit(subjectKey{happening.KindSource, s.Namespace, s.Name}, newSourceSubject(s))
		}
	}
	scopes := []string{namespace}
	if namespace == atoll.SystemNamespace {
		scopes = append(scopes, "")
	}
	for _, scope := range scopes {
		if kinds[happening.KindBundle] {
			for _, b := range n.Bundles.InNamespace(scope) {
				visit(bundleKey(b), newBundleSubject(b))
			}
		}
	}
	if kinds[happening.KindCluster] && namespace == atoll.SystemNamespace {
		for _, c := range n.Clusters.List() {
			visit(subjectKey{happening.KindCluster, "", c.Name}, newClusterSubject(c))
		}
	}
}

// laneOf returns the loop that sends for a Notification.
func (n *Notifier) laneOf(key types.NamespacedName) *reconcile.Loop[types.NamespacedName] {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.laneOfLocked(key)
}

// laneOfLocked is laneOf for a caller that holds the lock.
func (n *Notifier) laneOfLocked(key types.NamespacedName) *reconcile.Loop[types.NamespacedName] {
	if o := n.outboxes[key.Namespace][key]; o != nil && o.isSlowOrFailing() {
		return n.failing
	}
	return n.healthy
}

// recordFailure records an Event that a target does not take messages.
func (n *Notifier) recordFailure(nt *v1alpha1.Notification, f *v1alpha1.NotificationFailure) {
	n.Events.RecordEvent(corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "Notification", Namespace: nt.Namespace, Name: nt.Name, UID: nt.UID, ResourceVersion: nt.ResourceVersion,
	}, atoll.Reason(f.Reason), "a message was not taken: "+f.Message)
}

// formatTime returns the time for a status, in whole seconds.
func formatTime(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }
