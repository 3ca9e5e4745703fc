package undo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/fleetview"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/undo/history"
)

// maxShownFields of a change are listed, and maxUserBytes of its user's name are kept.
const (
	maxShownFields = 5
	maxUserBytes   = 256
)

// capture is what a request is about to change of one object.
type capture struct {
	change  history.Change
	content []byte
}

// captures of one request, by object. A request that is tried again replaces its capture.
type captures struct {
	mu       sync.Mutex
	byObject map[atoll.ItemKey]*capture
	bytes    int
	// dropped changes are beyond what a request may hold, the first of them of firstDropped.
	dropped      int
	firstDropped atoll.ItemKey
}

// isFull reports whether the request holds all that a namespace may keep.
func (c *captures) isFull() bool {
	return len(c.byObject) >= history.MaxNamespaceChanges || c.bytes >= history.MaxNamespaceBytes
}

// reserveCapture reports whether the request may hold the capture of one more object, and counts a refused one.
func (c *captures) reserveCapture(key atoll.ItemKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isFull() {
		if c.dropped++; c.dropped == 1 {
			c.firstDropped = key
		}
		return false
	}
	return true
}

func (c *captures) setCapture(key atoll.ItemKey, one *capture) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.byObject[key]; old != nil {
		c.bytes -= len(old.content)
		delete(c.byObject, key)
	}
	if one == nil {
		return
	}
	if c.byObject == nil {
		c.byObject = map[atoll.ItemKey]*capture{}
	}
	c.byObject[key] = one
	c.bytes += len(one.content)
}

// countDropped returns the number of changes that the request could not hold, and the object of the first one.
func (c *captures) countDropped() (n int, first atoll.ItemKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dropped, c.firstDropped
}

// takeAll returns the captures, once.
func (c *captures) takeAll() (out []*capture) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.byObject {
		out = append(out, one)
	}
	c.byObject = nil
	return out
}

type capturesKey struct{}

// Handles implements admission.Interface.
func (k *Keeper) Handles(op admission.Operation) bool { return op != admission.Connect }

// Validate implements admission.ValidationInterface. It admits everything.
func (k *Keeper) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	c, ok := ctx.Value(capturesKey{}).(*captures)
	if !ok || a.IsDryRun() || k.options.Own(a.GetUserInfo()) || fleetview.IsMemberWrite(ctx) || k.readWindow() == 0 {
		return nil
	}
	if a.GetOperation() == admission.Delete && isKept(a) && !c.reserveCapture(keyOf(a, a.GetName())) {
		return nil
	}
	one, key, err := k.captureChange(a, o)
	if err != nil {
		k.noteNotKept(key, 1, err)
	}
	if key.Kind != "" {
		c.setCapture(key, one)
	}
	return nil
}

// captureChange returns what the request changes; nil: nothing that is kept. The key is empty where the request is
// about no object that is kept.
func (k *Keeper) captureChange(a admission.Attributes, o admission.ObjectInterfaces) (*capture, atoll.ItemKey, error) {
	switch {
	case a.GetSubresource() == "scale" && a.GetOperation() == admission.Update:
		return k.captureScale(a)
	case a.GetSubresource() != "":
		return nil, atoll.ItemKey{}, nil
	case a.GetOperation() == admission.Create:
		return k.captureCreation(a)
	}
	return k.captureWrite(a, o)
}

// captureWrite returns what an update or a deletion changes.
func (k *Keeper) captureWrite(a admission.Attributes, o admission.ObjectInterfaces) (*capture, atoll.ItemKey, error) {
	old, err := meta.Accessor(a.GetOldObject())
	if err != nil {
		return nil, atoll.ItemKey{}, nil
	}
	key := keyOf(a, old.GetName())
	if !isKept(a) {
		return nil, key, nil
	}
	before, err := convertToDocument(a.GetOldObject(), a, o)
	if err != nil {
		return nil, key, err
	}
	content := history.Content{Object: history.ExtractContent(before)}
	operation := history.Deleted
	if a.GetOperation() == admission.Update {
		operation = history.Edited
		after, err := convertToDocument(a.GetObject(), a, o)
		if err != nil {
			return nil, key, err
		}
		if content.Changed = history.CompareFields(content.Object, history.ExtractContent(after)); content.Changed == nil {
			return nil, key, nil
		}
	}
	one, err := k.newCapture(a, key, &content, before)
	if err != nil {
		return nil, key, err
	}
	one.change.Operation, one.change.Revision, one.change.UID = operation, old.GetResourceVersion(), string(old.GetUID())
	return one, key, nil
}

// newCapture returns the capture of a content, but for its operation and revision.
func (k *Keeper) newCapture(a admission.Attributes, key atoll.ItemKey, content *history.Content, before map[string]any) (*capture, error) {
	if m, ok := before["metadata"].(map[string]any); ok {
		content.ManagedFields, _ = m["managedFields"].([]any)
	}
	raw, err := history.EncodeContent(content)
	if err != nil {
		return nil, err
	}
	one := &capture{content: raw, change: history.Change{
		Object: key, Resource: a.GetResource().Resource, NamespaceUID: k.namespaceUID(key.Namespace), At: time.Now().UTC(),
		By: phrase.TruncateText(a.GetUserInfo().GetName(), maxUserBytes),
	}}
	one.change.Fields, one.change.MoreFields = history.FirstPaths(content.Changed, maxShownFields)
	return one, nil
}

