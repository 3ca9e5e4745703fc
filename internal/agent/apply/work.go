package apply

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/agent/claims"
	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/atoll"
)

// keepNamespace is the verb for a namespace that the agent makes, or made,
// because something needs it.
const keepNamespace claims.Verb = "KeepNamespace"

// plan is what is to be done about a key.
type plan struct {
	claims.Step
	// left are the fields that the member owns.
	left []string
	// check, judge, correct and weigh as in task.
	check, judge, correct, weigh bool
	view                         observe.View
	hasView                      bool
	// intended as in task.
	intended bool
	// begun: its deletion was asked for already.
	begun bool
}

func (p plan) acts() bool {
	return p.Verb != claims.Nothing || p.check || p.judge || p.correct || p.weigh
}

func (p plan) deletes() bool {
	switch p.Verb {
	case claims.Delete, claims.Release, claims.Search, claims.DeleteNamespace:
		return true
	}
	return false
}

// plan for the key. The caller holds mu.
func (e *Engine) plan(key atoll.ItemKey) plan {
	p := plan{Step: e.book.Next(key)}
	p.view, p.hasView = e.viewOf(key)
	r := &p.Record
	if p.Item != nil {
		p.left = e.stillScaled(r, e.left(p.Item))
		if p.Verb == claims.Nothing && r.Applied != "" && !slices.Equal(p.left, r.Left) {
			p.Verb = claims.Apply
		}
	}
	if claims.IsNamespace(key) && r.Implicit && !r.Doomed && len(r.Claims) == 0 && len(e.book.Inside(key.Name)) > 0 {
		if r.UID == "" || r.Applied != metaHash(e.book.Meta(key.Name)) {
			p.Verb = keepNamespace
		}
	}
	if t := e.tasks[key]; t != nil {
		p.begun = t.failure != nil && t.failure.Reason == ReasonTerminating
		p.check, p.judge = t.check && r.UID != "", t.judge && r.UID != ""
		p.correct = t.correct && r.UID != "" && p.Verb == claims.Nothing
		p.weigh = t.weigh && r.UID != ""
	}
	return p
}

// begin gives the plan for a key that is worked on now, and takes its flags.
func (e *Engine) begin(key atoll.ItemKey) plan {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.plan(key)
	t := e.task(key)
	p.intended = t.intended
	if !p.weigh { // which comes first, and the others after it
		t.check, t.judge, t.correct = false, false, false
	}
	return p
}

// maxSteps bounds what one turn does to a key: look, delete, make, hand over.
const maxSteps = 6

// work brings one key as far as it goes now.
func (e *Engine) work(ctx context.Context, key atoll.ItemKey) *Failure {
	ctx = e.inName(ctx, key)
	for range maxSteps {
		p := e.begin(key)
		failure, again := e.step(ctx, p)
		if failure != nil || !again {
			return failure
		}
	}
	return nil
}

// step does one act. again: another may follow.
func (e *Engine) step(ctx context.Context, p plan) (failure *Failure, again bool) {
	if p.weigh {
		return e.weighed(ctx, p), true
	}
	if p.check || p.judge {
		return e.check(ctx, p), true
	}
	if failure := e.permitted(ctx, p); failure != nil {
		e.stillWrong(p)
		return failure, false
	}
	switch p.Verb {
	case claims.Apply:
		if p.Record.UID == "" && !p.intended {
			e.nextPass(p.Key) // which stores the intent first
			return nil, false
		}
		return e.put(ctx, p), true
	case claims.Replace, claims.Delete, claims.DeleteNamespace:
		return e.delete(ctx, p), true
	case claims.Release:
		return e.release(ctx, p), true
	case claims.Search:
		return e.search(ctx, p), true
	case keepNamespace:
		return e.keepNamespace(ctx, p.Key.Name), false
	}
	if p.correct && p.Item != nil {
		return e.correct(ctx, p), false
	}
	return nil, false
}

// stillWrong keeps in mind that the plan's object is to be corrected.
func (e *Engine) stillWrong(p plan) {
	if p.correct {
		e.mu.Lock()
		e.task(p.Key).correct = true
		e.mu.Unlock()
	}
}

// nextPass goes on with the key there.
func (e *Engine) nextPass(key atoll.ItemKey) {
	e.mu.Lock()
	e.due(key)
	e.mu.Unlock()
}

// resource of a plan's object in the member, in the version in which it is applied;
// nil and why not.
func (e *Engine) resource(ctx context.Context, key atoll.ItemKey, apiVersion string) (member.Resource, *Failure) {
	gvk := schema.FromAPIVersionAndKind(apiVersion, key.Kind)
	find := func() (member.Resource, bool) {
		if apiVersion == "" {
			return e.o.Client.APIs().Preferred(gvk.GroupKind())
		}
		return e.o.Client.APIs().Lookup(gvk)
	}
	if r, ok := find(); ok {
		return r, nil
	}
	if err := e.rediscover(ctx); err != nil {
		return member.Resource{}, explain(err, key)
	}
	if r, ok := find(); ok {
		return r, nil
	}
	if e.o.Client.APIs().Silent(key.Group) {
		return member.Resource{}, unanswered(key.Group)
	}
	return member.Resource{}, notServed(apiVersion, key)
}

// existing is resource for an object that was made: one of which the member has
// dropped the version is there in another.
func (e *Engine) existing(ctx context.Context, p plan) (member.Resource, *Failure) {
	r, failure := e.resource(ctx, p.Key, apiVersion(p.Record))
	if failure != nil && failure.Reason == ReasonNotServed {
		if other, ok := e.o.Client.APIs().Preferred(schema.GroupKind{Group: p.Key.Group, Kind: p.Key.Kind}); ok {
			return other, nil
		}
	}
	return r, failure
}

