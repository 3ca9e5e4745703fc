package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/warning"

	"atoll.dev/atoll/internal/fleetview"
)

// objectStorage is storage of a kind, to which people see added what runs in members.
type objectStorage struct {
	*genericregistry.Store
	fleet      *Fleet
	kind       kind
	short      []string
	categories []string
}

// ShortNames returns the short names of the resource.
func (o *objectStorage) ShortNames() []string { return o.short }

// Categories returns the categories of the resource.
func (o *objectStorage) Categories() []string { return o.categories }

// isHubIdentity reports whether the hub itself makes the request. An unknown user is not a person.
func (f *Fleet) isHubIdentity(ctx context.Context) bool {
	u, ok := request.UserFrom(ctx)
	return !ok || f.o.Own(u)
}

// Get returns an object: the stored one, or one that runs in a member.
func (o *objectStorage) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	stored, err := o.Store.Get(ctx, name, options)
	if !apierrors.IsNotFound(err) || o.fleet.isHubIdentity(ctx) {
		if err == nil && !o.fleet.isHubIdentity(ctx) {
			o.fetchPodStatuses(ctx, stored).overlayStatus(stored)
		}
		return stored, err
	}
	at, failed := o.findMemberObject(ctx, name, false)
	if failed != nil {
		return nil, failed
	}
	if at == nil {
		if past, failed := o.findHistoryObject(ctx, name); past != nil || failed != nil {
			return past, failed
		}
		return nil, err
	}
	obj, failed := o.getFromMember(ctx, at)
	if apierrors.IsNotFound(failed) {
		return nil, err
	}
	return obj, failed
}

// checkMemberHas reports whether a member has an object: nil, or NotFound. The answer is not held for the
// rest of the request, which may be a log that is followed for days.
func (f *Fleet) checkMemberHas(ctx context.Context, m *member, k kind, namespace, name string) error {
	ctx, over := context.WithCancel(ctx)
	defer over()
	_, err := f.getMemberObject(ctx, m, k, namespace, name)
	return err
}

// getMemberObject returns an object of a member, as it is shown.
func (f *Fleet) getMemberObject(ctx context.Context, m *member, k kind, namespace, name string) (runtime.Object, error) {
	return f.getSelectedMemberObject(ctx, m, k, namespace, name, fleetview.FleetSelection{})
}

// getSelectedMemberObject returns an object of a member, as a selection shows it.
func (f *Fleet) getSelectedMemberObject(ctx context.Context, m *member, k kind, namespace, name string, by fleetview.FleetSelection) (runtime.Object, error) {
	obj, err := f.read(ctx, m, k.memberPath(namespace, name), nil)
	if err != nil {
		return nil, err
	}
	o, err := meta.Accessor(obj)
	if err != nil || o.GetNamespace() != namespace || o.GetName() != name {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("cluster %s: its agent answers with something else than was requested", m.Name))
	}
	return m.convertToShown(k, obj, o, by)
}

// listRequest is what a list or watch is of.
type listRequest struct {
	// options of it, with nothing in them that is for the hub itself.
	options  *internalversion.ListOptions
	selected fleetview.FleetSelection
	stored   bool // it is of the hub's store alone
	complete bool // nothing may be missing
}

// parseListRequest returns the scope of a request. A request for stored objects alone has no version
// of the members' objects.
func (o *objectStorage) parseListRequest(ctx context.Context, options *internalversion.ListOptions) (s listRequest, err error) {
	if o.fleet.isHubIdentity(ctx) {
		return listRequest{options: options, stored: true}, nil
	}
	if s.options, s.complete, err = parseCompleteOption(options); err != nil {
		return s, err
	}
	if s.options == nil {
		s.options = &internalversion.ListOptions{}
	}
	s.selected = fleetview.SelectionOf(s.options.LabelSelector, s.options.FieldSelector)
	if name := s.selected.SingleName(); name != "" {
		if _, _, full := o.fleet.memberOfName(request.NamespaceValue(ctx), name); !full {
			return o.narrowToOwnName(ctx, s, name)
		}
	}
	return s, nil
}

