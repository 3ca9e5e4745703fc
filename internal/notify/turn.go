package notify

import (
	"context"
	"errors"
	"fmt"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/notify/happening"
	"atoll.dev/atoll/internal/notify/message"
)

const (
	// slowTurn is the time from which on a turn is one for the workers of targets that fail. A turn that takes longer sends its other messages
	// in the next one.
	slowTurn = 10 * time.Second
)

// turn is what a Notification sends at one time.
type turn struct {
	notification *v1alpha1.Notification
	// messages, each with the number of events; none for a test, which is the first.
	messages []message.Message
	// wait is how long a turn must wait that sends nothing; zero where nothing waits. keepsStatus is true for one that writes nothing.
	wait        time.Duration
	keepsStatus bool
	// key is where a turn that sends counts.
	key turnKey
}

// reconcileNotification sends what a Notification has to send, and writes its status.
func (n *Notifier) reconcileNotification(ctx context.Context, key types.NamespacedName, isFailingLane bool) (time.Duration, error) {
	nt, ok := n.Notifications.Get(key)
	if !ok || nt.DeletionTimestamp != nil {
		n.dropOutbox(key)
		return 0, nil
	}
	if lane := n.laneOf(key); (lane == n.failing) != isFailingLane {
		lane.EnqueueNow(key)
		return 0, nil
	}
	t := n.beginTurn(nt, time.Now())
	if len(t.messages) > 0 {
		n.sendTurn(ctx, t)
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if t.keepsStatus {
		return t.wait, nil
	}
	return t.wait, n.writeStatus(ctx, nt)
}

// dropOutbox drops what was kept of a Notification that is gone.
func (n *Notifier) dropOutbox(key types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if delete(n.outboxes[key.Namespace], key); len(n.outboxes[key.Namespace]) == 0 {
		delete(n.outboxes, key.Namespace)
	}
}

// beginTurn decides what a Notification sends now.
func (n *Notifier) beginTurn(nt *v1alpha1.Notification, now time.Time) turn {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := client.ObjectKeyFromObject(nt)
	o := n.outboxes[key.Namespace][key]
	if o != nil && o.isSending {
		return turn{wait: turnPause, keepsStatus: true}
	}
	if o == nil || o.notification.UID != nt.UID {
		o = newOutbox(nt, now)
		if n.outboxes[key.Namespace] == nil {
			n.outboxes[key.Namespace] = map[types.NamespacedName]*outbox{}
		}
		n.outboxes[key.Namespace][key] = o
	}
	if o.adoptSpec(nt, now) {
		n.listSubjects(nt.Namespace, o.kinds, func(key subjectKey, s *happening.Subject) { o.lookAt(key, s, now) })
	}
	o.dropOld(now)
	return n.takeTurn(o, now)
}

// takeTurn takes the messages that an outbox may send now. The caller holds the lock.
func (n *Notifier) takeTurn(o *outbox, now time.Time) turn {
	nt := o.notification
	t := turn{notification: nt, key: turnKey{nt.Namespace, o.isSlowOrFailing()}}
	isTest := nt.Spec.TestRequest != nil && !nt.Spec.TestRequest.Equal(o.testRequest)
	if nt.Spec.Suspend || len(o.queue) == 0 && !isTest {
		return t
	}
	if left := o.notBefore.Sub(now); left > 0 && o.failedGeneration == nt.Generation {
		t.wait = left
		return t
	}
	if n.turns[t.key] >= namespaceTurns {
		return turn{wait: turnPause, keepsStatus: true}
	}
	if isTest {
		o.testRequest = nt.Spec.TestRequest
		t.messages = append(t.messages, message.NewTest(nt, nt.Spec.TestRequest.Time))
	}
	batches, from := planBatches(len(o.queue), &o.bucket, now), 0
	for _, size := range batches {
		events := make([]happening.Event, 0, size)
		for i := range o.queue[from : from+size] {
			events = append(events, o.queue[from+i].Event)
		}
		t.messages = append(t.messages, message.New(nt, events))
		from += size
	}
	if len(t.messages) == 0 {
		return turn{wait: max(o.bucket.WaitTime(now), time.Millisecond), keepsStatus: true}
	}
	o.isSending = true
	n.turns[t.key]++
	return t
}

// sendTurn sends the messages of a turn, until one is not taken.
func (n *Notifier) sendTurn(ctx context.Context, t turn) {
	begin := time.Now()
	defer func() { n.endTurn(t, time.Since(begin)) }()
	for i := range t.messages {
		m := &t.messages[i]
		err := n.sendMessage(ctx, t.notification, m)
		if ctx.Err() != nil {
			return
		}
		result := "taken"
		if err != nil {
			result = "failed"
		}
		n.messages.WithLabelValues(t.notification.Spec.Target.TypeName(), result).Inc()
		if news := n.recordResult(t.notification, len(m.Events), err); news != nil {
			n.recordFailure(t.notification, news)
		}
		if err != nil || time.Since(begin) > slowTurn {
			return
		}
	}
}

// recordResult records what became of a message. It returns a failure that is news.
func (n *Notifier) recordResult(nt *v1alpha1.Notification, events int, err error) *v1alpha1.NotificationFailure {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := client.ObjectKeyFromObject(nt)
	o := n.outboxes[key.Namespace][key]
	if o == nil || o.notification.UID != nt.UID {
		return nil
	}
	events = min(events, len(o.queue))
	if err == nil {
		o.recordTaken(events, time.Now())
		return nil
	}
	var f *failure
	if !errors.As(err, &f) {
		f = &failure{reason: atoll.ReasonTargetUnreachable, message: "the message cannot be made"}
	}
	if o.recordFailure(f, events, time.Now()) {
		return o.failure
	}
	return nil
}

// endTurn ends a turn, and plans the next one of a Notification for which events wait.
func (n *Notifier) endTurn(t turn, took time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.turns[t.key]--; n.turns[t.key] <= 0 {
		delete(n.turns, t.key)
	}
	nt := t.notification
	key := client.ObjectKeyFromObject(nt)
	o := n.outboxes[key.Namespace][key]
	if o == nil || o.notification.UID != nt.UID {
		return
	}
	o.isSending, o.isSlow = false, took >= slowTurn
	if len(o.queue) > 0 {
		n.laneOfLocked(key).EnqueueAfter(key, max(time.Until(o.notBefore), sendDebounce))
	}
}

// writeStatus writes the status of a Notification when it has changed. A Notification that was made again under the name is another one.
func (n *Notifier) writeStatus(ctx context.Context, nt *v1alpha1.Notification) error {
	key := client.ObjectKeyFromObject(nt)
	old, ok := n.Notifications.Get(key)
	for range 3 {
		if !ok || old.UID != nt.UID || old.DeletionTimestamp != nil {
			return nil
		}
		now := old.DeepCopy()
		if !n.writeOutbox(key, now) || apiequality.Semantic.DeepEqual(now.Status, old.Status) {
			return nil
		}
		err := n.Client.Status().Patch(ctx, now, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}), client.FieldOwner(atoll.HubFieldManager))
		switch {
		case err == nil:
			n.Notifications.Put(now)
			return nil
		case apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err):
			return fmt.Errorf("write the status of a Notification: %w", err)
		}
		var fresh v1alpha1.Notification
		if err := n.Client.Get(ctx, key, &fresh); err != nil {
			return client.IgnoreNotFound(err)
		}
		old, ok = &fresh, true
	}
	return fmt.Errorf("write the status of the Notification %s: it changes all the time", key)
}

// writeOutbox writes the state of an outbox into a status; false where there is none.
func (n *Notifier) writeOutbox(key types.NamespacedName, now *v1alpha1.Notification) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	o := n.outboxes[key.Namespace][key]
	if o == nil || o.notification.UID != now.UID {
		return false
	}
	o.writeInto(now)
	return true
}