func unanswered(group string) *Failure {
	return &Failure{
		Reason: ReasonSilent, Transport: true, Most: 30 * time.Second,
		Message: "the member does not say what it serves in the API group " + group + ": what serves that there does not answer",
	}
}

func notServed(apiVersion string, key atoll.ItemKey) *Failure {
	return &Failure{
		Reason: ReasonNotServed, First: 5 * time.Second, Most: 5 * time.Minute,
		Message: cut("the member does not serve " + apiVersion + " " + key.Kind +
			": install its CustomResourceDefinition or API service there, or place it with this bundle; tried again when the member's APIs change"),
	}
}

// rediscoverAfter is how old an answer of the member must be to be asked again
// because a kind is missing in it.
const rediscoverAfter = 5 * time.Second

func (e *Engine) rediscover(ctx context.Context) error {
	e.mu.Lock()
	fresh := time.Since(e.discovered) < rediscoverAfter
	if !fresh {
		e.discovered = time.Now()
	}
	e.mu.Unlock()
	if fresh {
		return nil
	}
	_, err := e.o.Client.Discover(ctx)
	return err
}

// check looks whether a recorded object still exists, and judges it anew where that is asked.
func (e *Engine) check(ctx context.Context, p plan) (failed *Failure) {
	defer func() {
		if p.judge && failed != nil {
			e.mu.Lock()
			e.task(p.Key).judge = true
			e.mu.Unlock()
		}
	}()
	res, failure := e.existing(ctx, p)
	if failure != nil {
		if failure.Reason == ReasonNotServed {
			// Its definition went, and the object with it.
			e.gone(p)
		}
		return failure
	}
	v, err := e.look(ctx, p, res)
	switch {
	case apierrors.IsNotFound(err):
		e.gone(p)
		return nil
	case err != nil:
		e.again(p.Key)
		return explain(err, p.Key)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if p.judge && v.UID == p.Record.UID {
		e.took(v)
	}
	switch {
	case v.UID != p.Record.UID:
		e.lost(p)
	case v.Label != p.Record.Label || p.Record.Owned != "" && v.Owned != p.Record.Owned:
		e.task(p.Key).correct = true
	}
	return nil
}

// look at the plan's object: at all of it where it is judged.
func (e *Engine) look(ctx context.Context, p plan, res member.Resource) (observe.View, error) {
	if p.judge {
		obj, err := e.o.Client.Get(ctx, res, p.Key.Namespace, p.Key.Name)
		if err != nil {
			return observe.View{}, err
		}
		return e.observed(obj), nil
	}
	m, err := e.o.Client.Meta(ctx, res, p.Key.Namespace, p.Key.Name)
	if err != nil {
		return observe.View{}, err
	}
	return observe.OfMeta(m, p.Key.Group, p.Key.Kind), nil
}

// again asks for another check after a failed one.
func (e *Engine) again(key atoll.ItemKey) {
	e.mu.Lock()
	e.task(key).check = true
	e.mu.Unlock()
}

// gone records that the plan's object does not exist.
func (e *Engine) gone(p plan) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost(p)
}

// lost is gone for a caller that holds mu.
func (e *Engine) lost(p plan) {
	var last *atoll.ItemStatus
	if p.hasView && claims.RunsOnce(p.Key) {
		last = lastWords(p.view)
	}
	for _, key := range e.book.Gone(p.Key, p.Record.UID, last) {
		if key != p.Key {
			e.due(key)
		}
	}
	delete(e.views, p.Key)
}

// lastWords is what is reported of a run-to-completion object after it went.
func lastWords(v observe.View) *atoll.ItemStatus {
	s := &atoll.ItemStatus{Key: v.Key, Health: v.Health, Reason: v.Reason, Message: v.Message, Reflected: v.Reflected}
	if !v.Finished {
		s.Health, s.Reason = atoll.Degraded, "DeletedInMember"
		s.Message = "it was deleted in the member before it finished and is not run again: delete its template and create it anew to run it"
	}
	return s
}

// search looks for an object that an interrupted apply may have made.
func (e *Engine) search(ctx context.Context, p plan) *Failure {
	if p.Item == nil && p.Record.APIVersion == "" && e.never(p.Key) {
		e.gone(p)
		return nil
	}
	res, failure := e.existing(ctx, p)
	if failure != nil {
		if failure.Reason == ReasonNotServed {
			e.gone(p)
			return nil
		}
		return failure
	}
	m, err := e.o.Client.Meta(ctx, res, p.Key.Namespace, p.Key.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return explain(err, p.Key)
	}
	if err != nil || !e.adoptOwn(p, observe.OfMeta(m, p.Key.Group, p.Key.Kind)) {
		e.gone(p)
	}
	return nil
}

// never tells that the member does not serve the key's kind in any version.
func (e *Engine) never(key atoll.ItemKey) bool {
	apis := e.o.Client.APIs()
	_, served := apis.Preferred(schema.GroupKind{Group: key.Group, Kind: key.Kind})
	return !served && apis != nil && !apis.Silent(key.Group)
}

// adoptOwn links an object that carries the label of a Bundle which claims it.
func (e *Engine) adoptOwn(p plan, v observe.View) bool {
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
	e.book.Found(p.Key, claims.Fact{UID: v.UID, Label: v.Label, Template: template, Adopted: v.Adopted})
	return true
}
