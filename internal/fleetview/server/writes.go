package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	jsonpatch "github.com/evanphx/json-patch"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/fleetview"
	"atoll.dev/atoll/internal/memberproxy"
)

// findUnstoredObject returns an object in a member that is not stored; nil where it is stored, or the user
// sees nothing else. NotFound is a pod that is neither stored nor in a member.
func (o *objectStorage) findUnstoredObject(ctx context.Context, name string, acts bool) (*memberObject, error) {
	if o.fleet.isHubIdentity(ctx) || !o.mayNameMemberObject(request.NamespaceValue(ctx), name) {
		return nil, nil
	}
	if _, err := o.Store.Get(ctx, name, &metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return nil, nil
	}
	return o.findMemberObject(ctx, name, acts)
}

// findUnstoredObjectToUpdate is findUnstoredObject for an update. A server-side apply, which creates what does not exist, changes
// an object in a member by its full name alone: no member decides where the object of another name goes.
func (o *objectStorage) findUnstoredObjectToUpdate(ctx context.Context, name string, forceCreate bool) (*memberObject, error) {
	if _, _, full := o.fleet.memberOfName(request.NamespaceValue(ctx), name); forceCreate && !full {
		return nil, nil
	}
	return o.findUnstoredObject(ctx, name, true)
}

// Update updates what is stored, or what runs in a member.
func (o *objectStorage) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, forceCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	at, absent := o.findUnstoredObjectToUpdate(ctx, name, forceCreate)
	switch {
	case at != nil:
		obj, err := o.changeMemberObject(ctx, memberObjectChange{at: at, info: info, validate: update, options: options})
		return obj, false, err
	case absent != nil && !apierrors.IsNotFound(absent):
		return nil, false, absent
	}
	if !o.fleet.isHubIdentity(ctx) {
		info = historyVersionedUpdate{info, o}
	}
	obj, created, err := o.Store.Update(ctx, name, info, create, update, forceCreate, options)
	if absent != nil && apierrors.IsNotFound(err) {
		err = absent
	}
	return obj, created, o.refuseHistoryChange(ctx, name, err)
}

// historyVersionedUpdate is a change of a stored object by a user that may have its version from a watch of
// members' objects.
type historyVersionedUpdate struct {
	rest.UpdatedObjectInfo
	o *objectStorage
}

// UpdatedObject has the stored object's version, if that is no newer than the watch was.
func (v historyVersionedUpdate) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	obj, err := v.UpdatedObjectInfo.UpdatedObject(ctx, old)
	if err != nil {
		return nil, err
	}
	now, nerr := meta.Accessor(obj)
	before, berr := meta.Accessor(old)
	if nerr == nil && berr == nil && v.o.isUnchangedSince(before.GetResourceVersion(), now.GetResourceVersion(), "") {
		now.SetResourceVersion(before.GetResourceVersion())
	}
	return obj, nil
}

// isUnchangedSince reports whether an object of a cluster, the hub itself under the name "", that is
// at a version of its own has been so since a version of what is shown.
func (o *objectStorage) isUnchangedSince(at, since, cluster string) bool {
	if !fleetview.IsHistoryVersion(since) {
		return false
	}
	then, ok := o.fleet.history.Find(o.kind.resource, since)
	if !ok {
		return false
	}
	is, err := strconv.ParseUint(at, 10, 64)
	was, werr := strconv.ParseUint(then[cluster], 10, 64)
	return err == nil && werr == nil && is <= was
}

// memberObjectChange is a change of an object in a member.
type memberObjectChange struct {
	at          *memberObject
	subresource string
	info        rest.UpdatedObjectInfo
	validate    rest.ValidateObjectUpdateFunc
	options     *metav1.UpdateOptions
}

// changeMemberObject changes an object in a member, as the user. A change of an object that has changed
// since is a conflict, after which the API server tries a patch again.
func (o *objectStorage) changeMemberObject(ctx context.Context, c memberObjectChange) (runtime.Object, error) {
	namespace := request.NamespaceValue(ctx)
	before, err := o.getFromMember(ctx, c.at)
	if err != nil {
		return nil, err
	}
	ctx = fleetview.WithMemberWrite(ctx)
	after, err := c.info.UpdatedObject(ctx, before.DeepCopyObject())
	if err != nil {
		return nil, err
	}
	if err := o.checkChange(c, before, after); err != nil {
		return nil, err
	}
	if c.validate != nil {
		if err := c.validate(ctx, after, before); err != nil {
			return nil, err
		}
	}
	patch, err := o.kind.mergePatch(before, after)
	if err != nil || patch == nil {
		return before, err
	}
	query := url.Values{}
	if c.options != nil {
		setNonEmpty(query, "fieldManager", c.options.FieldManager)
		setNonEmpty(query, "fieldValidation", c.options.FieldValidation)
		query["dryRun"] = c.options.DryRun
	}
	path := o.kind.memberPath(namespace, c.at.own)
	if c.subresource != "" {
		path += "/" + c.subresource
	}
	obj, err := o.fleet.requestAsUser(ctx, c.at.member, userRequest{method: http.MethodPatch, path: path, query: query, kind: string(types.MergePatchType), body: patch})
	if err != nil {
		return nil, err
	}
	return c.at.convertAnswer(o.kind, obj)
}