// List lists what is stored, and what runs in members.
func (o *objectStorage) List(ctx context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	s, err := o.parseListRequest(ctx, options)
	if err != nil {
		return nil, err
	}
	if options = s.options; s.stored {
		return o.Store.List(ctx, options)
	}
	if options.Continue != "" {
		return nil, expiredError("lists of what runs in clusters are not continued; list again")
	}
	if v := options.ResourceVersion; v != "" && v != "0" {
		if _, ok := o.fleet.history.Find(o.kind.resource, v); !ok {
			return nil, errExpired
		}
	}
	got, err := o.gatherWithWarnings(ctx, s)
	if err != nil {
		return nil, err
	}
	if got.objects, err = o.addWorkloadHistory(ctx, s, got.objects); err != nil {
		return nil, err
	}
	list := o.NewListFunc()
	if err := meta.SetList(list, got.objects); err != nil {
		return nil, fmt.Errorf("make a list of %s: %w", o.kind.resource, err)
	}
	of, err := meta.ListAccessor(list)
	if err != nil {
		return nil, fmt.Errorf("make a list of %s: %w", o.kind.resource, err)
	}
	of.SetResourceVersion(o.fleet.history.RecordList(o.kind.resource, got.at, time.Now()))
	return list, nil
}

var errExpired = expiredError("the resource version is of an earlier start of this hub, of another hub, or too old; list again")

func expiredError(why string) error { return apierrors.NewResourceExpired(why) }

// gatheredObjects is what is stored and what members have, by namespace and name.
type gatheredObjects struct {
	objects []runtime.Object
	at      fleetview.Versions
	missing []error
	// running names a cluster in which something was found.
	running string
}

// gatherWithWarnings gathers a list, or the beginning of a watch, and warns its user of missing members.
func (o *objectStorage) gatherWithWarnings(ctx context.Context, s listRequest) (gatheredObjects, error) {
	got, err := o.gatherAll(ctx, s.options, s.selected)
	if err == nil && s.complete {
		err = got.incompleteError(o.kind.resource)
	}
	if err == nil {
		got.warnMissing(ctx, o.kind.resource)
	}
	return got, err
}

// gatherAll gathers from the store and all members at once.
func (o *objectStorage) gatherAll(ctx context.Context, options *internalversion.ListOptions, s fleetview.FleetSelection) (gatheredObjects, error) {
	namespace := request.NamespaceValue(ctx)
	ctx, _ = o.fleet.withMemoryReservation(ctx)
	got := gatheredObjects{at: fleetview.Versions{}}
	members, err := o.fleet.membersFor(namespace, s)
	if err != nil {
		return got, err
	}
	if got.objects, got.at[""], err = o.listStored(ctx, options); err != nil {
		return got, err
	}
	matches := o.requestFilter(options)
	var mu sync.Mutex
	stand := podStatuses{}
	o.fleet.forEachMember(members, func(m *member) {
		objects, version, err := o.listMember(ctx, m, s, func(template runtime.Object) {
			mu.Lock()
			defer mu.Unlock()
			stand.put(m.Name, template)
		})
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			got.missing = append(got.missing, err)
			return
		}
		got.at[m.Name] = version
		for _, obj := range objects {
			if matches(obj) {
				got.objects, got.running = append(got.objects, obj), m.Name
			}
		}
	})
	if err := ctx.Err(); err != nil {
		return got, err
	}
	stand.overlayAll(got.objects)
	slices.SortFunc(got.objects, compareByName)
	return got, nil
}

