package apply

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// ensureNamespace is the verb for a namespace that the agent makes, or made,
// because something needs it.
const keepNamespace ownership.Verb = "KeepNamespace"

// pendingWork is what is to be done about a key.
type pendingWork struct {
	ownership.Step
	// left are the fields that the member owns.
	left []string
	// check, judge, correct and weigh as in task.
	check, judge, correct, weigh bool
	view                         observe.View
	hasView                      bool
	// intended as in task.
	intended bool
	// begun: its deletion was requested already.
	begun bool
	// wasMissing: its correction was approved while the member did not have the object.
	wasMissing bool
	// held: the item is of a later wave or phase, and waits.
	held bool
	// approved is the write that a person approved; nil: the step needs no approval.
	approved *approvedWrite
}

func (p pendingWork) hasAction() bool {
	return p.Verb != ownership.Nothing || p.check || p.judge || p.correct || p.weigh
}

func (p pendingWork) isDeletion() bool {
	switch p.Verb {
	case ownership.Delete, ownership.Expire, ownership.Release, ownership.Search, ownership.DeleteNamespace:
		return true
	}
	return false
}

// pendingWorkFor returns what is to be done with the object of the key. The caller holds mu.
func (e *MemberApplier) pendingWorkFor(key atoll.ItemKey) pendingWork {
	p := pendingWork{Step: e.book.Next(key)}
	p.view, p.hasView = e.viewOf(key)
	r := &p.Record
	e.addItemWork(&p)
	if p.held = e.isHeldByWave(&p) || e.isHookHeld(&p) || e.isHeldByRemovalHooks(&p); p.held {
		p.Verb = ownership.Nothing
	}
	if e.isExpired(&p) {
		p.Verb = ownership.Expire
	}
	if e.namespaceIsStale(key, r) {
		p.Verb = keepNamespace
	}
	if t := e.tasks[key]; t != nil {
		p.begun = t.failure != nil && t.failure.Reason == atoll.ReasonTerminating
		if r.UID != "" {
			p.check, p.judge, p.weigh = t.check, t.judge, t.weigh
			p.correct = t.correct && p.Verb == ownership.Nothing && p.Observed == nil && !p.held
		}
	}
	return p
}

// addItemWork adds the fields that the member owns, and what is to be done for the item beyond the Book's
// records. The caller holds mu.
func (e *MemberApplier) addItemWork(p *pendingWork) {
	r := &p.Record
	switch {
	case p.Observed != nil:
		p.left = e.memberOwnedFields(p.Observed)
		if p.Verb == ownership.Nothing && e.needsObservation(p) {
			p.Verb = observeItem
		}
	case p.Item != nil:
		p.left = e.keepReplicasStillScaled(r, e.memberOwnedFields(p.Item))
		e.addItemWrite(p)
	}
}

// addItemWrite adds that the object of the plan's item is applied for other fields of the member, or made again. The caller
// holds mu.
func (e *MemberApplier) addItemWrite(p *pendingWork) {
	r := &p.Record
	if p.Verb == ownership.Nothing && p.Hook == nil && r.Applied != "" && !slices.Equal(p.left, r.Left) {
		p.Verb = ownership.Apply
	}
	if t := e.tasks[p.Key]; t != nil && t.recreate == p.Item.Hash && p.Verb == ownership.Apply && r.UID != "" {
		p.Verb = ownership.Replace
	}
}

// namespaceIsStale reports whether the key is a namespace that is needed without a claim on it, and
// that is missing or has other labels or annotations than the hub's. The caller holds mu.
func (e *MemberApplier) namespaceIsStale(key atoll.ItemKey, r *ownership.Record) bool {
	return key.IsNamespace() && r.Implicit && !r.Doomed && len(r.Claims) == 0 && e.book.NeedsNamespace(key.Name) &&
		(r.UID == "" || r.Applied != metaHash(e.book.NamespaceMeta(key.Name)))
}

