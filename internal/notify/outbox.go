package notify

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/notify/happening"
	"atoll.dev/atoll/internal/pace"
	"atoll.dev/atoll/internal/phrase"
)

const (
	// maxQueue is how many events wait for one target. One more drops the first of them.
	maxQueue = 200
	// maxAge is how long an event waits for a target that fails.
	maxAge = 24 * time.Hour
	// maxUnsent is how many waiting events the status has, and maxUnsentBytes the longest message of one.
	maxUnsent, maxUnsentBytes = 16, 512
	// maxRefusals is how often in a row a target may refuse the text of a message before the message is dropped.
	maxRefusals = 3
	// firstRetry is the wait after a message that was not taken. It doubles up to maxRetry.
	firstRetry, maxRetry = 30 * time.Second, 10 * time.Minute
)

// queuedEvent is an event that waits since a time.
type queuedEvent struct {
	happening.Event
	at time.Time
}

// objectMemory is what was found of an object, with its UID: another object can have the name later.
type objectMemory struct {
	uid    types.UID
	memory happening.Memory
}

// outbox is what a Notification has to send, and what it has sent. The Notifier's lock guards it.
type outbox struct {
	notification *v1alpha1.Notification
	// interest is a digest of what decides which events are sent.
	interest string
	events   map[v1alpha1.NotificationEvent]bool
	kinds    map[string]bool
	memories map[subjectKey]objectMemory
	history  happening.History
	// floor is history.Before at the time when all objects were looked at.
	floor  time.Time
	queue  []queuedEvent
	bucket pace.Bucket

	sent, dropped int64
	lastSent      *metav1.Time
	testRequest   *metav1.Time
	failure       *v1alpha1.NotificationFailure
	// inARow are the turns that failed. The next one is at notBefore, or when the generation is another one.
	inARow           int
	notBefore        time.Time
	failedGeneration int64
	// refusals counts how often in a row the target refused the text of the first message.
	refusals int
	isSlow   bool
	// isSending is true during a turn.
	isSending bool
}

// newOutbox returns the outbox of a Notification, with what its status has.
func newOutbox(nt *v1alpha1.Notification, now time.Time) *outbox {
	st := &nt.Status
	o := &outbox{
		notification: nt, interest: st.Interest, memories: map[subjectKey]objectMemory{}, bucket: pace.NotificationMessages.NewBucket(),
		sent: st.Sent, dropped: st.Dropped, lastSent: st.LastSentTime, testRequest: st.TestRequest, failure: st.Failure,
	}
	o.history = happening.History{Before: nt.CreationTimestamp.Add(-time.Second), Handled: slices.Clone(st.Handled)}
	if st.HandledBefore != nil && st.HandledBefore.After(o.history.Before) {
		o.history.Before = st.HandledBefore.Time
	}
	for _, u := range st.Unsent {
		o.queue = append(o.queue, queuedEvent{restoreEvent(nt.Namespace, u), now})
	}
	return o
}

// restoreEvent returns an event of a status.
func restoreEvent(namespace string, u v1alpha1.UnsentEvent) happening.Event {
	e := happening.Event{
		Type: v1alpha1.NotificationEvent(u.Event), ID: u.ID, Ends: u.Ends, Time: u.Time.Time, Kind: u.Kind, Namespace: namespace, Name: u.Name, UID: u.UID,
		Details: happening.Details{Reason: u.Reason, Message: u.Message},
	}
	if u.Kind == happening.KindCluster || u.Kind == happening.KindClusterBundle {
		e.Namespace = ""
	}
	return e
}

// digestInterest returns a digest of what of a spec decides which events are sent.
func digestInterest(spec *v1alpha1.NotificationSpec) string {
	events := slices.Clone(spec.Events)
	slices.Sort(events)
	return atoll.HashJSON(struct {
		Events    []v1alpha1.NotificationEvent
		Objects   *v1alpha1.NotificationObjects
		IsSuspend bool
	}{events, spec.Objects, spec.Suspend})
}