// listStored lists what the hub stores, and returns its version.
func (o *objectStorage) listStored(ctx context.Context, options *internalversion.ListOptions) (objects []runtime.Object, version string, err error) {
	here := *options
	here.Limit, here.ResourceVersion, here.ResourceVersionMatch = 0, "", ""
	here.Watch, here.SendInitialEvents, here.AllowWatchBookmarks = false, nil, false
	stored, err := o.Store.List(ctx, &here)
	if err != nil {
		return nil, "", err
	}
	if objects, err = meta.ExtractList(stored); err != nil {
		return nil, "", fmt.Errorf("read the list of %s: %w", o.kind.resource, err)
	}
	of, err := meta.ListAccessor(stored)
	if err != nil {
		return nil, "", fmt.Errorf("read the list of %s: %w", o.kind.resource, err)
	}
	return objects, of.GetResourceVersion(), nil
}

// listMember lists what a member shows, and calls put with the state of each template there. The
// version is empty where something was left out of a list of all namespaces. It may be that this hub
// has not read yet that something is placed there. A watch that goes on from there gets all again,
// and that too, or ends once it is known.
func (o *objectStorage) listMember(ctx context.Context, m *member, s fleetview.FleetSelection, put func(template runtime.Object)) (objects []runtime.Object, version string, err error) {
	namespace, unknown := request.NamespaceValue(ctx), false
	objects, version, err = o.fleet.list(ctx, m, o.kind, namespace, s, func(obj runtime.Object, of metav1.Object) (runtime.Object, error) {
		if ns := of.GetNamespace(); !m.isTrustedIn(ns) && (namespace != "" || !o.fleet.clusterHasRowsInNamespace(ns, m.Name)) {
			unknown = unknown || namespace == ""
			return nil, nil
		}
		if m.isTemplate(o.kind, of) {
			there, err := o.kind.toInternal(obj, o.kind.newObject())
			put(there)
			return nil, err
		}
		return m.convertToShown(o.kind, obj, of, s)
	})
	if unknown {
		version = ""
	}
	return objects, version, err
}

// forEachMember calls the function for all members at once, within the limit of parallel requests.
func (f *Fleet) forEachMember(members []*member, ask func(*member)) {
	slots := make(chan struct{}, atOnce)
	var running sync.WaitGroup
	for _, m := range members {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			ask(m)
		})
	}
	running.Wait()
}

// requestFilter returns what a request selects, of what is shown.
func (o *objectStorage) requestFilter(options *internalversion.ListOptions) func(runtime.Object) bool {
	p := o.PredicateFunc(labelsOf(options), fieldsOf(options))
	return func(obj runtime.Object) bool {
		ok, err := p.Matches(obj)
		return err == nil && ok
	}
}

func labelsOf(options *internalversion.ListOptions) labels.Selector {
	if options == nil || options.LabelSelector == nil {
		return labels.Everything()
	}
	return options.LabelSelector
}

func fieldsOf(options *internalversion.ListOptions) fields.Selector {
	if options == nil || options.FieldSelector == nil {
		return fields.Everything()
	}
	return options.FieldSelector
}

func compareByName(a, b runtime.Object) int {
	x, xerr := meta.Accessor(a)
	y, yerr := meta.Accessor(b)
	if xerr != nil || yerr != nil {
		return 0
	}
	if c := strings.Compare(x.GetNamespace(), y.GetNamespace()); c != 0 {
		return c
	}
	return strings.Compare(x.GetName(), y.GetName())
}

// missingReasons returns why members are missing, sorted.
func (g gatheredObjects) missingReasons() []string {
	why := make([]string, len(g.missing))
	for i, err := range g.missing {
		why[i] = err.Error()
	}
	slices.Sort(why)
	return why
}

// namedMost members are named in a warning.
const namedMost = 10

// warnMissing warns of members that are missing.
func (g gatheredObjects) warnMissing(ctx context.Context, resource string) {
	if len(g.missing) == 0 {
		return
	}
	why := g.missingReasons()
	for _, text := range why[:min(len(why), namedMost)] {
		warning.AddWarning(ctx, "", resource+" are missing here: "+text)
	}
	if more := len(why) - namedMost; more > 0 {
		warning.AddWarning(ctx, "", fmt.Sprintf("%s of %d more clusters are missing here: atoll get clusters shows which are away", resource, more))
	}
}
