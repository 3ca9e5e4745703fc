package undo

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"atoll.dev/atoll/internal/apiserver/respond"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/refusal"
	"atoll.dev/atoll/internal/undo/history"
)

const (
	// listMemory is about what a list takes at most: the changes of a namespace and of objects without one.
	listMemory = 2 * history.MaxNamespaceChanges * 2048
	// targetMemory is about what an answer with a content takes at most: the content as text, as values, which take
	// up to a dozen times as much, and as JSON again, with the fields that later changes have.
	targetMemory = 16 * history.MaxContentBytes
	// maxStepBytes bounds the objects of a question for a step, of which each byte takes about stepCost.
	maxStepBytes = 3 << 20
	stepCost     = 16
)

// question is what a request is about.
type question struct {
	ctx       context.Context
	hub       *hubAccess
	user      user.Info
	namespace string
	// object, of which changes are listed; nil: all of the namespace.
	object   *atoll.ItemKey
	revision string
	// step is what a question for a step sends; nil: the question is for what is kept.
	step *stepObjects
	// mayGet stores what the user may read: by kind and namespace, then by key.
	mayGet map[atoll.ItemKey]bool
}

// ServeUndo answers, or refuses with a Status as the API does.
func (k *Keeper) ServeUndo(w http.ResponseWriter, r *http.Request) {
	answer, err := k.answerQuestion(w, r)
	if err != nil {
		respond.WriteError(w, err)
		return
	}
	respond.WriteJSON(w, http.StatusOK, answer)
}

func (k *Keeper) answerQuestion(w http.ResponseWriter, r *http.Request) (any, error) {
	q, err := k.readQuestion(r)
	if err != nil {
		return nil, err
	}
	if err := k.checkRight(q); err != nil {
		return nil, err
	}
	body, err := readStepBody(w, r, q) // before memory is reserved, which a slow sender would hold
	if err != nil {
		return nil, err
	}
	release, err := k.reserveMemory(q.user, memoryFor(q, body))
	if err != nil {
		return nil, err
	}
	defer release()
	if !k.isLoaded() {
		return nil, respond.StillStarting("the changes that can be undone are being read")
	}
	if err := q.decodeStep(body); err != nil {
		return nil, err
	}
	changes, err := k.listVisible(q)
	if err != nil {
		return nil, err
	}
	window := q.hub.tables.Settings.UndoWindow()
	switch {
	case q.step != nil:
		return planStep(q, changes)
	case q.revision != "":
		return readTarget(q, changes)
	}
	out := history.Answer{Changes: []history.ListedChange{}, Window: window.String()}
	for _, c := range changes {
		out.Changes = append(out.Changes, history.ListedChange{Change: *c, Until: c.At.Add(window)})
	}
	return out, nil
}

// checkRight refuses a question about an object that the user may not get.
func (k *Keeper) checkRight(q *question) error {
	if q.object == nil || k.maySee(q, *q.object) {
		return nil
	}
	why := fmt.Errorf("changes are shown to users that may get the object, and %q may not", q.user.GetName())
	return refusal.WithReason(atoll.ReasonPermissionMissing, apierrors.NewForbidden(schema.GroupResource{Group: q.object.Group, Resource: strings.ToLower(q.object.Kind)}, q.object.Name, why))
}

// readQuestion reads a request, and refuses a malformed one.
func (k *Keeper) readQuestion(r *http.Request) (*question, error) {
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		return nil, refusal.WithReason(atoll.ReasonInvalidRequest, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "undo"}, r.Method))
	}
	v := r.URL.Query()
	if err := respond.CheckParameters(v, "undo", "group", "kind", "namespace", "name", "revision"); err != nil {
		return nil, err
	}
	u, known := request.UserFrom(r.Context())
	if !known {
		return nil, refusal.WithReason(atoll.ReasonPermissionMissing, apierrors.NewUnauthorized("the request has no user"))
	}
	hub := k.currentHub()
	if hub == nil {
		return nil, respond.StillStarting("its tables are being read")
	}
	q := &question{ctx: r.Context(), hub: hub, user: u, namespace: v.Get("namespace"), revision: v.Get("revision"), mayGet: map[atoll.ItemKey]bool{}}
	if r.Method == http.MethodPost && q.revision == "" {
		return nil, refuseQuestion("name the change: kind, name and revision")
	}
	return q, q.readObject(v)
}

