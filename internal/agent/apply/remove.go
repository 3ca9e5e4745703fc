package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/internal/agent/claims"
	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/atoll"
)

// delete takes the plan's object out and confirms that it is gone.
func (e *Engine) delete(ctx context.Context, p plan) *Failure {
	res, failure := e.existing(ctx, p)
	if failure != nil {
		if failure.Reason == ReasonNotServed {
			e.gone(p)
			return nil
		}
		return failure
	}
	if !p.begun {
		if failure := e.beginDelete(ctx, p, res); failure != nil {
			return failure
		}
	}
	m, err := e.o.Client.Meta(ctx, res, p.Key.Namespace, p.Key.Name)
	switch {
	case apierrors.IsNotFound(err), err == nil && string(m.UID) != p.Record.UID:
		e.gone(p)
		return nil
	case err != nil:
		return explain(err, p.Key)
	case p.begun && m.DeletionTimestamp == nil:
		return e.beginDelete(ctx, p, res)
	}
	return terminating(observe.OfMeta(m, p.Key.Group, p.Key.Kind))
}

// beginDelete asks the member to delete the object, if that is still what is
// wanted and takes nothing else along.
func (e *Engine) beginDelete(ctx context.Context, p plan, res member.Resource) *Failure {
	if failure := e.guard(ctx, p); failure != nil {
		return failure
	}
	if !e.o.Fence(ctx) {
		return &Failure{Reason: ReasonNotHolder, Waits: true, Message: "another agent took over this member; nothing is deleted by this one"}
	}
	e.mu.Lock()
	still := e.book.Next(p.Key).Verb == p.Verb
	going := still && e.book.Going(p.Key)
	e.mu.Unlock()
	if !still {
		return &Failure{Reason: ReasonWaits, Waits: true, First: 10 * time.Millisecond, Message: "it is wanted again"}
	}
	if going {
		if err := e.flush(ctx); err != nil {
			return explain(err, p.Key)
		}
	}
	err := e.o.Client.Delete(ctx, res, p.Key.Namespace, p.Key.Name, p.Record.UID)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
	case err != nil:
		return explain(err, p.Key)
	default:
		e.o.Log.Info("deleted", "object", p.Key, "uid", p.Record.UID)
	}
	return nil
}

func apiVersion(r claims.Record) string {
	if r.APIVersion == "" && claims.IsNamespace(r.Key) {
		return "v1"
	}
	return r.APIVersion
}

// terminating says what holds a deletion up.
func terminating(v observe.View) *Failure {
	f := &Failure{Reason: ReasonTerminating, Waits: true, First: 500 * time.Millisecond, Most: 30 * time.Second}
	f.Message = "its deletion has begun and is not finished"
	if len(v.Finalizers) > 0 {
		f.Message = cut("its deletion waits for the finalizers " + strings.Join(v.Finalizers, ", ") +
			": whoever set them must finish, or remove them in the member")
	}
	return f
}

// release lets go of an object: our labels and our claim to its fields are taken
// off, and everything else stays. What we made is marked, so that it is taken up
// again when it comes back.
func (e *Engine) release(ctx context.Context, p plan) *Failure {
	res, failure := e.existing(ctx, p)
	if failure != nil {
		if failure.Reason == ReasonNotServed {
			e.gone(p)
			return nil
		}
		return failure
	}
	return e.releaseAs(ctx, p, res)
}

// releaseAs is release of an object of a resource that is known.
func (e *Engine) releaseAs(ctx context.Context, p plan, res member.Resource) *Failure {
	live, err := e.o.Client.Meta(ctx, res, p.Key.Namespace, p.Key.Name)
	if apierrors.IsNotFound(err) || err == nil && string(live.UID) != p.Record.UID {
		e.gone(p)
		return nil
	}
	if err != nil {
		return explain(err, p.Key)
	}
	fields := []any{}
	for _, f := range live.ManagedFields {
		if f.Manager != atoll.FieldManager && f.Manager != atoll.HandoverManager {
			fields = append(fields, f)
		}
	}
	if len(fields) == 0 {
		fields = append(fields, map[string]any{}) // an empty list would change nothing
	}
	metadata := map[string]any{
		"uid": p.Record.UID, "resourceVersion": live.ResourceVersion, "managedFields": fields,
		"labels": map[string]any{atoll.LabelBundleUID: nil, claims.LabelTemplateUID: nil, claims.LabelAdopted: nil},
	}
	if p.Record.LeavesBehind() {
		metadata["annotations"] = map[string]any{claims.AnnotationLeftBehind: p.Record.Template}
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return explain(err, p.Key)
	}
	if err := e.o.Client.Merge(ctx, res, p.Key.Namespace, p.Key.Name, patch); err != nil {
		f := explain(err, p.Key)
		f.First = 200 * time.Millisecond
		return f
	}
	e.o.Log.Info("let go", "object", p.Key)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, key := range e.book.Released(p.Key) {
		if key != p.Key {
			e.due(key)
		}
	}
	delete(e.views, p.Key)
	return nil
}

