package view

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

	"atoll.dev/atoll/internal/live"
)

// objects is storage of a kind, to which people see added what runs in members.
type objects struct {
	*genericregistry.Store
	fleet      *Fleet
	kind       kind
	short      []string
	categories []string
}

// ShortNames of the resource.
func (o *objects) ShortNames() []string { return o.short }

// Categories of the resource.
func (o *objects) Categories() []string { return o.categories }

// hubs tells whether the hub itself asks. Who is not known is no person.
func (f *Fleet) hubs(ctx context.Context) bool {
	u, ok := request.UserFrom(ctx)
	return !ok || f.o.Own(u)
}

// Get an object: the stored one, or one that runs in a member.
func (o *objects) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	stored, err := o.Store.Get(ctx, name, options)
	if !apierrors.IsNotFound(err) || o.fleet.hubs(ctx) {
		if err == nil && !o.fleet.hubs(ctx) {
			o.standingOf(ctx, stored).over(stored)
		}
		return stored, err
	}
	namespace := request.NamespaceValue(ctx)
	m, object, ok := o.fleet.of(namespace, name)
	if !ok {
		return nil, err
	}
	obj, failed := o.fleet.get(ctx, m, o.kind, namespace, object)
	if apierrors.IsNotFound(failed) {
		return nil, err
	}
	return obj, failed
}

// get an object of a member, as it is shown.
func (f *Fleet) get(ctx context.Context, m *member, k kind, namespace, name string) (runtime.Object, error) {
	obj, err := f.read(ctx, m, k.at(namespace, name), nil)
	if err != nil {
		return nil, err
	}
	o, err := meta.Accessor(obj)
	if err != nil || o.GetNamespace() != namespace || o.GetName() != name {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("cluster %s: its agent answers with something else than was asked for", m.Name))
	}
	return m.show(k, obj, o)
}

// scope of a list or watch: of the hub's store alone, or of members too.
func (o *objects) scope(ctx context.Context, options *internalversion.ListOptions) (s live.Selection, stored bool) {
	if options != nil {
		s = live.Select(options.LabelSelector, options.FieldSelector)
	}
	if o.fleet.hubs(ctx) {
		return s, true
	}
	name := s.Named()
	if name == "" {
		return s, false
	}
	_, _, shown := o.fleet.of(request.NamespaceValue(ctx), name)
	return s, !shown
}

// List what is stored, and what runs in members.
func (o *objects) List(ctx context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	selected, stored := o.scope(ctx, options)
	if stored {
		if err := storedVersion(ctx, o.fleet, options); err != nil {
			return nil, err
		}
		return o.Store.List(ctx, options)
	}
	if options == nil {
		options = &internalversion.ListOptions{}
	}
	if options.Continue != "" {
		return nil, expired("lists of what runs in clusters are not continued; list again")
	}
	if v := options.ResourceVersion; v != "" && v != "0" {
		if _, ok := o.fleet.history.Find(o.kind.resource, v); !ok {
			return nil, errExpired
		}
	}
	got, err := o.gather(ctx, options, selected)
	if err != nil {
		return nil, err
	}
	got.warn(ctx, o.kind.resource)
	list := o.NewListFunc()
	if err := meta.SetList(list, got.objects); err != nil {
		return nil, fmt.Errorf("make a list of %s: %w", o.kind.resource, err)
	}
	of, err := meta.ListAccessor(list)
	if err != nil {
		return nil, fmt.Errorf("make a list of %s: %w", o.kind.resource, err)
	}
	of.SetResourceVersion(o.fleet.history.Listed(o.kind.resource, got.at, time.Now()))
	return list, nil
}

// storedVersion refuses a version of what is shown where only what is stored is asked for.
func storedVersion(ctx context.Context, f *Fleet, options *internalversion.ListOptions) error {
	if options != nil && live.Ours(options.ResourceVersion) && !f.hubs(ctx) {
		return errExpired
	}
	return nil
}

var errExpired = expired("the resource version is of an earlier start of this hub, of another hub, or too old; list again")

func expired(why string) error { return apierrors.NewResourceExpired(why) }

// gathered is what is stored and what members have, by namespace and name.
type gathered struct {
	objects []runtime.Object
	at      live.Versions
	missing []error
	// running names a cluster in which something was found.
	running string
}

// gather from the store and all members at once.
func (o *objects) gather(ctx context.Context, options *internalversion.ListOptions, s live.Selection) (gathered, error) {
	namespace := request.NamespaceValue(ctx)
	got := gathered{at: live.Versions{}}
	members, err := o.fleet.members(namespace, s)
	if err != nil {
		return got, err
	}
	here := *options
	here.Limit, here.ResourceVersion, here.ResourceVersionMatch = 0, "", ""
	here.Watch, here.SendInitialEvents, here.AllowWatchBookmarks = false, nil, false
	stored, err := o.Store.List(ctx, &here)
	if err != nil {
		return got, err
	}
	if got.objects, err = meta.ExtractList(stored); err != nil {
		return got, fmt.Errorf("read the list of %s: %w", o.kind.resource, err)
	}
	of, err := meta.ListAccessor(stored)
	if err != nil {
		return got, fmt.Errorf("read the list of %s: %w", o.kind.resource, err)
	}
	got.at[""] = of.GetResourceVersion()
	matches := o.selects(options)
	var mu sync.Mutex
	stand := standings{}
	o.fleet.all(members, func(m *member) {
		objects, version, err := o.fleet.list(ctx, m, o.kind, namespace, s, func(obj runtime.Object, of metav1.Object) (runtime.Object, error) {
			if !m.shows(of.GetNamespace()) {
				return nil, nil
			}
			if m.template(o.kind, of) {
				there, err := o.kind.internal(obj, o.kind.new())
				mu.Lock()
				defer mu.Unlock()
				stand.put(m.Name, there)
				return nil, err
			}
			return m.show(o.kind, obj, of)
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
	stand.overAll(got.objects)
	slices.SortFunc(got.objects, byName)
	return got, nil
}

// all members are asked, many at once.
func (f *Fleet) all(members []*member, ask func(*member)) {
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

// selects tells what a request selects, of what is shown.
func (o *objects) selects(options *internalversion.ListOptions) func(runtime.Object) bool {
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

func byName(a, b runtime.Object) int {
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

// namedMost members are named in a warning.
const namedMost = 10

// warn of members that are missing.
func (g gathered) warn(ctx context.Context, resource string) {
	if len(g.missing) == 0 {
		return
	}
	why := make([]string, len(g.missing))
	for i, err := range g.missing {
		why[i] = err.Error()
	}
	slices.Sort(why)
	for _, text := range why[:min(len(why), namedMost)] {
		warning.AddWarning(ctx, "", resource+" are missing here: "+text)
	}
	if more := len(why) - namedMost; more > 0 {
		warning.AddWarning(ctx, "", fmt.Sprintf("%s of %d more clusters are missing here: atoll get clusters shows which are away", resource, more))
	}
}
