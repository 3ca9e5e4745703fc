package binder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bundlecontent"
	"atoll.dev/atoll/internal/kinds/script"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/reconcile"
	"atoll.dev/atoll/internal/state"
)

var bundleResource = schema.GroupResource{Group: "atoll.dev", Resource: "bundles"}

// failWrites makes writes of Bundles, and of their conditions, fail with an error by their verb.
func failWrites(b *Binder, fails map[string]error) {
	b.Client = fake.NewClientBuilder().WithScheme(b.Client.Scheme()).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			o.SetUID("new")
			return fails["create"]
		},
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
			return fails["update"]
		},
		Delete: func(_ context.Context, _ client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			var all client.DeleteOptions
			all.ApplyOptions(opts)
			if p := all.Preconditions; p == nil || p.UID == nil || *p.UID != o.GetUID() || p.ResourceVersion == nil || *p.ResourceVersion != o.GetResourceVersion() {
				return errors.New("the deletion names no UID and version")
			}
			return fails["delete"]
		},
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			return fails["status"]
		},
	}).Build()
}

// An error of a write ends the reconcile with what was written before it. The time of the first change stays until
// all is written.
func TestAFailedWriteEndsTheReconcile(t *testing.T) {
	away, id := errors.New("the store is away"), policymatch.BundleID{Namespace: "shop", Name: "web"}
	exists := apierrors.NewAlreadyExists(bundleResource, "web")
	for what, tc := range map[string]struct {
		fails  map[string]error
		exists bool
		change func(l *fakeTables, b *Binder)
		is     error
		says   string
	}{
		"nothing fails":           {nil, false, nil, nil, ""},
		"the Bundle is not made":  {map[string]error{"create": away}, false, nil, away, "make bundle shop/web: "},
		"another one made it":     {map[string]error{"create": exists}, false, nil, errPlanStale, "make bundle shop/web: "},
		"its spec is not written": {map[string]error{"update": away}, true, nil, away, "write bundle shop/web: "},
		"its condition is not":    {map[string]error{"status": away}, true, func(l *fakeTables, _ *Binder) { breakDeployment(l, "web") }, away, "write the condition of bundle shop/web: "},
		"its Revision is not":     {nil, true, func(l *fakeTables, b *Binder) { b.Revisions = unwritableRevisions{fakeRevisions{nil, l}, away} }, away, ""},
		"its content is not read": {nil, true, func(l *fakeTables, b *Binder) { b.Revisions = failingRevisions{fakeRevisions{nil, l}, away} }, away, "read the latest content of bundle shop/web: "},
		"a finalizer is not added": {nil, true, func(l *fakeTables, b *Binder) {
			for _, o := range l.templates {
				o.SetFinalizers(nil)
			}
			b.PutFinalizer = func(context.Context, *unstructured.Unstructured, string) (bool, error) { return false, away }
		}, away, "add the finalizer to apps/Deployment/shop/api: "},
	} {
		l, b, _ := newWritingBinder(t)
		if tc.exists {
			l.bundles[id] = state.Bundle{Ref: enginev1.BundleRef{UID: "b", Namespace: "shop", Name: "web"}, Meta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "b", ResourceVersion: "3"}}
			l.contents["b"] = &atoll.Content{}
		}
		failWrites(b, tc.fails)
		if tc.change != nil {
			tc.change(l, b)
		}
		b.touched.startWait(id, time.Unix(1, 0))
		again, err := b.reconcileBundle(t.Context(), id)
		if !errors.Is(err, tc.is) || (err == nil) != (tc.is == nil) || again != 0 || err != nil && !strings.HasPrefix(err.Error(), tc.says) {
			t.Errorf("%s: %v, again after %v; want %q and %v", what, err, again, tc.says, tc.is)
		}
		if waits := len(b.touched.pendingKeys()) == 1; waits != (tc.is != nil) {
			t.Errorf("%s: the first change is remembered %t", what, waits)
		}
	}
}

// breakDeployment makes a template that cannot be sent.
func breakDeployment(l *fakeTables, name string) {
	o := newDeployment("shop", name, randomText(1_500_000), 3)
	l.templates[policymatch.ItemKeyOf(o)] = o
}

// unwritableRevisions cannot be written.
type unwritableRevisions struct {
	fakeRevisions
	err error
}

func (x unwritableRevisions) CreateRevision(context.Context, enginev1.BundleRef, *atoll.Content) (string, error) {
	return "", x.err
}