// adoptSpec takes the present spec. needsBaseline is true where all objects must be looked at, because other events are sent than before. Events
// that began before other ones were stated are not sent.
func (o *outbox) adoptSpec(nt *v1alpha1.Notification, now time.Time) (needsBaseline bool) {
	o.notification = nt
	interest := digestInterest(&nt.Spec)
	isNew := o.events == nil
	if !isNew && interest == o.interest {
		return false
	}
	if o.interest != "" && interest != o.interest {
		o.history.Before = now.Truncate(time.Second)
	}
	o.interest, o.events, o.kinds = interest, map[v1alpha1.NotificationEvent]bool{}, map[string]bool{}
	for _, e := range nt.Spec.Events {
		o.events[e], o.kinds[happening.KindOf(e)] = true, true
	}
	o.queue = slices.DeleteFunc(o.queue, func(q queuedEvent) bool { return nt.Spec.Suspend || !o.events[q.Type] })
	clear(o.memories)
	o.floor = o.history.Before
	return true
}

// lookAt finds the events of an object, nil for one that is gone, and reports whether one is to be sent. The memory of an object stays while the
// object is not selected, so that nothing is sent again when it is.
func (o *outbox) lookAt(key subjectKey, s *happening.Subject, now time.Time) bool {
	if s == nil {
		delete(o.memories, key)
		return false
	}
	if !o.kinds[tableKind(key.kind)] || !happening.MatchesObjects(o.notification.Spec.Objects, &s.Meta) {
		return false
	}
	last, was := o.memories[key], happening.Memory(nil)
	if last.uid == s.Meta.UID {
		was = last.memory
	}
	l := happening.Look{Events: o.events, History: o.knownEvents(), Floor: o.floor, Now: now}
	news, is := l.ListNews(was, s)
	o.memories[key] = objectMemory{s.Meta.UID, is}
	if o.notification.Spec.Suspend {
		return false
	}
	for _, e := range news {
		o.addEvent(e, now)
	}
	return len(news) > 0
}

// tableKind returns the kind of the events of a kind of objects.
func tableKind(kind string) string {
	if kind == happening.KindClusterBundle {
		return happening.KindBundle
	}
	return kind
}

// addEvent adds an event to those that wait. The first ones give way to it, but during a turn, which sends them, the event itself does.
func (o *outbox) addEvent(e happening.Event, now time.Time) {
	switch {
	case o.isSending && len(o.queue) >= 2*maxQueue:
		o.history.Add(&e)
		o.dropped++
		return
	case !o.isSending && len(o.queue) >= maxQueue:
		o.dropFirst(len(o.queue) - maxQueue + 1)
	}
	o.queue = append(o.queue, queuedEvent{e, now})
}

// knownEvents returns the events that were handled, and those that wait.
func (o *outbox) knownEvents() *happening.History {
	if len(o.queue) == 0 {
		return &o.history
	}
	all := happening.History{Before: o.history.Before, Handled: slices.Clone(o.history.Handled)}
	for i := range o.queue {
		e := &o.queue[i].Event
		all.Handled = append(all.Handled, v1alpha1.HandledEvent{ID: e.ID, Event: string(e.Type), UID: e.UID, Time: metav1.NewTime(e.Time)})
	}
	return &all
}

// dropFirst gives up the first events that wait.
func (o *outbox) dropFirst(n int) {
	for i := range o.queue[:n] {
		o.history.Add(&o.queue[i].Event)
	}
	o.dropped += int64(n)
	o.queue = slices.Delete(o.queue, 0, n)
}

// dropOld gives up the events that have waited for too long.
func (o *outbox) dropOld(now time.Time) {
	n := 0
	for n < len(o.queue) && now.Sub(o.queue[n].at) > maxAge {
		n++
	}
	o.dropFirst(n)
}

// planBatches takes tokens, and returns the numbers of events in the next messages: one event each while there are tokens, and all others in the
// last one.
func planBatches(queued int, bucket *pace.Bucket, now time.Time) (batches []int) {
	for queued > 0 && bucket.TakeToken(now) {
		size := 1
		if queued > 1 && !bucket.HasToken(now) {
			size = queued
		}
		batches = append(batches, size)
		queued -= size
	}
	return batches
}