// failureOf returns the last failure of work on the key; nil without one. The caller holds mu.
func (e *MemberApplier) failureOf(key atoll.ItemKey) *Failure {
	if t := e.tasks[key]; t != nil {
		return t.failure
	}
	return nil
}

// takePendingWork returns the plan for a key that is worked on now, and takes its flags.
func (e *MemberApplier) takePendingWork(key atoll.ItemKey) pendingWork {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.pendingWorkFor(key)
	t := e.ensureTask(key)
	p.intended = t.intended
	if !p.weigh { // which comes first, and the others after it
		t.check, t.judge, t.correct = false, false, false
	}
	return p
}

// maxSteps bounds what one turn does to a key: look, delete, make, hand over.
const maxSteps = 6

// workOnKey brings one key as far as it goes now.
func (e *MemberApplier) workOnKey(ctx context.Context, key atoll.ItemKey) *Failure {
	ctx = e.withWriterServiceAccount(ctx, key)
	for range maxSteps {
		p := e.takePendingWork(key)
		failure, again := e.runStep(ctx, p)
		if failure != nil || !again {
			return failure
		}
	}
	return nil
}

// runStep does one act. again: another may follow.
func (e *MemberApplier) runStep(ctx context.Context, p pendingWork) (failure *Failure, again bool) {
	if p.weigh {
		return e.recheckApplyPermission(ctx, p), true
	}
	if p.check || p.judge {
		return e.checkRecorded(ctx, p), true
	}
	failure = e.checkPermitted(ctx, p)
	if failure == nil {
		failure = e.checkAccountRights(ctx, p)
	}
	if failure != nil {
		e.keepCorrectionPending(p)
		return failure, false
	}
	return e.runVerb(ctx, p)
}

// isIntentStored reports whether the object that an apply makes, or the run of the hook that it begins, is stored.
func (p *pendingWork) isIntentStored() bool {
	return (p.Record.UID != "" || p.intended) && (p.Hook == nil || p.Hook.Begun)
}

// runVerb carries out the plan's verb, or else corrects drift. again: another act may follow.
func (e *MemberApplier) runVerb(ctx context.Context, p pendingWork) (failure *Failure, again bool) {
	switch p.Verb {
	case ownership.Apply:
		if !p.isIntentStored() {
			e.nextPass(p.Key) // which stores the intent first
			return nil, false
		}
		return e.put(ctx, p), true
	case ownership.Replace, ownership.Delete, ownership.Expire, ownership.DeleteNamespace:
		return e.delete(ctx, p), true
	case ownership.Release:
		return e.release(ctx, p), true
	case ownership.Search:
		return e.searchInterruptedApply(ctx, p), true
	case keepNamespace:
		return e.ensureNamespace(ctx, p.Key.Name), false
	case observeItem:
		return e.compareObservedObject(ctx, p), false
	}
	if p.correct && p.Item != nil {
		return e.correctDrift(ctx, p), false
	}
	return nil, false
}

// keepCorrectionPending records that the plan's object is to be corrected.
func (e *MemberApplier) keepCorrectionPending(p pendingWork) {
	if p.correct {
		e.mu.Lock()
		e.ensureTask(p.Key).correct = true
		e.mu.Unlock()
	}
}

// nextPass goes on with the key there.
func (e *MemberApplier) nextPass(key atoll.ItemKey) {
	e.mu.Lock()
	e.markDue(key)
	e.mu.Unlock()
}

// resourceFor returns the resource of a plan's object in the member, in the version in which it is applied;
// nil and why not. The resource is of the key's group and kind, by which the member's administrator
// permits it.
func (e *MemberApplier) resourceFor(ctx context.Context, key atoll.ItemKey, apiVersion string) (member.Resource, *Failure) {
	if apiVersion != "" && !key.IsInGroupOf(apiVersion) {
		return member.Resource{}, &Failure{Reason: atoll.ReasonInvalid, Message: truncateText(fmt.Sprintf("the hub names it %s, and sent an object of %s", key, apiVersion))}
	}
	find := func() (member.Resource, bool) {
		if apiVersion == "" {
			return e.o.Client.APIs().PreferredResource(schema.GroupKind{Group: key.Group, Kind: key.Kind})
		}
		return e.o.Client.APIs().LookupKind(schema.FromAPIVersionAndKind(apiVersion, key.Kind))
	}
	if r, ok := find(); ok {
		return r, nil
	}
	if err := e.rediscoverAPIs(ctx); err != nil {
		return member.Resource{}, failureFromError(err, key)
	}
	if r, ok := find(); ok {
		return r, nil
	}
	if e.o.Client.APIs().IsGroupSilent(key.Group) {
		return member.Resource{}, discoveryFailure(key.Group)
	}
	return member.Resource{}, notServed(apiVersion, key)
}

