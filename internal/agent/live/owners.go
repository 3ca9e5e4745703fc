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

// Records tell what Atoll applied in the member.
type Records interface {
	// Applied gives the UID of the object that is recorded under a key, empty while it is
	// not known; false where none is.
	Applied(key atoll.ItemKey) (uid string, ok bool)
	// Namespaces in which something is recorded, in no order.
	Namespaces() []string
}

// whose an object is.
type whose int

const (
	foreign whose = iota // nobody placed it
	placed
	pending // its owner is recorded, but not yet, or not any more, with this UID
	lost    // its owner is gone, and so is what would tell
)

const (
	// deepest chain of controllers that is followed.
	deepest = 6
	// oneByOne is up to how many owners of one kind are asked for each by itself.
	oneByOne = 4
	// pageSize of lists.
	pageSize = 500
)

// ref to an object in a namespace.
type ref struct {
	gvk             schema.GroupVersionKind
	namespace, name string
	uid             types.UID
}

func (r ref) key() atoll.ItemKey {
	return atoll.ItemKey{Group: r.gvk.Group, Kind: r.gvk.Kind, Namespace: r.namespace, Name: r.name}
}

// identity of an object. Whoever can write in the member can name any UID as that of an
// owner, or of what an Event is about: it counts with the kind, namespace and name alone.
type identity struct {
	key atoll.ItemKey
	uid types.UID
}

func (r ref) identity() identity { return identity{r.key(), r.uid} }

// controller of an object, nil where it has none.
func controller(m metav1.Object) *ref {
	c := metav1.GetControllerOfNoCopy(m)
	if c == nil {
		return nil
	}
	return &ref{schema.FromAPIVersionAndKind(c.APIVersion, c.Kind), m.GetNamespace(), c.Name, c.UID}
}

// start is what is asked about first: what an Event is about, or the object itself, whose
// controller is known then.
func start(gvk schema.GroupVersionKind, m metav1.Object) (at ref, known bool) {
	if e, ok := m.(*corev1.Event); ok {
		o := e.InvolvedObject
		return ref{schema.FromAPIVersionAndKind(o.APIVersion, o.Kind), o.Namespace, o.Name, o.UID}, false
	}
	return ref{gvk, m.GetNamespace(), m.GetName(), m.GetUID()}, true
}

// owners of objects, as they were found in one request. Not for concurrent use.
type owners struct {
	client  *member.Client
	records Records
	// above are the controllers of objects that were read, nil where one has none.
	above map[identity]*ref
	// whole are kinds of which all were read: what was not among them is gone.
	whole map[kindIn]bool
}

func newOwners(c *member.Client, r Records) *owners {
	return &owners{client: c, records: r, above: map[identity]*ref{}, whole: map[kindIn]bool{}}
}

// of an object: whose it is.
func (o *owners) of(ctx context.Context, gvk schema.GroupVersionKind, m metav1.Object) (whose, error) {
	at, known := start(gvk, m)
	if known {
		o.above[at.identity()] = controller(m)
	}
	return o.follow(ctx, at)
}

