package live

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/atoll"
)

// Records hold what Atoll applied in the member.
type Records interface {
	// AppliedUID gives the UID of the object that is recorded under a key, empty while it is
	// not known; false where none is.
	AppliedUID(key atoll.ItemKey) (uid string, ok bool)
	// ClaimTemplateNames gives the names of the volume claim templates of a recorded StatefulSet.
	ClaimTemplateNames(key atoll.ItemKey) []string
	// NamespacesWithRecords in which something is recorded, in no order.
	NamespacesWithRecords() []string
}

// ownershipState is whose an object is.
type ownershipState int

const (
	foreign ownershipState = iota // not placed
	placed
	pending // its owner is recorded, but not yet, or not any more, with this UID
	lost    // its owner is gone, and with it the reference to what Atoll applied
)

const (
	// deepest chain of controllers that is followed.
	deepest = 6
	// oneByOne is up to how many owners of one kind are requested each by itself.
	oneByOne = 4
	// pageSize of lists.
	pageSize = 500
)

// objectRef is a reference to an object in a namespace.
type objectRef struct {
	gvk             schema.GroupVersionKind
	namespace, name string
	uid             types.UID
}

func (r objectRef) itemKey() atoll.ItemKey {
	return atoll.ItemKey{Group: r.gvk.Group, Kind: r.gvk.Kind, Namespace: r.namespace, Name: r.name}
}

// objectIdentity is the identity of an object. A writer in the member can name any UID as an owner's, or an Event's
// object: it counts with kind, namespace and name.
type objectIdentity struct {
	key atoll.ItemKey
	uid types.UID
}

func (r objectRef) toIdentity() objectIdentity { return objectIdentity{r.itemKey(), r.uid} }

// controllerRef returns the controller of an object, nil where it has none.
func controllerRef(m metav1.Object) *objectRef {
	c := metav1.GetControllerOfNoCopy(m)
	if c == nil {
		return nil
	}
	return &objectRef{schema.FromAPIVersionAndKind(c.APIVersion, c.Kind), m.GetNamespace(), c.Name, c.UID}
}

// ownerChainStart is where a chain of owners begins: what an Event is about, or the object itself, whose
// controller is known then.
func ownerChainStart(gvk schema.GroupVersionKind, m metav1.Object) (at objectRef, known bool) {
	if e, ok := m.(*corev1.Event); ok {
		o := e.InvolvedObject
		return objectRef{schema.FromAPIVersionAndKind(o.APIVersion, o.Kind), o.Namespace, o.Name, o.UID}, false
	}
	return objectRef{gvk, m.GetNamespace(), m.GetName(), m.GetUID()}, true
}

// ownershipResolver has the owners of objects, as they were found in one request. Not for concurrent use.
type ownershipResolver struct {
	client  *member.Client
	records Records
	// above are the controllers of objects that were read, nil where one has none.
	above map[objectIdentity]*objectRef
	// claimTemplates are the names of the claim templates of StatefulSets that were read.
	claimTemplates map[atoll.ItemKey][]string
	// whole are kinds of which all were read: what was not among them is gone.
	whole map[namespacedKind]bool
	// grown is called after each page of metadata that is read. Its error ends the reading; nil: it is not
	// called.
	grown func() error
}

func newOwnershipResolver(c *member.Client, r Records) *ownershipResolver {
	return &ownershipResolver{client: c, records: r, above: map[objectIdentity]*objectRef{}, claimTemplates: map[atoll.ItemKey][]string{}, whole: map[namespacedKind]bool{}}
}

// ownershipOf returns the ownership of an object: whose it is.
func (o *ownershipResolver) ownershipOf(ctx context.Context, gvk schema.GroupVersionKind, m metav1.Object) (ownershipState, error) {
	at, known := ownerChainStart(gvk, m)
	if known {
		o.above[at.toIdentity()] = o.controllerOf(gvk, m)
	}
	return o.resolveByControllerChain(ctx, at)
}

// resolveByControllerChain follows the chain from an object on.
func (o *ownershipResolver) resolveByControllerChain(ctx context.Context, at objectRef) (ownershipState, error) {
	for range deepest {
		if w := o.recordedOwnership(at); w != foreign {
			return w, nil
		}
		up, read := o.above[at.toIdentity()]
		if !read {
			var err error
			if up, err = o.readController(ctx, at); err != nil {
				if apierrors.IsNotFound(err) {
					return lost, nil
				}
				return foreign, err
			}
		}
		if up == nil {
			return foreign, nil
		}
		at = *up
	}
	return foreign, nil
}

// recordedOwnership reports whether Atoll applied exactly that object.
func (o *ownershipResolver) recordedOwnership(at objectRef) ownershipState {
	key := at.itemKey()
	uid, ok := o.records.AppliedUID(key)
	if !ok && key.Namespace != "" { // an owner may be in no namespace
		key.Namespace = ""
		uid, ok = o.records.AppliedUID(key)
	}
	switch {
	case !ok || at.uid == "":
		return foreign
	case uid == string(at.uid):
		return placed
	}
	return pending
}