// existingResource is resource for an object that was made: one of which the member has
// dropped the version is there in another.
func (e *MemberApplier) existingResource(ctx context.Context, p pendingWork) (member.Resource, *Failure) {
	r, failure := e.resourceFor(ctx, p.Key, apiVersion(p.Record))
	if failure != nil && failure.Reason == atoll.ReasonNotServed {
		if other, ok := e.o.Client.APIs().PreferredResource(schema.GroupKind{Group: p.Key.Group, Kind: p.Key.Kind}); ok {
			return other, nil
		}
	}
	return r, failure
}

func discoveryFailure(group string) *Failure {
	return &Failure{
		Reason: atoll.ReasonAPISilent, Transport: true, Most: 30 * time.Second,
		Message: "the member does not list what it serves in the API group " + group + ": what serves that there does not answer",
	}
}

func notServed(apiVersion string, key atoll.ItemKey) *Failure {
	return &Failure{
		Reason: atoll.ReasonNotServed, First: 5 * time.Second, Most: 5 * time.Minute,
		Message: truncateText("the member does not serve " + apiVersion + " " + key.Kind +
			": install its CustomResourceDefinition or API service there, or place it with this bundle; tried again when the member's APIs change"),
	}
}

// rediscoverAfter is how old a discovery answer must be to be read again because a kind is missing
// in it.
const rediscoverAfter = 5 * time.Second

func (e *MemberApplier) rediscoverAPIs(ctx context.Context) error {
	e.mu.Lock()
	fresh := time.Since(e.discovered) < rediscoverAfter
	if !fresh {
		e.discovered = time.Now()
	}
	e.mu.Unlock()
	if fresh {
		return nil
	}
	_, err := e.o.Client.DiscoverAPIs(ctx)
	return err
}

// checkRecorded reads whether a recorded object still exists, and judges it again on request.
func (e *MemberApplier) checkRecorded(ctx context.Context, p pendingWork) (failed *Failure) {
	defer func() {
		if p.judge && failed != nil {
			e.mu.Lock()
			e.ensureTask(p.Key).judge = true
			e.mu.Unlock()
		}
	}()
	res, failure := e.existingResource(ctx, p)
	if failure != nil {
		if failure.Reason == atoll.ReasonNotServed {
			// Its definition went, and the object with it.
			e.recordGone(p)
		}
		return failure
	}
	v, err := e.getObject(ctx, p, res)
	switch {
	case apierrors.IsNotFound(err):
		e.recordGone(p)
		return nil
	case err != nil:
		e.scheduleRecheck(p.Key)
		return failureFromError(err, p.Key)
	}
	e.compareRecorded(p, v)
	return nil
}

// compareRecorded compares an object that exists with its record.
func (e *MemberApplier) compareRecorded(p pendingWork, v observe.View) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p.judge && v.UID == p.Record.UID {
		e.recordAppliedView(v)
	}
	switch {
	case v.UID != p.Record.UID:
		e.recordGoneLocked(p)
	case v.Label != p.Record.Label || p.Record.Owned != "" && v.Owned != p.Record.Owned:
		e.ensureTask(p.Key).correct = true
	}
}