// A Bundle that is being deleted, or whose namespace is, is left alone: its rows are removed, and its content stays.
func TestABundleThatIsBeingDeletedIsLeftAlone(t *testing.T) {
	id, now := policymatch.BundleID{Namespace: "shop", Name: "web"}, metav1.Now()
	for what, change := range map[string]func(l *fakeTables){
		"the namespace": func(l *fakeTables) { l.namespaces["shop"].DeletionTimestamp = &now },
		"the Bundle":    func(l *fakeTables) { l.bundles[id] = state.Bundle{Meta: metav1.ObjectMeta{DeletionTimestamp: &now}} },
	} {
		l, b, writes := newWritingBinder(t)
		change(l)
		b.touched.startWait(id, time.Unix(1, 0))
		if again, err := b.reconcileBundle(t.Context(), id); again != 0 || err != nil || len(*writes) > 0 || len(b.touched.pendingKeys()) > 0 {
			t.Errorf("%s: again after %v, %v; writes %v", what, again, err, *writes)
		}
	}
}

// A Bundle is made with a source that wants it only, keeps its spec when the source is gone, and goes with its last
// object and tombstone, unless a row is held.
func TestWhenABundleComesAndGoes(t *testing.T) {
	id := policymatch.BundleID{Namespace: "shop", Name: "web"}
	source := bundleOrigin{source: v1alpha1.BundleSource{Kind: policyKind, Name: "web"}, group: "g"}
	full := bundlecontent.Output{Content: atoll.Content{Items: []atoll.Item{{Key: newKey("Deployment", "web")}}}}
	buried := bundlecontent.Output{Content: atoll.Content{Tombstones: []atoll.Tombstone{{Key: newKey("Deployment", "web"), UID: "u"}}}}
	wants := &policymatch.Intent{Spec: v1alpha1.PropagationSpec{Placement: placementInClusters("oslo")}}
	for what, tc := range map[string]struct {
		exists bool
		output bundlecontent.Output
		intent *policymatch.Intent
		rows   []state.Row
		fails  error
		want   string
		is     error
	}{
		"a new one":                 {false, full, wants, nil, nil, "create bundle web", nil},
		"a new one without objects": {false, bundlecontent.Output{}, wants, nil, nil, "", nil},
		"a new one of no source":    {false, full, nil, nil, nil, "", errPlanStale},
		"another spec":              {true, full, wants, nil, nil, "update bundle web", nil},
		"the source is gone":        {true, full, nil, nil, nil, "", nil},
		"no object is left":         {true, bundlecontent.Output{}, nil, nil, nil, "delete bundle web", nil},
		"a tombstone is left":       {true, buried, nil, nil, nil, "", nil},
		"a row is held":             {true, bundlecontent.Output{}, nil, []state.Row{{Spec: atoll.RowSpec{Phase: atoll.RowActive}}, {Spec: atoll.RowSpec{Phase: atoll.RowHeld}}}, nil, "", nil},
		"a row is not held":         {true, bundlecontent.Output{}, nil, []state.Row{{Spec: atoll.RowSpec{Phase: atoll.RowRemoving}}}, nil, "delete bundle web", nil},
		"it is gone already":        {true, bundlecontent.Output{}, nil, nil, apierrors.NewNotFound(bundleResource, "web"), "delete bundle web", nil},
		"it has changed since":      {true, bundlecontent.Output{}, nil, nil, apierrors.NewConflict(bundleResource, "web", nil), "delete bundle web", apierrors.NewConflict(bundleResource, "web", nil)},
	} {
		_, b, _ := newWritingBinder(t)
		b.Rows = reportedRows{rows: map[string][]state.Row{"b": tc.rows}}
		var writes []string
		b.Client = fake.NewClientBuilder().WithScheme(b.Client.Scheme()).WithInterceptorFuncs(interceptor.Funcs{
			Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
				writes = append(writes, "create bundle "+o.GetName())
				return nil
			},
			Update: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.UpdateOption) error {
				writes = append(writes, "update bundle "+o.GetName())
				return nil
			},
			Delete: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.DeleteOption) error {
				writes = append(writes, "delete bundle "+o.GetName())
				return tc.fails
			},
		}).Build()
		bundle := state.Bundle{}
		if tc.exists {
			bundle = state.Bundle{Ref: enginev1.BundleRef{UID: "b", Namespace: "shop", Name: "web"}, Meta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "b"}}
		}
		err := b.applyPlan(t.Context(), id, bundle, tc.exists, bundlePlan{output: tc.output, origin: source, intent: tc.intent})
		if (err == nil) != (tc.is == nil) || errors.Is(tc.is, errPlanStale) != errors.Is(err, errPlanStale) || apierrors.IsConflict(tc.is) != apierrors.IsConflict(err) {
			t.Errorf("%s: %v, want %v", what, err, tc.is)
		}
		if got := strings.Join(writes, ", "); got != tc.want {
			t.Errorf("%s: writes %q, want %q", what, got, tc.want)
		}
	}
}