// dropControllerChain removes an object's controller, and the objects that it controls.
func (o *ownershipResolver) dropControllerChain(gvk schema.GroupVersionKind, m metav1.Object) {
	at, _ := ownerChainStart(gvk, m)
	for range deepest {
		up := o.above[at.toIdentity()]
		delete(o.above, at.toIdentity())
		if up == nil {
			return
		}
		at = *up
	}
}

var errGone = apierrors.NewNotFound(schema.GroupResource{}, "")

// readController returns an object's controller: NotFound where the object is gone, nil where the member
// serves no such kind.
func (o *ownershipResolver) readController(ctx context.Context, at objectRef) (*objectRef, error) {
	res, ok := o.client.APIs().LookupKind(at.gvk)
	if !ok || at.uid == "" {
		return nil, nil
	}
	if o.whole[namespacedKind{at.gvk, at.namespace}] {
		return nil, errGone
	}
	namespace := at.namespace
	if !res.Namespaced {
		namespace = ""
	}
	m, err := o.client.GetMetadata(ctx, res, namespace, at.name)
	switch {
	case apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, err
	case m.UID != at.uid:
		return nil, errGone
	}
	o.above[at.toIdentity()] = o.controllerOf(at.gvk, m)
	return o.above[at.toIdentity()], nil
}

// prefetchOwners prepares the lookups for objects of a list: owners of which many are not known are read
// together.
func (o *ownershipResolver) prefetchOwners(ctx context.Context, gvk schema.GroupVersionKind, objects []metav1.Object) error {
	for range deepest {
		missing := map[namespacedKind]map[objectIdentity]bool{}
		for _, m := range objects {
			if at, ok := o.firstUnknownOwner(gvk, m); ok {
				in := namespacedKind{at.gvk, at.namespace}
				if missing[in] == nil {
					missing[in] = map[objectIdentity]bool{}
				}
				missing[in][at.toIdentity()] = true
			}
		}
		read := false
		for in, owners := range missing {
			if len(owners) > oneByOne {
				grown, err := o.readAllControllers(ctx, in)
				if err != nil {
					return err
				}
				read = read || grown
			}
		}
		if !read {
			return nil
		}
	}
	return nil
}

type namespacedKind struct {
	gvk       schema.GroupVersionKind
	namespace string
}

// firstUnknownOwner returns the first object of a chain whose controller must be read.
func (o *ownershipResolver) firstUnknownOwner(gvk schema.GroupVersionKind, m metav1.Object) (objectRef, bool) {
	at, known := ownerChainStart(gvk, m)
	if known {
		o.above[at.toIdentity()] = o.controllerOf(gvk, m)
	}
	for range deepest {
		if at.uid == "" || o.recordedOwnership(at) != foreign {
			return objectRef{}, false
		}
		up, read := o.above[at.toIdentity()]
		if !read {
			return at, true
		}
		if up == nil {
			return objectRef{}, false
		}
		at = *up
	}
	return objectRef{}, false
}

// readAllControllers reads all controllers of a kind in a namespace. It returns false where that added
// nothing.
func (o *ownershipResolver) readAllControllers(ctx context.Context, in namespacedKind) (bool, error) {
	res, ok := o.client.APIs().LookupKind(in.gvk)
	if !ok || !res.Namespaced || !res.Listable {
		return false, nil
	}
	before := len(o.above)
	err := o.forEachMetadata(ctx, res, in.namespace, metav1.ListOptions{}, func(m *metav1.PartialObjectMetadata) {
		o.above[objectRef{in.gvk, m.Namespace, m.Name, m.UID}.toIdentity()] = o.controllerOf(in.gvk, m)
	})
	if apierrors.IsForbidden(err) {
		return false, nil
	}
	o.whole[in] = err == nil
	return len(o.above) > before, err
}

// forEachMetadata visits the metadata of the objects of a resource, page by page.
func (o *ownershipResolver) forEachMetadata(ctx context.Context, res member.Resource, namespace string, options metav1.ListOptions, each func(*metav1.PartialObjectMetadata)) error {
	options.Limit = pageSize
	for {
		page, err := o.metadataPage(ctx, res, namespace, options)
		if err != nil {
			return err
		}
		for i := range page.Items {
			each(&page.Items[i])
		}
		if o.grown != nil {
			if err := o.grown(); err != nil {
				return err
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return nil
		}
	}
}

// pageTimeout ends the reading of one page.
const pageTimeout = 30 * time.Second

func (o *ownershipResolver) metadataPage(ctx context.Context, res member.Resource, namespace string, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	list, err := o.client.MetadataClient().Resource(res.GroupVersionResource).Namespace(namespace).List(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("read the owners of what runs: %w", err)
	}
	return list, nil
}