// guard keeps what a deletion would take along.
func (e *Engine) guard(ctx context.Context, p plan) *Failure {
	switch {
	case claims.IsNamespace(p.Key):
		return e.guardNamespace(ctx, p)
	case claims.IsCRD(p.Key):
		return e.guardCRD(ctx, p)
	}
	return nil
}

// guardCRD refuses while objects of the kind exist.
func (e *Engine) guardCRD(ctx context.Context, p plan) *Failure {
	res, failure := e.resource(ctx, p.Key, apiVersion(p.Record))
	if failure != nil {
		return failure
	}
	crd, err := e.o.Client.Get(ctx, res, "", p.Key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return explain(err, p.Key)
	}
	kinds := served(crd)
	if len(kinds) == 0 {
		return &Failure{
			Reason: ReasonForeign, Waits: true, First: 2 * time.Second, Most: 2 * time.Minute,
			Message: cut(fmt.Sprintf("%s %s is kept: it serves no version, so that nobody can see what is stored of its kind: serve one, or delete it in the member",
				p.Key.Kind, p.Key.Name)),
		}
	}
	return e.guardKind(ctx, kinds[0], "", p.Key)
}

// guardLimit is how many objects of a kind a guard looks at.
const guardLimit = 500

// guardKind refuses while the kind has objects there: ours go first, and those
// of others are not ours to delete.
func (e *Engine) guardKind(ctx context.Context, res member.Resource, namespace string, guarded atoll.ItemKey) *Failure {
	found, err := e.o.Client.List(ctx, res, namespace, guardLimit)
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return nil
	}
	if apierrors.IsForbidden(err) {
		return &Failure{
			Reason: ReasonForeign, Waits: true, First: 2 * time.Second, Most: 2 * time.Minute,
			Message: cut(fmt.Sprintf("%s %s is kept: the agent may not list %s, so nobody can see whether others have some there: allow that in a ClusterRole labelled %s=true",
				guarded.Kind, guarded.Name, res.GroupResource(), LabelAggregate)),
		}
	}
	if err != nil {
		return explain(err, guarded)
	}
	uids := map[string]bool{}
	for _, m := range found {
		uids[string(m.UID)] = true
	}
	var foreign []string
	ours := 0
	for i := range found {
		m := &found[i]
		key := atoll.ItemKey{Group: res.Group, Kind: res.Kind, Namespace: m.Namespace, Name: m.Name}
		switch {
		case e.isOurs(key, string(m.UID)):
			ours++
		case namespace != "" && e.comesAlong(m, key):
		case m.DeletionTimestamp != nil:
			ours++
		default:
			foreign = append(foreign, res.Kind+" "+name(key))
		}
	}
	if len(foreign) > 0 {
		n := len(foreign)
		return &Failure{
			Reason: ReasonForeign, Waits: true, First: 2 * time.Second, Most: 2 * time.Minute,
			Message: cut(fmt.Sprintf("%s %s is kept: deleting it would take along %d objects that Atoll did not apply (%s): delete those in the member first",
				guarded.Kind, guarded.Name, n, strings.Join(foreign[:min(3, n)], ", "))),
		}
	}
	if ours > 0 {
		return &Failure{
			Reason: ReasonWaits, Waits: true, First: 300 * time.Millisecond, Most: 15 * time.Second,
			Message: fmt.Sprintf("%s %s goes after %d objects that depend on it", guarded.Kind, guarded.Name, ours),
		}
	}
	return nil
}

// isOurs tells whether the object is recorded.
func (e *Engine) isOurs(key atoll.ItemKey, uid string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	r, known := e.book.Record(key)
	return known && r.UID == uid && !r.Adopted
}

// served lists the versions that a CRD serves.
func served(crd interface{ UnstructuredContent() map[string]any }) (out []member.Resource) {
	var def struct {
		Spec struct {
			Group string `json:"group"`
			Scope string `json:"scope"`
			Names struct {
				Plural string `json:"plural"`
				Kind   string `json:"kind"`
			} `json:"names"`
			Versions []struct {
				Name   string `json:"name"`
				Served bool   `json:"served"`
			} `json:"versions"`
		} `json:"spec"`
	}
	raw, err := json.Marshal(map[string]any{"spec": crd.UnstructuredContent()["spec"]})
	if err != nil || json.Unmarshal(raw, &def) != nil {
		return nil
	}
	s := def.Spec
	for _, v := range s.Versions {
		if v.Served {
			r := member.Resource{Kind: s.Names.Kind, Namespaced: s.Scope == "Namespaced", Listable: true}
			r.Group, r.Version, r.Resource = s.Group, v.Name, s.Names.Plural
			out = append(out, r)
		}
	}
	return slices.Clip(out)
}