// captureCreation returns the creation of an object whose deletion is kept; nil: it is not kept.
func (k *Keeper) captureCreation(a admission.Attributes) (*capture, atoll.ItemKey, error) {
	obj, err := meta.Accessor(a.GetObject())
	if err != nil || obj.GetName() == "" {
		return nil, atoll.ItemKey{}, nil
	}
	key := keyOf(a, obj.GetName())
	last := k.lastChange(key)
	if last == nil || last.Operation != history.Deleted {
		return nil, key, nil
	}
	one, err := k.newCapture(a, key, &history.Content{}, nil)
	if err != nil {
		return nil, key, err
	}
	one.change.Operation, one.change.Revision = history.Created, followingRevision(last.Revision)
	return one, key, nil
}

// followingRevision returns the revision of a creation: the object had none between its deletion and its creation.
func followingRevision(revision string) string {
	n, err := strconv.ParseUint(revision, 10, 64)
	if err != nil {
		return revision + "+"
	}
	return strconv.FormatUint(n+1, 10)
}

// scaledKinds are the kinds that are scaled by spec.replicas.
var scaledKinds = map[string]atoll.ItemKey{
	"deployments.apps":        {Group: "apps", Kind: "Deployment"},
	"statefulsets.apps":       {Group: "apps", Kind: "StatefulSet"},
	"replicasets.apps":        {Group: "apps", Kind: "ReplicaSet"},
	"replicationcontrollers.": {Kind: "ReplicationController"},
}

// captureScale returns what a request for the scale of an object changes. Such a request has no former content:
// the hub's table has the object at the same resourceVersion, unless it was changed in this moment.
func (k *Keeper) captureScale(a admission.Attributes) (*capture, atoll.ItemKey, error) {
	key, ok := scaledKinds[a.GetResource().Resource+"."+a.GetResource().Group]
	scale, err := meta.Accessor(a.GetOldObject())
	hub := k.currentHub()
	if !ok || err != nil || hub == nil {
		return nil, atoll.ItemKey{}, nil
	}
	key.Namespace, key.Name = a.GetNamespace(), a.GetName()
	obj, ok := hub.tables.Templates.Get(key)
	switch {
	case !ok || obj.GetResourceVersion() != scale.GetResourceVersion():
		return nil, key, errors.New("the object was changed in this moment, too")
	case !hasFinalizer(obj):
		return nil, key, nil
	}
	content := &history.Content{Object: history.ExtractContent(obj.Object), Changed: history.Fields{"spec": {"replicas": nil}}}
	one, err := k.newCapture(a, key, content, obj.Object)
	if err != nil {
		return nil, key, err
	}
	one.change.Operation, one.change.Revision, one.change.UID = history.Edited, obj.GetResourceVersion(), string(obj.GetUID())
	return one, key, nil
}

// keyOf returns the key of the object that a request is about. A deletion of many objects names none.
func keyOf(a admission.Attributes, name string) atoll.ItemKey {
	key := atoll.ItemKey{Group: a.GetKind().Group, Kind: a.GetKind().Kind, Namespace: a.GetNamespace(), Name: name}
	if key.IsNamespace() {
		key.Namespace = "" // a request names it twice
	}
	return key
}

// placingKinds are the kinds by which people place objects and change them.
var placingKinds = map[string]bool{
	v1alpha1.SourcePropagationPolicy: true, v1alpha1.SourceClusterPropagationPolicy: true, "OverridePolicy": true, "ClusterOverridePolicy": true,
	"Placement": true, "ClusterPlacement": true, v1alpha1.KindRolloutStrategy: true, v1alpha1.KindClusterRolloutStrategy: true,
}

// isKept reports whether changes of the object are kept: it is placed before or after the request, or places others.
// An object that is being deleted is not.
func isKept(a admission.Attributes) bool {
	if old, err := meta.Accessor(a.GetOldObject()); err != nil || old.GetDeletionTimestamp() != nil {
		return false
	}
	if gk := a.GetKind().GroupKind(); gk.Group == v1alpha1.GroupVersion.Group {
		return placingKinds[gk.Kind]
	}
	return hasFinalizer(a.GetOldObject()) || hasFinalizer(a.GetObject())
}

// hasFinalizer reports whether an object is placed.
func hasFinalizer(obj runtime.Object) bool {
	m, err := meta.Accessor(obj)
	return err == nil && slices.Contains(m.GetFinalizers(), atoll.Finalizer)
}

// convertToDocument returns an object in the version of the request. It shares values with the object.
func convertToDocument(obj runtime.Object, a admission.Attributes, o admission.ObjectInterfaces) (map[string]any, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return u.Object, nil
	}
	gvk := a.GetKind()
	versioned, err := o.GetObjectConvertor().ConvertToVersion(obj, gvk.GroupVersion())
	if err != nil {
		return nil, err
	}
	doc, err := runtime.DefaultUnstructuredConverter.ToUnstructured(versioned)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: doc}
	u.SetGroupVersionKind(gvk)
	return u.Object, nil
}

// idOf returns the name under which a change is kept. Only one request at one revision of an object succeeds.
func idOf(c *capture) string {
	sum := sha256.Sum256([]byte(c.change.Object.String() + "\x00" + c.change.NamespaceUID + "\x00" + c.change.UID + "\x00" + c.change.Revision + "\x00" + string(c.change.Operation)))
	return "undo-" + hex.EncodeToString(sum[:16])
}