// recordTaken records that the target took the first events that wait.
func (o *outbox) recordTaken(n int, now time.Time) {
	for i := range o.queue[:n] {
		o.history.Add(&o.queue[i].Event)
	}
	o.queue = slices.Delete(o.queue, 0, n)
	o.sent += int64(n)
	at := formatTime(now)
	o.lastSent, o.failure, o.inARow, o.refusals, o.notBefore = &at, nil, 0, 0, time.Time{}
}

// recordFailure records that the target did not take a message of the first events that wait; none for a test. It reports whether that is
// news.
func (o *outbox) recordFailure(f *failure, n int, now time.Time) bool {
	isNews := o.failure == nil || o.failure.Reason != string(f.reason)
	since := formatTime(now)
	if o.failure != nil {
		since = o.failure.Since
	}
	o.failure = &v1alpha1.NotificationFailure{Reason: string(f.reason), Code: int32(f.code), Message: phrase.TruncateText(phrase.EscapeLine(f.message), 512), Since: since}
	if n == 0 {
		return isNews
	}
	if f.refusesText {
		if o.refusals++; o.refusals >= maxRefusals {
			o.dropFirst(n)
			o.refusals = 0
		}
	}
	o.inARow++
	o.failedGeneration = o.notification.Generation
	o.notBefore = now.Add(max(f.retryAfter, retryAfter(o.inARow)))
	return isNews
}

// retryAfter returns the wait after a number of turns in a row that failed.
func retryAfter(inARow int) time.Duration { return min(maxRetry, firstRetry<<min(inARow-1, 10)) }

// isSlowOrFailing reports whether the outbox is for the workers of targets that fail.
func (o *outbox) isSlowOrFailing() bool { return o.inARow > 0 || o.isSlow }

// writeInto writes the state into the status of a Notification.
func (o *outbox) writeInto(now *v1alpha1.Notification) {
	st := &now.Status
	st.ObservedGeneration, st.Target = o.notification.Generation, o.notification.Spec.Target.TypeName()
	st.LastSentTime, st.Sent, st.Dropped, st.Waiting = o.lastSent, o.sent, o.dropped, int32(len(o.queue))
	st.Failure, st.TestRequest, st.Interest = o.failure, o.testRequest, o.interest
	st.Handled = slices.Clone(o.history.Handled)
	before := formatTime(o.history.Before)
	st.HandledBefore = &before
	st.Unsent = nil
	for i := max(0, len(o.queue)-maxUnsent); i < len(o.queue) && o.failure != nil; i++ {
		e := &o.queue[i].Event
		st.Unsent = append(st.Unsent, v1alpha1.UnsentEvent{
			HandledEvent: v1alpha1.HandledEvent{ID: e.ID, Event: string(e.Type), UID: e.UID, Time: formatTime(e.Time)}, Kind: e.Kind, Name: e.Name, Reason: phrase.CutText(e.Reason, 128),
			Message: phrase.CutText(phrase.EscapeLine(e.Message), maxUnsentBytes), Ends: e.Ends,
		})
	}
	meta.SetStatusCondition(&st.Conditions, o.deliveredCondition())
}

// deliveredCondition returns the condition Delivered. It is unknown until a message was sent once.
func (o *outbox) deliveredCondition() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.NotificationDelivered, Status: metav1.ConditionFalse, ObservedGeneration: o.notification.Generation}
	switch {
	case o.notification.Spec.Suspend:
		c.Reason, c.Message = string(atoll.ReasonSuspended), "the Notification is suspended; nothing is sent"
	case o.failure != nil:
		c.Reason, c.Message = o.failure.Reason, o.failure.Message
		if len(o.queue) > 0 {
			c.Message += "; the hub tries again"
		}
	case o.lastSent != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, string(atoll.ReasonNothingUnsent), "the target took each message"
	default:
		unknown := atoll.UnknownCondition(v1alpha1.NotificationDelivered)
		c.Status, c.Reason, c.Message = unknown.Status, unknown.Reason, "no message was sent yet"
	}
	return c
}