// follow the chain from an object on.
func (o *owners) follow(ctx context.Context, at ref) (whose, error) {
	for range deepest {
		if w := o.recorded(at); w != foreign {
			return w, nil
		}
		up, read := o.above[at.identity()]
		if !read {
			var err error
			if up, err = o.read(ctx, at); err != nil {
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

// recorded tells whether Atoll applied that very object.
func (o *owners) recorded(at ref) whose {
	key := at.key()
	uid, ok := o.records.Applied(key)
	if !ok && key.Namespace != "" { // an owner may be in no namespace
		key.Namespace = ""
		uid, ok = o.records.Applied(key)
	}
	switch {
	case !ok || at.uid == "":
		return foreign
	case uid == string(at.uid):
		return placed
	}
	return pending
}

// forget who controls an object, and what controls it.
func (o *owners) forget(gvk schema.GroupVersionKind, m metav1.Object) {
	at, _ := start(gvk, m)
	for range deepest {
		up := o.above[at.identity()]
		delete(o.above, at.identity())
		if up == nil {
			return
		}
		at = *up
	}
}

var errGone = apierrors.NewNotFound(schema.GroupResource{}, "")

// read who controls an object; NotFound where it is gone, nil where the member does not
// say more of its kind.
func (o *owners) read(ctx context.Context, at ref) (*ref, error) {
	res, ok := o.client.APIs().Lookup(at.gvk)
	if !ok || at.uid == "" {
		return nil, nil
	}
	if o.whole[kindIn{at.gvk, at.namespace}] {
		return nil, errGone
	}
	namespace := at.namespace
	if !res.Namespaced {
		namespace = ""
	}
	m, err := o.client.Meta(ctx, res, namespace, at.name)
	switch {
	case apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, err
	case m.UID != at.uid:
		return nil, errGone
	}
	o.above[at.identity()] = controller(m)
	return o.above[at.identity()], nil
}

// prepare to be asked for objects of a list: owners of which many are not known are read
// together.
func (o *owners) prepare(ctx context.Context, gvk schema.GroupVersionKind, objects []metav1.Object) error {
	for range deepest {
		missing := map[kindIn]map[identity]bool{}
		for _, m := range objects {
			if at, ok := o.unknown(gvk, m); ok {
				in := kindIn{at.gvk, at.namespace}
				if missing[in] == nil {
					missing[in] = map[identity]bool{}
				}
				missing[in][at.identity()] = true
			}
		}
		read := false
		for in, owners := range missing {
			if len(owners) > oneByOne {
				grown, err := o.readAll(ctx, in)
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

type kindIn struct {
	gvk       schema.GroupVersionKind
	namespace string
}

// unknown gives the first object of a chain of which must be read who controls it.
func (o *owners) unknown(gvk schema.GroupVersionKind, m metav1.Object) (ref, bool) {
	at, known := start(gvk, m)
	if known {
		o.above[at.identity()] = controller(m)
	}
	for range deepest {
		if at.uid == "" || o.recorded(at) != foreign {
			return ref{}, false
		}
		up, read := o.above[at.identity()]
		if !read {
			return at, true
		}
		if up == nil {
			return ref{}, false
		}
		at = *up
	}
	return ref{}, false
}

// readAll controllers of a kind in a namespace; false where that told nothing new.
func (o *owners) readAll(ctx context.Context, in kindIn) (bool, error) {
	res, ok := o.client.APIs().Lookup(in.gvk)
	if !ok || !res.Namespaced || !res.Listable {
		return false, nil
	}
	before := len(o.above)
	err := o.metadata(ctx, res, in.namespace, metav1.ListOptions{}, func(m *metav1.PartialObjectMetadata) {
		o.above[ref{in.gvk, m.Namespace, m.Name, m.UID}.identity()] = controller(m)
	})
	if apierrors.IsForbidden(err) {
		return false, nil
	}
	o.whole[in] = err == nil
	return len(o.above) > before, err
}

// metadata of the objects of a resource, page by page.
func (o *owners) metadata(ctx context.Context, res member.Resource, namespace string, options metav1.ListOptions, each func(*metav1.PartialObjectMetadata)) error {
	options.Limit = pageSize
	for {
		page, err := o.page(ctx, res, namespace, options)
		if err != nil {
			return err
		}
		for i := range page.Items {
			each(&page.Items[i])
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return nil
		}
	}
}

// pageTimeout ends the reading of one page.
const pageTimeout = 30 * time.Second

func (o *owners) page(ctx context.Context, res member.Resource, namespace string, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	list, err := o.client.Metadata().Resource(res.GroupVersionResource).Namespace(namespace).List(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("read the owners of what runs: %w", err)
	}
	return list, nil
}
