package server

import (
	"context"
	"errors"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"atoll.dev/atoll/internal/fleetview"
)

// memberObject is an object in a member, as a request names it.
type memberObject struct {
	*member
	own string // its name there
	// by is how it is shown: by its own name where the request has that.
	by fleetview.FleetSelection
}

// isFoundByOwnName reports whether an object of the kind is found by the name that it has in its
// cluster, too.
func (k kind) isFoundByOwnName() bool { return k.resource == "pods" }

// mayNameMemberObject reports whether a name may be that of an object in a member.
func (o *objectStorage) mayNameMemberObject(namespace, name string) bool {
	if o.kind.isFoundByOwnName() && namespace != "" {
		return true
	}
	_, _, full := o.fleet.memberOfName(namespace, name)
	return full
}

// findMemberObject returns the object in a member to which a name leads that no stored object has; nil
// where it cannot lead to one. A full name leads to its cluster without a question there. An own
// name leads to the one cluster that has it. The error is NotFound where none has it.
func (o *objectStorage) findMemberObject(ctx context.Context, name string, acts bool) (*memberObject, error) {
	namespace := request.NamespaceValue(ctx)
	if m, own, full := o.fleet.memberOfName(namespace, name); full {
		return &memberObject{member: m, own: own}, nil
	}
	if !o.mayNameMemberObject(namespace, name) {
		return nil, nil
	}
	found, err := o.fleet.lookUpOwnName(ctx, o.kind, namespace, name, fleetview.FleetSelection{})
	if err != nil {
		return nil, err
	}
	cluster, err := found.Resolve(namespace, name, acts)
	if err != nil {
		return nil, err
	}
	m, own, still := o.fleet.memberOfName(namespace, fleetview.FullName(name, cluster))
	if !still {
		return nil, apierrors.NewNotFound(o.DefaultQualifiedResource, name)
	}
	warnOfOtherHolders(ctx, name, found)
	return &memberObject{member: m, own: own, by: fleetview.FleetSelection{}.ByOwnName(cluster)}, nil
}

// warnOfOtherHolders warns of clusters that may have a pod of a name too.
func warnOfOtherHolders(ctx context.Context, name string, found fleetview.PodLookup) {
	if text := found.Warning(name); text != "" {
		warning.AddWarning(ctx, "", text)
	}
}

// lookUpOwnName requests an object by its own name from the selected members with rows in a
// namespace. Those with a template from which the name may come are first, and the others follow
// only where none of these has it. Never more than atOnce get a request.
func (f *Fleet) lookUpOwnName(ctx context.Context, k kind, namespace, name string, among fleetview.FleetSelection) (found fleetview.PodLookup, err error) {
	t, err := f.hubTables()
	if err != nil {
		return found, err
	}
	members, err := f.membersFor(namespace, among)
	if err != nil {
		return found, err
	}
	likely := t.ClustersLikelyHolding(namespace, func(template string) bool { return fleetview.MayOwnPodByName(template, name) })
	first := slices.DeleteFunc(slices.Clone(members), func(m *member) bool { return !likely[m.Name] })
	others := slices.DeleteFunc(members, func(m *member) bool { return likely[m.Name] })
	asked := 0
	for _, some := range [][]*member{first, others} {
		if asked += len(some); asked > atOnce {
			found.Unasked = len(some)
			return found, nil
		}
		if err := f.requestByName(ctx, some, k, namespace, name, &found); err != nil || len(found.Holders) > 0 {
			return found, err
		}
	}
	return found, nil
}