func refuseQuestion(message string) error {
	return refusal.WithReason(atoll.ReasonInvalidRequest, apierrors.NewBadRequest(message))
}

// reserveMemory counts the bytes that an answer is about to take.
func (k *Keeper) reserveMemory(u user.Info, bytes int64) (release func(), err error) {
	if k.options.ReserveMemory == nil {
		return func() {}, nil
	}
	return k.options.ReserveMemory(u.GetName(), "the changes that can be undone", bytes)
}

// memoryFor returns about how many bytes the answer takes.
func memoryFor(q *question, body []byte) int64 {
	if q.revision == "" {
		return listMemory
	}
	return targetMemory + stepCost*int64(len(body))
}

// readObject reads the object that the parameters name, if any.
func (q *question) readObject(v url.Values) error {
	kind, name := v.Get("kind"), v.Get("name")
	switch {
	case (kind == "") != (name == ""), q.revision != "" && kind == "":
		return refuseQuestion("name the object: kind, name, and for kinds outside of the core group, group")
	case kind != "":
		q.object = &atoll.ItemKey{Group: v.Get("group"), Kind: kind, Namespace: q.namespace, Name: name}
	}
	return nil
}

// maySee reports whether the user may get the object now.
func (k *Keeper) maySee(q *question, key atoll.ItemKey) bool {
	ofKind := key
	ofKind.Name = ""
	for _, asked := range []atoll.ItemKey{ofKind, key} {
		may, known := q.mayGet[asked]
		if !known {
			may = k.options.MayGet(q.ctx, q.user, asked)
			q.mayGet[asked] = may
		}
		if may {
			return true
		}
	}
	return false
}

// listVisible lists the changes of the question that can be undone and that the user may see. A namespace that was made again has
// none of the former one.
func (k *Keeper) listVisible(q *question) (out []*history.Change, err error) {
	uid := ""
	if q.namespace != "" {
		uid, err = q.hub.api.GetNamespaceUID(q.ctx, q.namespace)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the namespace: %w", err)
		}
	}
	k.mu.Lock()
	var all []*history.Change
	if q.object != nil {
		all = k.index.ListOfObject(*q.object)
	} else {
		all = k.index.ListOfNamespace(q.namespace)
		if q.namespace != "" {
			all = append(all, k.index.ListOfNamespace("")...)
		}
	}
	k.mu.Unlock()
	now, window := time.Now(), q.hub.tables.Settings.UndoWindow()
	return slices.DeleteFunc(all, func(c *history.Change) bool {
		return c.IsExpired(now, window) || c.Object.Namespace != "" && c.NamespaceUID != uid || !k.maySee(q, c.Object)
	}), nil
}

// readTarget reads the state before the change with the revision that the question names.
func readTarget(q *question, changes []*history.Change) (*history.Target, error) {
	from := slices.IndexFunc(changes, func(c *history.Change) bool { return c.Revision == q.revision })
	if from < 0 {
		return nil, refusal.WithReason(atoll.ReasonNotFound, apierrors.NewBadRequest(fmt.Sprintf("no change with revision %q of %s/%s is kept; atoll undo lists those that are", q.revision, q.object.Kind, q.object.Name)))
	}
	var contents []*history.Content
	for i, c := range changes[from:] {
		secret, err := q.hub.secrets.GetSecret(q.ctx, c.ID)
		if err != nil {
			return nil, fmt.Errorf("read the former content: %w", err)
		}
		content, err := history.DecodeContent(secret.Data[dataContent])
		if err != nil {
			return nil, err
		}
		if i == 0 && c.Operation != history.Created && !content.IsOf(c.Object) {
			return nil, fmt.Errorf("the former content that Secret %s/%s keeps is not one of %s: delete the Secret, or undo an earlier change", atoll.SystemNamespace, c.ID, c.Object)
		}
		if i > 0 {
			content.Object, content.ManagedFields = nil, nil
		}
		contents = append(contents, content)
	}
	t := history.NewTarget(changes[from:], contents)
	return &t, nil
}