// checkChange refuses a change of fields that only the member, or the hub, sets, and of an object
// that is another one now, or has changed.
func (o *objectStorage) checkChange(c memberObjectChange, before, after runtime.Object) error {
	old, err := meta.Accessor(before)
	if err != nil {
		return fmt.Errorf("read a %s: %w", o.kind.Kind, err)
	}
	now, err := meta.Accessor(after)
	if err != nil {
		return fmt.Errorf("read a %s: %w", o.kind.Kind, err)
	}
	conflict := func(why string) error {
		return apierrors.NewConflict(schema.GroupResource{Group: o.kind.Group, Resource: o.kind.resource}, old.GetName(), errors.New(why))
	}
	if p := c.info.Preconditions(); p != nil && p.UID != nil && *p.UID != old.GetUID() {
		return conflict("it is another one now")
	}
	if v := now.GetResourceVersion(); v != "" && v != old.GetResourceVersion() && !o.isUnchangedSince(old.GetResourceVersion(), v, c.at.Name) {
		return conflict("it has been modified; read it again and make your change of that")
	}
	now.SetResourceVersion(old.GetResourceVersion())
	now.SetOwnerReferences(o.kind.restoreListedControllers(now.GetOwnerReferences(), old.GetOwnerReferences()))
	if now.GetLabels()[atoll.LabelCluster] != c.at.Name || !equality.Semantic.DeepEqual(now.GetOwnerReferences(), old.GetOwnerReferences()) {
		return apierrors.NewBadRequest(fmt.Sprintf("%s %s runs in cluster %s: its owners, and the label %s, name what it belongs to, and are not changed", o.kind.Kind, old.GetName(), c.at.Name, atoll.LabelCluster))
	}
	return nil
}

// mergePatch returns the difference between two states of an object, as a JSON merge patch that is refused of any
// other one; nil where there is none.
func (k kind) mergePatch(before, after runtime.Object) ([]byte, error) {
	var texts [2][]byte
	for i, obj := range []runtime.Object{before, after} {
		versioned, err := legacyscheme.Scheme.ConvertToVersion(obj, k.GroupVersion())
		if err != nil {
			return nil, fmt.Errorf("write a %s: %w", k.Kind, err)
		}
		m, err := meta.Accessor(versioned)
		if err != nil {
			return nil, fmt.Errorf("write a %s: %w", k.Kind, err)
		}
		m.SetManagedFields(nil)
		if texts[i], err = json.Marshal(versioned); err != nil {
			return nil, fmt.Errorf("write a %s: %w", k.Kind, err)
		}
	}
	patch, err := jsonpatch.CreateMergePatch(texts[0], texts[1])
	if err != nil {
		return nil, fmt.Errorf("compare two states of a %s: %w", k.Kind, err)
	}
	var changes map[string]any
	if err := json.Unmarshal(patch, &changes); err != nil {
		return nil, fmt.Errorf("compare two states of a %s: %w", k.Kind, err)
	}
	if len(changes) == 0 {
		return nil, nil
	}
	m, err := meta.Accessor(before)
	if err != nil {
		return nil, fmt.Errorf("write a %s: %w", k.Kind, err)
	}
	metadata, _ := changes["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["uid"], metadata["resourceVersion"] = m.GetUID(), m.GetResourceVersion()
	changes["metadata"] = metadata
	return json.Marshal(changes)
}

// userRequest is a request of a member in the name of a person.
type userRequest struct {
	method, path string
	query        url.Values
	kind         string // of the body
	body         []byte
}

// requestAsUser sends a request to a member as the hub's user.
func (f *Fleet) requestAsUser(ctx context.Context, m *member, a userRequest) (runtime.Object, error) {
	u, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewUnauthorized("the request has no user")
	}
	ctx, hold := f.withMemoryReservation(ctx)
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, a.method, (&url.URL{Path: a.path, RawQuery: a.query.Encode()}).String(), bytes.NewReader(a.body))
	if err != nil {
		return nil, fmt.Errorf("send to cluster %s: %w", m.Name, err)
	}
	r.Header.Set("Content-Type", a.kind)
	r.Header.Set("Accept", runtime.ContentTypeProtobuf)
	answer, err := f.o.Reach.DoAs(ctx, u, m.Cluster, r)
	if err != nil {
		return nil, timeoutError(ctx, m, err)
	}
	defer answer.Body.Close()
	body, err := hold.readAll(ctx, answer.Body)
	defer func() { hold.releaseBytes(int64(cap(body))) }()
	if errors.Is(err, errFull) {
		return nil, memoryFullError(m)
	}
	if err != nil {
		return nil, timeoutError(ctx, m, err)
	}
	obj, err := liveAnswers.decodeLimited(body, func(weight int) error { return hold.reserveBytes(ctx, int64(weight)) })
	if errors.Is(err, errFull) {
		return nil, memoryFullError(m)
	}
	if err != nil {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("cluster %s answers %s, and cannot be understood: %v", m.Name, answer.Status, err))
	}
	if s, failed := obj.(*metav1.Status); failed && s.Status != metav1.StatusSuccess {
		if told := memberproxy.AddRefusalHint(s.Message); told != s.Message {
			s.Message = told + "; what is to last is changed on the hub, in the template that this was made of"
		}
		return nil, m.translateStatus(s)
	}
	return obj, nil
}