// A tombstone may go once every row has carried it out. Rows are read once for all tombstones of a plan.
func TestWhenATombstoneIsCarriedOut(t *testing.T) {
	_, b := newShopTables(t)
	done, open := atoll.Tombstone{Key: newKey("Secret", "a"), UID: "u"}, atoll.Tombstone{Key: newKey("Secret", "b"), UID: "v"}
	row := func(revision string, all bool, ids ...string) state.Row {
		return state.Row{Spec: atoll.RowSpec{Phase: atoll.RowActive, Revision: revision, Generation: 2}, Status: &atoll.RowStatus{Generation: 2, AllTombstonesDone: all, DoneTombstones: ids}}
	}
	for what, tc := range map[string]struct {
		rows       []state.Row
		done, open bool
	}{
		"no rows":                    {nil, true, true},
		"one of two is done":         {[]state.Row{row("old", false, done.ID())}, true, false},
		"all are done":               {[]state.Row{row("b-1-0", true)}, true, true},
		"all of another Revision":    {[]state.Row{row("old", true)}, false, false},
		"one row of two has it done": {[]state.Row{row("b-1-0", true), row("old", false, done.ID())}, true, false},
	} {
		rows := &countedRows{rows: tc.rows}
		b.Rows = rows
		is := b.tombstoneCarriedOutCheck("b")
		if got, other := is(done), is(open); got != tc.done || other != tc.open || rows.reads != 1 {
			t.Errorf("%s: %t and %t, want %t and %t; rows are read %d times", what, got, other, tc.done, tc.open, rows.reads)
		}
	}
}

// A Bundle is in no cluster when each row is removed, or waits to be sent.
func TestWhenABundleIsInNoCluster(t *testing.T) {
	removed := &atoll.RowStatus{Generation: 2, State: atoll.RowRemoved}
	for what, tc := range map[string]struct {
		rows []atoll.RowSpec
		want bool
	}{
		"no rows":          {nil, true},
		"removed, pending": {[]atoll.RowSpec{{Phase: atoll.RowRemoving, Generation: 2}, {Phase: atoll.RowPending}}, true},
		"removing":         {[]atoll.RowSpec{{Phase: atoll.RowRemoving, Generation: 3}}, false},
		"one is held":      {[]atoll.RowSpec{{Phase: atoll.RowPending}, {Phase: atoll.RowHeld}}, false},
	} {
		_, b := newShopTables(t)
		rows := &countedRows{}
		for _, spec := range tc.rows {
			rows.rows = append(rows.rows, state.Row{Spec: spec, Status: removed})
		}
		if b.Rows = rows; b.isInNoCluster("b") != tc.want {
			t.Errorf("%s: want %t", what, tc.want)
		}
	}
}

// countedRows counts how often they are read.
type countedRows struct {
	Rows
	rows  []state.Row
	reads int
}

func (x *countedRows) ListOfBundle(string) []state.Row { x.reads++; return x.rows }