// requestByName requests an object from members, and adds their answers. A full limit of the user is an
// error: the request can be made again.
func (f *Fleet) requestByName(ctx context.Context, members []*member, k kind, namespace, name string, found *fleetview.PodLookup) (failed error) {
	var mu sync.Mutex
	f.forEachMember(members, func(m *member) {
		controlled, err := f.isControlledInMember(ctx, m, k, namespace, name)
		mu.Lock()
		defer mu.Unlock()
		var full crowdedError
		switch {
		case err == nil && !controlled:
		case err == nil:
			found.Holders = append(found.Holders, m.Name)
		case apierrors.IsNotFound(err):
		case errors.As(err, &full):
			failed = full.StatusError
		default:
			found.Unknown = append(found.Unknown, err)
		}
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	return failed
}

// isControlledInMember reports whether a member has an object that something controls. A Pod without a
// controller was a template: its own name is free for another template, and applies to no member.
func (f *Fleet) isControlledInMember(ctx context.Context, m *member, k kind, namespace, name string) (bool, error) {
	ctx, over := context.WithCancel(ctx) // with which the memory of the answer is returned
	defer over()
	obj, err := f.getMemberObject(ctx, m, k, namespace, name)
	if err != nil {
		return false, err
	}
	o, err := meta.Accessor(obj)
	return err == nil && metav1.GetControllerOfNoCopy(o) != nil, err
}

// getFromMember returns an object in a member, by the name of the request.
func (o *objectStorage) getFromMember(ctx context.Context, at *memberObject) (runtime.Object, error) {
	return o.fleet.getSelectedMemberObject(ctx, at.member, o.kind, request.NamespaceValue(ctx), at.own, at.by)
}

// narrowToOwnName returns the scope of a list or watch of one name, which is no full name. It is of
// the one cluster that has an object of this name, and of the store alone where none has or where
// the object is stored. A watch goes on in the cluster of its list: what the cluster has deleted
// since is not found there any more.
func (o *objectStorage) narrowToOwnName(ctx context.Context, s listRequest, name string) (listRequest, error) {
	stored, err := o.needsOnlyStore(ctx, s.options.ResourceVersion, name)
	switch goesOn := fleetview.IsHistoryVersion(s.options.ResourceVersion); {
	case err != nil:
		return s, err
	case stored && goesOn:
		return s, errExpired
	case stored:
		s.stored = true
		return s, nil
	case goesOn:
		return o.resumeWatchByOwnName(s)
	}
	return o.narrowToHolder(ctx, s, name)
}

// needsOnlyStore reports whether a list or watch of one name, which is no full name, is of stored
// objects alone: also where it goes on from such a list.
func (o *objectStorage) needsOnlyStore(ctx context.Context, version, name string) (bool, error) {
	goesOnStored := version != "" && version != "0" && !fleetview.IsHistoryVersion(version)
	if goesOnStored || !o.mayNameMemberObject(request.NamespaceValue(ctx), name) {
		return true, nil
	}
	_, err := o.Store.Get(ctx, name, &metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return true, err
}

// narrowToHolder returns the scope of a list or watch that begins, by the name that a pod has in its
// cluster.
func (o *objectStorage) narrowToHolder(ctx context.Context, s listRequest, name string) (listRequest, error) {
	namespace := request.NamespaceValue(ctx)
	found, err := o.fleet.lookUpOwnName(ctx, o.kind, namespace, name, fleetview.SelectionOf(s.options.LabelSelector, nil))
	if err == nil && s.complete {
		err = gatheredObjects{missing: found.IncompleteReasons()}.incompleteError(o.kind.resource)
	}
	if err != nil {
		return s, err
	}
	cluster, err := found.Resolve(namespace, name, false)
	switch {
	case apierrors.IsNotFound(err):
		s.stored = true
	case err != nil:
		return s, err
	default:
		s.selected = s.selected.ByOwnName(cluster)
	}
	warnOfOtherHolders(ctx, name, found)
	return s, nil
}

// resumeWatchByOwnName returns the scope of a watch that goes on from a list of one cluster.
func (o *objectStorage) resumeWatchByOwnName(s listRequest) (listRequest, error) {
	at, _ := o.fleet.history.Find(o.kind.resource, s.options.ResourceVersion)
	delete(at, "")
	if len(at) != 1 {
		return s, errExpired
	}
	for cluster := range at {
		s.selected = s.selected.ByOwnName(cluster)
	}
	return s, nil
}