// convertAnswer returns what a member answered as it is shown.
func (r *memberObject) convertAnswer(k kind, obj runtime.Object) (runtime.Object, error) {
	if s, ok := obj.(*metav1.Status); ok {
		return s, nil
	}
	o, err := meta.Accessor(obj)
	if err != nil {
		return nil, fmt.Errorf("read the answer of cluster %s: %w", r.Name, err)
	}
	return r.convertToShown(k, obj, o, r.by)
}

// Delete deletes what is stored, or what runs in a member.
func (o *objectStorage) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	at, err := o.findUnstoredObject(ctx, name, true)
	if err != nil {
		return nil, false, err
	}
	if at == nil {
		obj, done, err := o.Store.Delete(ctx, name, validate, options)
		return obj, done, o.refuseHistoryChange(ctx, name, err)
	}
	obj, err := o.getFromMember(ctx, at)
	if err != nil {
		return nil, false, err
	}
	if validate != nil {
		if err := validate(fleetview.WithMemberWrite(ctx), obj); err != nil {
			return nil, false, err
		}
	}
	body, err := o.deletionBody(at.member, obj, options)
	if err != nil {
		return nil, false, err
	}
	path := o.kind.memberPath(request.NamespaceValue(ctx), at.own)
	answer, err := o.fleet.requestAsUser(ctx, at.member, userRequest{method: http.MethodDelete, path: path, kind: runtime.ContentTypeJSON, body: body})
	if err != nil {
		return nil, false, err
	}
	shown, err := at.convertAnswer(o.kind, answer)
	return shown, false, err
}

// deletionBody returns the options for a deletion of exactly that object.
func (o *objectStorage) deletionBody(m *member, obj runtime.Object, options *metav1.DeleteOptions) ([]byte, error) {
	is, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	d := metav1.DeleteOptions{}
	if options != nil {
		d = *options.DeepCopy()
	}
	d.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}
	uid := is.GetUID()
	if d.Preconditions == nil {
		d.Preconditions = &metav1.Preconditions{}
	}
	if d.Preconditions.UID == nil {
		d.Preconditions.UID = &uid
	}
	if v := d.Preconditions.ResourceVersion; v != nil && o.isUnchangedSince(is.GetResourceVersion(), *v, m.Name) {
		at := is.GetResourceVersion()
		d.Preconditions.ResourceVersion = &at
	}
	return json.Marshal(d)
}

// DeleteCollection deletes what is stored, and refuses what would take along what runs in
// members.
func (o *objectStorage) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions, selected *internalversion.ListOptions) (runtime.Object, error) {
	if o.fleet.isHubIdentity(ctx) {
		return o.Store.DeleteCollection(ctx, validate, options, selected)
	}
	if selected == nil {
		selected = &internalversion.ListOptions{}
	}
	selected, asked, err := parseCompleteOption(selected)
	if err == nil && asked {
		err = errNoneDeleted
	}
	if err != nil {
		return nil, err
	}
	got, err := o.gatherAll(ctx, selected, fleetview.SelectionOf(selected.LabelSelector, selected.FieldSelector))
	if err != nil {
		return nil, err
	}
	if got.running != "" {
		return nil, apierrors.NewForbidden(schema.GroupResource{Group: o.kind.Group, Resource: o.kind.resource}, "",
			fmt.Errorf("what is selected runs in clusters too, as in %s, and is not deleted as a collection: delete each by its name, as kubectl delete --all does, or select what is stored on the hub alone, by the label selector !%s", got.running, atoll.LabelCluster))
	}
	return o.Store.DeleteCollection(ctx, validate, options, selected)
}