// A new content enqueues the Bundles that waited for it to take items over, and the status of its policy. Deletions of
// what it had are forgotten.
func TestANewContentIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, b := newShopTables(t)
		b.policyStatus = newPolicyStatusWriter(b)
		takeDue := recordPolicyQueue(t, b)
		var bound []policymatch.BundleID
		b.bundleQueue = reconcile.New(reconcile.Options[policymatch.BundleID]{Name: "test", Reconcile: func(_ context.Context, id policymatch.BundleID) (time.Duration, error) {
			bound = append(bound, id)
			return 0, nil
		}})
		b.bundleQueue.AcceptKeys()
		go b.bundleQueue.Run(t.Context(), nil)
		web, api := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}, newKey("ConfigMap", "own")
		old, id := policymatch.BundleID{Namespace: "shop", Name: "web"}, policymatch.BundleID{Namespace: "shop", Name: "next"}
		b.ownership.assignTemplate(web, id, bundleOrigin{source: v1alpha1.BundleSource{Kind: policyKind, Name: "next"}})
		gone, buried, still := newKey("Secret", "gone"), newKey("Secret", "buried"), newKey("Secret", "still")
		for _, key := range []atoll.ItemKey{gone, buried, still} {
			b.ownership.recordDeletion(key, "u")
		}
		previous := &atoll.Content{Items: []atoll.Item{{Key: gone}, {Key: still}}, Tombstones: []atoll.Tombstone{{Key: buried}}}
		b.ownership.setContent(id, "n", 1, previous)
		p := bundlePlan{
			origin: bundleOrigin{source: v1alpha1.BundleSource{Kind: policyKind, Name: "next"}},
			input:  bundlecontent.Input{Previous: previous, PreviousNumber: 4},
			output: bundlecontent.Output{Content: atoll.Content{Items: []atoll.Item{{Key: web}, {Key: api}, {Key: still}}, Rules: overridesOf("ClusterOverridePolicy/all").Rules}},
		}
		b.recordNewContent(id, "n", p)
		due := takeDue()
		slices.SortFunc(due, comparePolicies)
		if want := []PolicyKey{{kindClusterOverridePolicy, "", "all"}, {policyKind, "shop", "next"}}; !slices.Equal(due, want) {
			t.Errorf("statuses of %v, want %v", due, want)
		}
		if !slices.Equal(bound, []policymatch.BundleID{old}) {
			t.Errorf("%v are bound again", bound)
		}
		if got := b.ownership.ownItemArrivals(api); !slices.Equal(got, []itemArrival{{"n", 5}}) {
			t.Errorf("the new item came by %+v", got)
		}
		if b.ownership.wasDeleted(gone, "u") || b.ownership.wasDeleted(buried, "u") || !b.ownership.wasDeleted(still, "u") {
			t.Error("deletions of what the content had are remembered, or those of what it has are not")
		}
	})
}

// An override policy or an interpreter that came while the Revision was written touches the Bundle again.
func TestALateOverrideTouchesTheBundleAgain(t *testing.T) {
	cluster := func(name string) []*v1alpha1.ClusterOverridePolicy {
		return []*v1alpha1.ClusterOverridePolicy{{ObjectMeta: metav1.ObjectMeta{Name: name}}}
	}
	own := func(name string) []*v1alpha1.OverridePolicy {
		return []*v1alpha1.OverridePolicy{{ObjectMeta: metav1.ObjectMeta{Name: name}}}
	}
	for what, tc := range map[string]struct {
		namespace string
		after     overrideTable
		want      bool
	}{
		"a cluster override":          {"shop", overrideTable{all: cluster("o")}, true},
		"an override":                 {"shop", overrideTable{own: own("o")}, true},
		"an override of a namespace":  {"", overrideTable{own: own("o")}, false},
		"a cluster override for both": {"", overrideTable{all: cluster("o")}, true},
		"none":                        {"shop", overrideTable{}, false},
	} {
		l, b := newShopTables(t)
		tc.after.Overrides = fakePolicies{nil, nil, l}
		b.Overrides = tc.after
		if got := b.overridesOrInterpretersChangedSince(policymatch.BundleID{Namespace: tc.namespace, Name: "web"}, bundlecontent.Input{}); got != tc.want {
			t.Errorf("%s: changed %t, want %t", what, got, tc.want)
		}
	}
	l, b, _ := newWritingBinder(t)
	id := policymatch.BundleID{Namespace: "shop", Name: "web"}
	takeTouched := recordTouches(b)
	b.OnRevision = func(string, string, time.Time) { l.interpreters = script.NewLibrary(nil) }
	for i, want := range []string{"shop/web", ""} {
		if _, err := b.reconcileBundle(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if got := takeTouched(); got != want {
			t.Errorf("reconcile %d touches %q, want %q", i, got, want)
		}
	}
}

// A stale plan and a conflict are no failures: the change touches the Bundle again. Everything else is logged.
func TestAStalePlanIsNoFailure(t *testing.T) {
	for what, tc := range map[string]struct {
		err  error
		want int
	}{
		"a stale plan": {fmt.Errorf("add: %w", errPlanStale), 0},
		"a conflict":   {apierrors.NewConflict(bundleResource, "web", nil), 0},
		"another":      {errors.New("the store is away"), 1},
	} {
		log := &countedLog{Handler: slog.NewTextHandler(io.Discard, nil)}
		b := &Binder{Options: Options{Log: slog.New(log)}}
		if b.logFailure(policymatch.BundleID{Namespace: "shop", Name: "web"}, tc.err); log.errors != tc.want {
			t.Errorf("%s: %d errors are logged, want %d", what, log.errors, tc.want)
		}
	}
}