// getObject reads the plan's object: at all of it where it is judged.
func (e *MemberApplier) getObject(ctx context.Context, p pendingWork, res member.Resource) (observe.View, error) {
	if p.judge {
		obj, err := e.o.Client.Get(ctx, res, p.Key.Namespace, p.Key.Name)
		if err != nil {
			return observe.View{}, err
		}
		return e.observeObject(obj), nil
	}
	m, err := e.o.Client.GetMetadata(ctx, res, p.Key.Namespace, p.Key.Name)
	if err != nil {
		return observe.View{}, err
	}
	return observe.ViewByExistence(m, p.Key.Group, p.Key.Kind), nil
}

// scheduleRecheck schedules another check after a failed one.
func (e *MemberApplier) scheduleRecheck(key atoll.ItemKey) {
	e.mu.Lock()
	e.ensureTask(key).check = true
	e.mu.Unlock()
}

// recordGone records that the plan's object does not exist.
func (e *MemberApplier) recordGone(p pendingWork) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.recordGoneLocked(p)
}

// recordGoneLocked is gone for a caller that holds mu.
func (e *MemberApplier) recordGoneLocked(p pendingWork) {
	var last *atoll.ItemStatus
	if p.hasView && (ownership.RunsOnce(p.Key) || p.view.Finished) {
		last = buildRunStatusAfterDeletion(p.view)
		if p.Verb == ownership.Expire && last.Message == "" {
			last.Message = "it was deleted after it finished, as its ttlSecondsAfterFinished states"
		}
	}
	for _, key := range e.book.RecordGone(p.Key, p.Record.UID, last) {
		if key != p.Key {
			e.markDue(key)
		}
	}
	delete(e.views, p.Key)
}

// buildRunStatusAfterDeletion is what is reported of a run-to-completion object after it went.
func buildRunStatusAfterDeletion(v observe.View) *atoll.ItemStatus {
	s := &atoll.ItemStatus{Key: v.Key, Health: v.Health, Reason: v.Reason, Message: v.Message, ReflectedStatus: v.Reflected, Feedback: v.Feedback, Completed: v.Finished && v.RulesID != ""}
	if !v.Finished {
		s.Health, s.Reason = atoll.Degraded, atoll.ReasonDeletedInMember
		s.Message = "it was deleted in the member before it finished and is not run again: delete its template and create it again to run it"
	}
	return s
}

// searchInterruptedApply looks for an object that an interrupted apply may have made.
func (e *MemberApplier) searchInterruptedApply(ctx context.Context, p pendingWork) *Failure {
	if p.Item == nil && p.Record.APIVersion == "" && e.isKindUnserved(p.Key) {
		e.recordGone(p)
		return nil
	}
	res, failure := e.existingResource(ctx, p)
	if failure != nil {
		if failure.Reason == atoll.ReasonNotServed {
			e.recordGone(p)
			return nil
		}
		return failure
	}
	m, err := e.o.Client.GetMetadata(ctx, res, p.Key.Namespace, p.Key.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return failureFromError(err, p.Key)
	}
	if err != nil || !e.recognizeOwnObject(p, observe.ViewByExistence(m, p.Key.Group, p.Key.Kind)) {
		e.recordGone(p)
	}
	return nil
}

// isKindUnserved reports that the member does not serve the key's kind in any version.
func (e *MemberApplier) isKindUnserved(key atoll.ItemKey) bool {
	apis := e.o.Client.APIs()
	_, served := apis.PreferredResource(schema.GroupKind{Group: key.Group, Kind: key.Kind})
	return !served && apis != nil && !apis.IsGroupSilent(key.Group)
}

// recognizeOwnObject links an object that carries the label of a Bundle which claims it.
func (e *MemberApplier) recognizeOwnObject(p pendingWork, v observe.View) bool {
	template := v.Template
	if v.Label == "" || template == "" || v.Controlled {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	_, claimed := p.Record.Claims[v.Label]
	if !claimed && v.Label != p.Record.Owner {
		return false
	}
	e.book.RecordFoundAfterInterruptedApply(p.Key, ownership.Fact{UID: v.UID, Label: v.Label, Template: template, Adopted: v.Adopted, HookRun: v.HookRun, At: time.Now().Unix()})
	return true
}
